"""Canonical token sequences: those that a tokenizer makes of their own text.

Many sequences of tokens have the same text; a tokenizer makes one of them, so that canonical
sequences stand for texts. x is canonical if encode(decode(x)) = x, without the special tokens that
a tokenizer puts around a text. Those inside x are read as what they are.

In byte pair encoding (BPE) a sequence is canonical if all pairs of neighbours are (Vieira et al.,
arXiv 2506.07956). Tokenizers that first split a text by a regular expression depend on more
context: a pair counts as possible here if some context makes it so. Importing this module does not
import torch.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from omniinput_hpc.errors import UserError
from omniinput_hpc.models.language.tokenizer import Vocabulary

LEFT = ("", "'", "'r", "'v", "!", "1", "11")
RIGHT = ("", "a", "l", "e", "!", "1", " ", "\n", "\N{CJK UNIFIED IDEOGRAPH-4E2D}")
"""Texts around a pair of tokens: a pair that is not canonical alone may be so in one of them.

They are what usual regular expressions look at: the end of blanks, 's and 're, groups of digits.
"""
DIGITS = [*map(str, range(10)), *(f"{number:02}" for number in range(100))]
"""Digits that may begin a group of up to three, as in Llama 3, with a token that ends it."""
SHORT = 2
"""Letters of a token that may be part of a contraction, as in 's."""


def is_canonical(words: Vocabulary, ids_nd: NDArray[np.integer[Any]]) -> NDArray[np.bool_]:
    """Return whether sequences of tokens, [n, D], are canonical, bool [n]."""
    rows = ids_nd.tolist()
    made = _encoded(words, [words.decode(row) for row in rows])
    return np.array([one == row for one, row in zip(made, rows, strict=True)], dtype=np.bool_)


def _encoded(words: Vocabulary, texts: Sequence[str]) -> list[list[int] | None]:
    """Return the tokens of each text; None: it has none, as the tokenizer lacks an unknown one."""
    backend = getattr(words.tokenizer, "backend_tokenizer", words.tokenizer)
    if hasattr(backend, "encode_batch_fast"):
        try:
            return [one.ids for one in backend.encode_batch_fast(texts, add_special_tokens=False)]
        except Exception:  # tokenizers raises a bare one if it lacks an unknown token
            return [_encoded_alone(words, text) for text in texts]
    return [_encoded_alone(words, text) for text in texts]


def _encoded_alone(words: Vocabulary, text: str) -> list[int] | None:
    try:
        return words.encode(text)
    except UserError:
        return None


def pairs_decide(words: Vocabulary) -> bool:
    """Return whether canonical pairs make a canonical sequence for certain.

    That is so for BPE over whole texts of bytes, without tokens that are found before it.
    """
    backend = getattr(words.tokenizer, "backend_tokenizer", words.tokenizer)
    found = json.loads(backend.to_str())
    model, before = found["model"], found["pre_tokenizer"] or {"type": "ByteLevel"}
    options = ("dropout", "ignore_merges", "byte_fallback", "continuing_subword_prefix",
               "end_of_word_suffix")  # fmt: skip
    return (
        model["type"] == "BPE"
        and not any(model.get(key) for key in options)
        and not found["added_tokens"]
        and found["normalizer"] is None
        and before["type"] == "ByteLevel"
        and not any(before.get(key) for key in ("use_regex", "add_prefix_space"))
    )


def possible_pairs(
    words: Vocabulary, tokens: NDArray[np.int64], texts: Sequence[bytes | None]
) -> NDArray[np.bool_]:
    """Return which tokens may follow each other in a canonical sequence, bool [V + 1, V].

    Parameters
    ----------
    tokens : int64 [V], their ids
    texts : of each token, in bytes; None: it stands for no text, and none may hold it

    Row V says which token may be the first.
    """
    n = len(tokens)
    some = [(v, text) for v, text in enumerate(texts) if text is not None]
    possible = np.zeros((n + 1, n), dtype=np.bool_)
    names = dict(zip(words.ids.values(), words.ids, strict=True))
    model = getattr(words.tokenizer, "backend_tokenizer", words.tokenizer).model
    in_context = not pairs_decide(words)
    for a, first in [*some, (n, b"")]:
        before = tokens[a : a + 1].tolist()
        pairs = [(b, _text(first + text)) for b, text in some]
        wanted = {b: [*before, int(tokens[b])] for b, _ in pairs}
        whole = [(b, text) for b, text in pairs if text is not None]
        made = _encoded(words, [text for _, text in whole])
        possible[a, [b for (b, _), ids in zip(whole, made, strict=True) if ids == wanted[b]]] = True
        for b, text in pairs:  # parts of characters
            if text is None and not words.special.intersection(wanted[b]):
                merged = model.tokenize("".join(names[i] for i in wanted[b]))
                possible[a, b] = [token.id for token in merged] == wanted[b]
        if in_context:
            left = [(b, text) for b, text in whole if not possible[a, b]]
            left = [(b, text) for b, text in left if _may_be_split(_text(first), text)]
            at = (*LEFT, *_begins_of_group(words, _text(first), before)) if before else ("",)
            possible[a, list(_possible_somewhere(words, left, wanted, at))] = True
    return possible


def automaton(
    words: Vocabulary, tokens: NDArray[np.int64], texts: Sequence[bytes | None]
) -> tuple[NDArray[np.int32], NDArray[np.bool_]]:
    """Return an automaton over values for the pairs of `possible_pairs`, as `Automaton` has it.

    Its state is the last token; tokens that the same ones may follow share a state.
    """
    possible = possible_pairs(words, tokens, texts)
    _, one_of, class_v = np.unique(
        np.packbits(possible[:-1], axis=1), axis=0, return_index=True, return_inverse=True
    )
    rows = possible[[len(tokens), *one_of]]  # state 0 is the beginning
    dead = len(rows)
    next_qv = np.where(rows, class_v.ravel() + 1, dead).astype(np.int32)
    return np.vstack([next_qv, np.full_like(next_qv[:1], dead)]), np.arange(dead + 1) < dead


def whole_characters() -> tuple[NDArray[np.int32], NDArray[np.bool_]]:
    """Return an automaton over bytes that accepts UTF-8: other bytes decode to another text."""
    steps = [  # from, first and last byte, to; states 1 to 3 expect as many bytes, 4 to 7 certain
        (0, 0x00, 0x7F, 0), (0, 0xC2, 0xDF, 1), (0, 0xE0, 0xE0, 4), (0, 0xE1, 0xEC, 2),
        (0, 0xED, 0xED, 5), (0, 0xEE, 0xEF, 2), (0, 0xF0, 0xF0, 6), (0, 0xF1, 0xF3, 3),
        (0, 0xF4, 0xF4, 7), (1, 0x80, 0xBF, 0), (2, 0x80, 0xBF, 1), (3, 0x80, 0xBF, 2),
        (4, 0xA0, 0xBF, 1), (5, 0x80, 0x9F, 1), (6, 0x90, 0xBF, 2), (7, 0x80, 0x8F, 2),
    ]  # fmt: skip
    next_qb = np.full((9, 256), 8, dtype=np.int32)
    for state, first, last, to in steps:
        next_qb[state, first : last + 1] = to
    return next_qb, np.arange(9) == 0


def _text(some: bytes) -> str | None:
    """Return bytes as text; None if they are not whole characters."""
    try:
        return some.decode()
    except UnicodeDecodeError:
        return None


def _may_be_split(first: str | None, text: str) -> bool:
    """Return whether a context might split a text after `first`: not within a word."""
    if first is None or len(first.strip()) <= SHORT:
        return True
    return not (first[-1].isalpha() and text[len(first) :][:1].isalpha())


def _begins_of_group(words: Vocabulary, text: str | None, wanted: list[int]) -> Iterator[str]:
    """Yield one digit and two digits before a token, `wanted`, of digits that keep it whole."""
    if not (text or "").isdecimal():
        return
    for some in (DIGITS[:10], DIGITS[10:]):
        made = zip(some, _encoded(words, [digits + str(text) for digits in some]), strict=True)
        yield from [digits for digits, ids in made if ids and ids[1:][-1:] == wanted][:1]


def _possible_somewhere(
    words: Vocabulary, left: list[tuple[int, str]], wanted: dict[int, list[int]], at: Sequence[str]
) -> Iterator[int]:
    """Yield the tokens b whose text with the one before, in `left`, is `wanted` in a context."""
    for before, after in product(at, RIGHT):
        made = _encoded(words, [before + text + after for _, text in left])
        pairs = list(zip(left, made, strict=True))
        found = {b for (b, _), ids in pairs if _holds(ids or [], wanted[b], not before)}
        yield from found
        left = [(b, text) for b, text in left if b not in found]


def _holds(ids: list[int], some: list[int], at_start: bool) -> bool:
    places = range(1) if at_start else range(1, len(ids))
    return any(ids[i : i + len(some)] == some for i in places)
