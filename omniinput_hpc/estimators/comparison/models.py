"""Which of two models is better: their precision-recall curves over the recall that both reach.

Both curves carry draws of their joint errors (see `draws`); the runs are independent, so that any
draw of one goes with any of the other. Everything is computed for each pair of draws, over the
common minimum and maximum of log recall (OmniInput, Liu et al., TMLR 2025, section 3.2).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from omniinput_hpc.estimators import EstimateError
from omniinput_hpc.estimators.errors.jackknife import LEVEL
from omniinput_hpc.estimators.precision_recall.curves import (
    Curve,
    area,
    common_range,
    cumulative_ratio,
    curve_range,
)

FloatArray = NDArray[np.float64]
N_RECALL_POINTS = 201


@dataclass(frozen=True)
class Interval:
    """Numbers with 95% intervals; infinite where the error is not known.

    Attributes
    ----------
    value, low, high : float64 [...]
    error : float64 [...], standard deviation of the draws
    """

    value: FloatArray
    low: FloatArray
    high: FloatArray
    error: FloatArray

    def __str__(self) -> str:
        """Return one number with its interval."""
        return f"{float(self.value):.6f} ({float(self.low):.6f} to {float(self.high):.6f})"

    def excludes(self, number: float) -> NDArray[np.bool_]:
        """Return whether a number lies outside the interval."""
        return np.asarray((self.low > number) | (self.high < number))


@dataclass(frozen=True)
class ModelComparison:
    """Two models' curves over the log recall that both reach, a minus b and a over b.

    Attributes
    ----------
    lower, upper : float, common range of log recall
    log_recall_x : float64 [201]
    precision_ax, precision_bx : float64 [201]
    difference_x : Interval of [201], precision of a minus that of b
    cumulative_x : Interval of [201], ratio of the areas from `lower` up to there
    aupr_a, aupr_b, aupr_difference, aupr_ratio : Interval, over the common range
    """

    lower: float
    upper: float
    log_recall_x: FloatArray
    precision_ax: FloatArray
    precision_bx: FloatArray
    difference_x: Interval
    cumulative_x: Interval
    aupr_a: Interval
    aupr_b: Interval
    aupr_difference: Interval
    aupr_ratio: Interval


def _interval(value: FloatArray | float, draws: FloatArray) -> Interval:
    """Return the interval of a quantity [...] from its draws [M, ...]."""
    value = np.asarray(value, dtype=np.float64)
    unknown = ~np.isfinite(draws).all(axis=0) | ~np.isfinite(value)
    tail = 0.5 * (1.0 - LEVEL)
    usable = np.where(unknown, 0.0, draws)
    low, high = np.quantile(usable, [tail, 1.0 - tail], axis=0)
    return Interval(
        value,
        np.where(unknown, -np.inf, np.fmin(low, value)),
        np.where(unknown, np.inf, np.fmax(high, value)),
        np.where(unknown, np.inf, usable.std(axis=0)),
    )


def _at(x: FloatArray, precision_t: FloatArray, log_recall_t: FloatArray) -> FloatArray:
    """Return the precision at log recalls x; NaN for a curve without a right input."""
    known = np.isfinite(precision_t) & np.isfinite(log_recall_t)
    if not known.any():
        return np.full(len(x), np.nan)
    return np.asarray(np.interp(x, log_recall_t[known], precision_t[known]))


def _cumulative_area(x: FloatArray, precision_mx: FloatArray) -> FloatArray:
    """Return the area from the first x up to each [M, X]; the first: the precision itself."""
    steps = 0.5 * (precision_mx[:, 1:] + precision_mx[:, :-1]) * np.diff(x)
    return np.concatenate([precision_mx[:, :1], np.cumsum(steps, axis=1)], axis=1)


def _on_common_range(
    draws: list[tuple[FloatArray, FloatArray]], x: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return the precision of draws of a curve at log recalls x [X], [M, X], and their areas, [M].

    draws : pairs of precision and log recall
    """
    areas_m = np.array([area(*curve, x[0], x[-1]) for curve in draws])
    return np.array([_at(x, *curve) for curve in draws]), areas_m


def compare_models(
    a: Curve, b: Curve, shift: float = 0.0, shift_error: float = 0.0, seed: int = 1
) -> ModelComparison:
    """Compare two models' curves over their common range of log recall.

    Parameters
    ----------
    a, b : curves of independent runs, from rules or from people's scores
    shift, shift_error : what to add to b's log recall to have it on a's scale (see `normalization`)
        and its standard error; 0 where both are absolute
    seed : of the pairing of draws

    Raises
    ------
    EstimateError
        The curves have no log recall in common.
    """
    recall_b = b.log_recall_t + shift
    ends = common_range(
        curve_range(a.precision_t, a.log_recall_t), curve_range(b.precision_t, recall_b)
    )
    if not ends[1] > ends[0]:
        raise EstimateError(
            "the two curves share no range of log recall: the models cannot be compared; sample "
            "further up or down, or score more bins"
        )
    rng = np.random.default_rng(seed)
    x = np.linspace(*ends, N_RECALL_POINTS)
    n = min(len(a.draws.precision_t), len(b.draws.precision_t))
    # The draws of both curves may come from the same random numbers: they are paired anew.
    pair_m = rng.permutation(len(b.draws.precision_t))[:n]
    shift_m = shift + shift_error * rng.normal(size=n)
    draws_a = list(zip(a.draws.precision_t[:n], a.draws.log_recall_t[:n], strict=True))
    draws_b = [
        (b.draws.precision_t[m], b.draws.log_recall_t[m] + s)
        for m, s in zip(pair_m, shift_m, strict=True)
    ]
    p_amx, area_am = _on_common_range(draws_a, x)
    p_bmx, area_bm = _on_common_range(draws_b, x)
    area_a = area(a.precision_t, a.log_recall_t, *ends)
    area_b = area(b.precision_t, recall_b, *ends)
    p_ax, p_bx = _at(x, a.precision_t, a.log_recall_t), _at(x, b.precision_t, recall_b)
    with np.errstate(divide="ignore", invalid="ignore"):
        growing_mx = _cumulative_area(x, p_amx) / _cumulative_area(x, p_bmx)
        _, ratio_x = cumulative_ratio(
            (a.precision_t, a.log_recall_t), (b.precision_t, recall_b), N_RECALL_POINTS
        )
        ratio_m, ratio = area_am / area_bm, np.divide(area_a, area_b)
    return ModelComparison(
        *ends,
        x,
        p_ax,
        p_bx,
        _interval(p_ax - p_bx, p_amx - p_bmx),
        _interval(ratio_x, growing_mx),
        _interval(area_a, area_am),
        _interval(area_b, area_bm),
        _interval(area_a - area_b, area_am - area_bm),
        _interval(ratio, ratio_m),
    )


def ranges(where_x: NDArray[np.bool_], x: FloatArray) -> list[str]:
    """Return the ranges of x where something holds, in words."""
    edge = np.flatnonzero(np.diff(np.concatenate([[False], where_x, [False]]).astype(int)))
    return [f"{x[i]:.2f} to {x[j - 1]:.2f}" for i, j in edge.reshape(-1, 2) if j - i > 1]


def verdict(found: ModelComparison, name_a: str, name_b: str) -> str:
    """Return a sentence: which model is better, in which range, or that the data cannot tell."""
    d, x = found.difference_x, found.log_recall_x
    where = f"over ln recall {found.lower:.2f} to {found.upper:.2f}"
    if not np.isfinite(found.aupr_difference.error):
        return f"The data cannot tell which model is better {where}: the errors are not known."
    if found.aupr_difference.excludes(0.0):
        better, worse = (name_a, name_b) if found.aupr_difference.value > 0 else (name_b, name_a)
        size = abs(float(found.aupr_difference.value))
        text = f"{better} is better than {worse} {where}: its mean precision is {size:.4g} higher"
    else:
        text = f"The data cannot tell which model is better {where}"
    parts = [
        f"{name} is the more precise one at {', '.join(found_ranges)}"
        for name, found_ranges in (
            (name_a, ranges(d.low > 0, x)),
            (name_b, ranges(d.high < 0, x)),
        )
        if found_ranges
    ]
    if parts:
        return f"{text}; by 95% bands at each recall {', and '.join(parts)}."
    return f"{text}; at no single recall do the 95% bands tell them apart."


def describe(found: ModelComparison, name_a: str, name_b: str) -> list[str]:
    """Return the plain lines that the script prints."""
    return [
        f"common range of ln recall: {found.lower:.3f} to {found.upper:.3f}",
        f"AUPR of {name_a}: {found.aupr_a}",
        f"AUPR of {name_b}: {found.aupr_b}",
        f"AUPR difference, {name_a} minus {name_b}: {found.aupr_difference}",
        f"AUPR ratio, {name_a} over {name_b} (cumulative to the largest recall): "
        f"{found.aupr_ratio}",
        verdict(found, name_a, name_b),
    ]
