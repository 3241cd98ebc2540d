"""Plot the density of outputs: with its errors, with the exact density, or with r(z)."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from omniinput_hpc.estimators.comparison.to_exact import Exact, offset
from omniinput_hpc.estimators.density.density import MIN_EFFECTIVE_COUNT, Density
from omniinput_hpc.estimators.precision_recall.curves import Curve
from omniinput_hpc.plots import style

RARE = 10_000  # inputs in a bin


@style.styled
def density_figure(density: Density, label: str, exact: Exact | None = None) -> Figure:
    """Return the density, with its errors or its difference from `exact` (in the same bins) below.

    `label` is the axis label of the output z, with its unit.
    """
    figure, (top, bottom) = style.panels([3.2, 2.0])
    _density_panel(top, density, exact)
    if exact is None:
        _error_panel(bottom, density)
    else:
        _difference_panel(bottom, density, exact)
    bottom.set_xlabel(label)
    return figure


@style.styled
def rho_r_figure(density: Density, curve: Curve, label: str, exact: Exact) -> Figure:
    """Return sampled and exact values: inputs per bin, their difference, and mean score r(z)."""
    figure, (top, middle_panel, bottom) = style.panels([3.0, 1.5, 2.3])
    _density_panel(top, density, exact)
    _difference_panel(middle_panel, density, exact)
    known, gaps = np.isfinite(curve.r_b) & ~curve.interpolated_b, curve.interpolated_b
    z = style.middles(density.edges)
    style.points(bottom, z[known], curve.r_b[known], curve.r_error_b[known])
    if gaps.any():
        bottom.plot(z[gaps], curve.r_b[gaps], "x", color=style.FAINT, label="interpolated")
    exact_line(bottom, density, exact.r_b)
    bottom.set(ylim=(-0.05, 1.05), ylabel="mean score r(z)", xlabel=label)
    style.legend_above(bottom, 4)
    return figure


def exact_line(axes: Axes, density: Density, exact_b: style.FloatArray) -> None:
    """Draw exact values at the bins' middles as a line."""
    _line(axes, density, exact_b, color=style.exact(), linewidth=1.1, label="exact", zorder=4)


def _line(
    axes: Axes, density: Density, y_b: style.FloatArray, color: str, label: str, **look: Any
) -> None:
    """Draw values at the bins' middles as a line, with gaps for missing values."""
    z = style.middles(density.edges)
    shown = np.flatnonzero(np.isfinite(y_b))
    part = slice(shown[0], shown[-1] + 1) if shown.size else slice(0)
    lonely = shown[~np.isin(shown - 1, shown) & ~np.isin(shown + 1, shown)]
    y = np.where(np.isfinite(y_b), y_b, np.nan)
    axes.plot(z[part], y[part], color=color, label=label, **look)
    axes.plot(z[lonely], y[lonely], "_", color=color, markersize=7, zorder=look["zorder"])


def _density_panel(axes: Axes, density: Density, exact: Exact | None) -> None:
    """Draw log10 of the number of inputs per bin."""
    shift = 0.0 if exact is None else offset(density, exact)
    z = style.middles(density.edges)
    style.bin_limits(axes, density.edges)
    few = np.isfinite(density.log_g_upper_b)
    bins = (density.count_b > 0) & ~few
    log10_g, error = (density.log_g_b + shift) / style.LN10, density.log_g_error_b / style.LN10
    style.points(axes, z[bins], log10_g[bins], error[bins])
    _upper_bounds(axes, z[few], log10_g[few], (density.log_g_upper_b[few] + shift) / style.LN10)
    if exact is not None:
        exact_line(axes, density, exact.log_g_b / style.LN10)
    absolute = density.absolute or exact is not None
    axes.set_ylabel(style.inputs_label(absolute, measure=density.measure))
    if not density.verdict.converged:
        said = ["not converged: bars are the spread of the lanes", *density.outside.shares()]
        axes.set_title("\n".join(said), fontsize="small", fontweight="bold", loc="left")
    style.legend_in_margin(axes)


def _upper_bounds(
    axes: Axes, x: style.FloatArray, y: style.FloatArray, upper: style.FloatArray
) -> None:
    """Draw hollow points with an arrow down from their upper bound, since no interval is known."""
    if len(x):
        axes.vlines(x, y, upper, color=style.sampled(), linewidth=0.6, alpha=0.6, zorder=2)
        axes.plot(x, upper, "v", markersize=3, color=style.sampled(), alpha=0.6, zorder=2)
        label = f"fewer than {MIN_EFFECTIVE_COUNT:.0f} effective counts, 95% upper bound"
        style.hollow(axes, x, y, label, markersize=3.2)


def _error_panel(axes: Axes, density: Density) -> None:
    """Draw the standard errors of log10 g, from lanes as points, from blocks as a line."""
    z = style.middles(density.edges)
    lanes_b, blocks_b = (
        np.where((density.count_b > 0) & np.isfinite(error_b) & (error_b > 0), error_b, np.nan)
        / style.LN10
        for error_b in (density.log_g_error_b, density.block_error_b)
    )
    if np.isfinite(lanes_b).any():
        axes.plot(z, lanes_b, ".", color=style.sampled(), markersize=3.5, label="from lanes")
    if np.isfinite(blocks_b).any():
        name = "from blocks of rounds"
        _line(axes, density, blocks_b, style.other(), name, linewidth=0.9, zorder=1.5)
    axes.set_yscale("log")
    decades = np.log10(axes.get_ylim())
    axes.set_ylim(10.0 ** np.floor(decades[0]), 10.0 ** np.ceil(decades[1]))
    axes.set_ylabel("standard error\nof the above")
    if axes.lines:
        style.legend_above(axes, 2)


def _difference_panel(axes: Axes, density: Density, exact: Exact) -> None:
    """Draw log10 g, sampled minus exact; the axis fits the errors of bins that are not rare."""
    bins = np.flatnonzero((density.count_b > 0) & np.isfinite(exact.log_g_b))
    z, error = style.middles(density.edges)[bins], density.log_g_error_b[bins] / style.LN10
    error = np.where(np.isfinite(density.log_g_upper_b[bins]), np.inf, error)  # as above it
    delta = (density.log_g_b[bins] + offset(density, exact) - exact.log_g_b[bins]) / style.LN10
    reach = np.abs(delta) + np.where(np.isfinite(error), error, 0.0)
    rare = exact.log_g_b[bins] < np.log(RARE)
    if rare.all():
        rare[:] = False
    if rare.any():
        style.points(axes, z[rare], delta[rare], error[rare], color=style.FAINT)
        note = f"grey: bins with fewer than {RARE:,} inputs, which may lie outside this panel"
        axes.set_title(note, loc="left", fontsize=9, color=style.NOTE)
    style.points(axes, z[~rare], delta[~rare], error[~rare])
    axes.axhline(0.0, color=style.exact(), linewidth=1.1, zorder=4)
    limit = 1.6 * reach[~rare].max(initial=1e-6)
    axes.set(ylim=(-limit, limit), ylabel="$\\log_{10}$ of sampled\nover exact")
