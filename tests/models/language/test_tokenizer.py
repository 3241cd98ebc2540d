"""Tokenizers: ids are those of the files and of transformers, and so is what texts begin with."""

import json
import sys

import numpy as np
import pytest
from language_folders import WORDS, V, save_decoder, save_tokenizer, with_beginning
from tokenizers import pre_tokenizers
from transformers import AutoTokenizer, BertConfig, GPT2Config, RobertaConfig

from omniinput_hpc.annotation import tasks
from omniinput_hpc.annotation.judges import language
from omniinput_hpc.config import CausalLm, SequenceClassifier
from omniinput_hpc.errors import UserError
from omniinput_hpc.models.language import hf_folder, tokenizer

BYTES = sorted(pre_tokenizers.ByteLevel.alphabet())
NAMED = {"bos_token": "<|end|>", "eos_token": "<|im_end|>", "unk_token": "<|end|>"}


def put(folder, name, what):
    text = what if isinstance(what, str) else json.dumps(what)
    (folder / name).write_text(text, encoding="utf-8")


def bpe(folder):
    """GPT-2's files, with tokens that were added not in the order of their names."""
    GPT2Config(vocab_size=261).save_pretrained(folder)
    put(folder, "vocab.json", {token: i for i, token in enumerate([*BYTES, "<|end|>"])})
    put(folder, "merges.txt", "#version: 0.2\n")
    put(folder, "added_tokens.json", {"<|im_start|>": 258, "<|pad|>": 257, "<|im_end|>": 259})
    put(folder, "tokenizer_config.json", {"tokenizer_class": "GPT2Tokenizer", **NAMED})
    return ["<|im_start|>hi<|im_end|>", "a<|pad|> b"]


def wordpiece(folder):
    BertConfig(vocab_size=30).save_pretrained(folder)
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghijklmnopqrst", "##s", "##ed"]
    put(folder, "vocab.txt", "\n".join(words) + "\n")
    put(folder, "added_tokens.json", {"<y>": 28, "<x>": 27})
    return ["a b<y>ced", "[CLS] As"]


def declared(folder):
    """Added tokens in tokenizer_config.json, as newer versions write them."""
    texts = bpe(folder)
    (folder / "added_tokens.json").unlink()
    decoder = {
        str(i): {"content": token, "special": token != "<|pad|>"}
        for i, token in ((259, "<|im_end|>"), (257, "<|pad|>"), (258, "<|im_start|>"))
    }
    settings = {"tokenizer_class": "GPT2Tokenizer", **NAMED, "added_tokens_decoder": decoder}
    put(folder, "tokenizer_config.json", settings)
    return texts


@pytest.mark.parametrize("make", [bpe, wordpiece, declared])
def test_without_tokenizer_json_tokens_are_those_of_transformers(tmp_path, make):
    texts = make(tmp_path)
    ours, theirs = tokenizer.read(tmp_path), AutoTokenizer.from_pretrained(tmp_path)
    assert ours.ids == theirs.get_vocab()
    assert [ours.decode([i]) for i in ours.ids.values()] == [
        theirs.decode([i]) for i in ours.ids.values()
    ]
    for text in texts:
        assert ours.encode(text) == theirs(text, add_special_tokens=False).input_ids
    name = "<y>" if make is wordpiece else "<|pad|>"
    assert ours.id_of("any", name) == theirs.get_vocab()[name]


def test_tokens_that_transformers_makes_up_are_none(tmp_path):
    """A vocabulary of two letters gets [UNK], [CLS] and others with ids of its own."""
    BertConfig(vocab_size=30).save_pretrained(tmp_path)
    put(tmp_path, "vocab.txt", "a\nb\n")
    words = tokenizer.read(tmp_path)
    assert words.ids == {"a": 0, "b": 1} and words.encode("a b") == [0, 1]
    with pytest.raises(UserError, match=r"has no cls_token '\[CLS\]'"):
        words.id_of("cls_token", "[CLS]")
    with pytest.raises(UserError, match=r"'a z' .*\[UNK\]"):
        words.encode("a z")


def test_roberta_whose_settings_name_no_token_has_its_ends(tmp_path):
    ids = {"<s>": 0, "<pad>": 1, "</s>": 2, "<unk>": 3, "a": 4, "b": 5, "<mask>": 6}
    RobertaConfig(vocab_size=7).save_pretrained(tmp_path)
    put(tmp_path, "vocab.json", ids)
    put(tmp_path, "merges.txt", "#version: 0.2\n")
    assert hf_folder.frame(tmp_path, 7, tokenizer.read(tmp_path)) == ([0], [2])
    AutoTokenizer.from_pretrained(tmp_path).backend_tokenizer.save(str(tmp_path / "tokenizer.json"))
    assert hf_folder.frame(tmp_path, 7, tokenizer.read(tmp_path)) == ([0], [2])
    with pytest.raises(
        UserError, match=r"the tokens around a text: the token '</s>' \(2\) is not one"
    ):
        hf_folder.frame(tmp_path, 2, tokenizer.read(tmp_path))


def test_tokens_added_beside_a_tokenizer_json_are_read(tmp_path):
    save_tokenizer(tmp_path)
    put(tmp_path, "added_tokens.json", {"<b>": len(WORDS) + 1, "<a>": len(WORDS), "<far>": 99})
    words = tokenizer.read(tmp_path)
    assert words.encode("a<b><a>") == [2, len(WORDS) + 1, len(WORDS)]
    assert "<far>" not in words.ids  # its id would be another


def test_tokens_are_listed_with_their_boundaries(tmp_path):
    """Byte-level names are given as text, others as the tokenizer names them."""
    (tmp_path / "bpe").mkdir()
    bpe(tmp_path / "bpe")
    words = tokenizer.read(tmp_path / "bpe")
    ids = words.encode("a\n<|pad|> é")
    assert words.pieces([*ids, 999]) == ["a", "\n", "<|pad|>", " ", r"\xc3", r"\xa9", "999"]
    (tmp_path / "wordpiece").mkdir()
    wordpiece(tmp_path / "wordpiece")
    words = tokenizer.read(tmp_path / "wordpiece")
    assert words.pieces(words.encode("[CLS] as b")) == ["[CLS]", "a", "##s", "b"]


def test_a_classifiers_tokens_have_its_ends_and_its_text_has_not(tmp_path):
    wordpiece(tmp_path)
    options = SequenceClassifier(
        kind="sequence-classifier", path=str(tmp_path), length=4, target=1, output="logit"
    )
    how = hf_folder.display(options)
    x = np.array([[5, 26]])
    assert how.tokens(x) == [["[CLS]", "a", "##ed", "[SEP]"]]
    assert how.show(x) == ["aed"]


def test_without_a_tokenizer_there_are_no_tokens(tmp_path):
    folder = save_decoder("gpt2", tmp_path)
    (folder / "tokenizer.json").unlink()
    options = CausalLm(kind="causal-lm", path=str(folder), length=4)
    assert hf_folder.display(options).tokens is None


@pytest.mark.parametrize("missing", ["transformers", "sentencepiece"])
def test_what_cannot_be_read_here_is_shown_as_token_ids(tmp_path, missing, monkeypatch):
    folder = save_decoder("gpt2", tmp_path)
    (folder / "tokenizer.json").unlink()
    if missing == "transformers":
        bpe_files = {"vocab.json": {"a": 0, "b": 1}, "merges.txt": "#version: 0.2\n"}
        for name, what in bpe_files.items():
            put(folder, name, what)
    else:
        put(folder, "spiece.model", "made of protobuf")
    found = tokenizer.find_spec
    monkeypatch.setattr(tokenizer, "find_spec", lambda n: None if n == missing else found(n))
    options = CausalLm(kind="causal-lm", path=str(folder), length=4)
    how = hf_folder.display(options)
    assert how.show(np.array([[0, 1, 2, 28]])) == ["0 1 2 28"]
    assert missing in how.note and "writes a tokenizer.json" in how.note
    assert "transformers" not in sys.modules or hf_folder.preflight(options)["n_values"] == V
    with pytest.raises(
        UserError, match=f"needs a tokenizer in .* cannot be read without .*{missing}"
    ):
        hf_folder.preflight(options.model_copy(update={"prefix": "a"}))


def test_a_broken_list_of_tokens_is_bad_input(tmp_path):
    bpe(tmp_path)
    put(tmp_path, "vocab.json", "{")
    with pytest.raises(UserError, match="cannot be read"):
        tokenizer.read(tmp_path)


def test_what_texts_begin_with_is_what_transformers_puts_there(tmp_path):
    folder = save_decoder("llama", tmp_path)
    assert tokenizer.frame(tokenizer.read(folder))[0] == []
    s = with_beginning(folder, "<s>")
    assert tokenizer.frame(tokenizer.read(folder))[0] == [s]
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>"}
    for add in (False, True):  # the settings beside the file decide, by rules of transformers
        put(folder, "tokenizer_config.json", {**settings, "add_bos_token": add})
        theirs = AutoTokenizer.from_pretrained(folder).encode("a")
        assert tokenizer.frame(tokenizer.read(folder))[0] == ([s] if theirs[0] == s else [])
    with_beginning(folder, "<s>", "<end>")
    assert tokenizer.frame(tokenizer.read(folder))[0] == [s, 0]


@pytest.mark.parametrize(
    ("ids", "expected"),
    [([], [7, 8]), ([1], [7, 8, 1]), ([7, 8, 1], [7, 8, 1]), ([8, 1], [7, 8, 1]), ([7], [7, 8, 7])],
)
def test_a_beginning_is_put_there_once(ids, expected):
    whole, n = tokenizer.joined([7, 8], ids)
    assert whole == expected and n == len(ids) + 2 - len(expected)


def test_a_judges_prompt_has_the_beginning_once(tmp_path):
    folder = save_decoder("llama", tmp_path)
    s = with_beginning(folder, "<s>")

    def judge(template):
        return language.LanguageModelJudge(str(folder), template, ("a", "b"), "float32", "cpu")

    once, twice = judge("q {text} r"), judge("<s>q {text} r")
    assert once._head == twice._head and once._head[0] == s and once._head.count(s) == 1
    task = tasks.Task("t", text="abc")
    assert once.score([task]) == twice.score([task])
    assert not any("once" in note for note in once.notes())
    assert "the template begins with '<s>' (26), which the tokenizer also puts" in twice.notes()[0]


def test_a_judge_refuses_texts_and_prompts_of_tokens_that_its_model_lacks(tmp_path):
    folder = save_decoder("llama", tmp_path)
    save_tokenizer(folder, [*WORDS, *"0123"])  # "3" is token 29
    judge = language.LanguageModelJudge(str(folder), "q {text}", ("a", "b"), "float32", "cpu")
    assert len(judge.score([tasks.Task("t", text="a2")])) == 1
    with pytest.raises(UserError, match=r"task t: the token '3' \(29\)"):
        judge.score([tasks.Task("t", text="a3")])
    with pytest.raises(UserError, match=r"--template or --answers: the token '3' \(29\)"):
        language.LanguageModelJudge(str(folder), "3 {text}", ("a", "b"), "float32", "cpu")
