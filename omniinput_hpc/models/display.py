"""How people see a model's inputs: as text or as pictures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.int64]


@dataclass(frozen=True)
class Display:
    """How the inputs of a model are shown.

    Attributes
    ----------
    kind : "text" or "image"
    show : maps values, int64 [n, D], to n texts, or to n pictures, uint8 [h, w] or [h, w, 3]
    prefix : the text that all inputs begin with, without tokens that begin every text (``<s>``);
        None without one
    note : how inputs are shown, for the user
    tokens : maps values, int64 [n, D], to the tokens of each input; None without a tokenizer
    canonical : maps values, int64 [n, D], to whether the tokenizer makes each input of its own
        text, bool [n]; None without a tokenizer that can encode
    letters : maps values, int64 [n, D], to sequences of one letter per site; None unless every
        value stands for a letter
    """

    kind: Literal["text", "image"]
    show: Callable[[Values], Sequence[Any]]
    prefix: str | None
    note: str
    tokens: Callable[[Values], list[list[str]]] | None = None
    canonical: Callable[[Values], NDArray[np.bool_]] | None = None
    letters: Callable[[Values], list[str]] | None = None

    def until(self, end: int) -> Display:
        """Return how texts are shown that end with a value, whose token is only among `tokens`."""
        show, tokens, canonical = self.show, self.tokens, self.canonical
        return replace(
            self,
            show=lambda x: shown_until(show, x, lengths(x, end)),
            tokens=tokens and (lambda x: shown_until(tokens, x, [n + 1 for n in lengths(x, end)])),
            canonical=canonical
            and (lambda x: np.array(shown_until(canonical, x, lengths(x, end)), dtype=np.bool_)),
            letters=None,
        )


def letters_of(names: Sequence[str]) -> Callable[[Values], list[str]] | None:
    """Return `Display.letters` for the names of all values; None if they are not single letters.

    A gap (``-`` or ``.``) and a stop (``*``) count as letters, as in FASTA files.
    """
    if not all(len(name) == 1 and (name.isalpha() or name in "-.*") for name in names):
        return None
    return lambda x_nd: ["".join(names[v] for v in x_d) for x_d in x_nd.tolist()]


def values_as_text(x_nd: Values) -> list[str]:
    """Return the values of each input, separated by blanks."""
    return [" ".join(map(str, x_d)) for x_d in x_nd.tolist()]


def shown_until(show: Callable[[Any], Any], x_nd: Any, n: Sequence[int]) -> list[Any]:
    """Return what is shown of the first n values of each input."""
    found: list[Any] = [None] * len(n)
    for length in set(n):
        rows = [i for i, one in enumerate(n) if one == length]
        for i, shown in zip(rows, show(x_nd[rows, :length]), strict=True):
            found[i] = shown
    return found


def cut(x_nd: NDArray[Any], end: int) -> list[NDArray[Any]]:
    """Return the values of each input, [n, D], before its first `end`."""
    return [x_d[:n] for x_d, n in zip(x_nd, lengths(x_nd, end), strict=True)]


def lengths(x_nd: NDArray[Any], end: int) -> list[int]:
    """Return how many values stand before the first `end` in each input, [n, D]."""
    found = np.asarray(x_nd) == end
    n = np.where(found.any(axis=1), found.argmax(axis=1), found.shape[1])
    return [int(one) for one in n]
