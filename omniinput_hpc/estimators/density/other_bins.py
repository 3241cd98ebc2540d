"""Count a run's recorded samples in other bins than its own.

The histogram counts every move in the bins that the input file chose. Recorded samples are fewer
(one per `samples.every` moves), but they can be counted in any bins.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from omniinput_hpc.estimators import EstimateError, FloatArray, IntArray
from omniinput_hpc.estimators.run_data import RunData, require_rounds
from omniinput_hpc.histogram import Histogram

MAX_BINS = 100_000


def count_samples(run: RunData, edges: FloatArray) -> RunData:
    """Return a run whose counts are those of its samples, in bins of edges float64 [B + 1]."""
    rungs = _histograms(run, edges, range(run.rounds))
    lane_counts_kgb = np.stack([rung.lane_counts_gb for rung in rungs]).astype(np.int64)
    return replace(
        run,
        edges=edges,
        rounds_per_block=1,
        counts_kb=lane_counts_kgb.sum(axis=1),
        lane_counts_kgb=lane_counts_kgb,
        outside_k2=np.stack([rung.outside for rung in rungs]),
        z_sum_kb=np.stack([rung.z_sum_b for rung in rungs]),
        histograms=lambda: (_counts_kb(run, edges, round_) for round_ in range(run.rounds)),
    )


def _histograms(run: RunData, edges: FloatArray, rounds: range) -> list[Histogram]:
    """Return a histogram per rung of the samples of some rounds."""
    rungs = [Histogram(edges, run.walkers) for _ in run.beta_k]
    for round_ in rounds:
        (z_ks,) = run.z(slice(round_, round_ + 1))
        for rung, z_s in zip(rungs, z_ks, strict=True):
            rung.add(z_s.reshape(-1, run.walkers))
    return rungs


def _counts_kb(run: RunData, edges: FloatArray, round_: int) -> IntArray:
    rungs = _histograms(run, edges, range(round_, round_ + 1))
    return np.stack([rung.counts_b for rung in rungs])


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
    return count_samples(run, edges)


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
