"""Plot several models, or two samplers of one model, beside each other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from omniinput_hpc.estimators.comparison.models import ModelComparison
from omniinput_hpc.estimators.comparison.normalization import Normalizations
from omniinput_hpc.estimators.comparison.samplers import SamplerComparison
from omniinput_hpc.estimators.density.density import Density
from omniinput_hpc.estimators.precision_recall.curves import Curve
from omniinput_hpc.plots import style
from omniinput_hpc.text import range_words

MAX_INSIDE = 3
"""Largest number of ratios in a legend inside the panel; more would cover the curves."""


@style.styled
def normalization_figure(
    a: Density, b: Density, found: Normalizations, names: tuple[str, str], label: str
) -> Figure:
    """Return both densities on one scale, with the ln ratio by each normalization below."""
    row = found.best()
    shift = float(row.shift.value) if row.shift is not None else 0.0
    figure, (top, bottom) = style.panels([3.6, 1.7], share_x=False)
    names = (style.named(names[0], 0), style.named(names[1], 1))
    top.axvspan(found.low, found.high, color=style.FAINT, alpha=0.18, linewidth=0, label="range Z")
    _density(top, a, 0.0, 0, names[0])
    _density(top, b, shift, 1, names[1])
    things = a.words.things
    what = a.words.amount if a.absolute and b.absolute else f"{things} (common scale)"
    top.set(xlabel=label, ylabel=rf"$\log_{{10}}$ {what} per bin")
    top.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3)
    ratios = [(r.name.partition(" (")[0], r.ratio) for r in found.rows if r.ratio is not None]
    for y, (_, ratio) in enumerate(reversed(ratios)):
        value, half = float(ratio.value), float(ratio.high - ratio.value)
        if np.isfinite(half):
            bottom.errorbar(value, y, xerr=half, fmt="o", color=style.sampled(), markersize=5)
        else:
            bottom.annotate(
                "interval not known", (value, y), xytext=(5, 4), textcoords="offset points",
                fontsize=8, color=style.NOTE,
            )  # fmt: skip
            style.hollow(bottom, np.array([value]), np.array([float(y)]), "", markersize=5)
    bottom.set_yticks(range(len(ratios)), [name for name, _ in reversed(ratios)])
    bottom.set_ylim(-0.6, len(ratios) - 0.4)
    bottom.locator_params(axis="x", nbins=5)
    bottom.set_xlabel(f"ln({things} of {names[0]} / {things} of {names[1]}) in Z, 95% intervals")
    return figure


@style.styled
def models_figure(
    curves: Sequence[tuple[str, Curve, float]],
    comparisons: Sequence[tuple[str, ModelComparison]],
    absolute: bool,
    measure: str = "count",
) -> Figure:
    """Return all PR curves with 95% bands; below, the cumulative AUPR ratio of the first to each.

    Each of `curves` has a name, a curve and a shift of its ln recall; each of `comparisons` has the
    name of the model that the first is compared with. If `absolute`, recall is a number of inputs,
    or their probability, by the `measure`.
    """
    figure, (top, bottom) = style.panels([3.8, 2.2], share_x=True)
    for index, (name, curve, shift) in enumerate(curves):
        known = np.isfinite(curve.log_recall_t)
        x = (curve.log_recall_t[known] + shift) / style.LN10
        low, high = curve.bands.low.precision_t[known], curve.bands.high.precision_t[known]
        colour, mark = style.colour(index), style.marker(index) + "-"
        style.band(top, x, low, high, colour)
        label = f"{style.named(name, index)}, with its 95% band"
        top.plot(x, curve.precision_t[known], mark, color=colour, markersize=2.5, label=label)
    top.set(ylim=(-0.03, 1.03), ylabel="precision")
    top.legend(loc="best")
    for index, (name, found) in enumerate(comparisons, start=1):
        x, c = found.log_recall_x / style.LN10, found.cumulative_x
        if np.isfinite(c.low).all() and np.isfinite(c.high).all():
            style.band(bottom, x, c.low, c.high, style.colour(index))
        over = range_words((found.lower, found.upper), power="")
        whole = f"{float(found.aupr_ratio.value):.4g} over log10 recall {over}"
        label = f"{style.named(curves[0][0])} over {style.named(name, index)}: {whole}"
        bottom.plot(x, c.value, "-", color=style.colour(index), label=label)
    bottom.axhline(1.0, color=style.FAINT, linewidth=1.0)
    values = np.concatenate([c.cumulative_x.value for _, c in comparisons])
    if np.isfinite(values).all() and values.min() > 0 and values.max() > 3 * values.min():
        bottom.set_yscale("log")
    bottom.set_ylabel("ratio of the areas\nup to there")
    bottom.set_xlabel(style.recall_label(absolute, "common scale", measure))
    if len(comparisons) > MAX_INSIDE:
        style.legend_below(bottom)
    else:
        bottom.legend(loc="best")
    return figure


@style.styled
def samplers_figure(
    a: Density, b: Density, found: SamplerComparison, names: tuple[str, str], label: str
) -> Figure:
    """Return two samplers' densities of one model, with their difference below."""
    z = 0.5 * (a.edges[found.first_r] + a.edges[found.stop_r])
    figure, (top, bottom) = style.panels([3.2, 2.2], share_x=True)
    _density(top, a, 0.0, 0, style.named(names[0], 0))
    _density(top, b, found.shift, 1, style.named(names[1], 1))
    top.set_ylabel(style.inputs_label(a.absolute, measure=a.measure))
    top.legend(loc="best")
    delta_r, error_r = found.delta_r / style.LN10, found.error_r / style.LN10
    style.points(bottom, z, delta_r, error_r)
    bottom.axhline(0.0, color=style.exact(), linewidth=1.1)
    for limit in found.group_g[1:-1]:
        bottom.axvline(
            a.edges[found.first_r[limit]], color=style.FAINT, linewidth=0.8, linestyle=":"
        )
    typical = float(np.quantile(np.abs(delta_r) + error_r, 0.95))
    bottom.set_ylim(-1.5 * typical, 1.5 * typical)
    bottom.set_ylabel("$\\log_{10}$ of first\nover second")
    note = "dotted: limits of the groups of bins that are compared together"
    bottom.set_title(note, loc="left", fontsize=9, color=style.NOTE)
    bottom.set_xlabel(label)
    return figure


def _density(axes: Axes, density: Density, shift: float, index: int, name: str) -> None:
    """Draw log10 of the number of inputs per bin; hollow without a reliable error."""
    bins = np.flatnonzero(density.count_b)
    z, y = style.middles(density.edges)[bins], (density.log_g_b[bins] + shift) / style.LN10
    error = density.log_g_error_b[bins] / style.LN10
    known = np.isfinite(error) & np.isnan(density.log_g_upper_b[bins])
    look: dict[str, Any] = {"color": style.colour(index), "markersize": 3}
    mark = style.marker(index)
    bars: dict[str, Any] = {"yerr": error[known], "elinewidth": 1.0, "label": name}
    axes.errorbar(z[known], y[known], fmt=mark, **bars, **look)
    axes.plot(z[~known], y[~known], mark, markerfacecolor="none", **look)
