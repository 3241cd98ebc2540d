"""A tokenizer whose four words would do harm where text is put into a page as it is."""

import json

WORDS = [
    "<script>window.injected = 1</script>",
    '"><img src=x onerror="window.injected = 2"></div></ul>',
    "write to ann.b@example.com or +1 (555) 123-4567, \u202egnp\u0000",
    "<style>* { display: none }</style><a href='https://example.com/'>&lt;</a>",
]


def write_model_folder(folder, words=WORDS):
    """Write what a language model's folder needs for its text to be shown."""
    folder.mkdir()
    config = {"model_type": "gpt2", "vocab_size": len(words), "architectures": ["GPT2LMHeadModel"]}
    (folder / "config.json").write_text(json.dumps(config))
    vocabulary = {word: i for i, word in enumerate(words)}
    tokenizer = {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": [],
        "normalizer": None, "pre_tokenizer": None, "post_processor": None, "decoder": None,
        "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": words[0]},
    }  # fmt: skip
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
