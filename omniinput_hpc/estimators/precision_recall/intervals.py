"""Compute all 95% intervals of a curve from effective right-or-wrong scores and draws of log g.

A rule's samples (`rule_worth`) and people's scores (`from_scores`) are converted to effective
numbers of right and wrong scores per bin. From these and from draws of the density with its joint
error, `mid_p` makes the intervals of r, precision and recall, and `pooled_draws` makes joint draws
of the curve, whose areas give the AUPR's interval over any range of recall. No interval is widened
or cut to contain an estimate.

A posterior draw is never exactly 1 or 0, but r may be. So an AUPR's lower end comes from the draws,
but its upper end comes from draws "at best": r = 1 in bins where nothing wrong was seen, and r = 0
in all bins beyond the last right input. Joint draws also pull a bin's r towards its neighbours if
few scores contradict this. If that reduces the area, the upper end comes from each bin's own draws.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from omniinput_hpc.estimators import FloatArray
from omniinput_hpc.estimators.errors.jackknife import TAILS, Interval
from omniinput_hpc.estimators.precision_recall import curves, mid_p
from omniinput_hpc.estimators.precision_recall.curves import JointDraws, Range, Side, Trace

HARDLY = 0.05
"""Only the lower end of an AUPR is a bound if 1 - AUPR is below this share of 1 - (lower end)."""


@dataclass(frozen=True)
class DrawsOfR:
    """Draws of the mean scores of a curve's bins, in ascending z.

    Attributes
    ----------
    sums : of bins within sums, for separate values of the curve
    joint_mb : float64 [M, B], of all bins jointly
    right_b, count_b : float64 [B], the effective scores that the joint draws come from
    order : what sorted the joint draws like those of other curves from the same labels, or None
    """

    sums: mid_p.MidPDraws
    joint_mb: FloatArray
    right_b: FloatArray
    count_b: FloatArray
    order: Callable[[FloatArray], FloatArray] | None = None

    def at_best(self, side: Side) -> list[FloatArray]:
        """Return the joint draws, and each bin's own draws, with the best r that scores allow.

        That is 1 in bins where nothing wrong was seen, and 0 in those after the last right score.
        A bin's own draws ignore its neighbours, which bias its joint draws if r is steep.
        """
        right_b, scored_b = self.right_b > 0, self.count_b > 0
        all_right_b = scored_b & (self.right_b == self.count_b)
        order = curves.counting_order(side)
        later_b = np.cumsum(right_b[order][::-1])[::-1][order] == 0
        none_right_b = scored_b & later_b & right_b.any()
        best = [
            np.where(all_right_b, 1.0, np.where(none_right_b, 0.0, mb))
            for mb in (self.joint_mb, self.own_mb)
        ]
        return [self.order(mb) for mb in best] if self.order else best

    @cached_property
    def own_mb(self) -> FloatArray:
        """Draws of each bin's r from its own scores, if these are both right and wrong."""
        wrong_b = np.maximum(self.count_b - self.right_b, 0.0)
        tossed_b = (self.right_b > 0) & (wrong_b > 0)
        own_mb = self.joint_mb.copy()
        own_mb[:, tossed_b] = np.random.default_rng(1).beta(
            self.right_b[tossed_b], wrong_b[tossed_b], size=(len(own_mb), int(tossed_b.sum()))
        )
        return self.order(own_mb) if self.order else own_mb


def curve_errors(
    values: Trace, log_g_b: FloatArray, log_g_mb: FloatArray, r: DrawsOfR, side: Side,
    asked: Range | None,
) -> curves.CurveErrors:  # fmt: skip
    """Return a curve's bands, joint draws, and the error and interval of its AUPR.

    Parameters
    ----------
    log_g_b, log_g_mb : float64 [B] and [M, B], of its bins, and draws of it
    r : draws of their mean scores
    asked : requested range of log recall (default: the curve's own ends)
    """
    ends = curves.asked_range(values.precision_t, values.log_recall_t, asked)
    best = [curves.trace(log_g_mb, best_mb, side) for best_mb in r.at_best(side)]
    high = [np.mean(_areas(traces, ends, asked is not None)) for traces in best]
    order = curves.counting_order(side)
    draws = JointDraws(
        values=curves.trace(log_g_mb, r.joint_mb, side),
        best=best[int(np.argmax(high))],
        bound=_bound(log_g_b[order], r.right_b[order], r.count_b[order]),
        own=curves.trace(log_g_mb, r.own_mb, side),
        paired=r.order is not None,
    )
    bands = bands_of_draws(mid_p.trace_mid_p(log_g_b, log_g_mb, r.sums, side))
    found, one_sided = aupr_interval(values, draws, ends, asked is not None)
    return curves.CurveErrors(
        bands, draws, float(found.error), float(found.low), float(found.high), one_sided
    )


def _bound(log_g_b: FloatArray, right_b: FloatArray, count_b: FloatArray) -> float:
    """Return how far a mean over ln recall may be from 0 (or 1) if no score is right (or wrong).

    This is the rule of three (95%) for unequal weights: a score of bin b counts by v / n, where v
    is the share of the ln recall that the bin adds. Bins are in the order of counting.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        r_b = np.where(count_b > 0, right_b / count_b, 0.5)
        added_b = added_recall(log_g_b, r_b, count_b)
        share_b = np.where(count_b > 0, added_b / (added_b.sum() * count_b), 0.0)
    return mid_p.rule_of_three(1.0 / max(float(share_b.max(initial=0.0)), 1e-300))


def added_recall(log_g_b: FloatArray, r_b: FloatArray, count_b: FloatArray) -> FloatArray:
    """Return approximately the ln recall that each bin adds [B]; the first gets the second's value.

    Bins are in the order of counting. Half a right and half a wrong score are added to each.
    """
    smooth_b = (count_b * r_b + 0.5) / (count_b + 1.0)
    log_right_b = np.logaddexp.accumulate(log_g_b + np.log(smooth_b))
    with np.errstate(invalid="ignore"):
        added_b = np.diff(log_right_b, prepend=-np.inf)
    later_b = np.isfinite(added_b)
    return np.where(later_b, added_b, added_b[later_b][0] if later_b.any() else 1.0)


def aupr_interval(
    values: Trace, draws: JointDraws, ends: Range, continued: bool
) -> tuple[Interval, int]:
    """Return the AUPR of a curve over a range of log recall, with its 95% interval.

    Also returned: 1 if only the upper end is a bound (nothing right was seen), -1 if only the lower
    end is (nothing wrong was seen, or so little that it hardly counts), else 0.

    Parameters
    ----------
    ends : the range; NaN for a curve of no width
    continued : whether draws that do not reach an end are extended to it (see `curves.areas`)
    """
    aupr = np.asarray(curves.area(values.precision_t, values.log_recall_t, *ends))
    area_m, best_m = areas_of(draws, ends, continued)
    if not np.isfinite(area_m).all():
        return Interval(aupr, np.asarray(0.0), np.asarray(1.0), np.asarray(np.inf)), 0
    low, high = float(np.quantile(area_m, TAILS[0])), float(np.quantile(best_m, TAILS[1]))
    one_sided = 0
    if np.isneginf(values.log_recall_t[-1]):
        low, high, one_sided = 0.0, max(high, draws.bound), 1
    elif np.isneginf(values.log_wrong_t[-1]):
        low, high, one_sided = min(low, 1.0 - draws.bound), 1.0, -1
    elif 1.0 - aupr < HARDLY * (1.0 - low):
        high, one_sided = 1.0, -1
    error = np.std(area_m)
    return Interval(aupr, np.asarray(low), np.asarray(high), np.asarray(error)), one_sided


def areas_of(draws: JointDraws, ends: Range, continued: bool) -> tuple[FloatArray, FloatArray]:
    """Return the AUPR of every draw over one range of log recall, and that at best, [M] each."""
    area_m = _areas(draws.values, ends, continued)
    return area_m, area_m if draws.best is None else _areas(draws.best, ends, continued)


def _areas(draws: Trace, ends: Range, continued: bool) -> FloatArray:
    """Return the AUPR of every draw [M] over one range of log recall.

    If `continued`, each draw covers the whole range. Otherwise a draw that shares nothing with the
    range is taken over its own range, and a draw with right inputs in fewer than two bins counts by
    its final precision.
    """
    if continued:
        return curves.areas(draws.precision_t, draws.log_recall_t, ends, continued=True)
    area_m = curves.areas(draws.precision_t, draws.log_recall_t, ends)
    for m in np.flatnonzero(np.isnan(area_m)):
        area_m[m] = curves.area(draws.precision_t[m], draws.log_recall_t[m])
    return np.where(np.isnan(area_m), draws.precision_t[:, -1], area_m)


def bands_of_draws(draws: Trace) -> curves.Bands:
    """Return the 95% band of each of a curve's values [T] from its draws [M, T]."""
    low, high = {}, {}
    for name, value_mt in vars(draws).items():
        ends = (0.0, 1.0) if "precision" in name else (-np.inf, np.inf)
        low[name], high[name] = _ends(value_mt, *ends)
    return curves.Bands(Trace(**low), Trace(**high))


def _ends(value_mt: FloatArray, least: float, most: float) -> tuple[FloatArray, FloatArray]:
    """Return the interval's ends [T]; `least` and `most` if draws are unknown."""
    unknown = np.isnan(value_mt).any(axis=0)
    # method="nearest": -inf (a draw without right inputs) can be sorted, but not interpolated
    drawn = np.where(unknown, 0.0, value_mt)
    low, high = np.quantile(drawn, TAILS, axis=0, method="nearest")
    return np.where(unknown, least, low), np.where(unknown, most, high)
