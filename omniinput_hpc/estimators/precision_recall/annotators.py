"""Show how a curve converges as more inputs are scored."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from omniinput_hpc.estimators.density.density import Density
from omniinput_hpc.estimators.precision_recall.curves import FEWEST_LANES, Curve, Side
from omniinput_hpc.estimators.precision_recall.from_scores import Scored, scored_curve

INPUTS_PER_BIN = (10, 20, 30, 40, 50)


def steps_from(fewest_inputs: int) -> tuple[int, ...]:
    """Return the steps of `convergence` if a bin needs `fewest_inputs` inputs to count."""
    first = min(fewest_inputs, INPUTS_PER_BIN[0])
    return first, *(n for n in INPUTS_PER_BIN if n > first)


def convergence(
    density: Density,
    scored: Scored,
    side: Side = "low",
    steps: Sequence[int] = INPUTS_PER_BIN,
    fewest_lanes: int = FEWEST_LANES,
    seed: int = 0,
) -> dict[int, Curve]:
    """Return the curves of the first 10, 20, ... inputs of each bin, in one shuffled order.

    Each step adds inputs to the step before (Liu et al., OmniInput, TMLR 2025, Fig. 5).

    Raises
    ------
    EstimateError
        No bin has as many inputs as the first step.
    """
    # before any part is taken: a part of a bank does not know which bins lack labels
    full = scored_curve(density, scored, side, min(steps), fewest_lanes)
    scored = scored.part(~np.isnan(scored.score_i))
    shuffled = np.random.default_rng(seed).permutation(len(scored.bin_i))
    place_i = np.empty(len(shuffled), dtype=np.int64)
    for b in range(len(scored.edges) - 1):
        mine = shuffled[scored.bin_i[shuffled] == b]
        place_i[mine] = np.arange(len(mine))
    # use the bins of the curve from all inputs: fewer inputs come from fewer lanes
    keep_i = full.used_b[scored.bin_i]
    scored, place_i = scored.part(keep_i), place_i[keep_i]
    found: dict[int, Curve] = {}
    for n in steps:
        if found and place_i.max() < max(found):
            break  # the previous step already had all inputs
        found[n] = scored_curve(density, scored.part(place_i < n), side, 1, 1, seed).curve
    return found
