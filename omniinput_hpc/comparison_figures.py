"""The figures that set models or samplers beside each other, in the style of `figures`."""

from __future__ import annotations

from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from numpy.typing import NDArray

from omniinput_hpc.estimators.density import Density
from omniinput_hpc.estimators.side_by_side import Normalizations
from omniinput_hpc.figures import EXACT, FAINT, LN10, OTHER, SAMPLED, STYLE

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
    """Draw log10 of the number of inputs per bin, hollow where the error is not known."""
    bins = np.flatnonzero(density.count_b)
    middle = 0.5 * (density.edges[bins] + density.edges[bins + 1])
    y, error = (density.log_g_b[bins] + shift) / LN10, density.log_g_error_b[bins] / LN10
    known, colour, mark = np.isfinite(error), COLOURS[index], MARKS[index]
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
        top.legend(loc="best")
        rows = [r for r in found.rows if r.ratio is not None]
        for y, r in enumerate(reversed(rows)):
            assert r.ratio is not None
            value, half = float(r.ratio.value), float(r.ratio.high - r.ratio.value)
            shown = half if np.isfinite(half) else 0.0
            bottom.errorbar(value, y, xerr=shown, fmt="o", color=SAMPLED, markersize=5)
        bottom.set_yticks(range(len(rows)), [r.name for r in reversed(rows)])
        bottom.set_ylim(-0.6, len(rows) - 0.4)
        bottom.set_xlabel(f"ln(inputs of {names[0]} / inputs of {names[1]}) in Z, 95% intervals")
    return figure
