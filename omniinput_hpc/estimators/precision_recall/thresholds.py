"""Precision and recall at chosen thresholds, and test data that a curve does not reach."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import logsumexp

from omniinput_hpc.estimators import EstimateError, FloatArray
from omniinput_hpc.estimators.density.density import Density
from omniinput_hpc.estimators.errors.jackknife import Interval
from omniinput_hpc.estimators.precision_recall.curves import Curve, Trace


@dataclass(frozen=True)
class AtThreshold:
    """A curve's values at a threshold.

    Attributes
    ----------
    asked : the output that was asked for
    threshold : the nearest edge of a bin, where precision and recall are known without assuming how
        inputs are spread inside a bin
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
    n : outputs of the set
    first, last : the curve's ends: where its counting begins, at the confident side, and ends
    before, after : share of the outputs before the first and after the last
    extreme : the most confident output
    """

    n: int
    first: float
    last: float
    before: float
    after: float
    extreme: float


def ends_of(curve: Curve, edges: FloatArray) -> tuple[float, float]:
    """Return the outputs at which a curve's counting begins, at the confident side, and ends.

    edges : float64 [B + 1], of the curve's bins
    """
    first = curve.bin_t[0] + (1 if curve.side == "high" else 0)
    return float(edges[first]), float(curve.threshold_t[-1])


def at_thresholds(curve: Curve, edges: FloatArray, asked: Sequence[float]) -> list[AtThreshold]:
    """Return precision and recall at the bins' edges that are nearest to some outputs.

    edges : float64 [B + 1], of the curve's bins

    Raises
    ------
    EstimateError
        An output lies beyond the curve's ends, by more than half a bin.
    """
    first, last = ends_of(curve, edges)
    found = []
    for z in asked:
        t = int(np.argmin(np.abs(curve.threshold_t - z)))
        half = 0.5 * float(edges[curve.bin_t[t] + 1] - edges[curve.bin_t[t]])
        near = abs(float(curve.threshold_t[t]) - z) <= half * (1.0 + 1e-9)
        if not near and not min(first, last) <= z <= max(first, last):
            raise EstimateError(
                f"threshold {z:g}: the curve is known from z = {first:g} to {last:g} only; widen "
                "the bins or score more of them, or choose a threshold in between"
            )
        found.append(
            AtThreshold(
                float(z),
                float(curve.threshold_t[t]),
                *(_interval(curve, t, name) for name in ("precision_t", "log_recall_t")),
            )
        )
    return found


def _interval(curve: Curve, t: int, name: str) -> Interval:
    """Return a value of a curve at its t-th threshold with its 95% band; the error is not known."""

    def value(trace: Trace) -> FloatArray:
        return np.asarray(getattr(trace, name)[t])

    bands = curve.bands
    return Interval(value(curve.trace), value(bands.low), value(bands.high), np.asarray(np.nan))


def unreached(curve: Curve, edges: FloatArray, z_n: FloatArray) -> Unreached:
    """Return which share of a test set's outputs, float64 [n], lies beyond the curve's ends."""
    first, last = ends_of(curve, edges)
    sign = 1.0 if curve.side == "low" else -1.0
    before, after = sign * z_n < sign * first, sign * z_n > sign * last
    extreme = float(z_n.min() if curve.side == "low" else z_n.max())
    return Unreached(len(z_n), first, last, float(before.mean()), float(after.mean()), extreme)


@dataclass(frozen=True)
class NoneRight:
    """The far end of a curve, where inputs were scored and none of them was right.

    Attributes
    ----------
    first : output at which it begins, the edge of its first bin on the confident side
    n_bins : bins with scores there
    log_most : ln of the 95% upper bound of the number of right inputs in them
    """

    first: float
    n_bins: int
    log_most: float


def none_right(curve: Curve, density: Density) -> NoneRight | None:
    """Return the far end of a curve where no right input was seen; None where there is none.

    A bin's g inputs stand behind n scores, each for g / n of them. With R right inputs in all, the
    chance of none among the scores is at most exp(-R / max(g / n)), so that ln 20 max(g / n) is an
    upper bound in 95%: the rule of three for unequal weights.
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
        min(log_most, float(logsumexp(log_g_b))),
    )


@dataclass(frozen=True)
class LeftOut:
    """Bins at the confident end that a curve leaves out, of too few inputs or lanes.

    Attributes
    ----------
    n_bins : bins with recorded inputs there
    first : output at which the curve's counting begins
    log_inputs : ln of the number of inputs in them
    share : of these among all inputs up to the curve's first threshold, they included
    small_from : the first threshold up to which they are less than `SMALL` of all; NaN if none is
    """

    n_bins: int
    first: float
    log_inputs: float
    share: float
    small_from: float


SMALL = 0.05


def left_out(curve: Curve, density: Density) -> LeftOut | None:
    """Return what a curve leaves out at its confident end; None where that is nothing.

    density : in the curve's bins
    """
    bins = np.arange(len(density.log_g_b))
    before = bins < curve.bin_t[0] if curve.side == "low" else bins > curve.bin_t[0]
    out = before & density.believed_b & (curve.inputs_b > 0) & np.isfinite(density.log_g_b)
    if not out.any():
        return None
    log_inputs = float(logsumexp(density.log_g_b[out]))
    counted_t = np.logaddexp(curve.log_recall_t, curve.trace.log_wrong_t)
    share_t = np.exp(log_inputs - np.logaddexp(log_inputs, counted_t))
    small = np.flatnonzero(share_t < SMALL)
    return LeftOut(
        int(out.sum()),
        ends_of(curve, density.edges)[0],
        log_inputs,
        float(share_t[0]),
        float(curve.threshold_t[small[0]]) if small.size else np.nan,
    )
