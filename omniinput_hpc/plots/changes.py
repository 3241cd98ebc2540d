"""Plot how another model's outputs and density differ from a run's own."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from omniinput_hpc.estimators import FloatArray
from omniinput_hpc.estimators.comparison.other_outputs import Changes
from omniinput_hpc.estimators.density.density import Density
from omniinput_hpc.plots import style


@style.styled
def changes_figure(
    found: Changes,
    own: Density,
    log_g_change: tuple[FloatArray, FloatArray],
    names: tuple[str, str],
    label: str,
) -> Figure:
    """Return z' - z against z with the spread over inputs, and the change of the density below.

    `log_g_change` is log g' - log g and its standard error, float64 [B], in the bins of `own`.
    """
    figure, (top, bottom) = style.panels([3.0, 2.4], share_x=True)
    names = (style.named(names[0], 0), style.named(names[1], 1))
    bins = np.flatnonzero(found.draws_b > 1)
    z, mean, sd = style.middles(found.edges)[bins], found.mean_b[bins], found.sd_b[bins]
    style.band(top, z, mean - sd, mean + sd, style.colour(1), "standard deviation of inputs")
    style.points(top, z, mean, found.error_b[bins], "mean over a bin's inputs")
    top.set_ylabel(f"z of {names[1]}\n\N{MINUS SIGN} z of {names[0]}")
    top.legend(loc="best")
    change_b, error_b = log_g_change
    firm = np.isfinite(change_b) & np.isfinite(error_b)
    middle = style.middles(own.edges)
    style.points(bottom, middle[firm], change_b[firm] / style.LN10, error_b[firm] / style.LN10)
    if firm.any():
        reach = float(np.quantile(np.abs(change_b[firm]) + error_b[firm], 0.95)) / style.LN10
        bottom.set_ylim(-1.5 * reach - 1e-12, 1.5 * reach + 1e-12)
    for axes in (top, bottom):
        axes.axhline(0.0, color=style.exact(), linewidth=1.1)
    bottom.set_ylabel("$\\log_{10}$ of inputs per bin,\nchange")
    bottom.set_xlabel(label)
    return figure
