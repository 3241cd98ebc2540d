"""Check whether chains visit inputs of the same output equally often, as they must.

A rung's weight depends on an input only through its output, so all inputs of a narrow bin should be
visited about equally often. If a bin holds few inputs, most lanes should visit each of them. An
input that few lanes visit shows that walkers rarely find or rarely leave some kinds of inputs.
Others of its kind may then be missing, which neither z nor its errors reveal.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binom

from omniinput_hpc.estimators import BoolArray, FloatArray, IntArray
from omniinput_hpc.estimators.density.rung_weights import weights_of_run
from omniinput_hpc.estimators.errors.convergence import Check
from omniinput_hpc.estimators.run_data import RunData
from omniinput_hpc.estimators.samples import samples_in_bins

FALSE_ALARMS = 0.001
"""Probability that a correct run fails by chance, over all its inputs."""
MIN_VISITS = 3.0
"""Expected independent visits per input below which a bin is not tested."""
MAX_SAMPLES = 1_000_000
"""Recorded samples to read."""


def unequal_visits(
    run: RunData, edges: FloatArray, highest_b: FloatArray, effective_b: FloatArray
) -> Check:
    """Check whether too few lanes have visited some input of a run of chains.

    The check fails if so few lanes have a probability below 1 in 1,000, over all tested inputs.
    Lanes are independent, visits within a lane are counted as effective ones, and all inputs of a
    bin are taken to be as unlikely as those at its far end can be.

    Parameters
    ----------
    edges : float64 [B + 1]
    highest_b : float64 [B], upper bounds of ln g of an absolute density; inf if unknown
    effective_b : float64 [B], effective counts of this run
    """
    weights = weights_of_run(run)
    with np.errstate(invalid="ignore"):  # -inf outside a flat rung's window
        varies_kb = np.abs(weights.at_bins(edges[1:]) - weights.at_bins(edges[:-1]))
    varies_b = np.nan_to_num(varies_kb).max(axis=0)
    log_visits_b = np.log(np.maximum(effective_b, 1e-9)) - highest_b - varies_b
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
    p_all = min(1.0, p * tested) if tested else np.nan
    found = ("inputs met by too few lanes", p_all, FALSE_ALARMS)
    if not tested or p * tested >= FALSE_ALARMS:
        return Check(*found)
    return Check(
        *found,
        f"inputs with one output are equally likely, but one of the {n_inputs:,} recorded at "
        f"z = {edges[b]:g} was visited by {fewest} of {run.walkers} lanes, and {expected:.0f} are "
        "expected: walkers hardly find some kinds of inputs, or hardly leave them",
        "raise run.burn_in, during which moves adapt, or run.rounds",
    )


def of_runs(
    runs: Sequence[RunData], edges: FloatArray, highest_b: FloatArray, effective_b: FloatArray
) -> list[Check]:
    """Return `unequal_visits` of each run of chains; `effective_b` is of all runs together."""
    total_b = sum(run.counts_kb().sum(axis=0) for run in runs)
    return [
        unequal_visits(
            run, edges, highest_b,
            effective_b * (run.counts_kb().sum(axis=0) / np.maximum(total_b, 1)),
        )
        for run in runs
        if run.samples_log_q() is None
    ]  # fmt: skip


def _lanes_of_inputs(
    run: RunData, edges: FloatArray, asked_b: BoolArray
) -> dict[int, tuple[IntArray, IntArray]]:
    """Return the numbers of lanes that met each recorded input of the bins `asked_b`.

    Keys are bins with samples; values are int64 [inputs], and each lane's samples, int64 [W].
    """
    of_bin: dict[int, list[NDArray[Any]]] = {}
    lanes: dict[int, list[IntArray]] = {}
    a_round = run.samples_per_round * len(run.beta_k)
    for part in samples_in_bins(run, edges) if asked_b.any() else ():
        if part.round_ * a_round > MAX_SAMPLES:
            break
        for b in np.unique(part.bin_i[asked_b[part.bin_i]]):
            of_bin.setdefault(int(b), []).append(part.x_id[part.bin_i == b])
            lanes.setdefault(int(b), []).append(part.lane_i[part.bin_i == b])
    found = {}
    for b, parts in of_bin.items():
        lane_i = np.concatenate(lanes[b])
        _, input_i = np.unique(np.concatenate(parts), axis=0, return_inverse=True)
        pairs = np.unique(np.stack([input_i.ravel(), lane_i]), axis=1)
        found[b] = (np.bincount(pairs[0]), np.bincount(lane_i, minlength=run.walkers))
    return found
