"""The density of outputs, drawn: with its errors or beside the exact one, and with r(z) below."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from omniinput_hpc.estimators.comparison.to_exact import Exact, offset
from omniinput_hpc.estimators.density.density import MIN_EFFECTIVE_COUNT, Density
from omniinput_hpc.estimators.precision_recall.curves import Curve
from omniinput_hpc.plots.style import (
    EXACT,
    FAINT,
    LN10,
    NOTE,
    OTHER,
    PAPER,
    SAMPLED,
    FloatArray,
    inputs_label,
    legend,
    middles,
    panels,
    points,
    styled,
)

RARE = 10_000  # inputs in a bin


@styled
def density_figure(density: Density, label: str, exact: Exact | None = None) -> Figure:
    """Return the density above its errors, or above its difference from the exact one.

    Parameters
    ----------
    density : Density
    label : str
        Of the output z, with its unit.
    exact : Exact or None
        The exact density in the same bins.
    """
    figure, (top, bottom) = panels([3.2, 2.0])
    _density_panel(top, density, exact)
    if exact is None:
        _error_panel(bottom, density)
    else:
        _difference_panel(bottom, density, exact)
    bottom.set_xlabel(label)
    return figure


@styled
def rho_r_figure(density: Density, curve: Curve, label: str, exact: Exact) -> Figure:
    """Return sampled against exact: inputs per bin, their difference, and mean score r(z)."""
    figure, (top, middle_panel, bottom) = panels([3.0, 1.5, 2.3])
    _density_panel(top, density, exact)
    _difference_panel(middle_panel, density, exact)
    known, gaps = np.isfinite(curve.r_b) & ~curve.interpolated_b, curve.interpolated_b
    z = middles(density.edges)
    points(bottom, z[known], curve.r_b[known], curve.r_error_b[known])
    if gaps.any():
        bottom.plot(z[gaps], curve.r_b[gaps], "x", color=FAINT, label="interpolated")
    exact_line(bottom, density, exact.r_b)
    bottom.set(ylim=(-0.05, 1.05), ylabel="mean score r(z)", xlabel=label)
    legend(bottom)
    return figure


def exact_line(axes: Axes, density: Density, exact_b: FloatArray) -> None:
    """Draw exact values at the bins' middles as a line with gaps where there are none."""
    z = middles(density.edges)
    shown = np.flatnonzero(np.isfinite(exact_b))
    part = slice(shown[0], shown[-1] + 1) if shown.size else slice(0)
    lonely = shown[~np.isin(shown - 1, shown) & ~np.isin(shown + 1, shown)]
    y = np.where(np.isfinite(exact_b), exact_b, np.nan)
    axes.plot(z[part], y[part], color=EXACT, linewidth=1.1, label="exact", zorder=4)
    axes.plot(z[lonely], y[lonely], "_", color=EXACT, markersize=7, zorder=4)


def _density_panel(axes: Axes, density: Density, exact: Exact | None) -> None:
    """Draw log10 of the number of inputs per bin."""
    shift = 0.0 if exact is None else offset(density, exact)
    z = middles(density.edges)
    few = np.isfinite(density.log_g_upper_b)
    bins = (density.count_b > 0) & ~few
    log10_g, error = (density.log_g_b + shift) / LN10, density.log_g_error_b / LN10
    points(axes, z[bins], log10_g[bins], error[bins])
    _upper_bounds(axes, z[few], log10_g[few], (density.log_g_upper_b[few] + shift) / LN10)
    if exact is not None:
        exact_line(axes, density, exact.log_g_b / LN10)
    axes.set_ylabel(inputs_label(density.absolute or exact is not None))
    legend(axes)


def _upper_bounds(axes: Axes, x: FloatArray, y: FloatArray, upper: FloatArray) -> None:
    """Draw hollow points with an arrow down from their upper bound: no interval is known there."""
    if len(x):
        axes.vlines(x, y, upper, color=SAMPLED, linewidth=0.6, alpha=0.6, zorder=2)
        axes.plot(x, upper, "v", markersize=3, color=SAMPLED, alpha=0.6, zorder=2)
        axes.plot(
            x, y, "o", markersize=3.2, markerfacecolor=PAPER, color=SAMPLED, zorder=3,
            label=f"fewer than {MIN_EFFECTIVE_COUNT:.0f} effective counts, 95% upper bound",
        )  # fmt: skip


def _error_panel(axes: Axes, density: Density) -> None:
    """Draw the standard errors of ln g, by lanes and by blocks of rounds."""
    bins = np.flatnonzero(density.count_b)
    z = middles(density.edges)[bins]
    for errors, mark, color, name in (
        (density.log_g_error_b[bins], ".", SAMPLED, "from lanes"),
        (density.block_error_b[bins], "x", OTHER, "from blocks of rounds"),
    ):
        known = np.isfinite(errors) & (errors > 0)
        if known.any():
            axes.plot(z[known], errors[known], mark, color=color, markersize=3.5, label=name)
    axes.set_yscale("log")
    decades = np.log10(axes.get_ylim())
    axes.set_ylim(10.0 ** np.floor(decades[0]), 10.0 ** np.ceil(decades[1]))
    axes.set_ylabel("standard error\nof ln g")
    if axes.lines:
        axes.legend(loc="best", ncols=2)


def _difference_panel(axes: Axes, density: Density, exact: Exact) -> None:
    """Draw ln g, sampled minus exact; the axis spans the errors of bins that are not rare."""
    bins = np.flatnonzero((density.count_b > 0) & np.isfinite(exact.log_g_b))
    z, error = middles(density.edges)[bins], density.log_g_error_b[bins]
    delta = density.log_g_b[bins] + offset(density, exact) - exact.log_g_b[bins]
    reach = np.abs(delta) + np.where(np.isfinite(error), error, 0.0)
    rare = exact.log_g_b[bins] < np.log(RARE)
    if rare.all():
        rare[:] = False
    if rare.any():
        points(axes, z[rare], delta[rare], error[rare], color=FAINT)
        note = f"grey: bins with fewer than {RARE:,} inputs, which reach beyond this panel"
        axes.set_title(note, loc="left", fontsize=9, color=NOTE)
    points(axes, z[~rare], delta[~rare], error[~rare])
    axes.axhline(0.0, color=EXACT, linewidth=1.1, zorder=4)
    limit = 1.6 * reach[~rare].max(initial=1e-6)
    axes.set(ylim=(-limit, limit), ylabel="ln g,\nsampled \N{MINUS SIGN} exact")
