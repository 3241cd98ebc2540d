"""Plot the number of inputs below z: certified bounds beside the density's estimate."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from omniinput_hpc.estimators.density.certified import Certified, counts_all_below
from omniinput_hpc.estimators.density.density import Density
from omniinput_hpc.plots import style


@style.styled
def certified_figure(found: Certified, density: Density, label: str) -> Figure:
    """Return log10 of the number of inputs below z, with the distance between the bounds below.

    `label` is the axis label of the output z, with its unit.
    """
    figure, (top, bottom) = style.panels([3.4, 1.8])
    z_t, low_t, high_t = found.z_t, found.low_t / style.LN10, found.high_t / style.LN10
    count = density.measure == "count"
    least = 0.0 if count else high_t.min() - 1.0
    floor = min(least, float(np.min(low_t[np.isfinite(low_t)], initial=least)))
    shown_t = np.where(np.isfinite(low_t), low_t, floor)  # none found: the band begins at one input
    top.fill_between(z_t, shown_t, high_t, color=style.SKY, alpha=0.45, linewidth=0,
                     label="certified 95% bounds")  # fmt: skip
    exact = found.exact_t & np.isfinite(low_t)
    if exact.any():
        top.plot(z_t[exact], low_t[exact], color=style.exact(), label="all known from a census")
    if counts_all_below(density):
        upto_b = np.logaddexp.accumulate(density.log_g_b) / style.LN10
        seen = np.isfinite(upto_b)
        top.plot(density.edges[1:][seen], upto_b[seen], color=style.sampled(),
                 label="from the density")  # fmt: skip
    what = "number of inputs\nwith" if count else "probability\nof"
    top.set_ylabel(f"$\\log_{{10}}$ {what} an output below z")
    top.legend(loc="lower right")
    with np.errstate(invalid="ignore"):  # both are -inf if a census found none
        apart = np.where(np.isfinite(low_t), high_t - low_t, np.nan)
    bottom.plot(z_t, apart, color=style.sampled())
    bottom.set(ylabel="$\\log_{10}$ of upper\nover lower bound", xlabel=label)
    bottom.set_ylim(bottom=0.0)
    return figure
