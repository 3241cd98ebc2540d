"""Pictures of scores: r(z), ROC, annotators, convergence; in the style of `figures`."""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from omniinput_hpc.estimators.comparison.to_exact import Exact
from omniinput_hpc.estimators.density.density import Density
from omniinput_hpc.estimators.precision_recall.annotators import Convergence
from omniinput_hpc.estimators.precision_recall.curves import Curve
from omniinput_hpc.estimators.precision_recall.from_scores import Scored, bin_scores
from omniinput_hpc.plots.density import (
    EXACT,
    FAINT,
    LN10,
    OTHER,
    SAMPLED,
    STYLE,
    exact_line,
    panels,
    points,
)

FloatArray = NDArray[np.float64]
# Okabe & Ito's further colours, each with a marker of its own
COLOURS = [SAMPLED, EXACT, OTHER, "#CC79A7", "#E69F00", "#56B4E9", "#000000"]
MARKERS = "os^Dvx+"


def _middle(edges: FloatArray) -> FloatArray:
    return np.asarray(0.5 * (edges[:-1] + edges[1:]))


def r_figure(density: Density, curve: Curve, label: str, exact: Exact | None = None) -> Figure:
    """Return the mean score r(z) per bin; thin bins hollow, bins without scores as crosses."""
    with mpl.rc_context(STYLE):
        figure, (axes,) = panels([3.2])
        z = _middle(density.edges)
        known = np.isfinite(curve.r_b) & ~curve.interpolated_b
        full, thin, gaps = known & ~curve.thin_b, known & curve.thin_b, curve.interpolated_b
        points(
            axes, z[full], curve.r_b[full], curve.r_error_b[full], "mean score, ± 1 standard error"
        )
        if thin.any():
            axes.errorbar(
                z[thin], curve.r_b[thin], yerr=np.nan_to_num(curve.r_error_b[thin], posinf=0.0),
                fmt="o", markersize=4, markerfacecolor="none", color=SAMPLED, elinewidth=0.6,
                label="too few inputs or lanes", zorder=3,
            )  # fmt: skip
        if gaps.any():
            axes.plot(z[gaps], curve.r_b[gaps], "x", color=FAINT, label="interpolated")
        if exact is not None:
            exact_line(axes, density, exact.r_b)
        axes.set_ylim(-0.05, 1.05)
        axes.set_xlabel(label)
        axes.set_ylabel("mean score r(z)")
        axes.legend(loc="best")
    return figure


def roc_figure(density: Density, curve: Curve) -> Figure:
    """Return right against wrong inputs found, both in log10: an unnormalized ROC curve."""
    with mpl.rc_context(STYLE):
        figure, (axes,) = panels([4.2], 5.6)
        draws, shown = curve.draws, np.isfinite(curve.log_recall_t) & np.isfinite(_wrong(curve))
        x, y = _wrong(curve)[shown] / LN10, curve.log_recall_t[shown] / LN10
        low, high = curve.bands.low, curve.bands.high
        if len(draws.log_recall_t) and len(x):
            ends = [low.log_recall_t[shown], high.log_recall_t[shown]]
            sides = [low.log_wrong_t[shown], high.log_wrong_t[shown]]
            known = np.isfinite(ends + sides).all(axis=0)
            bars = [
                np.abs(np.array(v)[:, known] / LN10 - c[known]) for v, c in ((sides, x), (ends, y))
            ]
            axes.errorbar(
                x[known], y[known], xerr=bars[0], yerr=bars[1], fmt="none", ecolor=SAMPLED,
                alpha=0.3, elinewidth=1.0, capsize=0, label="95% intervals",
            )  # fmt: skip
        axes.plot(x, y, ".-", color=SAMPLED, markersize=4, label="thresholds")
        if len(x):
            ends_xy = np.array([min(x.min(), y.min()), max(x.max(), y.max())])
            axes.plot(ends_xy, ends_xy, ":", color=FAINT, label="as many wrong as right")
        unit = "number" if density.absolute else "share of all"
        axes.set_xlabel(rf"$\log_{{10}}$ wrong inputs accepted ({unit})")
        axes.set_ylabel(rf"$\log_{{10}}$ right inputs accepted ({unit})")
        axes.legend(loc="best")
    return figure


def _wrong(curve: Curve) -> FloatArray:
    return curve.trace.log_wrong_t


def annotators_figure(scored: Scored, used_b: NDArray[np.bool_], label: str) -> Figure:
    """Return r(z) per annotator, side by side in each bin, and their mean with its deviation."""
    with mpl.rc_context(STYLE):
        figure, (axes,) = panels([3.6])
        z, width = _middle(scored.edges), float(np.diff(scored.edges).min())
        n = len(scored.annotators)
        r_ab = np.full((n, len(z)), np.nan)
        for a, name in enumerate(scored.annotators):
            mine = bin_scores(scored.of(a))
            shown = used_b & (mine.inputs_b > 0)
            r_ab[a, shown] = mine.r_b[shown]
            away = (a - (n - 1) / 2) * 0.7 * width / max(n, 2)
            axes.errorbar(
                z[shown] + away, mine.r_b[shown], yerr=mine.sampling_error_b[shown],
                fmt=MARKERS[a % len(MARKERS)], markersize=4, elinewidth=0.8,
                color=COLOURS[a % len(COLOURS)], label=name,
            )  # fmt: skip
        some = np.isfinite(r_ab).all(axis=0)
        if n > 1 and some.any():
            mean, spread = r_ab[:, some].mean(axis=0), r_ab[:, some].std(axis=0, ddof=1)
            _steps(axes, z[some], width, mean, spread)
        axes.set_ylim(-0.05, 1.05)
        axes.set_xlabel(label)
        axes.set_ylabel("mean score r(z)")
        axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return figure


def _steps(axes: Axes, z: FloatArray, width: float, mean: FloatArray, spread: FloatArray) -> None:
    """Draw each bin's mean as a line over its width, in a box of one standard deviation."""
    left, right = z - 0.45 * width, z + 0.45 * width
    axes.hlines(mean, left, right, color=FAINT, linewidth=1.6, label="mean of all", zorder=1)
    for low, high, m, s in zip(left, right, mean, spread, strict=True):
        axes.fill_between(
            [low, high], m - s, m + s, color=FAINT, alpha=0.25, linewidth=0, zorder=0,
            label="± standard deviation\nof annotators" if low == left[0] else None,
        )  # fmt: skip


def convergence_figure(results: Sequence[Convergence], absolute: bool) -> Figure:
    """Return the curves from few to many scores a bin, and the AUPR with its interval."""
    with mpl.rc_context(STYLE):
        figure, (top, bottom) = panels([3.4, 2.2], share_x=False)
        greys = np.linspace(0.6, 0.0, len(results))
        for shade, result in zip(greys, results, strict=True):
            shown = np.isfinite(result.log_recall_t)
            colour = mpl.colors.to_rgb(SAMPLED)
            mixed = [c + (1 - c) * shade for c in colour]
            top.plot(
                result.log_recall_t[shown] / LN10, result.precision_t[shown], ".-", color=mixed,
                markersize=4, label=f"{result.per_bin}",
            )  # fmt: skip
        unit = "number of right inputs found" if absolute else "right inputs found, share of all"
        top.set_xlabel(rf"$\log_{{10}}$ recall ({unit})")
        top.set_ylabel("precision")
        top.set_ylim(-0.03, 1.03)
        top.legend(title="scores a bin", loc="upper left", bbox_to_anchor=(1.0, 1.0))
        n = np.array([result.per_bin for result in results])
        aupr = np.array([result.aupr for result in results])
        ends = np.array([[result.low, result.high] for result in results]).T
        bottom.errorbar(n, aupr, yerr=np.abs(ends - aupr), fmt="o", color=SAMPLED, markersize=4)
        bottom.set_xlabel("scored inputs a bin")
        bottom.set_ylabel("AUPR, 95% interval")
        bottom.set_xlim(left=0)
    return figure
