"""Notes for the user on a language model's tokens: values without one, and how texts begin.

The tokenizers of many models (Llama, Gemma, Mistral) put a token before every text. Such a model
has never seen a text without it, so its losses for such texts mean little. This module adds no
token: ``model.prefix`` defines how inputs begin, and the notes report what it leaves out.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from omniinput_hpc.config import CausalLm, Config
from omniinput_hpc.models.language import hf_folder, tokenizer
from omniinput_hpc.models.language.tokenizer import Vocabulary


@dataclass(frozen=True)
class Beginning:
    """The tokens with which a model's tokenizer begins every text.

    Attributes
    ----------
    ids : of these tokens
    name : in words
    prefix : ``model.prefix`` with these tokens: a text if that gives them, otherwise ids
    is_there : whether ``model.prefix`` begins with them already
    """

    ids: list[int]
    name: str
    prefix: str | list[int]
    is_there: bool


def lines(config: Config) -> list[str]:
    """Return the lines of `models.about_tokens`."""
    options = config.model
    assert isinstance(options, hf_folder.TextModel)
    folder = hf_folder.resolve(options.path)
    words = tokenizer.read(folder)
    if words is None:
        return []
    n_vocab = hf_folder.n_vocab_of(folder)
    tokens = hf_folder.tokens_of(options, folder, n_vocab, words)
    unnamed = hf_folder.about_unnamed(words, tokens, config.allowed)
    begins = beginning_of(options)
    left_out = begins is not None and not begins.is_there
    return [*filter(None, [unnamed]), *([about(begins)] if begins and left_out else [])]


def about(begins: Beginning) -> str:
    """Return the note that inputs lack the tokens which begin texts, and the remedy."""
    return (
        f"the tokenizer begins every text with {begins.name}, but these inputs lack it: the "
        f"model's losses for them may mean little; set model.prefix = {as_toml(begins.prefix)} to "
        "put it before every input"
    )


def beginning_of(options: hf_folder.TextModel) -> Beginning | None:
    """Return the tokens with which a decoder's tokenizer begins every text; None if there are none.

    It asks transformers, which imports torch. For other models it is None: they are there.
    """
    folder = hf_folder.resolve(options.path)
    words = tokenizer.read(folder)
    if words is None or not isinstance(options, CausalLm):
        return None
    ids = tokenizer.frame(words)[0]
    n_vocab = hf_folder.n_vocab_of(folder)
    if not ids or max(ids) >= n_vocab:
        return None
    before = hf_folder.prefix_ids(options, folder, n_vocab, words)
    joined, _ = tokenizer.joined(ids, before)
    name = " ".join(map(words.name_of, ids))
    prefix = _as_text(words, joined, ids, options.prefix)
    return Beginning(ids, name, joined if prefix is None else prefix, before[: len(ids)] == ids)


def _as_text(
    words: Vocabulary, joined: list[int], first: list[int], prefix: str | list[int] | None
) -> str | None:
    """Return the text that is tokenized to `joined`; None if none is known."""
    if isinstance(prefix, list):
        return None
    names = {i: token for token, i in words.ids.items()}
    text = "".join(names[i] for i in first) + (prefix or "")
    return text if words.encode(text) == joined else None


def as_toml(prefix: str | list[int]) -> str:
    """Return a prefix as it is written in an input file."""
    return json.dumps(prefix, ensure_ascii=False).replace("\x7f", "\\u007f")
