"""The input space: the values that a site may take, and their ids in files.

A model knows `n_ids` values (for a language model, its tokens). A run with a table ``[space]``
samples only some of them. Inside the program these are numbered 0 to n_values - 1, so that no
kernel, draw or count can encounter another value. Files hold the model's own numbers, called ids.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray


class Space:
    """The values of a site.

    Parameters
    ----------
    n_ids : number of values that the model knows
    allowed : ids that a site may take, ascending; None means all
    """

    def __init__(
        self, n_ids: int, allowed: Sequence[int] | NDArray[np.integer[Any]] | None = None
    ) -> None:
        self.n_ids = n_ids
        self.allowed = None if allowed is None else np.asarray(allowed, dtype=np.int64)
        if self.allowed is not None:
            low, high = self.allowed[:1], self.allowed[-1:]
            if (np.diff(self.allowed) <= 0).any() or (low < 0).any() or (high >= n_ids).any():
                raise ValueError(f"its allowed values do not ascend from 0 to {n_ids - 1}")
            self._value_of = np.full(n_ids, -1, dtype=np.int64)
            self._value_of[self.allowed] = np.arange(len(self.allowed))

    @property
    def n_values(self) -> int:
        """Number of values that a site may take; D sites have n_values^D inputs."""
        return self.n_ids if self.allowed is None else len(self.allowed)

    @property
    def n_ids_if_some(self) -> int:
        """`n_ids` if a site may take only some of the values, else 0."""
        return 0 if self.allowed is None else self.n_ids

    def to_ids(self, x: NDArray[Any]) -> NDArray[Any]:
        """Return the ids of values, with the dtype of `x`."""
        return x if self.allowed is None else self.allowed[x].astype(x.dtype)

    def to_values(self, x: NDArray[Any]) -> NDArray[Any]:
        """Return the values of ids, int64, -1 if not allowed; `x` itself if all are allowed."""
        if self.allowed is None:
            return x
        inside = (x >= 0) & (x < self.n_ids)
        return np.where(inside, self._value_of[np.where(inside, x, 0)], -1)

    def same_as(self, other: Space) -> bool:
        """Return whether both allow the same values."""
        if self.allowed is None or other.allowed is None:
            return self.allowed is other.allowed and self.n_ids == other.n_ids
        return self.n_ids == other.n_ids and np.array_equal(self.allowed, other.allowed)
