"""What is said of each bin of a density, and of each threshold of a curve, when pointed at."""

from __future__ import annotations

import numpy as np

from omniinput_hpc.estimators.density.density import Density
from omniinput_hpc.estimators.precision_recall.curves import Curve
from omniinput_hpc.plots.style import LN10, middles
from omniinput_hpc.report.page import Marks
from omniinput_hpc.text import tens


def density_marks(density: Density, upright: bool) -> Marks:
    """Return the visited bins, with z along x, or `upright`."""
    bins = np.flatnonzero(density.count_b)
    z, log10_g = middles(density.edges)[bins], density.log_g_b[bins] / LN10
    words = [_bin_words(density, int(b)) for b in bins]
    x, y = (log10_g, z) if upright else (z, log10_g)
    return Marks(x, y, z, words, int(upright), "Output z")


def _bin_words(density: Density, b: int) -> str:
    """Return a bin's range, and its number of inputs with its error."""
    low, high, log10_g = *density.edges[b : b + 2], density.log_g_b[b] / LN10
    error, upper = density.log_g_error_b[b] / LN10, density.log_g_upper_b[b] / LN10
    spread = f", ± {error:.2g} in the exponent" if np.isfinite(error) else ", error not known"
    if np.isfinite(upper):
        spread = f", at most 10^{upper:.2f}"
    of = density.words.of or " inputs"
    amount = f"10^{log10_g:.2f}{of}" if density.absolute else f"10^{log10_g:.2f} of those sampled"
    return f"z from {low:.6g} to {high:.6g}: {amount}{spread}"


def curve_marks(density: Density, curve: Curve) -> Marks:
    """Return the thresholds with right inputs; `density` is in the curve's bins."""
    shown = np.flatnonzero(np.isfinite(curve.log_recall_t))
    x, y = curve.log_recall_t[shown] / LN10, curve.precision_t[shown]
    words = [_threshold_words(density, curve, int(t)) for t in shown]
    z = middles(density.edges)[curve.bin_t[shown]]  # of the last accepted bin
    return Marks(x, y, z, words, 0, "Threshold")


def _threshold_words(density: Density, curve: Curve, t: int) -> str:
    sign = "<" if curve.side == "low" else "\N{GREATER-THAN OR EQUAL TO}"
    low, high = curve.bands.low.precision_t[t], curve.bands.high.precision_t[t]
    said = (
        f"z {sign} {curve.threshold_t[t]:.6g} accepted: precision {curve.precision_t[t]:.3g} "
        f"({low:.3g} to {high:.3g})"
    )
    if not density.absolute:
        return said
    wrong, within = curve.trace.log_wrong_t[t], density.words.within
    wrongs = f"{tens(wrong)}{within} wrong" if np.isfinite(wrong) else "no wrong"
    return f"{said}; {tens(curve.log_recall_t[t])}{within} right and {wrongs} inputs"
