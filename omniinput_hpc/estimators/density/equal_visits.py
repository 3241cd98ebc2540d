"""Check whether chains visit inputs of the same output equally often, as they must.

A rung's weight depends on an input only through its output, so all inputs of a narrow bin should be
visited about equally often. If a bin holds few inputs, most lanes should visit each of them. An
input that few lanes visit shows that walkers rarely find or rarely leave some kinds of inputs.
Others of its kind may then be missing, which neither z nor its errors reveal. Walkers need not
arrive at all inputs equally often, since they stay in some for longer. An input that half of the
lanes have visited is therefore no problem: lanes are independent, so that all of W lanes miss
another that is as hard to find with probability 2^-W.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from omniinput_hpc.estimators import FloatArray, IntArray
from omniinput_hpc.estimators.errors.convergence import Check
from omniinput_hpc.estimators.run_data import RunData

FALSE_ALARMS = 0.001
"""Probability that a correct run fails by chance, over all its inputs."""
MIN_VISITS = 3.0
"""Expected independent visits per input below which a bin is not tested."""


def unequal_visits(
    run: RunData,
    inputs: Mapping[int, tuple[NDArray[Any], IntArray]],
    highest_b: FloatArray,
    effective_b: FloatArray,
) -> Check:
    """Check whether too few lanes have visited some input of a run of chains.

    The check fails if so few lanes have a probability below 1 in 1,000, over all tested inputs, and
    are fewer than half.
    Lanes are independent, visits within a lane are counted as effective ones, and all inputs of a
    bin are taken to be as unlikely as those at its far end can be.

    Parameters
    ----------
    inputs : `inputs_of_bins` of all bins with more effective counts than inputs
    highest_b : float64 [B], upper bounds of ln g of an absolute density; inf if unknown
    effective_b : float64 [B], effective counts of this run
    """
    with np.errstate(invalid="ignore"):  # -inf outside a flat rung's window
        varies_kb = run.weights.at_bins(run.edges[1:]) - run.weights.at_bins(run.edges[:-1])
    varies_b = np.nan_to_num(np.abs(varies_kb)).max(axis=0)
    effective_b = np.maximum(effective_b, 1e-9)
    log_visits_b = np.log(effective_b) - highest_b - varies_b
    tested, least = 0, (1.0, 0, 0, 0, 0.0)  # probability, bin, inputs, lanes, expected lanes
    for b, (x_id, lane_i) in inputs.items():
        visits = min(1.0, len(lane_i) / effective_b[b]) * np.exp(log_visits_b[b])
        if visits < MIN_VISITS:
            continue
        in_bin_w, lanes_u = np.bincount(lane_i, minlength=run.walkers), _lanes_met(x_id, lane_i)
        p_lane = float((-np.expm1(-visits * in_bin_w / len(lane_i))).mean())
        tested += len(lanes_u)
        fewest = int(lanes_u.min())
        p = float(scipy.special.bdtr(fewest, run.walkers, p_lane))
        if 2 * fewest >= run.walkers and 0.5**run.walkers < FALSE_ALARMS:
            p = 1.0
        least = min(least, (p, b, len(lanes_u), fewest, p_lane * run.walkers))
    p, b, n_inputs, fewest, expected = least
    p_all = min(1.0, p * tested) if tested else np.nan
    check = Check("inputs met by too few lanes", p_all, FALSE_ALARMS, at_least=True)
    if not tested or p * tested >= FALSE_ALARMS:
        return check
    return check.failed(
        f"inputs with one output are equally likely, but one of the {n_inputs:,} recorded at "
        f"z = {run.edges[b]:g} was visited by {fewest} of {run.walkers} lanes, and {expected:.0f} "
        "are expected: walkers hardly find some kinds of inputs, or hardly leave them",
        "raise run.burn_in, during which moves adapt, or run.rounds",
    )


def _lanes_met(x_id: NDArray[Any], lane_i: IntArray) -> IntArray:
    """Return how many lanes met each different input, int64 [U]."""
    _, input_i = np.unique(x_id, axis=0, return_inverse=True)
    pairs = np.unique(np.stack([input_i.ravel(), lane_i]), axis=1)
    return np.bincount(pairs[0])
