"""Arrays as bytes: the messages of ranks that agree on the shapes and types of what they send."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray


def packed(arrays: Iterable[NDArray[Any]]) -> NDArray[np.uint8]:
    """Return the bytes of some arrays, one after the other, uint8 [n]."""
    as_bytes = [np.ascontiguousarray(array).reshape(-1).view(np.uint8) for array in arrays]
    return np.concatenate(as_bytes) if as_bytes else np.empty(0, dtype=np.uint8)


class Message:
    """Reads a result of `packed`, array by array."""

    def __init__(self, data: NDArray[np.uint8]) -> None:
        self._data, self._read = data, 0

    def take(self, shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
        """Return a copy of the next array. Raises a ValueError if the message is too short."""
        kind = np.dtype(dtype)
        end = self._read + math.prod(shape) * kind.itemsize
        array = self._data[self._read : end].copy().view(kind).reshape(shape)
        self._read = end
        return array

    @property
    def left(self) -> int:
        """The number of bytes that were not read yet."""
        return len(self._data) - self._read
