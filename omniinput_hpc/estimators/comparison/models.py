"""Compare two models: their precision-recall curves over the recall that both reach.

Both curves carry draws of their joint errors (see `precision_recall.intervals`). The runs are
independent, so any draw of one curve can be paired with any of the other. All quantities are
computed for each pair of draws, over the common range of log recall (OmniInput, Liu et al.,
TMLR 2025, section 3.2). The interval of each model's AUPR is that of its own curve over that range.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from omniinput_hpc.estimators import EstimateError, FloatArray, IntArray
from omniinput_hpc.estimators.errors.jackknife import TAILS, Interval
from omniinput_hpc.estimators.precision_recall import curves
from omniinput_hpc.estimators.precision_recall.curves import Curve, JointDraws, Range, Trace
from omniinput_hpc.estimators.precision_recall.intervals import areas_of, aupr_interval

N_RECALL_POINTS = 201


@dataclass(frozen=True)
class Auprs:
    """Two curves' AUPRs over one range of log recall.

    Attributes
    ----------
    one_sided_a, one_sided_b : int, which end of each AUPR is a bound; see `aupr_interval`
    """

    aupr_a: Interval
    aupr_b: Interval
    aupr_difference: Interval
    aupr_ratio: Interval
    one_sided_a: int
    one_sided_b: int


@dataclass(frozen=True)
class ModelComparison(Auprs):
    """Two models' curves over the log recall that both reach; differences are a - b, ratios a / b.

    Attributes
    ----------
    lower, upper : float, common range of log recall
    log_recall_x : float64 [201]
    precision_ax, precision_bx : float64 [201]
    difference_x : Interval of [201], precision of a minus that of b
    cumulative_x : Interval of [201], ratio of the areas from `lower` to each log recall
    """

    lower: float
    upper: float
    log_recall_x: FloatArray
    precision_ax: FloatArray
    precision_bx: FloatArray
    difference_x: Interval
    cumulative_x: Interval


def _interval(
    value: FloatArray | float, draws: FloatArray, ends: tuple[FloatArray, FloatArray] | None = None
) -> Interval:
    """Return the interval of a quantity [...] from its draws [M, ...].

    `ends`: the draws that give the lower and the upper end, if they differ from `draws`.
    """
    value = np.asarray(value, dtype=np.float64)
    low_m, high_m = ends or (draws, draws)
    unknown = ~np.isfinite([draws, low_m, high_m]).all(axis=(0, 1)) | ~np.isfinite(value)
    low = np.quantile(np.where(unknown, 0.0, low_m), TAILS[0], axis=0)
    high = np.quantile(np.where(unknown, 0.0, high_m), TAILS[1], axis=0)
    return Interval(
        value,
        np.where(unknown, -np.inf, low),
        np.where(unknown, np.inf, high),
        np.where(unknown, np.inf, np.where(unknown, 0.0, draws).std(axis=0)),
    )


def _at(x: FloatArray, precision_t: FloatArray, log_recall_t: FloatArray) -> FloatArray:
    """Return the precision at log recalls x; NaN if the curve has no right input."""
    known = np.isfinite(precision_t) & np.isfinite(log_recall_t)
    if not known.any():
        return np.full(len(x), np.nan)
    return np.asarray(np.interp(x, log_recall_t[known], precision_t[known]))


def _cumulative_area(x: FloatArray, precision_mx: FloatArray) -> FloatArray:
    """Return the area from the first x to each x, [M, X]; at the first x, the precision itself."""
    steps = 0.5 * (precision_mx[:, 1:] + precision_mx[:, :-1]) * np.diff(x)
    return np.concatenate([precision_mx[:, :1], np.cumsum(steps, axis=1)], axis=1)


def _precisions(draws: Trace, x: FloatArray) -> FloatArray:
    """Return the precision of each draw at log recalls x, [M, X]."""
    pairs = zip(draws.precision_t, draws.log_recall_t, strict=True)
    return np.array([_at(x, *draw) for draw in pairs])


def _moved(draws: JointDraws, take_m: IntArray, shift_m: FloatArray) -> JointDraws:
    """Return the draws `take_m` of a curve, each shifted along log recall by shift_m [M]."""

    def moved(trace: Trace) -> Trace:
        values = {name: value[take_m] for name, value in vars(trace).items()}
        return replace(Trace(**values), log_recall_t=values["log_recall_t"] + shift_m[:, None])

    best, own = (None if t is None else moved(t) for t in (draws.best, draws.own))
    return replace(draws, values=moved(draws.values), best=best, own=own)


def compare_models(
    a: Curve,
    b: Curve,
    shift: float = 0.0,
    shift_error: float = 0.0,
    asked: Range | None = None,
) -> ModelComparison:
    """Compare two models' curves over their common range of log recall, or the requested one.

    The curves come from independent runs, scored by rules or by people; if both use the labels of
    one bank (`banked`), draws of equal number belong together. Add `shift` to b's log
    recall to bring it to a's scale (see `normalization`; 0 if both are absolute). `asked` is a
    part of the common range, on a's scale.

    Raises
    ------
    EstimateError
        The curves have no log recall in common, or do not cover all of `asked`.
    """
    curve_a = (a.precision_t, a.log_recall_t)
    curve_b = (b.precision_t, b.log_recall_t + shift)
    ends = curves.common_range(curves.curve_range(*curve_a), curves.curve_range(*curve_b))
    if not ends[1] > ends[0]:
        raise EstimateError(
            "the two curves share no range of log recall: the models cannot be compared; sample "
            "further up or down, or score more bins"
        )
    if asked is not None:
        curves.asked_range(*curve_a, asked)
        ends = curves.asked_range(*curve_b, asked)
    rng = np.random.default_rng(1)
    x, continued = np.linspace(*ends, N_RECALL_POINTS), asked is not None
    n_a, n_b = len(a.draws.values.precision_t), len(b.draws.values.precision_t)
    # Both curves' draws may come from the same random numbers, so shuffle before pairing.
    take_b, n = rng.permutation(n_b)[: min(n_a, n_b)], min(n_a, n_b)
    if a.draws.paired and b.draws.paired:
        take_b = np.arange(n)
    shift_m = shift + shift_error * rng.normal(size=n)
    draws_a = _moved(a.draws, np.arange(n), np.zeros(n))
    draws_b = _moved(b.draws, take_b, shift_m)
    moved_b = replace(b.trace, log_recall_t=curve_b[1])
    p_ax, p_bx = _at(x, *curve_a), _at(x, *curve_b)
    along = p_ax - p_bx, curves.cumulative_ratio(curve_a, curve_b, x)
    difference_x, cumulative_x = _along(along, x, draws_a, draws_b)
    return ModelComparison(
        **vars(_auprs((a.trace, draws_a), (moved_b, draws_b), ends, continued)),
        lower=ends[0],
        upper=ends[1],
        log_recall_x=x,
        precision_ax=p_ax,
        precision_bx=p_bx,
        difference_x=difference_x,
        cumulative_x=cumulative_x,
    )


def _along(
    values: tuple[FloatArray, FloatArray], x: FloatArray, a: JointDraws, b: JointDraws
) -> tuple[Interval, Interval]:
    """Return the difference of precisions at each x, and the ratio of the areas up to it.

    `values` are these two, [X] each. Joint draws pull a bin's r towards its neighbours, which suits
    areas over many bins, but not values at one recall. So an interval reaches as far as either the
    joint draws or each bin's own draws do. A curve is at its best if the other is as drawn.
    """
    intervals = []
    for draws_a, draws_b in ((a.values, b.values), (a.own or a.values, b.own or b.values)):
        p_amx, p_bmx = _precisions(draws_a, x), _precisions(draws_b, x)
        best_amx, best_bmx = (
            p_mx if best is None else np.maximum(p_mx, _precisions(best, x))
            for p_mx, best in ((p_amx, a.best), (p_bmx, b.best))
        )
        areas = [_cumulative_area(x, p_mx) for p_mx in (p_amx, p_bmx, best_amx, best_bmx)]
        difference = p_amx - p_bmx, (p_amx - best_bmx, best_amx - p_bmx)
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = areas[0] / areas[1], (areas[0] / areas[3], areas[2] / areas[1])
        intervals.append(
            [_interval(v, *d) for v, d in zip(values, (difference, ratio), strict=True)]
        )
    (difference_x, ratio_x), own = intervals
    return _wider(difference_x, own[0]), _wider(ratio_x, own[1])


def _wider(one: Interval, other: Interval) -> Interval:
    """Return an interval that reaches as far as either does."""
    low, high = np.minimum(one.low, other.low), np.maximum(one.high, other.high)
    return Interval(one.value, low, high, np.maximum(one.error, other.error))


def _ends_of(one_m: FloatArray, other_m: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the smaller and the larger of two draws, [M] each."""
    return np.minimum(one_m, other_m), np.maximum(one_m, other_m)


def _auprs(
    a: tuple[Trace, JointDraws], b: tuple[Trace, JointDraws], ends: Range, continued: bool
) -> Auprs:
    """Return both curves' AUPRs over a range, their difference and their ratio.

    `a` and `b` are curves on one scale of recall; their draws are in the order of the pairs.
    """
    (aupr_a, one_sided_a), (aupr_b, one_sided_b) = (
        aupr_interval(*curve, ends, continued) for curve in (a, b)
    )
    (area_am, best_am), (area_bm, best_bm) = (areas_of(d, ends, continued) for _, d in (a, b))
    difference_ends = area_am - best_bm, best_am - area_bm
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio_ends = area_am / best_bm, best_am / area_bm
        if a[1].paired and b[1].paired:  # the same labels: at best for both models, or for neither
            difference_ends = _ends_of(area_am - area_bm, best_am - best_bm)
            ratio_ends = _ends_of(area_am / area_bm, best_am / best_bm)
        ratio_m, ratio = area_am / area_bm, np.divide(aupr_a.value, aupr_b.value)
    return Auprs(
        aupr_a,
        aupr_b,
        _interval(aupr_a.value - aupr_b.value, area_am - area_bm, difference_ends),
        _interval(ratio, ratio_m, ratio_ends),
        one_sided_a,
        one_sided_b,
    )
