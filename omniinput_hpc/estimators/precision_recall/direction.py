"""Check whether r(z) rises the wrong way: away from the side that a curve is counted from."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from omniinput_hpc.estimators import FloatArray
from omniinput_hpc.estimators.precision_recall import curves
from omniinput_hpc.estimators.precision_recall.curves import Curve, Side

MIN_SIGMAS = 3.0
_INTERVAL = 3.92  # standard errors in a 95% interval


@dataclass(frozen=True)
class WrongWay:
    """A curve whose mean scores rise away from its confident side.

    Attributes
    ----------
    near, far : mean of r(z) over the half of the curve's bins counted first, and last
    other : the opposite side
    aupr : the AUPR counted from there, between that curve's own ends
    """

    near: float
    far: float
    other: Side
    aupr: float


def wrong_way(curve: Curve, log_g_b: FloatArray) -> WrongWay | None:
    """Return how r(z) rises the wrong way; None if it does not.

    It does if the half of the bins counted last has the larger mean score, by three standard
    errors, and the AUPR counted from the other side is larger.

    log_g_b : float64 [B], of the curve's bins
    """
    bins, half = curve.bin_t, len(curve.bin_t) // 2
    if half == 0:
        return None
    r_t, error_t = curve.r_b[bins], (curve.r_high_b - curve.r_low_b)[bins] / _INTERVAL
    near, far = float(r_t[:half].mean()), float(r_t[-half:].mean())
    error = np.sqrt((error_t[:half] ** 2).sum() + (error_t[-half:] ** 2).sum()) / half
    if not far - near > MIN_SIGMAS * error:
        return None
    other: Side = "high" if curve.side == "low" else "low"
    counted = np.sort(bins)
    aupr = curves.area(*curves.accumulate(log_g_b[counted], curve.r_b[counted], other))
    own = curves.area(curve.precision_t, curve.log_recall_t)
    better = aupr > own or (np.isnan(own) and np.isfinite(aupr))
    return WrongWay(near, far, other, aupr) if better else None
