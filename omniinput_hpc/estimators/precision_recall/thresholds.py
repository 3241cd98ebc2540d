"""Precision and recall at chosen thresholds, and test data that lie beyond a curve's ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy

from omniinput_hpc.estimators import EstimateError, FloatArray
from omniinput_hpc.estimators.density.density import Density
from omniinput_hpc.estimators.errors.jackknife import Interval
from omniinput_hpc.estimators.precision_recall.curves import Curve, Trace


@dataclass(frozen=True)
class AtThreshold:
    """A curve's values at a threshold.

    Attributes
    ----------
    asked : the requested output
    threshold : the nearest bin edge; only at edges are precision and recall known without
        assumptions on how inputs are distributed inside a bin
    precision, log_recall : Interval, 95%
    """

    asked: float
    threshold: float
    precision: Interval
    log_recall: Interval


@dataclass(frozen=True)
class Unreached:
    """Shares of a test set's outputs that lie beyond a curve's ends.

    Attributes
    ----------
    n : number of outputs in the set
    first, last : the outputs where the curve's counting begins (confident side) and ends
    before, after : shares of the outputs before `first` and after `last`
    extreme : the most confident output
    """

    n: int
    first: float
    last: float
    before: float
    after: float
    extreme: float


def ends_of(curve: Curve, edges: FloatArray) -> tuple[float, float]:
    """Return the outputs where a curve's counting begins (confident side) and ends.

    edges : float64 [B + 1], of the curve's bins
    """
    first = curve.bin_t[0] + (1 if curve.side == "high" else 0)
    return float(edges[first]), float(curve.threshold_t[-1])


def at_thresholds(curve: Curve, edges: FloatArray, asked: Sequence[float]) -> list[AtThreshold]:
    """Return precision and recall at the bin edges nearest to the outputs `asked`.

    Between bins without counts they are those up to the last bin before. Nothing is accepted at
    the edge where the curve begins, so the first threshold stands for it.

    Raises
    ------
    EstimateError
        An output lies more than half a bin beyond the curve's ends.
    """
    first, last = ends_of(curve, edges)
    sign, order, found = (1.0, edges, []) if curve.side == "low" else (-1.0, edges[::-1], [])
    for z in asked:
        b = int(np.argmin(np.abs(order - z)))
        edge, half = float(order[b]), 0.5 * abs(float(np.diff(order[max(b - 1, 0) :][:2])[0]))
        t = int(np.searchsorted(sign * curve.threshold_t, sign * edge, side="right")) - 1
        inside = sign * first <= sign * z <= sign * last
        near = abs(edge - z) <= half * (1.0 + 1e-9)
        if not inside and not (near and sign * first < sign * edge <= sign * last):
            raise EstimateError(
                f"threshold {z:g}: the curve covers only z = {first:g} to {last:g}; choose a "
                "threshold in this range, widen the bins, or score more of them"
            )
        found.append(
            AtThreshold(
                float(z),
                edge if t >= 0 else float(curve.threshold_t[0]),
                *(_interval(curve, max(t, 0), name) for name in ("precision_t", "log_recall_t")),
            )
        )
    return found


def _interval(curve: Curve, t: int, name: str) -> Interval:
    """Return a curve's value at threshold t with its 95% band; its standard error is not known."""

    def value(trace: Trace) -> FloatArray:
        return np.asarray(getattr(trace, name)[t])

    bands = curve.bands
    return Interval(value(curve.trace), value(bands.low), value(bands.high), np.asarray(np.nan))


def unreached(curve: Curve, edges: FloatArray, z_n: FloatArray) -> Unreached:
    """Return the shares of a test set's outputs, float64 [n], beyond the curve's ends."""
    first, last = ends_of(curve, edges)
    sign = 1.0 if curve.side == "low" else -1.0
    before, after = sign * z_n < sign * first, sign * z_n > sign * last
    extreme = float(z_n.min() if curve.side == "low" else z_n.max())
    return Unreached(len(z_n), first, last, float(before.mean()), float(after.mean()), extreme)


@dataclass(frozen=True)
class NoneRight:
    """The far end of a curve, in which inputs were scored but none was right.

    Attributes
    ----------
    first : output at which it begins, the edge of its first bin on the confident side
    n_bins : bins with scores there
    log_most : ln of the 95% upper bound on the number of right inputs in them
    """

    first: float
    n_bins: int
    log_most: float


def none_right(curve: Curve, density: Density) -> NoneRight | None:
    """Return the far end of a curve in which no right input was seen; None if there is none.

    In a bin of g inputs and n scores, each score represents g / n inputs. With R right inputs in
    total, the chance that no score is right is at most exp(-R / max(g / n)). So ln(20) max(g / n)
    is a 95% upper bound of R: the rule of three for unequal weights.
    """
    seen_t = np.nan_to_num(curve.r_b[curve.bin_t]) > 0
    last = int(np.flatnonzero(seen_t).max(initial=-1))
    beyond = curve.bin_t[last + 1 :]
    scored = beyond[curve.worth_b[beyond] > 0]
    if not scored.size or last < 0:
        return None
    log_g_b = density.log_g_b[scored]
    log_most = float(np.max(log_g_b - np.log(curve.worth_b[scored]) + np.log(np.log(20.0))))
    side = 0 if curve.side == "low" else 1
    return NoneRight(
        float(density.edges[beyond[0] + side]),
        int(scored.size),
        min(log_most, float(scipy.special.logsumexp(log_g_b))),
    )


@dataclass(frozen=True)
class LeftOut:
    """What a curve leaves out at the confident end: too few inputs or lanes, or no scores at all.

    Attributes
    ----------
    first : output at which the curve's counting begins
    log_inputs : ln of the number of inputs before it
    share : their share of all inputs up to and including the curve's first bin
    small_from : the first threshold at which this share is below `SMALL`; NaN if there is none
    """

    first: float
    log_inputs: float
    share: float
    small_from: float


SMALL = 0.05


def left_out(curve: Curve, edges: FloatArray, fine: Density) -> LeftOut | None:
    """Return what a curve leaves out at its confident end; None if it leaves out nothing.

    edges : float64 [B + 1], of the curve's bins
    fine : in the run's own bins, also where nothing was scored
    """
    first, middle_b = ends_of(curve, edges)[0], 0.5 * (fine.edges[:-1] + fine.edges[1:])
    before = middle_b < first if curve.side == "low" else middle_b > first
    out = before & fine.believed_b & (fine.count_b > 0) & np.isfinite(fine.log_g_b)
    if not out.any():
        return None
    log_inputs = float(scipy.special.logsumexp(fine.log_g_b[out]))
    counted_t = np.logaddexp(curve.log_recall_t, curve.trace.log_wrong_t)
    share_t = np.exp(log_inputs - np.logaddexp(log_inputs, counted_t))
    small = np.flatnonzero(share_t < SMALL)
    return LeftOut(
        first,
        log_inputs,
        float(share_t[0]),
        float(curve.threshold_t[small[0]]) if small.size else np.nan,
    )
