"""Compare annotators per bin, and show how a curve converges as more inputs are scored."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from omniinput_hpc.estimators.density.density import Density
from omniinput_hpc.estimators.precision_recall.curves import FEWEST_LANES, Curve, Side
from omniinput_hpc.estimators.precision_recall.from_scores import Scored, bin_scores, scored_curve

INPUTS_PER_BIN = (10, 20, 30, 40, 50)


def steps_from(fewest_inputs: int) -> tuple[int, ...]:
    """Return the steps of `convergence` if a bin needs `fewest_inputs` inputs to count."""
    first = min(fewest_inputs, INPUTS_PER_BIN[0])
    return first, *(n for n in INPUTS_PER_BIN if n > first)


def annotator_columns(scored: Scored) -> dict[str, NDArray]:
    """Return a table: r per bin and annotator, mean and standard deviation over annotators.

    This is Table 1 of Liu et al., Evaluation of human-model prediction difference. The deviation is
    that of the annotators' means; it is NaN if fewer than two scored the bin.
    """
    everyone = bin_scores(scored)
    bins = np.flatnonzero(everyone.inputs_b)
    parts = [bin_scores(scored.of(a)) for a in range(len(scored.annotators))]
    r_ab = np.stack([part.r_b[bins] for part in parts])
    known = np.isfinite(r_ab)
    n_b = known.sum(axis=0)
    mean_b = np.where(known, r_ab, 0.0).sum(axis=0) / n_b
    square_b = (np.where(known, r_ab - mean_b, 0.0) ** 2).sum(axis=0)
    columns: dict[str, NDArray] = {
        "z_lower": scored.edges[bins],
        "z_upper": scored.edges[bins + 1],
        "r": everyone.r_b[bins],
        "r_error": np.hypot(everyone.sampling_error_b, everyone.annotator_error_b)[bins],
        "annotators": n_b,
        "mean": mean_b,
        "deviation": np.where(n_b > 1, np.sqrt(square_b / np.maximum(n_b - 1, 1)), np.nan),
    }
    for name, part, r_b in zip(scored.annotators, parts, r_ab, strict=True):
        columns[f"r_{name}"], columns[f"inputs_{name}"] = r_b, part.inputs_b[bins]
    return columns


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
    scored = scored.part(~np.isnan(scored.score_i))
    full = scored_curve(density, scored, side, min(steps), fewest_lanes)
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
