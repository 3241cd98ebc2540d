"""The arithmetic of precision-recall curves: from log g and r per bin to curves and their areas.

Bins lie along the last axis, so that a whole set of replicates is traced at once. Everything is
summed in log space: g spans thousands of nats.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from omniinput_hpc.estimators.errors.jackknife import LEVEL

FloatArray = NDArray[np.float64]
Side = Literal["low", "high"]
Range = tuple[float, float]


@dataclass(frozen=True)
class Trace:
    """A curve's values at every threshold, in the order of counting.

    The ratio of overconfident predictions is 1 - precision.

    Attributes
    ----------
    precision_t : float64 [..., T], OmniInput, Liu et al., TMLR 2025, Eq. 3
    log_recall_t : float64 [..., T], Eq. 4 without its denominator: log number of right inputs
    log_wrong_t : float64 [..., T], log number of wrong inputs, sum of (1 - r) g: the
        unnormalized false positive rate of their appendix A
    simple_precision_t : float64 [..., T], their approximation r(z*), z* the largest bin
    simple_log_recall_t : float64 [..., T], their approximation max log(r g)
    """

    precision_t: FloatArray
    log_recall_t: FloatArray
    log_wrong_t: FloatArray
    simple_precision_t: FloatArray
    simple_log_recall_t: FloatArray


def trace(log_g_b: FloatArray, r_b: FloatArray, side: Side) -> Trace:
    """Return the curve over bins taken from ``side`` on.

    Parameters
    ----------
    log_g_b, r_b : float64 [..., B'], bins in ascending z
    side : "low" counts from the lowest bin up, "high" from the highest down

    Returns
    -------
    Trace
        NaN precision and -inf logs before the first bin with inputs.
    """
    order = slice(None) if side == "low" else slice(None, None, -1)
    log_g, r = log_g_b[..., order], r_b[..., order]
    nothing = np.isneginf(log_g)
    with np.errstate(divide="ignore", invalid="ignore"):
        log_right_b = np.where(nothing, -np.inf, log_g + np.log(r))
        log_wrong_b = np.where(nothing, -np.inf, log_g + np.log1p(-r))
        log_right = np.logaddexp.accumulate(log_right_b, axis=-1)
        log_all = np.logaddexp.accumulate(log_g, axis=-1)
        log_wrong = np.logaddexp.accumulate(log_wrong_b, axis=-1)
        precision = np.exp(log_right - log_all)
        largest = np.maximum.accumulate(log_g, axis=-1)
    index = np.where((log_g == largest) & ~nothing, np.arange(log_g.shape[-1]), 0)
    index = np.maximum.accumulate(index, axis=-1)
    return Trace(
        np.minimum(precision, 1.0),
        log_right,
        log_wrong,
        np.where(np.isneginf(log_all), np.nan, np.take_along_axis(r, index, axis=-1)),
        np.maximum.accumulate(log_right_b, axis=-1),
    )


def accumulate(log_g_b: FloatArray, r_b: FloatArray, side: Side) -> tuple[FloatArray, FloatArray]:
    """Return precision and log_recall alone; see `trace`."""
    curve = trace(log_g_b, r_b, side)
    return curve.precision_t, curve.log_recall_t


def curve_range(precision_t: FloatArray, log_recall_t: FloatArray) -> Range:
    """Return the curve's own ends in log recall (NaN for a curve without a right input)."""
    known = np.isfinite(log_recall_t) & np.isfinite(precision_t)
    if not known.any():
        return np.nan, np.nan
    return float(log_recall_t[known].min()), float(log_recall_t[known].max())


def common_range(a: Range, b: Range) -> Range:
    """Return the range of log recall that two curves share; NaN if none."""
    low, high = max(a[0], b[0]), min(a[1], b[1])
    return (low, high) if high > low else (np.nan, np.nan)


def _cut(
    precision_t: FloatArray, log_recall_t: FloatArray, lower: float | None, upper: float | None
) -> tuple[FloatArray, FloatArray]:
    """Return log recall and precision of the part between two ends, cut to the curve's own.

    Empty where the range has no width.
    """
    known = np.isfinite(log_recall_t) & np.isfinite(precision_t)
    p, x = precision_t[known], log_recall_t[known]
    if not known.any():
        return np.empty(0), np.empty(0)
    low = x[0] if lower is None else max(lower, x[0])
    high = x[-1] if upper is None else min(upper, x[-1])
    if not high > low:
        return np.empty(0), np.empty(0)
    inner = (x > low) & (x < high)
    first = np.interp(low, x, p)  # of equal log recalls, the last
    last = np.interp(-high, -x[::-1], p[::-1])  # of equal log recalls, the first
    return np.concatenate([[low], x[inner], [high]]), np.concatenate([[first], p[inner], [last]])


def area(
    precision_t: FloatArray,
    log_recall_t: FloatArray,
    lower: float | None = None,
    upper: float | None = None,
) -> float:
    """Return the AUPR: the area under precision over log recall, divided by the width.

    Parameters
    ----------
    precision_t, log_recall_t : float64 [T], log_recall not descending
    lower, upper : range of log recall (default: the curve's own ends), cut to the curve's own

    Returns
    -------
    float
        Mean precision in [0, 1] (linear between thresholds); NaN where the range has no width.
    """
    x, p = _cut(precision_t, log_recall_t, lower, upper)
    return float(np.trapezoid(p, x) / (x[-1] - x[0])) if x.size else np.nan


def cumulative_ratio(
    a: tuple[FloatArray, FloatArray], b: tuple[FloatArray, FloatArray], n: int = 201
) -> tuple[FloatArray, FloatArray]:
    """Return the ratio of two curves' areas as recall grows, from the lower common end on.

    Both curves are (precision_t, log_recall_t) on one scale of recall.

    Returns
    -------
    log_recall_x : float64 [n] over the common range (empty where there is none)
    ratio_x : float64 [n], area of a over area of b up to there (the first: of the precisions)
    """
    low, high = common_range(curve_range(*a), curve_range(*b))
    if not high > low:
        return np.empty(0), np.empty(0)
    grid = np.linspace(low, high, n)
    areas = []
    for curve in (a, b):
        x, p = _cut(*curve, low, high)
        every = np.union1d(x, grid)
        value = np.interp(every, x, p)
        steps = 0.5 * (value[1:] + value[:-1]) * np.diff(every)
        total = np.concatenate([[0.0], np.cumsum(steps)])[np.searchsorted(every, grid)]
        total[0] = value[0]  # in place of 0 / 0: its limit is the ratio of the precisions
        areas.append(total)
    with np.errstate(divide="ignore", invalid="ignore"):
        return grid, areas[0] / areas[1]


@dataclass(frozen=True)
class Bands:
    """Ends of 95% intervals of everything in a `Trace`, which they hold; NaN-free.

    Attributes
    ----------
    low, high : Trace of float64 [T]
    """

    low: Trace
    high: Trace


def _ends(value_t: FloatArray, value_mt: FloatArray, least: float, most: float) -> FloatArray:
    """Return the interval's ends [2, T]; the widest, least and most, where draws are unknown."""
    unknown = np.isnan(value_mt).any(axis=0)
    tail = 0.5 * (1.0 - LEVEL)
    # -inf (no right input in a draw) has its place in the order, but no distance from others
    drawn = np.where(unknown, 0.0, value_mt)
    low, high = np.quantile(drawn, [tail, 1.0 - tail], axis=0, method="nearest")
    low, high = np.fmin(low, value_t), np.fmax(high, value_t)
    return np.stack([np.where(unknown, least, low), np.where(unknown, most, high)])


def bands(curve: Trace, draws: Trace) -> Bands:
    """Return the 95% band of each of a curve's values [T] from its draws [M, T]."""
    infinite = np.inf
    limits = {
        "precision_t": (0.0, 1.0),
        "simple_precision_t": (0.0, 1.0),
    }
    ends = {
        name: _ends(value, getattr(draws, name), *limits.get(name, (-infinite, infinite)))
        for name, value in vars(curve).items()
    }
    return Bands(
        Trace(**{name: both[0] for name, both in ends.items()}),
        Trace(**{name: both[1] for name, both in ends.items()}),
    )
