"""Choose the bins where further scores reduce the AUPR's error most: Neyman's allocation.

To first order the scores contribute sum_b c_b / n_b to the variance of the AUPR, with n_b scored
inputs in bin b and c_b = (dAUPR / dr_b)^2 s_b^2, where s_b is the spread of one score. The best
share of scores is proportional to sqrt(c_b) (Neyman, J. R. Stat. Soc. 97, 558 (1934)). Given the
existing scores, the best next score goes where c_b / n_b - c_b / (n_b + 1) is largest, and so on.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np

from omniinput_hpc.estimators import EstimateError, FloatArray, IntArray
from omniinput_hpc.estimators.precision_recall import curves
from omniinput_hpc.estimators.precision_recall.curves import Range, Side
from omniinput_hpc.estimators.precision_recall.from_scores import ScoredCurve

MAX_BUDGET = 1_000_000
"""Most scores to allocate. They are placed one by one, which takes a few seconds for this many."""


@dataclass(frozen=True)
class Allocation:
    """Where the next scores should go, a row per counted bin.

    Attributes
    ----------
    bin_b : int64 [B'], the bins
    slope_b : float64 [B'], dAUPR / dr
    variance_b : float64 [B'], contribution of this bin's scores to the variance of the AUPR
    next_b : int64 [B'], number of the budget's scores to place here
    error_now, error_then : float, AUPR's standard error from scoring, before and after these scores
    error_even : float, the same if the budget were spread evenly over the bins
    """

    bin_b: IntArray
    slope_b: FloatArray
    variance_b: FloatArray
    next_b: IntArray
    error_now: float
    error_then: float
    error_even: float


def aupr_slopes(log_g_b: FloatArray, r_b: FloatArray, side: Side, ends: Range) -> FloatArray:
    """Return dAUPR / dr_b over a fixed range of log recall, by central differences."""
    slope_b = np.empty(len(r_b))
    for b in range(len(r_b)):
        step = 1e-4
        r = np.stack([r_b, r_b])
        r[0, b], r[1, b] = max(0.0, r_b[b] - step), min(1.0, r_b[b] + step)
        curve = curves.trace(np.broadcast_to(log_g_b, r.shape), r, side)
        low, high = (
            curves.area(curve.precision_t[i], curve.log_recall_t[i], *ends) for i in (0, 1)
        )
        slope_b[b] = (high - low) / (r[1, b] - r[0, b])
    return slope_b


def range_of(results: list[ScoredCurve]) -> Range | None:
    """Return the range of log recall that two curves share; None for a single curve.

    Raises
    ------
    EstimateError
        The two are not on one scale of recall, or share no range.
    """
    if len(results) < 2:
        return None
    if not all(result.density.absolute for result in results):
        raise EstimateError("two runs need absolute densities here: put beta = 0 on both ladders")
    own = [curves.curve_range(r.curve.precision_t, r.curve.log_recall_t) for r in results]
    ends = curves.common_range(own[0], own[1])
    if not ends[1] > ends[0]:
        raise EstimateError("the two curves have no common range of recall")
    return ends


def allocate(
    results: list[ScoredCurve], budget: int, ends: Range | None = None
) -> list[Allocation]:
    """Return where `budget` further scores reduce the error of an AUPR (or a difference) most.

    Parameters
    ----------
    results : one curve; or two on one scale of recall, for the difference of their AUPRs
    ends : range of log recall of the AUPR (default: the curve's own)

    Raises
    ------
    EstimateError
        An AUPR is not defined, so that nothing tells where scores help.
    """
    parts = []
    for result in results:
        bins = np.flatnonzero(result.used_b)
        curve, scores = result.curve, result.scores
        own = curves.curve_range(curve.precision_t, curve.log_recall_t)
        slope_b = aupr_slopes(
            result.density.log_g_b[bins], curve.r_b[bins], curve.side, ends or own
        )
        if not np.isfinite(slope_b).any():
            raise EstimateError(
                "the AUPR is not defined (right inputs in fewer than two bins), so nothing tells "
                "where scores help: score more inputs at the confident end"
            )
        slope_b = np.nan_to_num(slope_b)
        # a bin without scores counts as having one score of the largest possible spread
        n_b = np.maximum(scores.effective_b[bins], 1.0)
        spread_b = np.where(scores.inputs_b[bins] > 0, scores.spread_b[bins], 0.5)
        worth_b = n_b / np.maximum(scores.inputs_b[bins], 1.0)  # effective scores per further score
        parts.append((bins, slope_b, (slope_b * spread_b) ** 2, n_b, worth_b))
    c_b, n_b, worth_b = (np.concatenate([part[i] for part in parts]) for i in (2, 3, 4))
    next_b = _greedy(c_b, n_b, worth_b, budget)
    now, then = np.sqrt((c_b / n_b).sum()), np.sqrt((c_b / (n_b + worth_b * next_b)).sum())
    even = np.sqrt((c_b / (n_b + worth_b * budget / len(n_b))).sum())
    found, start = [], 0
    for bins, slope_b, *_ in parts:
        here = slice(start, start + len(bins))
        start += len(bins)
        shares = (c_b / n_b)[here]
        found.append(
            Allocation(bins, slope_b, shares, next_b[here], float(now), float(then), float(even))
        )
    return found


def _greedy(c_b: FloatArray, n_b: FloatArray, worth_b: FloatArray, budget: int) -> IntArray:
    """Return the number of scores per bin, each placed where the variance falls most."""
    next_b = np.zeros(len(c_b), dtype=np.int64)

    def gain(b: int) -> float:
        have = n_b[b] + worth_b[b] * next_b[b]
        return float(c_b[b] / have - c_b[b] / (have + worth_b[b]))

    heap = [(-gain(b), b) for b in range(len(c_b))]
    heapq.heapify(heap)
    for _ in range(budget):
        b = heap[0][1]
        next_b[b] += 1
        heapq.heapreplace(heap, (-gain(b), b))
    return next_b
