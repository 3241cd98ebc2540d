"""Mid-p intervals: draws of single bins' mean scores and of their weighted sums.

The interval of a bin of n scores, k of them right, has the ends of the mid-p binomial test
(Lancaster, J. Am. Stat. Assoc. 56, 223 (1961)). Its draws come from Beta(k + 1, n - k) or from
Beta(k, n - k + 1), each with probability 1/2: one extra score that is equally likely right or
wrong. In a weighted sum over bins, that extra score is counted once, in the bin where one score
weighs most (Fay & Feuer, Stat. Med. 16, 791 (1997); with mid-p Fay & Kim, Biom. J. 59, 549 (2017)).
All other bins get draws with the mean and the variance of their scores, without an extra score, so
that no bias towards 1/2 accumulates over bins.

With nothing right (k = 0) the lower end is 0 and the upper end 1 - 0.05^(1/n), about 3 / n: the
rule of three, a one-sided 95% bound; with nothing wrong likewise.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from omniinput_hpc.estimators import FloatArray, IntArray
from omniinput_hpc.estimators.errors.jackknife import LEVEL
from omniinput_hpc.estimators.precision_recall.curves import Side, Trace, counting_order

_NOTHING = 1e-12  # replaces 0 as a parameter of a Beta distribution
_FEW = 2.0 + 1e-6  # up to this many scores, a Beta of their variance has no mass inside (0, 1)


@dataclass(frozen=True)
class MidPDraws:
    """Draws of r [M, B].

    Attributes
    ----------
    with_extra_mb : with the extra mid-p score, for a bin by itself
    without_extra_mb : without it, for a bin within a sum
    count_b : float64 [B], effective scores
    """

    with_extra_mb: FloatArray
    without_extra_mb: FloatArray
    count_b: FloatArray


def draw_mid_p(
    right_b: FloatArray, count_b: FloatArray, rng: np.random.Generator, n: int
) -> MidPDraws:
    """Return draws for right_b right scores out of count_b (float64 [B], effective numbers)."""
    size = (n, len(count_b))
    wrong_b = np.maximum(count_b - right_b, 0.0)
    more_mb = rng.random(size) < 0.5
    with_extra_mb = rng.beta(
        np.maximum(right_b + more_mb, _NOTHING), np.maximum(wrong_b + ~more_mb, _NOTHING)
    )
    # match the unbiased variance of a mean of n scores, p (1 - p) / (n - 1), not / (n + 1)
    strength_b = np.maximum(count_b - 2.0, 0.0) / np.maximum(count_b, _NOTHING)
    without_extra_mb = rng.beta(
        np.maximum(strength_b * right_b, _NOTHING),
        np.maximum(strength_b * wrong_b, _NOTHING),
        size=size,
    )
    few_b = (count_b > 0) & (count_b <= _FEW)
    if few_b.any():  # 0 or 1: the largest variance that a mean can have
        tossed_mb = rng.random(size) < right_b / np.maximum(count_b, _NOTHING)
        without_extra_mb = np.where(few_b, tossed_mb, without_extra_mb)
    return MidPDraws(with_extra_mb, without_extra_mb, count_b)


def rule_of_three(count: float) -> float:
    """Return the 95% upper bound of a share if none of `count` scores has the property."""
    return float(1.0 - (1.0 - LEVEL) ** (1.0 / max(count, 1.0)))


def trace_mid_p(log_g_b: FloatArray, log_g_mb: FloatArray, r: MidPDraws, side: Side) -> Trace:
    """Return draws of a curve's values [M, T], each with one extra score where it weighs most.

    Each value has its own draws: those of two thresholds do not belong to one curve.

    log_g_mb, float64 [M, B], holds draws of log_g_b [B]; r holds draws of the same bins.
    """
    order = counting_order(side)
    log_g = log_g_mb[:, order]
    with_extra, without_extra = r.with_extra_mb[:, order], r.without_extra_mb[:, order]
    log_weight_b = (log_g_b - np.log(np.maximum(r.count_b, _NOTHING)))[order]
    start_s = np.flatnonzero(
        np.diff(np.maximum.accumulate(log_weight_b), prepend=-np.inf) > 0
    )  # thresholds from which another bin's score weighs most
    with np.errstate(divide="ignore", invalid="ignore"):
        right = log_g + np.log(without_extra), log_g + np.log(with_extra)
        wrong = log_g + np.log1p(-without_extra), log_g + np.log1p(-with_extra)
        log_right = _accumulate(np.logaddexp, *right, start_s)
        log_wrong = _accumulate(np.logaddexp, *wrong, start_s)
        precision = np.exp(log_right - np.logaddexp(log_right, log_wrong))
        simple_recall = _accumulate(np.maximum, *right, start_s)
    largest = np.maximum.accumulate(log_g, axis=1)
    index = np.maximum.accumulate(np.where(log_g == largest, np.arange(log_g.shape[1]), 0), axis=1)
    return Trace(
        np.minimum(precision, 1.0),
        log_right,
        log_wrong,
        np.where(np.isnan(log_g), np.nan, np.take_along_axis(with_extra, index, axis=1)),
        simple_recall,
    )


def _accumulate(
    add: np.ufunc, without_extra_mt: FloatArray, with_extra_mt: FloatArray, start_s: IntArray
) -> FloatArray:
    """Return cumulative sums; within each stretch, its first column has the extra score."""
    found = np.empty_like(without_extra_mt)
    before = add.accumulate(without_extra_mt, axis=1)
    for start, stop in zip(start_s, np.append(start_s[1:], without_extra_mt.shape[1]), strict=True):
        part = without_extra_mt[:, start:stop].copy()
        part[:, 0] = with_extra_mt[:, start]
        if start:
            part[:, 0] = add(part[:, 0], before[:, start - 1])
        found[:, start:stop] = add.accumulate(part, axis=1)
    return found
