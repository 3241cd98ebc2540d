"""Draws of single bins' mean scores and of their weighted sums, whose intervals are mid-p's.

The interval of a bin of n scores, k of them right, has the ends of the mid-p binomial test
(Lancaster, J. Am. Stat. Assoc. 56, 223 (1961)): its draws are those of Beta(k + 1, n - k) or of
Beta(k, n - k + 1), each with probability 1/2, one extra score that is as likely right as wrong. Of
a weighted sum over bins that extra score is counted once, in the bin where one score weighs most
(Fay & Feuer, Stat. Med. 16, 791 (1997); with mid-p Fay & Kim, Biom. J. 59, 549 (2017)), and
all other bins get draws with the mean and the variance of their scores, which add nothing of their
own. So there is no bias towards 1/2 that could add up over bins.

With nothing right (k = 0) the lower end is 0 and the upper one 1 - 0.05^(1/n), about 3 / n: the
rule of three, a one-sided bound that holds in 95%; with nothing wrong likewise.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from omniinput_hpc.estimators import FloatArray, IntArray
from omniinput_hpc.estimators.errors.jackknife import LEVEL
from omniinput_hpc.estimators.precision_recall.curves import Side, Trace

_NOTHING = 1e-12  # in place of a Beta distribution's 0
_FEW = 2.0 + 1e-6  # scores up to which a Beta distribution of their variance has no mass inside


@dataclass(frozen=True)
class MidPDraws:
    """Draws of r [M, B].

    Attributes
    ----------
    with_extra_mb : with the extra mid-p score: of a bin by itself
    without_extra_mb : without it: of a bin in a sum
    count_b : float64 [B], effective scores
    """

    with_extra_mb: FloatArray
    without_extra_mb: FloatArray
    count_b: FloatArray


def draw_mid_p(
    right_b: FloatArray, count_b: FloatArray, rng: np.random.Generator, n: int
) -> MidPDraws:
    """Return draws for right_b right scores of count_b, effective numbers, float64 [B] each."""
    size = (n, len(count_b))
    wrong_b = np.maximum(count_b - right_b, 0.0)
    more_mb = rng.random(size) < 0.5
    with_extra_mb = rng.beta(
        np.maximum(right_b + more_mb, _NOTHING), np.maximum(wrong_b + ~more_mb, _NOTHING)
    )
    # the variance p (1 - p) / (n - 1) of the mean of n scores, without bias, in place of / (n + 1)
    strength_b = np.maximum(count_b - 2.0, 0.0) / np.maximum(count_b, _NOTHING)
    without_extra_mb = rng.beta(
        np.maximum(strength_b * right_b, _NOTHING),
        np.maximum(strength_b * wrong_b, _NOTHING),
        size=size,
    )
    few_b = (count_b > 0) & (count_b <= _FEW)
    if few_b.any():  # right or wrong, the largest variance that a mean can have
        tossed_mb = rng.random(size) < right_b / np.maximum(count_b, _NOTHING)
        without_extra_mb = np.where(few_b, tossed_mb, without_extra_mb)
    return MidPDraws(with_extra_mb, without_extra_mb, count_b)


def rule_of_three(count: float) -> float:
    """Return the share that is exceeded with 5% at most if none of `count` scores has it."""
    return float(1.0 - (1.0 - LEVEL) ** (1.0 / max(count, 1.0)))


def trace_mid_p(log_g_b: FloatArray, log_g_mb: FloatArray, r: MidPDraws, side: Side) -> Trace:
    """Return draws of a curve's values [M, T], each with one extra score where it weighs most.

    Each value by itself: two thresholds' draws are not one curve.

    Parameters
    ----------
    log_g_b : float64 [B]
    log_g_mb : float64 [M, B], draws of it
    r : draws of the same bins
    side : "low" or "high"
    """
    order = slice(None) if side == "low" else slice(None, None, -1)
    log_g = log_g_mb[:, order]
    with_extra, without_extra = r.with_extra_mb[:, order], r.without_extra_mb[:, order]
    log_weight_b = (log_g_b - np.log(np.maximum(r.count_b, _NOTHING)))[order]
    start_s = np.flatnonzero(
        np.diff(np.maximum.accumulate(log_weight_b), prepend=-np.inf) > 0
    )  # where another bin's score weighs most
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
    """Return sums up to every column, where column start of each stretch has its extra score."""
    found = np.empty_like(without_extra_mt)
    before = add.accumulate(without_extra_mt, axis=1)
    for start, stop in zip(start_s, np.append(start_s[1:], without_extra_mt.shape[1]), strict=True):
        part = without_extra_mt[:, start:stop].copy()
        part[:, 0] = with_extra_mt[:, start]
        if start:
            part[:, 0] = add(part[:, 0], before[:, start - 1])
        found[:, start:stop] = add.accumulate(part, axis=1)
    return found
