"""Effective numbers of independent right-or-wrong scores behind a rule's mean scores.

Recorded samples of one lane are alike: chains move slowly, and what makes an input right persists
while z changes. A bin's samples therefore count as Kish's effective number of their weights divided
by a *design effect*: the variance between lane groups relative to that of independent samples. A
few right (or wrong) samples say little about it, so it is pooled over neighbouring bins, starting
from the value that the bins' counts suggest (see `observations.dispersion`). In a sum over bins,
lanes may be alike in all of them, so sums have a further factor. For precision and numbers of
inputs it comes from the sums up to nearby thresholds. For the whole curve it is the larger of two:
with every bin weighted by the ln recall that it adds, or by its scores.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import NDArray

from omniinput_hpc.estimators import FloatArray, IntArray
from omniinput_hpc.estimators.errors.jackknife import LEVEL
from omniinput_hpc.estimators.precision_recall.intervals import added_recall

NEIGHBOURS = 5
"""Bins, or thresholds, on either side that a design effect is pooled over."""
PRIOR_SCORES = 4.0
"""Weight of the first guess of a design effect, in right-or-wrong scores of the rarer kind."""
COUNTS = 0.25
"""Bins whose share of a sum is below this fraction of the largest share do not count in it."""
_NORMAL = 1.959964  # half the width of a 95% interval, in units of known standard errors


@dataclass(frozen=True)
class ScoreSums:
    """Within-bin weighted sums over recorded samples, per lane group.

    Attributes
    ----------
    weight_gb : float64 [G, B], sum of w_i
    score_gb : float64 [G, B], sum of w_i r_i
    count_gb : int64 [G, B], samples
    square_b, score2_b : float64 [B], sums of w_i^2 and of w_i r_i^2, over all groups
    alike_b : float64 [B], sum of w_i^2 times the number of samples that count as one, since those
        of a lane depend on each other
    inputs_b : int64 [B], distinct inputs, counted only up to (or slightly beyond) a given number
    lanes_b : int64 [B], lanes that the samples come from
    """

    weight_gb: FloatArray
    score_gb: FloatArray
    count_gb: IntArray
    square_b: FloatArray
    score2_b: FloatArray
    alike_b: FloatArray
    inputs_b: IntArray
    lanes_b: IntArray

    def of(self, bins: IntArray) -> ScoreSums:
        """Return the sums of some bins, in their order."""
        return ScoreSums(*(value[..., bins] for value in vars(self).values()))


@dataclass(frozen=True)
class Worth:
    """Effective numbers of right-or-wrong scores, float64 [B]; 0 in bins without samples.

    Attributes
    ----------
    alone_b : for a bin by itself
    summed_b : for a bin in the sums in which it counts: precision, numbers of right and wrong
        inputs
    curve_b : for a bin in the area under the whole curve
    """

    alone_b: FloatArray
    summed_b: FloatArray
    curve_b: FloatArray


def worth_of(sums: ScoreSums, log_g_b: FloatArray) -> Worth:
    """Return the effective numbers of scores of a curve's bins, in the curve's order."""
    total_b = sums.weight_gb.sum(axis=0)
    seen_b = total_b > 0
    with np.errstate(divide="ignore", invalid="ignore"):
        r_b = np.where(seen_b, np.clip(sums.score_gb.sum(axis=0) / total_b, 0.0, 1.0), 0.0)
        kish_b = np.where(seen_b, total_b**2 / sums.square_b, 0.0)
        inefficiency_b = np.where(seen_b, sums.alike_b / sums.square_b, 1.0)
        inner_b = np.where(seen_b, sums.score2_b / total_b - r_b**2, 0.0)
        deviation_gb = np.where(seen_b, (sums.score_gb - r_b * sums.weight_gb) / total_b, 0.0)
    # scores between 0 and 1 spread less than right-or-wrong scores; 1/4 as in `from_scores`
    inner_b = np.maximum(inner_b, 0.0)
    tossed_b = np.maximum(kish_b - 1.0, 0.0) * r_b * (1.0 - r_b) + inner_b
    graded_b = np.maximum(1.0, (tossed_b + 0.25) / (kish_b * inner_b + 0.25))
    count_b = kish_b * graded_b
    alone_b = count_b / _design_effects(sums, inefficiency_b, deviation_gb, count_b, r_b)
    log_g = np.where(seen_b, log_g_b, -np.inf)
    up_to_t = np.logaddexp.accumulate(log_g)  # -inf where the first bins have no samples
    part_tb = log_g - np.where(np.isfinite(up_to_t), up_to_t, 0.0)[:, None]
    shares_tb = np.tril(np.exp(np.minimum(part_tb, 0.0)))  # above the diagonal it may be large
    summed_t = _sums_over_bins(deviation_gb, shares_tb, NEIGHBOURS)
    summed_b = _largest_after(summed_t, shares_tb)
    # two weights of the bins: the ln recall that each adds, and its effective scores
    whole_2b = np.stack([added_recall(log_g, r_b, alone_b), alone_b])
    curve = float(_sums_over_bins(deviation_gb, whole_2b, 0).max())
    return Worth(alone_b, alone_b / summed_b, alone_b / curve)


def _design_effects(
    sums: ScoreSums,
    inefficiency_b: FloatArray,
    deviation_gb: FloatArray,
    count_b: FloatArray,
    r_b: FloatArray,
) -> FloatArray:
    """Return each bin's variance between lanes over that of independent scores [B], 1 or more."""
    lanes_b = (sums.weight_gb > 0).sum(axis=0)
    use_b = lanes_b >= 2
    factor_b = np.where(use_b, lanes_b / np.maximum(lanes_b - 1.0, 1.0), 0.0)
    found_b = factor_b * (deviation_gb**2).sum(axis=0) * count_b**2
    expected_b = np.where(use_b, inefficiency_b * r_b * (1.0 - r_b) * count_b, 0.0)
    everywhere = (found_b.sum() + PRIOR_SCORES) / (expected_b.sum() + PRIOR_SCORES)
    here_b = (_windows(found_b, NEIGHBOURS) + PRIOR_SCORES * everywhere) / (
        _windows(expected_b, NEIGHBOURS) + PRIOR_SCORES
    )
    return np.asarray(np.maximum(1.0, here_b * inefficiency_b))


def _sums_over_bins(deviation_gb: FloatArray, part_tb: FloatArray, half: int) -> FloatArray:
    """Return the variance between lanes of sums over bins, relative to separate bins [T], >= 1.

    Both variances are pooled over `half` sums on either side. With so few lane groups, normal
    intervals would be too narrow, so the excess over 1 is multiplied by the squared ratio of the
    widths of Student's and the normal interval.
    """
    n_groups = len(deviation_gb)
    square_gt = (deviation_gb @ part_tb.T) ** 2
    apart_t = part_tb**2 @ (deviation_gb**2).sum(axis=0)
    top_t, bottom_t = _windows(square_gt.sum(axis=0), half), _windows(apart_t, half)
    ratio_t = np.where(bottom_t > 0, top_t / np.maximum(bottom_t, 1e-300), 1.0)
    if n_groups < 2:
        return np.ones(len(part_tb))
    wider_t = (scipy.special.stdtrit(_degrees(square_gt), 0.5 + 0.5 * LEVEL) / _NORMAL) ** 2
    return np.asarray(1.0 + np.maximum(ratio_t - 1.0, 0.0) * wider_t)


def _degrees(square_gt: FloatArray) -> FloatArray:
    """Return the degrees of freedom of a variance between groups, from their squares [G, T].

    By the variance of a mean of squares, they are 2 G / (kurtosis - 1): G for normal deviations,
    fewer if a few groups dominate. The result is at most G - 1.
    """
    n_groups = len(square_gt)
    fourth_t = (square_gt**2).mean(axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        kurtosis_t = fourth_t / square_gt.mean(axis=0) ** 2
        degrees_t = 2.0 * n_groups / (kurtosis_t - 1.0)
    degrees_t = np.nan_to_num(degrees_t, nan=1e9, posinf=1e9)
    return np.asarray(np.clip(degrees_t, 1.0, n_groups - 1.0))


def _largest_after(effect_t: FloatArray, part_tb: FloatArray) -> FloatArray:
    """Return for each bin the largest effect of the sums in which it counts [B]."""
    counts_tb = part_tb >= COUNTS * part_tb.max(axis=1, keepdims=True)
    return np.asarray(np.where(counts_tb, effect_t[:, None], 1.0).max(axis=0))


def _windows(value_b: NDArray[np.float64] | IntArray, half: int) -> FloatArray:
    """Return sums over each bin and `half` neighbours on either side [B]."""
    upto = np.concatenate([[0.0], np.cumsum(value_b)])
    place = np.arange(len(value_b))
    ends = np.minimum(place + half + 1, len(value_b)), np.maximum(place - half, 0)
    return np.asarray(upto[ends[0]] - upto[ends[1]])
