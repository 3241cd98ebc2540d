"""How people see a model's inputs: as text or as pictures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
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
    prefix : the text that all inputs begin with; None without one
    note : how inputs are shown, for the user
    tokens : maps values, int64 [n, D], to the tokens of each input; None without a tokenizer
    canonical : maps values, int64 [n, D], to whether the tokenizer makes each input of its own
        text, bool [n]; None without a tokenizer that can encode
    """

    kind: Literal["text", "image"]
    show: Callable[[Values], Sequence[Any]]
    prefix: str | None
    note: str
    tokens: Callable[[Values], list[list[str]]] | None = None
    canonical: Callable[[Values], NDArray[np.bool_]] | None = None


def values_as_text(x_nd: Values) -> list[str]:
    """Return the values of each input, separated by blanks."""
    return [" ".join(map(str, x_d)) for x_d in x_nd.tolist()]
