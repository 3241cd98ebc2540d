"""Mean scores r(z), drawn: of a run, by annotator, and of judges beside people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from omniinput_hpc.estimators.comparison.to_exact import Exact
from omniinput_hpc.estimators.density.density import Density
from omniinput_hpc.estimators.precision_recall.agreement import PeopleComparison
from omniinput_hpc.estimators.precision_recall.curves import Curve
from omniinput_hpc.estimators.precision_recall.from_scores import Scored, bin_scores
from omniinput_hpc.plots.density import exact_line
from omniinput_hpc.plots.style import (
    BLACK,
    FAINT,
    SAMPLED,
    FloatArray,
    colour,
    legend,
    legend_beside,
    marker,
    middles,
    panels,
    points,
    styled,
)

SCORE_LIMITS = (-0.05, 1.05)
SCORE_LABEL = "mean score r(z)"


@styled
def r_figure(density: Density, curve: Curve, label: str, exact: Exact | None = None) -> Figure:
    """Return the mean score r(z) per bin; thin bins hollow, bins without scores as crosses."""
    figure, (axes,) = panels([3.2])
    z = middles(density.edges)
    known = np.isfinite(curve.r_b) & ~curve.interpolated_b
    full, thin, gaps = known & ~curve.thin_b, known & curve.thin_b, curve.interpolated_b
    points(axes, z[full], curve.r_b[full], curve.r_error_b[full], "mean score, ± 1 standard error")
    if thin.any():
        axes.errorbar(
            z[thin], curve.r_b[thin], yerr=np.nan_to_num(curve.r_error_b[thin], posinf=0.0),
            fmt="o", markersize=4, markerfacecolor="none", color=SAMPLED, elinewidth=0.6,
            label="too few inputs or lanes", zorder=3,
        )  # fmt: skip
    if gaps.any():
        axes.plot(z[gaps], curve.r_b[gaps], "x", color=FAINT, label="interpolated")
    if exact is not None:
        exact_line(axes, density, exact.r_b)
    axes.set(ylim=SCORE_LIMITS, xlabel=label, ylabel=SCORE_LABEL)
    legend(axes)
    return figure


@styled
def annotators_figure(scored: Scored, used_b: NDArray[np.bool_], label: str) -> Figure:
    """Return r(z) per annotator, side by side in each bin, and their mean with its deviation."""
    figure, (axes,) = panels([3.6])
    z, width = middles(scored.edges), float(np.diff(scored.edges).min())
    n = len(scored.annotators)
    r_ab = np.full((n, len(z)), np.nan)
    for a, name in enumerate(scored.annotators):
        one = bin_scores(scored.of(a))
        shown = used_b & (one.inputs_b > 0)
        r_ab[a, shown] = one.r_b[shown]
        axes.errorbar(
            z[shown] + _beside(a, n, width), one.r_b[shown], yerr=one.sampling_error_b[shown],
            fmt=marker(a), markersize=4, elinewidth=0.8, color=colour(a), label=name,
        )  # fmt: skip
    some = np.isfinite(r_ab).all(axis=0)
    if n > 1 and some.any():
        mean, spread = r_ab[:, some].mean(axis=0), r_ab[:, some].std(axis=0, ddof=1)
        _mean_boxes(axes, z[some], width, mean, spread)
    axes.set(ylim=SCORE_LIMITS, xlabel=label, ylabel=SCORE_LABEL)
    legend_beside(axes)
    return figure


def _beside(index: int, n: int, width: float) -> float:
    """Return how far the `index`-th of n series is moved along z, so that bars do not overlap."""
    return (index - (n - 1) / 2) * 0.7 * width / max(n, 2)


def _mean_boxes(
    axes: Axes, z: FloatArray, width: float, mean: FloatArray, spread: FloatArray
) -> None:
    """Draw each bin's mean as a line over its width, in a box of one standard deviation."""
    left, right = z - 0.45 * width, z + 0.45 * width
    axes.hlines(mean, left, right, color=FAINT, linewidth=1.6, label="mean of all", zorder=1)
    for low, high, m, s in zip(left, right, mean, spread, strict=True):
        axes.fill_between(
            [low, high], m - s, m + s, color=FAINT, alpha=0.25, linewidth=0, zorder=0,
            label="± standard deviation\nof annotators" if low == left[0] else None,
        )  # fmt: skip


@styled
def agreement_figure(
    columns: Mapping[str, FloatArray], found: Sequence[PeopleComparison], label: str
) -> Figure:
    """Return judges beside people per bin: mean scores, biases, and FID where there is one.

    Parameters
    ----------
    columns : by name, float64 [n]
        Of `people_columns`, with ``fid`` and ``fid_of_reference`` or without.
    found : PeopleComparison
        Each judge, or person, beside the other people.
    label : str
        Of the output z, with its unit.
    """
    has_fid = "fid" in columns
    figure, axes = panels([3.0, 2.0, 1.6] if has_fid else [3.0, 2.0])
    z = 0.5 * (columns["z_lower"] + columns["z_upper"])
    width = float((columns["z_upper"] - columns["z_lower"]).min())
    people: dict[str, Any] = {"markersize": 14, "markeredgewidth": 2, "color": BLACK}
    axes[0].plot(z, columns["r_people"], "_", label="people", **people)
    axes[1].axhline(0.0, color=BLACK, linewidth=0.8)
    for n, one in enumerate(found):
        person = one.judge is None
        style: dict[str, Any] = {
            "fmt": marker(n), "markersize": 4, "elinewidth": 0.8,
            "color": FAINT if person else colour(n),
            "label": one.name + (" beside the other people" if person else " (judge)"),
        }  # fmt: skip
        at = z + _beside(n, len(found), width)
        axes[0].errorbar(at, columns[f"r_{one.name}"], **style)
        bias, error = columns[f"bias_{one.name}"], columns[f"bias_error_{one.name}"]
        axes[1].errorbar(at, bias, yerr=error, **style)
    axes[0].set(ylim=SCORE_LIMITS, ylabel=SCORE_LABEL)
    axes[1].set_ylabel("bias")
    legend_beside(axes[0])
    if has_fid:
        reference: dict[str, Any] = {
            "markersize": 10,
            "color": BLACK,
            "label": "as many of the reference",
        }
        axes[2].plot(z, columns["fid"], "o", markersize=4, color=SAMPLED, label="FID")
        axes[2].plot(z, columns["fid_of_reference"], "_", **reference)
        axes[2].set(yscale="log", ylabel="FID")
        legend_beside(axes[2])
    axes[-1].set_xlabel(label)
    return figure
