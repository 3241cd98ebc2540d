"""Count a run's recorded samples in other bins than its own.

The histogram counts every move in the bins that the input file chose. Recorded samples are fewer
(one per `samples.every` moves), but they can be counted in any bins.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, cast

import numpy as np

from omniinput_hpc.estimators import EstimateError, FloatArray, IntArray
from omniinput_hpc.estimators.run_data import RunData, require_rounds
from omniinput_hpc.histogram import bin_of, lane_groups

MAX_BINS = 100_000


class InOtherBins:
    """A run that counts its recorded samples in given bins; all else is unchanged.

    Attributes
    ----------
    edges : float64 [B + 1]
    """

    def __init__(self, run: RunData, edges: FloatArray) -> None:
        self._run, self.edges = run, edges
        self.rounds_per_block = 1  # samples are recorded for each round

    def __getattr__(self, name: str) -> Any:
        return getattr(self._run, name)

    def counts_kb(self) -> IntArray:
        """Return the samples of all rounds per bin, int64 [K, B]."""
        return np.asarray(self.lane_counts_kgb().sum(axis=1))

    def counts_nkb(self, n_blocks: int) -> IntArray:
        """Return the samples in equally long blocks of the latest rounds, int64 [n, K, B]."""
        length = self._run.rounds // n_blocks
        first = self._run.rounds - length * n_blocks
        blocks = np.zeros((n_blocks, len(self._run.beta_k), len(self.edges) - 1), dtype=np.int64)
        for round_ in range(first, first + length * n_blocks):
            blocks[(round_ - first) // length] += self._counted(round_)[0].sum(axis=1)
        return blocks

    def outside_k2(self) -> IntArray:
        """Return the samples below and above the bins, int64 [K, 2]."""
        return self._all[1]

    def lane_counts_kgb(self) -> IntArray:
        """Return the samples per group of lanes, int64 [K, G, B]."""
        return self._all[0]

    def z_sum_kb(self) -> FloatArray:
        """Return the sum of z over the samples of each bin, float64 [K, B]."""
        return self._all[2]

    @cached_property
    def _all(self) -> tuple[IntArray, IntArray, FloatArray]:
        counts, outside, sums = self._counted(0)
        for round_ in range(1, self._run.rounds):
            more = self._counted(round_)
            counts, outside, sums = counts + more[0], outside + more[1], sums + more[2]
        return counts, outside, sums

    def _counted(self, round_: int) -> tuple[IntArray, IntArray, FloatArray]:
        """Return counts [K, G, B], outside [K, 2] and sums of z [K, B] of one round's samples."""
        z_ks = self._run.samples_z(slice(round_, round_ + 1))[0].astype(np.float64)
        group_s = np.resize(lane_groups(self._run.walkers), z_ks.shape[1])
        n_bins, n_groups = len(self.edges) - 1, int(group_s.max()) + 1
        bin_ks = bin_of(z_ks, self.edges)
        outside = np.stack([(bin_ks < 0).sum(axis=1), (bin_ks >= n_bins).sum(axis=1)], axis=1)
        counts = np.zeros((len(z_ks), n_groups, n_bins), dtype=np.int64)
        sums = np.zeros((len(z_ks), n_bins))
        for k, (bin_s, z_s) in enumerate(zip(bin_ks, z_ks, strict=True)):
            inside = (bin_s >= 0) & (bin_s < n_bins)
            cell = (group_s * n_bins + bin_s)[inside]
            counts[k] = np.bincount(cell, minlength=counts[k].size).reshape(counts[k].shape)
            sums[k] = np.bincount(bin_s[inside], weights=z_s[inside], minlength=n_bins)
        return counts, outside, sums


def in_other_bins(run: RunData, edges: FloatArray) -> RunData:
    """Return a run with its samples counted in other bins, whose edges are float64 [B + 1].

    Raises an EstimateError if the run has no committed round, or has Wang-Landau rungs, whose
    weights are defined only in the run's own bins.
    """
    require_rounds(run)
    if np.isnan(run.beta_k).any():
        raise EstimateError(
            f"{run.path} has Wang-Landau rungs, whose weights hold only in its own bins: it cannot "
            "be counted in others"
        )
    return cast("RunData", InOtherBins(run, edges))


def edges_of(text: str) -> FloatArray:
    """Return the edges, float64 [B + 1], of LOWER:UPPER:WIDTH; ValueError with the problem."""
    try:
        lower, upper, width = (float(part) for part in text.split(":"))
    except ValueError:
        raise ValueError(f"expected LOWER:UPPER:WIDTH, found {text!r}") from None
    if not (np.isfinite([lower, upper, width]).all() and lower < upper and width > 0):
        raise ValueError(f"expected LOWER below UPPER and a WIDTH above 0, found {text!r}")
    n_bins = (upper - lower) / width
    if n_bins > MAX_BINS:
        raise ValueError(f"{n_bins:.3g} bins are too many; raise WIDTH")
    if round(n_bins) < 1 or abs(n_bins - round(n_bins)) > 1e-6 * max(1.0, n_bins):
        raise ValueError(f"{lower:g} to {upper:g} is not a whole number of bins of width {width:g}")
    return np.asarray(lower + np.arange(round(n_bins) + 1) * width)


def name_of(edges: FloatArray) -> str:
    """Return the part of file names that identifies these bins, such as "bins_0_12_0.1"."""
    return "bins_" + "_".join(f"{end:g}" for end in (edges[0], edges[-1], edges[1] - edges[0]))
