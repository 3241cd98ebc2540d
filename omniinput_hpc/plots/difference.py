"""Plot the difference D of two models' outputs: its density, and its mean and spread at each z."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from omniinput_hpc.estimators import FloatArray
from omniinput_hpc.estimators.comparison.difference import OneWay
from omniinput_hpc.estimators.density.density import Density
from omniinput_hpc.plots import style


@style.styled
def difference_figure(
    edges: FloatArray,
    ways: Sequence[OneWay],
    densities: Sequence[Density],
    names: tuple[str, str],
    label: str,
) -> Figure:
    """Return the density of D over either model's inputs, and D against z of that model below."""
    figure, (top, bottom) = style.panels([3.1, 3.0], share_x=False)
    names = (style.named(names[0], 0), style.named(names[1], 1))
    middle, absolute = style.middles(edges), all(density.absolute for density in densities)
    for number, (way, name) in enumerate(zip(ways, names, strict=True)):
        colour, density, a = style.colour(number), way.density, way.means
        ends = f"{a.edges[0]:.4g} to {a.edges[-1]:.4g}"
        some = np.isfinite(density.log_g_c)
        whole, own = 0.0, densities[number]
        if own.absolute and not absolute:  # the other one is relative: draw shares of both
            whole = float(np.logaddexp.reduce(own.log_g_b))
        log_g = (density.log_g_c[some] - whole) / style.LN10
        log_g = log_g.astype(np.float32)  # equal where only rounding differs
        error = density.error_c[some] / style.LN10
        known, d = np.isfinite(error), middle[some]
        style.points(top, d[known], log_g[known], error[known], f"z of {name} {ends}", colour)
        unknown = "" if number else "error not known"
        style.hollow(top, d[~known], log_g[~known], unknown, colour, markerfacecolor="none")
        z, some = style.middles(a.edges), np.isfinite(a.mean_b)
        low, high = a.mean_b - way.sd_b, a.mean_b + way.sd_b
        spread = "" if number else "\N{PLUS-MINUS SIGN} standard deviation"
        style.band(bottom, z[some], low[some], high[some], colour, spread)
        style.points(
            bottom, z[some], a.mean_b[some], a.error_b[some], f"mean at z of {name}", colour
        )
    top.axvline(0.0, color=style.FAINT, linewidth=1.1)
    bottom.axhline(0.0, color=style.FAINT, linewidth=1.1)
    top.set_ylabel(style.inputs_label(absolute, "cell", densities[0].measure))
    top.set_xlabel(f"D = z of {names[0]} \N{MINUS SIGN} z of {names[1]}")
    bottom.set(xlabel=label, ylabel="D")
    style.legend_above(top, 3)
    style.legend_above(bottom, 3)
    return figure
