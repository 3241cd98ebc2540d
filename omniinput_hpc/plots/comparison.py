"""The figures that set models or samplers beside each other, in the style of `figures`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from numpy.typing import NDArray

from omniinput_hpc.estimators.comparison.models import ModelComparison
from omniinput_hpc.estimators.comparison.normalization import Normalizations
from omniinput_hpc.estimators.comparison.samplers import SamplerComparison
from omniinput_hpc.estimators.density.density import Density
from omniinput_hpc.estimators.precision_recall.curves import Curve
from omniinput_hpc.plots.density import EXACT, FAINT, LN10, OTHER, SAMPLED, STYLE

FloatArray = NDArray[np.float64]
# Okabe & Ito again, in an order whose neighbours also differ in grey
COLOURS = (SAMPLED, EXACT, OTHER, "#CC79A7", "#E69F00", "#56B4E9")
MARKS = ("o", "s", "^", "D", "v", "P")


def _panels(heights: list[float], sharex: bool, width: float = 7.2) -> tuple[Figure, list[Axes]]:
    figure = Figure(figsize=(width, sum(heights)))
    FigureCanvasAgg(figure)
    panels = figure.subplots(
        len(heights), 1, sharex=sharex, squeeze=False, gridspec_kw={"height_ratios": heights}
    )
    return figure, list(panels[:, 0])


def _density(axes: Axes, density: Density, shift: float, index: int, name: str) -> None:
    """Draw log10 of the number of inputs per bin, hollow where no error is known or believed."""
    bins = np.flatnonzero(density.count_b)
    middle = 0.5 * (density.edges[bins] + density.edges[bins + 1])
    y, error = (density.log_g_b[bins] + shift) / LN10, density.log_g_error_b[bins] / LN10
    known = np.isfinite(error) & np.isnan(density.log_g_upper_b[bins])
    colour, mark = COLOURS[index], MARKS[index]
    style: dict[str, Any] = {"color": colour, "markersize": 3, "elinewidth": 1.0}
    axes.errorbar(middle[known], y[known], yerr=error[known], fmt=mark, label=name, **style)
    axes.plot(middle[~known], y[~known], mark, markersize=3, markerfacecolor="none", color=colour)


def normalization_figure(
    a: Density, b: Density, found: Normalizations, names: tuple[str, str], label: str
) -> Figure:
    """Return both densities on one scale, above the ln ratio by every normalization."""
    row = found.best()
    shift = float(row.shift.value) if row.shift is not None else 0.0
    absolute = a.absolute and b.absolute
    with mpl.rc_context(STYLE):
        figure, (top, bottom) = _panels([3.6, 1.7], sharex=False)
        top.axvspan(found.low, found.high, color=FAINT, alpha=0.18, linewidth=0, label="range Z")
        _density(top, a, 0.0, 0, names[0])
        _density(top, b, shift, 1, names[1])
        what = "number of inputs" if absolute else "inputs (common scale)"
        top.set_ylabel(rf"$\log_{{10}}$ {what} per bin")
        top.set_xlabel(label)
        top.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3)
        rows = [r for r in found.rows if r.ratio is not None]
        for y, r in enumerate(reversed(rows)):
            assert r.ratio is not None
            value, half = float(r.ratio.value), float(r.ratio.high - r.ratio.value)
            shown = half if np.isfinite(half) else 0.0
            bottom.errorbar(value, y, xerr=shown, fmt="o", color=SAMPLED, markersize=5)
        bottom.set_yticks(range(len(rows)), [r.name.partition(" (")[0] for r in reversed(rows)])
        bottom.set_ylim(-0.6, len(rows) - 0.4)
        bottom.locator_params(axis="x", nbins=5)
        bottom.set_xlabel(f"ln(inputs of {names[0]} / inputs of {names[1]}) in Z, 95% intervals")
    return figure


def models_figure(
    curves: Sequence[tuple[str, Curve, float]],
    comparisons: Sequence[tuple[str, ModelComparison]],
    absolute: bool,
) -> Figure:
    """Return all PR curves with 95% bands, above the cumulative AUPR ratio of the first to each.

    Parameters
    ----------
    curves : name, curve, and what to add to its log recall
    comparisons : name of the other model, and the first model's comparison with it
    absolute : whether recall counts inputs
    """
    with mpl.rc_context(STYLE):
        figure, (top, bottom) = _panels([3.8, 2.2], sharex=True)
        for index, (name, curve, shift) in enumerate(curves):
            known = np.isfinite(curve.log_recall_t)
            x, colour = (curve.log_recall_t[known] + shift) / LN10, COLOURS[index % len(COLOURS)]
            low, high = curve.precision_low_t[known], curve.precision_high_t[known]
            top.fill_between(x, low, high, color=colour, alpha=0.22, linewidth=0)
            top.plot(
                x, curve.precision_t[known], MARKS[index % len(MARKS)] + "-", color=colour,
                markersize=2.5, label=f"{name}, with its 95% band",
            )  # fmt: skip
        top.set_ylim(-0.03, 1.03)
        top.set_ylabel("precision")
        top.legend(loc="best")
        for index, (name, found) in enumerate(comparisons):
            x, c = found.log_recall_x / LN10, found.cumulative_x
            colour = COLOURS[(index + 1) % len(COLOURS)]
            if np.isfinite(c.low).all() and np.isfinite(c.high).all():
                bottom.fill_between(x, c.low, c.high, color=colour, alpha=0.22, linewidth=0)
            label = f"{curves[0][0]} over {name}: {float(found.aupr_ratio.value):.4g} in all"
            bottom.plot(x, c.value, "-", color=colour, label=label)
        bottom.axhline(1.0, color=FAINT, linewidth=1.0)
        values = np.concatenate([c.cumulative_x.value for _, c in comparisons])
        if np.isfinite(values).all() and values.min() > 0 and values.max() > 3 * values.min():
            bottom.set_yscale("log")
        bottom.set_ylabel("ratio of the areas\nup to there")
        what = "number of right inputs found" if absolute else "right inputs found, common scale"
        bottom.set_xlabel(rf"$\log_{{10}}$ recall ({what})")
        bottom.legend(loc="best")
    return figure


def samplers_figure(
    a: Density, b: Density, found: SamplerComparison, names: tuple[str, str], label: str
) -> Figure:
    """Return two samplers' densities of one model, above their difference bin by bin."""
    middle = 0.5 * (a.edges[found.bins] + a.edges[found.bins + 1])
    moved = float(np.median(a.log_g_b[found.bins] - b.log_g_b[found.bins] - found.delta_b))
    with mpl.rc_context(STYLE):
        figure, (top, bottom) = _panels([3.2, 2.2], sharex=True)
        _density(top, a, 0.0, 0, names[0])
        _density(top, b, moved, 1, names[1])
        what = "number of inputs" if a.absolute else "share of inputs"
        top.set_ylabel(rf"$\log_{{10}}$ {what} per bin")
        top.legend(loc="best")
        style: dict[str, Any] = {"fmt": "o", "markersize": 2.4, "elinewidth": 1.0}
        bottom.errorbar(middle, found.delta_b, yerr=found.error_b, color=SAMPLED, **style)
        bottom.axhline(0.0, color=EXACT, linewidth=1.1)
        for limit in found.group_g[1:-1]:
            bottom.axvline(a.edges[found.bins[limit]], color=FAINT, linewidth=0.8, linestyle=":")
        typical = float(np.quantile(np.abs(found.delta_b) + found.error_b, 0.95))
        bottom.set_ylim(-1.5 * typical, 1.5 * typical)
        bottom.set_ylabel("ln g,\nfirst \N{MINUS SIGN} second")
        note = "dotted: limits of the groups of bins that are compared together"
        bottom.set_title(note, loc="left", fontsize=9, color="#595959")
        bottom.set_xlabel(label)
    return figure
