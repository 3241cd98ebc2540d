"""Plot results of scores: precision-recall and ROC curves, mean scores r(z), agreement."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from omniinput_hpc.estimators.comparison.to_exact import Exact, ExactCurve, offset
from omniinput_hpc.estimators.density.density import Density
from omniinput_hpc.estimators.precision_recall.agreement import PeopleComparison
from omniinput_hpc.estimators.precision_recall.curves import Curve
from omniinput_hpc.estimators.precision_recall.from_scores import Scored, bin_scores
from omniinput_hpc.plots import style
from omniinput_hpc.plots.density import exact_line
from omniinput_hpc.text import decimals, interval, range_words

SCORE_LIMITS = (-0.05, 1.05)
SCORE_LABEL = "mean score r(z)"


@style.styled
def curve_figure(
    density: Density,
    curve: Curve,
    exact: Exact | None = None,
    exact_curve: ExactCurve | None = None,
) -> Figure:
    """Return precision over log10 recall with its 95% band, and the exact curve if given."""
    shift = 0.0 if exact is None else offset(density, exact)
    figure, (axes,) = style.panels([4.0])
    shown = np.isfinite(curve.log_recall_t)
    if not shown.any():
        return _nothing_right(figure, axes, curve)
    x, precision = (curve.log_recall_t[shown] + shift) / style.LN10, curve.precision_t[shown]
    low, high = curve.bands.low.precision_t[shown], curve.bands.high.precision_t[shown]
    style.band(axes, x, low, high, style.sampled(), "95% band")
    digits = decimals(curve.aupr_low, curve.aupr_high)
    name = f"{style.named('sampled')}, {_aupr_label(curve, digits, shift)}"
    axes.plot(x, precision, ".-", color=style.sampled(), markersize=3, label=name)
    thin = curve.thin_b[curve.bin_t][shown]
    style.hollow(axes, x[thin], precision[thin], "bin with too few inputs or lanes")
    if exact_curve is not None:
        x = exact_curve.log_recall_t / style.LN10
        name = f"exact, AUPR {exact_curve.aupr:.{digits}f}"
        if not exact_curve.all_count:
            name = f"exact of the same inputs; AUPR of all {exact_curve.aupr:.{digits}f}"
        axes.plot(x, exact_curve.precision_t, "--", color=style.exact(), label=name)
    axes.set(ylim=(-0.03, 1.03), ylabel="precision")
    absolute = density.absolute or exact is not None
    axes.set_xlabel(style.recall_label(absolute, measure=density.measure))
    axes.legend(loc="best")
    _note_side(axes, curve)
    return figure


def _nothing_right(figure: Figure, axes: Axes, curve: Curve) -> Figure:
    """Say that there is no curve, instead of drawing an empty one."""
    words = f"0 of {curve.n_scored:,} scored inputs were right: there is no curve"
    axes.text(0.5, 0.5, words, ha="center", va="center", transform=axes.transAxes)
    axes.set_axis_off()
    return figure


def _aupr_label(curve: Curve, digits: int, shift: float) -> str:
    """Return the AUPR and its range of recall, on the axis that `shift` moves, float of ln."""
    if np.isnan(curve.aupr):
        return "right inputs in fewer than two bins"
    ends = interval(curve.aupr_low, curve.aupr_high, f".{digits}f")
    low, high = curve.aupr_range
    over = f"over log10 recall {range_words((low + shift, high + shift), power='')}"
    return f"AUPR {curve.aupr:.{digits}f} ({ends})\n{over}"


def _note_side(axes: Axes, curve: Curve) -> None:
    """Write on the axes from which side of z inputs are accepted."""
    sign = "<" if curve.side == "low" else "\N{GREATER-THAN OR EQUAL TO}"
    note = f"side: {curve.side}, inputs with z {sign} threshold are accepted"
    axes.set_title(note, loc="left", fontsize=9, color=style.NOTE)


@style.styled
def roc_figure(density: Density, curve: Curve) -> Figure:
    """Return right against wrong inputs accepted, both in log10, and below their ratio.

    The upper panel is an unnormalized ROC curve. Over many decades only the ratio shows a change.
    """
    right_t, wrong_t = curve.log_recall_t, curve.trace.log_wrong_t
    if not np.isfinite(right_t).any():
        figure, (axes,) = style.panels([4.2], 5.6)
        return _nothing_right(figure, axes, curve)
    figure, (axes, below) = style.panels([4.2, 1.8], 5.6)
    shown = np.isfinite(right_t) & np.isfinite(wrong_t)
    x, y = wrong_t[shown] / style.LN10, right_t[shown] / style.LN10
    if len(x):
        _roc_intervals(axes, curve, shown)
    axes.plot(x, y, ".-", color=style.sampled(), markersize=4, label=style.named("thresholds"))
    below.plot(x, y - x, ".-", color=style.sampled(), markersize=4)
    with np.errstate(divide="ignore"):
        low, high = (
            np.log10(trace.precision_t[shown] / (1.0 - trace.precision_t[shown]))
            for trace in (curve.bands.low, curve.bands.high)
        )
    known = np.isfinite(low) & np.isfinite(high)
    style.band(below, x[known], low[known], high[known], style.sampled())
    below.axhline(0.0, color=style.FAINT, linestyle=":")
    if len(x):
        ends = np.array([min(x.min(), y.min()), max(x.max(), y.max())])
        axes.plot(ends, ends, ":", color=style.FAINT, label="as many wrong as right")
    unit = density.words.number if density.absolute else "share of all"
    below.set_xlabel(rf"$\log_{{10}}$ wrong inputs accepted ({unit})")
    below.set_ylabel("$\\log_{10}$ right\nper wrong")
    axes.set_ylabel(rf"$\log_{{10}}$ right inputs accepted ({unit})")
    axes.legend(loc="best")
    _note_side(axes, curve)
    return figure


def _roc_intervals(axes: Axes, curve: Curve, shown: np.ndarray) -> None:
    """Draw 95% intervals of both counts at the thresholds for which all four ends are finite."""
    low, high = curve.bands.low, curve.bands.high
    x_ends = np.array([low.log_wrong_t[shown], high.log_wrong_t[shown]]) / style.LN10
    y_ends = np.array([low.log_recall_t[shown], high.log_recall_t[shown]]) / style.LN10
    known = np.isfinite([*x_ends, *y_ends]).all(axis=0)
    x = curve.trace.log_wrong_t[shown][known] / style.LN10
    y = curve.log_recall_t[shown][known] / style.LN10
    look: dict[str, Any] = {"color": style.sampled(), "alpha": 0.3, "linewidth": 1.0}
    axes.hlines(y, *x_ends[:, known], label="95% intervals", **look)
    axes.vlines(x, *y_ends[:, known], **look)


@style.styled
def convergence_figure(
    results: Mapping[int, Curve], absolute: bool, measure: str = "count"
) -> Figure:
    """Return the curves from few to many scores per bin, and each AUPR with its interval."""
    figure, (top, bottom) = style.panels([3.4, 2.2], share_x=False)
    blue = np.array(mpl.colors.to_rgb(style.sampled()))
    steps = zip(np.linspace(0.6, 0.0, len(results)), results.items(), strict=True)
    for whiteness, (per_bin, curve) in steps:
        shown = np.isfinite(curve.log_recall_t)
        x, y = curve.log_recall_t[shown] / style.LN10, curve.precision_t[shown]
        colour = tuple(blue + (1 - blue) * whiteness)
        top.plot(x, y, ".-", markersize=4, color=colour, label=f"{per_bin}")
    top.set_xlabel(style.recall_label(absolute, measure=measure))
    top.set(ylim=(-0.03, 1.03), ylabel="precision")
    style.legend_beside(top, title="scores per bin")
    rows = np.array([(c.aupr, c.aupr_low, c.aupr_high) for c in results.values()])
    sizes, known = np.array(list(results)), np.isfinite(rows[:, 1:]).all(axis=1)
    # intervals may exclude the AUPR
    bottom.vlines(sizes[known], rows[known, 1], rows[known, 2], color=style.sampled())
    bottom.plot(sizes[known], rows[known, 0], "o", color=style.sampled(), markersize=4)
    unknown = np.isfinite(rows[:, 0]) & ~known
    style.hollow(bottom, sizes[unknown], rows[unknown, 0], "interval not known")
    if unknown.any():
        bottom.legend(loc="best")
    bottom.set(xlabel="scored inputs per bin", ylabel="AUPR, 95% interval")
    note = "each AUPR over its own curve's range of recall"
    bottom.set_title(note, loc="left", fontsize=9, color=style.NOTE)
    bottom.set_xlim(left=0)
    return figure


@style.styled
def r_figure(
    density: Density, curve: Curve, label: str, exact: Exact | None = None,
    judge_b: style.FloatArray | None = None,
) -> Figure:  # fmt: skip
    """Return the mean score r(z) per bin; thin bins are hollow, interpolated bins are crosses.

    judge_b : float64 [B], mean scores of a judge, which those of people correct
    """
    figure, (axes,) = style.panels([3.2])
    z = style.middles(density.edges)
    known = np.isfinite(curve.r_b) & ~curve.interpolated_b
    full, thin, gaps = known & ~curve.thin_b, known & curve.thin_b, curve.interpolated_b
    label_full = f"{style.named('mean score')}, ± 1 standard error"
    style.points(axes, z[full], curve.r_b[full], curve.r_error_b[full], label_full)
    if thin.any():
        axes.errorbar(
            z[thin], curve.r_b[thin], yerr=np.nan_to_num(curve.r_error_b[thin], posinf=0.0),
            fmt="o", markersize=4, markerfacecolor="none", color=style.sampled(), elinewidth=0.6,
            label="too few inputs or lanes", zorder=3,
        )  # fmt: skip
    if gaps.any():
        axes.plot(z[gaps], curve.r_b[gaps], "x", color=style.FAINT, label="interpolated")
    if judge_b is not None:
        axes.plot(z, judge_b, "^", color=style.colour(1), markersize=4, label="judge, uncorrected")
    if exact is not None:
        exact_line(axes, density, exact.r_b)
    axes.set(ylim=SCORE_LIMITS, xlabel=label, ylabel=SCORE_LABEL)
    style.legend_above(axes, 3)
    return figure


@style.styled
def annotators_figure(scored: Scored, used_b: NDArray[np.bool_], label: str) -> Figure:
    """Return r(z) per annotator, side by side in each bin, with mean and standard deviation."""
    figure, (axes,) = style.panels([3.6])
    z, width = style.middles(scored.edges), float(np.diff(scored.edges).min())
    n = len(scored.annotators)
    r_ab = np.full((n, len(z)), np.nan)
    for a, name in enumerate(scored.annotators):
        one = bin_scores(scored.of(a))
        shown = used_b & (one.inputs_b > 0)
        r_ab[a, shown] = one.r_b[shown]
        axes.errorbar(
            z[shown] + _beside(a, n, width), one.r_b[shown], yerr=one.sampling_error_b[shown],
            fmt=style.marker(a), markersize=4, elinewidth=0.8, color=style.colour(a), label=name,
        )  # fmt: skip
    some = np.isfinite(r_ab).all(axis=0)
    if n > 1 and some.any():
        mean, spread = r_ab[:, some].mean(axis=0), r_ab[:, some].std(axis=0, ddof=1)
        _mean_boxes(axes, z[some], width, mean, spread)
    axes.set(ylim=SCORE_LIMITS, xlabel=label, ylabel=SCORE_LABEL)
    style.legend_beside(axes)
    return figure


def _beside(index: int, n: int, width: float) -> float:
    """Return the shift along z of the `index`-th of n series that keeps error bars apart."""
    return (index - (n - 1) / 2) * 0.7 * width / max(n, 2)


def _mean_boxes(
    axes: Axes, z: style.FloatArray, width: float, mean: style.FloatArray, spread: style.FloatArray
) -> None:
    """Draw each bin's mean as a line across the bin, in a box of one standard deviation."""
    left, right = z - 0.45 * width, z + 0.45 * width
    axes.hlines(mean, left, right, color=style.FAINT, linewidth=1.6, label="mean of all", zorder=1)
    for low, high, m, s in zip(left, right, mean, spread, strict=True):
        axes.fill_between(
            [low, high], m - s, m + s, color=style.FAINT, alpha=0.25, linewidth=0, zorder=0,
            label="± standard deviation\nof annotators" if low == left[0] else None,
        )  # fmt: skip


@style.styled
def agreement_figure(
    columns: Mapping[str, style.FloatArray], found: Sequence[PeopleComparison], label: str
) -> Figure:
    """Return judges beside people per bin: mean scores, biases, and the FID if there is one.

    Without people, each judge is compared with the other judges.

    Parameters
    ----------
    columns : of `people_columns`, with or without ``fid`` and ``fid_of_reference``
    found : each judge, or person, compared with the other people
    label : axis label of the output z, with its unit
    """
    has_fid = "fid" in columns
    figure, axes = style.panels([3.0, 2.0, 1.6] if has_fid else [3.0, 2.0])
    z = 0.5 * (columns["z_lower"] + columns["z_upper"])
    width = float((columns["z_upper"] - columns["z_lower"]).min())
    who, all_of = ("people", "") if "r_people" in columns else ("judges", "all ")
    people: dict[str, Any] = {"markersize": 14, "markeredgewidth": 2, "color": style.BLACK}
    axes[0].plot(z, columns[f"r_{who}"], "_", label=f"{all_of}{who}", **people)
    axes[1].axhline(0.0, color=style.BLACK, linewidth=0.8)
    for n, one in enumerate(found):
        person = one.judge is None
        of_whom = f" against the other {who}" if person or who == "judges" else " (judge)"
        look: dict[str, Any] = {
            "fmt": style.marker(n), "markersize": 4, "elinewidth": 0.8,
            "color": style.FAINT if person else style.colour(n),
            "label": one.name + of_whom,
        }  # fmt: skip
        at = z + _beside(n, len(found), width)
        axes[0].errorbar(at, columns[f"r_{one.name}"], **look)
        bias, error = columns[f"bias_{one.name}"], columns[f"bias_error_{one.name}"]
        known, mark = np.isfinite(error), look.pop("fmt")
        axes[1].errorbar(at[known], bias[known], yerr=error[known], fmt=mark, **look)
        hollow: dict[str, Any] = {"markerfacecolor": "none", "color": look["color"]}
        axes[1].plot(at[~known], bias[~known], mark, markersize=4, **hollow)
    axes[0].set(ylim=SCORE_LIMITS, ylabel=SCORE_LABEL)
    axes[1].set_ylabel("bias")
    style.legend_beside(axes[0])
    if has_fid:
        axes[2].plot(z, columns["fid"], "o", markersize=4, color=style.sampled(), label="FID")
        look = {"markersize": 10, "color": style.BLACK, "label": "as many from the reference"}
        axes[2].plot(z, columns["fid_of_reference"], "_", **look)
        axes[2].set(yscale="log", ylabel="FID")
        style.legend_beside(axes[2])
    axes[-1].set_xlabel(label)
    return figure
