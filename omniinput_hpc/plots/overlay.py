"""Plot the output distributions of several models, with inputs of low, middle and high z."""

from __future__ import annotations

import re
from dataclasses import dataclass
from textwrap import fill
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from omniinput_hpc.errors import UserError
from omniinput_hpc.estimators.density.density import Density
from omniinput_hpc.plots import style

PLACES = ("low", "middle", "high")
ROW = 0.17
"""Height of the row of a test set, in inches."""


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
    panels = [[(i, m) for i, m in enumerate(models) if m.label == label] for label in labels]
    n_sets = max(sum(len(model.sets) for _, model in chosen) for chosen in panels)
    heights = [4.2 + ROW * n_sets, max(0.62 * rows, 0.01)]
    figure = style.blank(9.0, 4.2 + ROW * n_sets + 0.62 * rows)
    parts: Any = figure.subfigures(2, 1, height_ratios=heights)
    ratios = [3.6, ROW * n_sets] if n_sets else [1.0]
    options: dict[str, Any] = {"squeeze": False, "sharex": "col", "height_ratios": ratios}
    grid = parts[0].subplots(len(ratios), len(labels), **options)
    for axes, below, label, chosen in zip(grid[0], grid[-1], labels, panels, strict=True):
        axes.sharey(grid[0][0])
        _densities(axes, chosen)
        if any(model.sets for _, model in chosen):
            _test_sets(below, chosen, n_sets)
            lowest = below
        else:
            below.set_visible(below is axes)
            lowest = axes
        lowest.set_xlabel(fill(label, 80 // len(labels)))
        lowest.tick_params(labelbottom=True)
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
    grid[0][0].set_ylabel(style.inputs_label(absolute, "unit of z", measure))
    if rows:
        _pictures(parts[1], models, n_pictures)
    return figure


def _densities(axes: Any, models: list[tuple[int, Overlaid]]) -> None:
    """Draw a line per numbered model; bins whose error is unknown have one entry in the legend."""
    any_bare = False
    for index, model in models:
        line, colour = "-" if index < len(style.SERIES) else "--", style.colour(index)
        z, log10_rho, error = _line(model.density)
        axes.plot(
            z, log10_rho, line, color=colour, label=style.named(model.name, index), linewidth=1.2
        )
        style.band(axes, z, log10_rho - error, log10_rho + error, colour)
        bare = np.isnan(error)
        style.hollow(axes, z[bare], log10_rho[bare], "_", colour, markersize=2.4)
        any_bare |= bool(bare.any())
    if any_bare:
        nowhere = np.array([np.nan])
        style.hollow(axes, nowhere, nowhere, "error not known", style.BLACK, markersize=2.4)
    axes.legend(loc="best", fontsize=8)


def _test_sets(axes: Any, models: list[tuple[int, Overlaid]], n_rows: int) -> None:
    """Draw a row of outputs for each test set of the numbered models."""
    rows = [(style.colour(i), *item) for i, model in models for item in model.sets.items()]
    axes.set_yticks(range(len(rows)), [shortened(name) for _, name, _ in rows], fontsize=7)
    for y, (tick, (colour, _, z_n)) in enumerate(zip(axes.get_yticklabels(), rows, strict=True)):
        axes.plot(z_n, np.full(len(z_n), y), "|", color=colour, alpha=0.4, markersize=6)
        tick.set_color(colour)
    axes.set_ylim(n_rows - 0.5, -0.5)


def shortened(name: str) -> str:
    """Return the name of a test set without folders, such as mnist:1 of mnist:DATA/FOLDER:1."""
    return re.sub(r"^[^:]*/|:[^:]*/[^:]*", "", name)


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
