"""Whether chains meet inputs of one output equally often, as they must.

A rung's weight depends on an input by its output alone. So all inputs of a narrow bin should be
met about equally often. Where a bin holds few inputs, each should be met by most lanes, and one
that is met by few shows that walkers hardly find some kinds of inputs, or hardly leave them: the
others of its kind may then be missing, of which neither z nor its errors know.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binom

from omniinput_hpc.estimators import BoolArray, FloatArray, IntArray
from omniinput_hpc.estimators.run_data import RunData
from omniinput_hpc.histogram import bin_of

FALSE_ALARMS = 0.001
"""How often a right run is taken for a wrong one by chance, over all its inputs."""
MIN_VISITS = 3.0
"""Expected independent visits of an input, below which nothing is asked of its bin."""
MAX_SAMPLES = 1_000_000
"""Recorded samples that are looked at."""


def unequal_visits(
    run: RunData, edges: FloatArray, highest_b: FloatArray, effective_b: FloatArray
) -> list[str]:
    """Return which input of a run of chains too few lanes have met, as a sentence for the verdict.

    That an input is met by so few lanes is as likely as 1 in 1,000, over all inputs that are asked
    for. Lanes are independent; visits of a lane are counted as effective ones, and inputs of a
    bin's far end are taken to be as much less likely as they can be.

    Parameters
    ----------
    edges : float64 [B + 1]
    highest_b : float64 [B], upper bounds of ln g of an absolute density; inf where not known
    effective_b : float64 [B], effective counts of this run's
    """
    steepest = np.nanmax(np.abs(run.beta_k), initial=0.0)
    log_visits_b = np.log(np.maximum(effective_b, 1e-9)) - highest_b - steepest * np.diff(edges)
    asked_b = log_visits_b >= np.log(MIN_VISITS)
    tested, least = 0, (1.0, 0, 0, 0, 0.0)  # probability, bin, inputs, lanes, expected lanes
    for b, (lanes_i, in_bin_w) in _lanes_of_inputs(run, edges, asked_b).items():
        n_samples = in_bin_w.sum()
        visits = min(1.0, n_samples / effective_b[b]) * np.exp(log_visits_b[b])
        if visits < MIN_VISITS:
            continue
        p_lane = float((-np.expm1(-visits * in_bin_w / n_samples)).mean())
        tested += len(lanes_i)
        fewest = int(lanes_i.min())
        p = float(binom.cdf(fewest, len(in_bin_w), p_lane))
        least = min(least, (p, b, len(lanes_i), fewest, p_lane * len(in_bin_w)))
    p, b, n_inputs, fewest, expected = least
    if not tested or p * tested >= FALSE_ALARMS:
        return []
    return [
        f"inputs of one output are equally likely, and one of the {n_inputs:,} recorded at "
        f"z = {edges[b]:g} was met by {fewest} of {run.walkers} lanes, where {expected:.0f} are "
        "expected: walkers hardly find some kinds of inputs, or hardly leave them; raise "
        "run.burn_in, in which moves learn, or run.rounds"
    ]


def of_runs(
    runs: Sequence[RunData], edges: FloatArray, highest_b: FloatArray, effective_b: FloatArray
) -> list[str]:
    """Return `unequal_visits` of each run of chains; `effective_b` are those of all together."""
    total_b = sum(run.counts_kb().sum(axis=0) for run in runs)
    reasons: list[str] = []
    for run in runs:
        if run.samples_log_q() is None:
            share_b = run.counts_kb().sum(axis=0) / np.maximum(total_b, 1)
            reasons += unequal_visits(run, edges, highest_b, effective_b * share_b)
    return reasons


def _lanes_of_inputs(
    run: RunData, edges: FloatArray, asked_b: BoolArray
) -> dict[int, tuple[IntArray, IntArray]]:
    """Return of some bins, where anything was recorded in them, how many lanes met each input.

    By bin: int64 [inputs], and how many samples of the bin each lane has, int64 [W].
    """
    of_bin: dict[int, list[NDArray[Any]]] = {}
    lanes: dict[int, list[IntArray]] = {}
    n_read = 0
    for x_ksd, z_ks in run.samples() if asked_b.any() else ():
        lane_ks = np.broadcast_to(np.arange(z_ks.shape[1]) % run.walkers, z_ks.shape)
        bin_ks = bin_of(z_ks.astype(np.float64), edges)
        inside = (bin_ks >= 0) & (bin_ks < len(asked_b))
        inside[inside] = asked_b[bin_ks[inside]]
        bin_i, x_id, lane_i = bin_ks[inside], x_ksd[inside], lane_ks[inside]
        for b in np.unique(bin_i):
            of_bin.setdefault(int(b), []).append(x_id[bin_i == b])
            lanes.setdefault(int(b), []).append(lane_i[bin_i == b])
        n_read += z_ks.size
        if n_read > MAX_SAMPLES:
            break
    found = {}
    for b, parts in of_bin.items():
        lane_i = np.concatenate(lanes[b])
        _, input_i = np.unique(np.concatenate(parts), axis=0, return_inverse=True)
        pairs = np.unique(np.stack([input_i.ravel(), lane_i]), axis=1)
        found[b] = (np.bincount(pairs[0]), np.bincount(lane_i, minlength=run.walkers))
    return found
