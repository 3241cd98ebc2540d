"""The inputs that a census has found: all are counted, those with the lowest z are kept."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from omniinput_hpc.histogram import bin_of


class Found:
    """Found inputs with their outputs; at most `limit` are kept, those with the lowest z.

    Attributes
    ----------
    edges : float64 [B + 1]
    count_b : int64 [B + 2], inputs per bin, then below and above the bins
    x, z : the kept inputs, unsigned integers [n, D], and their outputs, float32 [n]
    least_unlisted : the lowest z of an input that was not kept, or inf; all found inputs with a
        lower z are kept
    """

    def __init__(self, edges: NDArray[np.float64], x: NDArray[Any], limit: int) -> None:
        self.edges, self.limit = edges, limit
        self.count_b = np.zeros(len(edges) + 1, dtype=np.int64)
        self.x, self.z = x, np.zeros(len(x), dtype=np.float32)
        self.least_unlisted = np.inf

    def add(self, x: NDArray[Any], z: NDArray[np.float32]) -> None:
        """Add inputs [n, D] with outputs z, float32 [n]."""
        n_bins = len(self.edges) - 1
        index = bin_of(z.astype(np.float64), self.edges)
        index = np.where(index < 0, n_bins, np.where(index >= n_bins, n_bins + 1, index))
        self.count_b += np.bincount(index, minlength=n_bins + 2)
        some = z < self.least_unlisted
        self.x = np.concatenate([self.x, x[some]])
        self.z = np.concatenate([self.z, z[some]])
        if len(self.z) > 2 * self.limit:
            self.cut()

    def cut(self) -> None:
        """Keep at most `limit` inputs; inputs with the same z are kept or dropped together."""
        if len(self.z) > self.limit:
            self.least_unlisted = float(np.partition(self.z, self.limit)[self.limit])
            some = self.z < self.least_unlisted
            self.x, self.z = self.x[some], self.z[some]

    def sort(self) -> None:
        """Cut, and sort the inputs by output and then by their values."""
        self.cut()
        order = np.lexsort((*self.x.T[::-1], self.z))
        self.x, self.z = self.x[order], self.z[order]

    def n_up_to(self, z: float) -> int:
        """Return the number of kept inputs with an output up to z."""
        return int(np.count_nonzero(self.z.astype(np.float64) <= z))
