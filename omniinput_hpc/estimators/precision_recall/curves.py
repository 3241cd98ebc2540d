"""Precision-recall curves: from log g and r per bin to curves and their areas.

With g_b inputs in bin b and their mean score r_b, the inputs with output z <= lambda
(OmniInput, Liu et al., TMLR 2025, Eq. 3 and 4) have

    precision(lambda) = sum_{z_b <= lambda} r_b g_b / sum_{z_b <= lambda} g_b,
    log_recall(lambda) = log sum_{z_b <= lambda} r_b g_b,

the log number of right inputs found (recall without its unknown denominator). Models whose high
outputs mean "yes" use z >= lambda instead (``side="high"``). Bins are the last axis, so that all
replicates are traced at once. Sums are taken in log space because g spans thousands of nats.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from omniinput_hpc.estimators import BoolArray, EstimateError, FloatArray, IntArray
from omniinput_hpc.text import LN10, range_words

Side = Literal["low", "high"]
Range = tuple[float, float]


ROUNDING = 1e-6
"""How far, in ln recall, a requested end may lie beyond the curve's own end."""
FEWEST_INPUTS, FEWEST_LANES = 30, 8
"""Distinct scored inputs, and lanes that they come from, required for a bin's mean score."""


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
    simple_precision_t : float64 [..., T], their approximation r(z*), where z* is the largest bin
    simple_log_recall_t : float64 [..., T], their approximation max log(r g)
    """

    precision_t: FloatArray
    log_recall_t: FloatArray
    log_wrong_t: FloatArray
    simple_precision_t: FloatArray
    simple_log_recall_t: FloatArray


@dataclass(frozen=True)
class Bands:
    """Ends of the 95% intervals of a `Trace`: never NaN, but [0, 1] or infinite if not known."""

    low: Trace
    high: Trace


@dataclass(frozen=True)
class BinMeans:
    """Mean scores per bin.

    Attributes
    ----------
    r_b, r_error_b : float64 [B], mean score (NaN in bins that are not counted), standard error
    r_low_b, r_high_b : float64 [B], its 95% interval; its width is never 0, since a few dozen equal
        scores do not give certainty
    interpolated_b : bool [B], r_b is interpolated because the bin has no scored samples
    thin_b : bool [B], counted bins whose r_b comes from too few inputs or lanes
    inputs_b, lanes_b : int64 [B], distinct scored inputs and their lanes
    scores_b : int64 [B], scored inputs: a rule's recorded samples, or people's distinct inputs
    worth_b : float64 [B], effective number of independent right-or-wrong scores; 0 if none
    """

    r_b: FloatArray
    r_error_b: FloatArray
    r_low_b: FloatArray
    r_high_b: FloatArray
    interpolated_b: BoolArray
    thin_b: BoolArray
    inputs_b: IntArray
    lanes_b: IntArray
    scores_b: IntArray
    worth_b: FloatArray


@dataclass(frozen=True)
class JointDraws:
    """Draws of a curve that carry its joint error; two curves are compared draw by draw.

    Attributes
    ----------
    values : Trace of [M, T]
    best : the same with the best r that one-sided scores allow, for upper ends of AUPRs (see
        `intervals`); None if only the density is drawn
    bound : how far from 1 (or 0) an AUPR may be if nothing wrong (or nothing right) was seen
    own : the same as `values` with each bin's r drawn from its own scores only, for values at one
        recall; None if only the density is drawn
    paired : whether draws of equal number belong together in all curves from the same labels
    """

    values: Trace
    best: Trace | None
    bound: float
    own: Trace | None = None
    paired: bool = False


@dataclass(frozen=True)
class CurveErrors:
    """Errors of a curve.

    Attributes
    ----------
    aupr_error, aupr_low, aupr_high : float, standard error and 95% interval of the AUPR
    aupr_one_sided : 1 if only its upper end is a bound, -1 if only its lower end is, else 0
    """

    bands: Bands
    draws: JointDraws
    aupr_error: float
    aupr_low: float
    aupr_high: float
    aupr_one_sided: int


@dataclass(frozen=True)
class Curve(BinMeans, CurveErrors):
    """A precision-recall curve with a row t per threshold, beginning at the confident end.

    Attributes
    ----------
    threshold_t : float64 [T], the far edge of the last bin that is counted
    bin_t : int64 [T], that bin
    aupr : float, over `aupr_range`
    side : the confident end of z, where the counting begins
    aupr_range : range of log recall; NaN without a right input
    range_given : whether that range was requested; else it lies between the curve's own ends
    """

    threshold_t: FloatArray
    bin_t: IntArray
    trace: Trace
    aupr: float
    side: Side
    aupr_range: Range
    range_given: bool

    @property
    def n_scored(self) -> int:
        """Scored inputs in the bins that are counted."""
        return int(self.scores_b[self.bin_t].sum())

    @property
    def precision_t(self) -> FloatArray:
        """Precision at every threshold."""
        return self.trace.precision_t

    @property
    def log_recall_t(self) -> FloatArray:
        """Log number of right inputs at every threshold."""
        return self.trace.log_recall_t


def counting_order(side: Side) -> slice:
    """Return the order in which bins, in ascending z, are counted from a side."""
    return slice(None) if side == "low" else slice(None, None, -1)


def trace(log_g_b: FloatArray, r_b: FloatArray, side: Side) -> Trace:
    """Return the curve over bins, counted from ``side``.

    Parameters
    ----------
    log_g_b, r_b : float64 [..., B'], bins in ascending z
    side : "low" counts upwards from the lowest bin, "high" downwards from the highest

    Returns
    -------
    Trace, with NaN precision and -inf logs before the first bin with inputs
    """
    order = counting_order(side)
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
    """Return only precision and log_recall of `trace`."""
    curve = trace(log_g_b, r_b, side)
    return curve.precision_t, curve.log_recall_t


def curve_range(precision_t: FloatArray, log_recall_t: FloatArray) -> Range:
    """Return the curve's own ends in log recall (NaN if the curve has no right input)."""
    known = np.isfinite(log_recall_t) & np.isfinite(precision_t)
    if not known.any():
        return np.nan, np.nan
    return float(log_recall_t[known].min()), float(log_recall_t[known].max())


def asked_range(precision_t: FloatArray, log_recall_t: FloatArray, asked: Range | None) -> Range:
    """Return the requested range of log recall (None: the curve's own ends).

    Raises
    ------
    EstimateError
        The curve does not cover all of it: an area over a part is not comparable with others.
    """
    own = curve_range(precision_t, log_recall_t)
    if asked is None:
        return own
    if not (own[0] - ROUNDING <= asked[0] and asked[1] <= own[1] + ROUNDING):
        found = f"is known from {range_words(own)} (ln recall {own[0]:.4f} to {own[1]:.4f})"
        if np.isnan(own[0]):
            found = "has no right input"
        raise EstimateError(
            f"--recall-range 10^{asked[0] / LN10:.6g}:10^{asked[1] / LN10:.6g}: the curve {found}, "
            "so it has no AUPR over this range; give a range that all curves reach"
        )
    return asked


def common_range(a: Range, b: Range) -> Range:
    """Return the range of log recall that two curves share; NaN if none, or if one has no range."""
    if not np.isfinite([*a, *b]).all():
        return np.nan, np.nan
    low, high = max(a[0], b[0]), min(a[1], b[1])
    return (low, high) if high > low else (np.nan, np.nan)


def _cut(
    precision_t: FloatArray, log_recall_t: FloatArray, lower: float | None, upper: float | None
) -> tuple[FloatArray, FloatArray]:
    """Return log recall and precision between two ends, clipped to the curve's; may be empty."""
    known = np.isfinite(log_recall_t) & np.isfinite(precision_t)
    p, x = precision_t[known], log_recall_t[known]
    if not known.any():
        return np.empty(0), np.empty(0)
    low = x[0] if lower is None else max(lower, x[0])
    high = x[-1] if upper is None else min(upper, x[-1])
    if not high > low:
        return np.empty(0), np.empty(0)
    inner = (x > low) & (x < high)
    first = np.interp(low, x, p)  # the last of equal log recalls
    last = np.interp(-high, -x[::-1], p[::-1])  # the first of equal log recalls
    return np.concatenate([[low], x[inner], [high]]), np.concatenate([[first], p[inner], [last]])


def area(
    precision_t: FloatArray,
    log_recall_t: FloatArray,
    lower: float | None = None,
    upper: float | None = None,
) -> float:
    """Return the AUPR: the area under precision over log recall, divided by the width.

    This is the mean precision (linear between thresholds); NaN if the range has no width.

    Parameters
    ----------
    precision_t, log_recall_t : float64 [T], log_recall not descending
    lower, upper : range of log recall, clipped to the curve's own ends, which are the default
    """
    x, p = _cut(precision_t, log_recall_t, lower, upper)
    return float(np.trapezoid(p, x) / (x[-1] - x[0])) if x.size else np.nan


def areas(
    precision_mt: FloatArray, log_recall_mt: FloatArray, ends: Range, continued: bool = False
) -> FloatArray:
    """Return `area` of many curves [M, T] between the same ends, [M]; NaN if one has no width.

    A curve that does not reach an end is cut there. If `continued`, it keeps its outermost
    precision up to the end, so that all areas are over the same range; a curve without a right
    input then has area 0.
    """
    known = np.isfinite(log_recall_mt) & np.isfinite(precision_mt)
    first = np.where(known, log_recall_mt, np.inf).min(axis=1, keepdims=True)
    # unknown values lie before the first right input; give that stretch zero width
    x, p = np.where(known, log_recall_mt, first), np.where(known, precision_mt, 0.0)
    low = np.maximum(first, ends[0])
    high = np.minimum(x[:, -1:], ends[1])
    begin, stop = np.clip(x[:, :-1], low, high), np.clip(x[:, 1:], low, high)
    with np.errstate(divide="ignore", invalid="ignore"):
        slope = np.diff(p, axis=1) / np.diff(x, axis=1)
        middle = p[:, :-1] + slope * (0.5 * (begin + stop) - x[:, :-1])
        total = np.where(stop > begin, middle * (stop - begin), 0.0).sum(axis=1)
        if continued:
            total += _beyond(p, x, known, ends)
            return np.where(known.any(axis=1), total / (ends[1] - ends[0]), 0.0)
        return np.asarray(np.where(high > low, total[:, None] / (high - low), np.nan)[:, 0])


def _beyond(p: FloatArray, x: FloatArray, known: BoolArray, ends: Range) -> FloatArray:
    """Return the area between the range's ends and curves [M, T], at their outermost precision."""
    curve, first = np.arange(len(p)), known.argmax(axis=1)
    before = np.clip(x[curve, first], *ends) - ends[0]
    after = ends[1] - np.clip(x[:, -1], *ends)
    return np.asarray(before * p[curve, first] + after * p[:, -1])


def build_curve(
    edges: FloatArray, used_b: BoolArray, side: Side, values: Trace, means: BinMeans,
    errors: CurveErrors, asked: Range | None = None,
) -> Curve:  # fmt: skip
    """Return a curve over the used bins, counted from `side`, with the means of all bins [B]."""
    ends = asked_range(values.precision_t, values.log_recall_t, asked)
    order = np.flatnonzero(used_b)[counting_order(side)]
    return Curve(
        threshold_t=edges[order + 1] if side == "low" else edges[order],
        bin_t=order,
        trace=values,
        aupr=area(values.precision_t, values.log_recall_t, *ends),
        side=side,
        aupr_range=ends,
        range_given=asked is not None,
        **vars(means),
        **vars(errors),
    )


def counted_bins(believed_b: BoolArray, enough_b: BoolArray) -> BoolArray:
    """Return the believed bins between the first and last that have enough scores; none if none."""
    fit = np.flatnonzero(believed_b & enough_b)
    counted_b = np.zeros(len(believed_b), dtype=bool)
    if fit.size:
        counted_b[fit[0] : fit[-1] + 1] = True
    return counted_b & believed_b


def fill_gaps(r: FloatArray, z_b: FloatArray, used_b: BoolArray, scored_b: BoolArray) -> FloatArray:
    """Return r [..., B] in the used bins, NaN elsewhere.

    Used bins without scores are interpolated linearly in z between the nearest used bins with
    scores; beyond the outermost of these, its value is used.
    """
    scored_b = used_b & scored_b
    filled = np.where(scored_b, r, np.nan)
    known = np.flatnonzero(scored_b)
    for b in np.flatnonzero(used_b & ~scored_b) if known.size else ():
        place = int(np.searchsorted(known, b))
        below, above = known[max(place - 1, 0)], known[min(place, len(known) - 1)]
        share = (z_b[b] - z_b[below]) / (z_b[above] - z_b[below]) if above > below else 0.0
        filled[..., b] = (1.0 - share) * r[..., below] + share * r[..., above]
    return filled


def cumulative_ratio(
    a: tuple[FloatArray, FloatArray], b: tuple[FloatArray, FloatArray], log_recall_x: FloatArray
) -> FloatArray:
    """Return the ratio of two curves' areas as recall grows, float64 [n].

    Both curves are (precision_t, log_recall_t) on one scale of recall. The areas reach from the
    first log recall, float64 [n] ascending within the curves' common range, to each of them; at the
    first it is the ratio of the precisions.
    """
    areas = []
    for curve in (a, b):
        x, p = _cut(*curve, log_recall_x[0], log_recall_x[-1])
        every = np.union1d(x, log_recall_x)
        value = np.interp(every, x, p)
        steps = 0.5 * (value[1:] + value[:-1]) * np.diff(every)
        total = np.concatenate([[0.0], np.cumsum(steps)])[np.searchsorted(every, log_recall_x)]
        total[0] = value[0]  # instead of 0 / 0, whose limit is the ratio of the precisions
        areas.append(total)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(areas[0] / areas[1])
