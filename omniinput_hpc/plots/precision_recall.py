"""Precision-recall and ROC curves over the whole space, and how they settle with more scores."""

from __future__ import annotations

from collections.abc import Mapping

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from omniinput_hpc.estimators.comparison.to_exact import Exact, ExactCurve, offset
from omniinput_hpc.estimators.density.density import Density
from omniinput_hpc.estimators.precision_recall.curves import Curve
from omniinput_hpc.plots.style import (
    EXACT,
    FAINT,
    LN10,
    PAPER,
    SAMPLED,
    legend_beside,
    panels,
    recall_label,
    styled,
)


@styled
def curve_figure(
    density: Density,
    curve: Curve,
    exact: Exact | None = None,
    exact_curve: ExactCurve | None = None,
) -> Figure:
    """Return precision over log10 recall with its 95% band, beside the exact curve where given."""
    shift = 0.0 if exact is None else offset(density, exact)
    figure, (axes,) = panels([4.0])
    shown = np.isfinite(curve.log_recall_t)
    x, precision = (curve.log_recall_t[shown] + shift) / LN10, curve.precision_t[shown]
    axes.fill_between(
        x, curve.bands.low.precision_t[shown], curve.bands.high.precision_t[shown],
        color=SAMPLED, alpha=0.25, linewidth=0, label="95% band",
    )  # fmt: skip
    error = curve.aupr_error
    digits = int(np.clip(1 - np.log10(error), 4, 6)) if 0 < error < np.inf else 4
    tiny = 0 < error < 0.5 * 10.0**-digits
    spread = f"(error under {10.0**-digits:.{digits}f})" if tiny else f"± {error:.{digits}f}"
    name = f"sampled, AUPR {curve.aupr:.{digits}f} {spread}"
    axes.plot(x, precision, ".-", color=SAMPLED, markersize=3, label=name)
    thin = curve.thin_b[curve.bin_t][shown]
    if thin.any():
        axes.plot(
            x[thin], precision[thin], "o", markersize=4, color=SAMPLED, markerfacecolor=PAPER,
            label="with a bin of too few inputs or lanes",
        )  # fmt: skip
    if exact_curve is not None:
        axes.plot(
            exact_curve.log_recall_t / LN10, exact_curve.precision_t, "--", color=EXACT,
            label=f"exact, AUPR {exact_curve.aupr:.{digits}f}",
        )  # fmt: skip
    axes.set(ylim=(-0.03, 1.03), ylabel="precision")
    axes.set_xlabel(recall_label(density.absolute or exact is not None))
    axes.legend(loc="best")
    return figure


@styled
def roc_figure(density: Density, curve: Curve) -> Figure:
    """Return right against wrong inputs found, both in log10: an unnormalized ROC curve."""
    figure, (axes,) = panels([4.2], 5.6)
    right_t, wrong_t = curve.log_recall_t, curve.trace.log_wrong_t
    shown = np.isfinite(right_t) & np.isfinite(wrong_t)
    x, y = wrong_t[shown] / LN10, right_t[shown] / LN10
    if len(curve.draws.log_recall_t) and len(x):
        _roc_intervals(axes, curve, shown)
    axes.plot(x, y, ".-", color=SAMPLED, markersize=4, label="thresholds")
    if len(x):
        ends = np.array([min(x.min(), y.min()), max(x.max(), y.max())])
        axes.plot(ends, ends, ":", color=FAINT, label="as many wrong as right")
    unit = "number" if density.absolute else "share of all"
    axes.set_xlabel(rf"$\log_{{10}}$ wrong inputs accepted ({unit})")
    axes.set_ylabel(rf"$\log_{{10}}$ right inputs accepted ({unit})")
    axes.legend(loc="best")
    return figure


def _roc_intervals(axes: Axes, curve: Curve, shown: np.ndarray) -> None:
    """Draw 95% intervals of both counts at the thresholds where all four ends are finite."""
    low, high = curve.bands.low, curve.bands.high
    x_ends = np.array([low.log_wrong_t[shown], high.log_wrong_t[shown]]) / LN10
    y_ends = np.array([low.log_recall_t[shown], high.log_recall_t[shown]]) / LN10
    known = np.isfinite([*x_ends, *y_ends]).all(axis=0)
    x = curve.trace.log_wrong_t[shown][known] / LN10
    y = curve.log_recall_t[shown][known] / LN10
    axes.errorbar(
        x, y, xerr=np.abs(x_ends[:, known] - x), yerr=np.abs(y_ends[:, known] - y), fmt="none",
        ecolor=SAMPLED, alpha=0.3, elinewidth=1.0, capsize=0, label="95% intervals",
    )  # fmt: skip


@styled
def convergence_figure(results: Mapping[int, Curve], absolute: bool) -> Figure:
    """Return the curves from few to many scores a bin, and the AUPR with its interval."""
    figure, (top, bottom) = panels([3.4, 2.2], share_x=False)
    blue = np.array(mpl.colors.to_rgb(SAMPLED))
    steps = zip(np.linspace(0.6, 0.0, len(results)), results.items(), strict=True)
    for whiteness, (per_bin, curve) in steps:
        shown = np.isfinite(curve.log_recall_t)
        top.plot(
            curve.log_recall_t[shown] / LN10, curve.precision_t[shown], ".-", markersize=4,
            color=tuple(blue + (1 - blue) * whiteness), label=f"{per_bin}",
        )  # fmt: skip
    top.set_xlabel(recall_label(absolute))
    top.set(ylim=(-0.03, 1.03), ylabel="precision")
    legend_beside(top, title="scores a bin")
    aupr = np.array([curve.aupr for curve in results.values()])
    ends = np.array([[curve.aupr_low, curve.aupr_high] for curve in results.values()]).T
    bottom.errorbar(
        list(results), aupr, yerr=np.abs(ends - aupr), fmt="o", color=SAMPLED, markersize=4
    )
    bottom.set(xlabel="scored inputs a bin", ylabel="AUPR, 95% interval")
    bottom.set_xlim(left=0)
    return figure
