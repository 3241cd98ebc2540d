"""Histograms of z, in which every move of every walker counts, rejected moves too."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

MAX_GROUPS = 16
MAX_BINS = 10_000_000
SPARSE_FROM = 32
"""Cells (groups times bins) per output of a segment above which only visited ones are updated."""


def lane_groups(n_walkers: int) -> NDArray[np.int64]:
    """Return the group of each lane, int64 [W]: G = min(16, W) groups of neighbouring lanes."""
    n_groups = min(MAX_GROUPS, n_walkers)
    return np.arange(n_walkers) * n_groups // n_walkers


def starting_parts(n_walkers: int, n_parts: int) -> NDArray[np.int64]:
    """Return the part of each lane, int64 [W]; a part is a range of whole groups of lanes.

    On rungs with beta above the language model's own, each part starts from different inputs.
    """
    group_w = lane_groups(n_walkers)
    return parts_of_groups(int(group_w[-1]) + 1, n_parts)[group_w]


def parts_of_groups(n_groups: int, n_parts: int) -> NDArray[np.int64]:
    """Return the part of each group of lanes, int64 [G]."""
    return np.arange(n_groups) * n_parts // n_groups


def groups_of(lanes: range, n_walkers: int) -> range:
    """Return the groups that neighbouring lanes belong to, in a rung of W = `n_walkers` lanes."""
    group_w = lane_groups(n_walkers)
    return range(int(group_w[lanes[0]]), int(group_w[lanes[-1]]) + 1)


class Histogram:
    """Histogram of z of some lanes of a rung: per round, and cumulative per group of lanes.

    Parameters
    ----------
    edges : float64 [B + 1]; bins are half-open, the last one closed
    n_walkers : W
    lanes : lanes that are counted here, by default all; G is the number of their groups

    Attributes
    ----------
    counts_b, outside : int64 [B] and [2] (below, above), this round
    lane_counts_gb : uint64 [G, B], all counted rounds
    z_sum_b : float64 [B], all counted rounds
    moments : float64 [3], number, sum and sum of squares of this round's outputs
    extremes : float64 [2], lowest and highest output of this round; inf and -inf without any
    """

    def __init__(
        self, edges: NDArray[np.float64], n_walkers: int, lanes: range | None = None
    ) -> None:
        self._edges = edges
        lanes = range(n_walkers) if lanes is None else lanes
        groups = groups_of(lanes, n_walkers)
        self._group_w = lane_groups(n_walkers)[lanes.start : lanes.stop] - groups.start
        n_groups, n_bins = len(groups), len(edges) - 1
        self.counts_b = np.zeros(n_bins, dtype=np.int64)
        self.outside = np.zeros(2, dtype=np.int64)
        self.lane_counts_gb = np.zeros((n_groups, n_bins), dtype=np.uint64)
        self.z_sum_b = np.zeros(n_bins)
        self.moments = np.zeros(3)
        self.extremes = np.array([np.inf, -np.inf])
        self._compiled: Any = None

    def clear_round(self) -> None:
        """Begin a round: clear its counts, but keep the cumulative ones."""
        self.counts_b[:] = 0
        self.outside[:] = 0
        self.moments[:] = 0
        self.extremes[:] = np.inf, -np.inf

    def clear_all(self) -> None:
        """Clear all counts, the cumulative ones too, at the end of burn-in."""
        self.clear_round()
        self.lane_counts_gb[:] = 0
        self.z_sum_b[:] = 0

    def compile(self) -> None:
        """Count in code compiled by numba from now on, several times as fast.

        The sums of z, whose terms are then added one by one, may differ in their last digits.
        """
        self._compiled = _compiled_add()

    def add(self, z_tw: NDArray[np.float32]) -> None:
        """Count the outputs of successive moves, float32 [T, W]."""
        if self._compiled is not None:
            arrays = self.counts_b, self.lane_counts_gb, self.z_sum_b, self.outside
            self._compiled(z_tw, self._edges, self._group_w, arrays, self.moments, self.extremes)
            return
        z = z_tw.astype(np.float64)
        self.moments += (z.size, z.sum(), (z**2).sum())
        self.extremes[:] = min(self.extremes[0], z.min()), max(self.extremes[1], z.max())
        n_bins = len(self._edges) - 1
        bin_tw = bin_of(z, self._edges)
        below, above = np.count_nonzero(bin_tw < 0), np.count_nonzero(bin_tw >= n_bins)
        self.outside += (below, above)
        cell, bin_i, z_i = (self._group_w * n_bins + bin_tw).ravel(), bin_tw.ravel(), z.ravel()
        if below + above:
            inside = (bin_i >= 0) & (bin_i < n_bins)
            cell, bin_i, z_i = cell[inside], bin_i[inside], z_i[inside]
        if self.lane_counts_gb.size > SPARSE_FROM * z.size:
            self._add_sparse(cell, bin_i, z_i)
            return
        counts = np.bincount(cell, minlength=self.lane_counts_gb.size)
        counts_gb = counts.reshape(self.lane_counts_gb.shape)
        self.counts_b += counts_gb.sum(axis=0)
        self.lane_counts_gb += counts_gb.astype(np.uint64)
        self.z_sum_b += np.bincount(bin_i, weights=z_i, minlength=n_bins)

    def _add_sparse(
        self, cell: NDArray[np.int64], bin_i: NDArray[np.int64], z_i: NDArray[np.float64]
    ) -> None:
        """Count n outputs in a time independent of the number of bins, with the same bits as `add`.

        cell : int64 [n], flat index of each output in `lane_counts_gb`
        bin_i, z_i : int64 and float64 [n], the bin and the value of each output
        """
        cells, count = np.unique(cell, return_counts=True)
        self.lane_counts_gb.reshape(-1)[cells] += count.astype(np.uint64)
        bins, place, count = np.unique(bin_i, return_inverse=True, return_counts=True)
        self.counts_b[bins] += count
        # As in `add`: a bin's outputs are added in the order of moves, then to the sum.
        self.z_sum_b[bins] += np.bincount(place, weights=z_i, minlength=len(bins))


def bin_of(z: NDArray[np.float64], edges: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the bin of each z: -1 below all bins, B above them; the last bin is closed.

    A division guesses the bin, which is several times faster than a search if bins have equal
    width. If the guess is wrong (rounding, unequal widths, z not finite), a search finds the bin.
    """
    n_bins, low, high = len(edges) - 1, edges[0], edges[-1]
    ends = np.concatenate([[-np.inf], edges, [np.inf]])
    with np.errstate(invalid="ignore", over="ignore"):
        guess = (z - low) * (n_bins / (high - low))
        entry = np.clip(np.floor(guess), -1, n_bins).astype(np.int64) + 1
    right = (ends.take(entry, mode="clip") <= z) & (z < ends.take(entry + 1, mode="clip"))
    index = np.asarray(entry - 1)
    if not right.all():
        wrong = ~right
        index[wrong] = np.searchsorted(edges, z[wrong], side="right") - 1
    last = z == high
    if last.any():
        index[last] = n_bins - 1
    return index


@cache
def _compiled_add() -> Any:
    """Return `Histogram.add` as a compiled function of its arrays; numba is imported only here."""
    from numba import njit

    @njit
    def add(
        z_tw: NDArray[np.float32],
        edges: NDArray[np.float64],
        group_w: NDArray[np.int64],
        counts: tuple[
            NDArray[np.int64], NDArray[np.uint64], NDArray[np.float64], NDArray[np.int64]
        ],
        moments: NDArray[np.float64],
        extremes: NDArray[np.float64],
    ) -> None:
        counts_b, lane_counts_gb, z_sum_b, outside = counts
        n_bins, low, high = len(edges) - 1, edges[0], edges[-1]
        scale = n_bins / (high - low)
        for t in range(len(z_tw)):
            for w in range(len(group_w)):
                z = np.float64(z_tw[t, w])
                moments[0] += 1.0
                moments[1] += z
                moments[2] += z * z
                extremes[0] = min(extremes[0], z)
                extremes[1] = max(extremes[1], z)
                if z < low:
                    outside[0] += 1
                elif z > high:
                    outside[1] += 1
                else:
                    b = min(int((z - low) * scale), n_bins - 1)
                    if z < edges[b] or z >= edges[b + 1]:  # a wrong guess, or the last edge
                        b = min(int(np.searchsorted(edges, z, side="right")) - 1, n_bins - 1)
                    counts_b[b] += 1
                    lane_counts_gb[group_w[w], b] += np.uint64(1)
                    z_sum_b[b] += z

    return add
