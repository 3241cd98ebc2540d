"""Plot the output distributions of several models, with inputs of low, middle and high z."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import cycle
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from omniinput_hpc.errors import UserError
from omniinput_hpc.estimators.density.density import Density
from omniinput_hpc.plots import style

PLACES = ("low", "middle", "high")
NEAR_AXIS = 0.25
"""Share of the axis in which a name finds no room to the left of its points."""


@dataclass(frozen=True)
class Overlaid:
    """One model of the figure.

    Attributes
    ----------
    label : axis label of z; models with the same label share a panel
    pictures : by place (low, middle, high), each (z, uint8 [h, w] or [h, w, 3]); may be empty
    sets : test sets' outputs by name, float64 [n]; may be empty
    """

    name: str
    label: str
    density: Density
    pictures: list[list[tuple[float, NDArray[np.uint8]]]]
    sets: dict[str, style.FloatArray]


@style.styled
def overlay_figure(models: list[Overlaid]) -> Figure:
    """Return log10 of the number of inputs per unit of z, with a line for each model."""
    n_pictures = max((len(p) for m in models for p in m.pictures), default=0)
    rows = len(models) if n_pictures else 0
    labels = list(dict.fromkeys(model.label for model in models))
    figure = style.blank(9.0, 4.2 + 0.62 * rows)
    parts: Any = figure.subfigures(2, 1, height_ratios=[4.2, max(0.62 * rows, 0.01)])
    panels = parts[0].subplots(1, len(labels), squeeze=False, sharey=True)[0]
    for axes, label in zip(panels, labels, strict=True):
        chosen = [(i, model) for i, model in enumerate(models) if model.label == label]
        _densities(axes, chosen)
        axes.set_xlabel(label)
    absolute, *mixed = {model.density.absolute for model in models}
    if mixed:
        raise UserError(
            "the density of one run is absolute and that of another is relative, so they have no "
            "common axis: give each ladder a rung with beta = 0"
        )
    measure, *others = {model.density.measure for model in models}
    if others:
        raise UserError(
            "runs with a [law] and without one have no common axis: one density is a probability, "
            "the other a number of inputs"
        )
    panels[0].set_ylabel(style.inputs_label(absolute, "unit of z", measure))
    if rows:
        _pictures(parts[1], models, n_pictures)
    return figure


def _densities(axes: Any, models: list[tuple[int, Overlaid]]) -> None:
    """Draw a line per numbered model, and the outputs of its test sets below."""
    for index, model in models:
        line, colour = "-" if index < len(style.SERIES) else "--", style.colour(index)
        z, log10_rho, error = _line(model.density)
        name = style.named(model.name, index)
        axes.plot(z, log10_rho, line, color=colour, label=name, linewidth=1.2)
        style.band(axes, z, log10_rho - error, log10_rho + error, colour)
        bare, label = np.isnan(error), f"{name}: error not known"
        style.hollow(axes, z[bare], log10_rho[bare], label, colour, markersize=2.4)
    (bottom, top), (left, right) = axes.get_ylim(), axes.get_xlim()
    row = 0
    for index, model in models:
        for mark, (name, z_n) in zip(cycle("|x+."), model.sets.items(), strict=False):
            row += 1
            y = bottom - 0.06 * row * (top - bottom)
            look: dict[str, Any] = {"color": style.colour(index), "alpha": 0.4, "markersize": 5}
            axes.plot(z_n, np.full(len(z_n), y), mark, **look)
            # a name to the left of the first outputs would lie across the axis
            near = z_n.min() < left + NEAR_AXIS * (right - left)
            z, away, ha = (z_n.max(), 6, "left") if near else (z_n.min(), -6, "right")
            at: dict[str, Any] = {"xytext": (away, 0), "textcoords": "offset points"}
            axes.annotate(name, (z, y), fontsize=7, ha=ha, va="center", **at)
    axes.legend(loc="best")


def _line(density: Density) -> tuple[style.FloatArray, style.FloatArray, style.FloatArray]:
    """Return z, log10 of the density per unit of z, and its standard error, float64 [n] each.

    The error is NaN if unknown.
    """
    bins = np.flatnonzero(density.count_b)
    width = np.diff(density.edges)[bins]
    value = (density.log_g_b[bins] - np.log(width)) / style.LN10
    error = density.log_g_error_b[bins] / style.LN10
    error[np.isinf(error)] = np.nan
    return style.middles(density.edges)[bins], value, error


def _pictures(part: Any, models: list[Overlaid], n: int) -> None:
    """Draw a row of inputs per model: n of low, n of middle, n of high z."""
    columns = len(PLACES) * n + 2  # a gap between the places
    grid = part.subplots(len(models), columns, squeeze=False, gridspec_kw={"wspace": 0.05})
    for axes in grid.flat:
        axes.axis("off")
    for index, (row, model) in enumerate(zip(grid, models, strict=True)):
        for place, chosen in enumerate(model.pictures):
            for column, (z, picture) in enumerate(chosen):
                axes = row[place * (n + 1) + column]
                axes.imshow(picture, cmap="gray", vmin=0, vmax=255, interpolation="nearest")
                axes.set_title(f"{z:.3g}", fontsize=6, pad=1)
        row[0].text(
            -0.3, 0.5, style.named(model.name, index), transform=row[0].transAxes, fontsize=7,
            ha="right", va="center",
        )  # fmt: skip
    part.suptitle("recorded inputs of low, middle and high z (the number above each)", fontsize=9)
