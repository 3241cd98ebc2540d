"""Plot an observable y against z: its mean and quantiles, and the joint density of both."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from omniinput_hpc.estimators.density.density import Density
from omniinput_hpc.estimators.observables import Averages, Joint
from omniinput_hpc.plots import style
from omniinput_hpc.text import WORDS_OF


@style.styled
def average_figure(found: Averages, name: str, label: str, measure: str = "count") -> Figure:
    """Return the mean of y with 95 % intervals, and where 80 % of the inputs lie, against z.

    `measure` is the density's: under a law, where 80 % of the probability lies.
    """
    figure, (axes,) = style.panels([3.6])
    _average(axes, found, band=f"80 % of the {WORDS_OF[measure].things} of a bin")
    axes.set(xlabel=label, ylabel=name)
    style.legend_above(axes, 3)
    return figure


def _average(axes, found: Averages, band: str = "") -> None:  # type: ignore[no-untyped-def]
    z = style.middles(found.edges)
    means = np.array([found.mean_b, found.low_b, found.high_b])
    mean, low, high = means.astype(np.float32)  # equal where only rounding differs
    if band and not np.isin(np.nan_to_num(found.quantile_qb), (0.0, 1.0)).all():  # not of shares
        lower, _, upper = found.quantile_qb
        some = np.isfinite(lower)
        style.band(axes, z[some], lower[some], upper[some], style.colour(1), band)
    known = np.isfinite(low)
    bars = np.abs(np.array([mean - low, high - mean]))[:, known]
    colour = style.sampled() if band else style.exact()
    axes.errorbar(
        z[known], mean[known], yerr=bars, fmt="o", markersize=2.8, color=colour, elinewidth=1.0,
        label="mean, 95 % interval", zorder=3,
    )  # fmt: skip
    some = np.isfinite(mean) & ~known
    style.hollow(axes, z[some], mean[some], "mean, interval not known", colour)


@style.styled
def joint_figure(
    found: Joint, averages: Averages | None, density: Density, name: str, label: str
) -> Figure:
    """Return a map of log10 of the inputs per cell, with the density of y alone beside it.

    Without `averages` no mean of y is drawn.
    """
    figure = style.blank(style.FULL_WIDTH, 4.2)
    left, right = figure.subplots(1, 2, sharey=True, gridspec_kw={"width_ratios": [3.2, 1.0]})
    shown_cb = np.where(found.count_bc > 0, found.log_g_bc / style.LN10, np.nan).T
    drawn = left.pcolormesh(found.z_edges, found.y_edges, shown_cb, cmap="viridis")
    b, c = np.nonzero((found.count_bc > 0) & ~np.isfinite(found.error_bc))
    at = style.middles(found.z_edges)[b], style.middles(found.y_edges)[c]
    left.plot(
        *at,
        "ko",
        markersize=2.6,
        markeredgecolor="white",
        markeredgewidth=0.5,
        label="error not known",
    )
    if averages is not None:
        _average(left, averages)
    left.set(xlabel=label, ylabel=name, ylim=(found.y_edges[0], found.y_edges[-1]))
    style.legend_above(left, 2)
    amount = style.inputs_label(density.absolute, "cell", density.measure)
    figure.colorbar(drawn, ax=[left, right], label=amount)
    some = np.isfinite(found.log_g_c)
    amount_c, middle = found.log_g_c[some] / style.LN10, style.middles(found.y_edges)[some]
    error = found.error_c[some] / style.LN10
    known = np.isfinite(error)
    right.errorbar(
        amount_c[known], middle[known], xerr=error[known], fmt="o", markersize=2.4,
        color=style.sampled(), elinewidth=1.0,
    )  # fmt: skip
    style.hollow(right, amount_c[~known], middle[~known], "error not known", markersize=2.4)
    right.set_xlabel("$\\log_{10}$ per y,\nall z shown")
    return figure
