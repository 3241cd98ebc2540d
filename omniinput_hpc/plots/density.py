"""The figures and their one style: colour-blind safe, labelled with units, errors visible."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from numpy.typing import NDArray

from omniinput_hpc.estimators.comparison.to_exact import Exact, ExactCurve, offset
from omniinput_hpc.estimators.density.density import MIN_EFFECTIVE_COUNT, Density
from omniinput_hpc.estimators.precision_recall.curves import Curve

FloatArray = NDArray[np.float64]
# Okabe & Ito's palette for all kinds of colour vision: blue, vermilion, green, grey
SAMPLED, EXACT, OTHER, FAINT = "#0072B2", "#D55E00", "#009E73", "#8C8C8C"
SAMPLED_LABEL = "sampled, $\\pm$ 1 standard error"
RARE = 10_000  # inputs in a bin
LN10 = float(np.log(10.0))
STYLE: Any = {
    "figure.dpi": 150,
    "figure.constrained_layout.use": True,
    "pdf.fonttype": 42,
    "font.size": 11,
    "axes.labelsize": 11,
    "axes.titlesize": 11,
    "axes.grid": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.color": "#E4E4E4",
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "legend.fontsize": 10,
    "lines.linewidth": 1.4,
    "errorbar.capsize": 1.5,
}


def z_label(config: dict[str, Any]) -> str:
    """Return the axis label of the output, with its unit where the model's kind tells it."""
    model = config.get("model", {})
    kind = model.get("kind")
    if kind == "causal-lm":
        return "output z, mean NLL (nats per token)"
    if kind in ("image-classifier", "sequence-classifier"):
        image = kind == "image-classifier"
        what = model.get("target" if image else "output", "logit")
        whose = model.get("label", 0) if image else model.get("target")
        minus = "\N{MINUS SIGN}" if model.get("sign", 1) == -1 else ""
        if what == "log-likelihood":
            return f"output z, {minus}log-likelihood up to a constant (nats)"
        words = {"logit": "logit", "log-softmax": "log-softmax", "difference": "logit difference"}
        return f"output z, {minus}{words.get(what, what)} of class {whose} (nats)"
    return "output z (the model's own unit)"


def panels(
    heights: list[float], width: float = 7.2, share_x: bool = True
) -> tuple[Figure, list[Axes]]:
    """Return a figure with panels one above the other."""
    figure = Figure(figsize=(width, sum(heights)))
    FigureCanvasAgg(figure)
    axes = figure.subplots(
        len(heights), 1, sharex=share_x, squeeze=False, gridspec_kw={"height_ratios": heights}
    )
    return figure, list(axes[:, 0])


def points(
    axes: Axes, x: FloatArray, y: FloatArray, error: FloatArray, label: str, colour: str = SAMPLED
) -> None:
    """Draw points with one-standard-error bars; hollow where the error is not known."""
    known = np.isfinite(error)
    style: dict[str, Any] = {"fmt": "o", "markersize": 2.4, "color": colour, "elinewidth": 1.0}
    axes.errorbar(x[known], y[known], yerr=error[known], label=label, zorder=3, **style)
    if (~known).any():
        axes.plot(
            x[~known], y[~known], "o", markersize=4, markerfacecolor="none", color=colour,
            label="error not known", zorder=3,
        )  # fmt: skip


def _bounds(axes: Axes, x: FloatArray, y: FloatArray, upper: FloatArray) -> None:
    """Draw hollow points with an arrow down from their upper bound: no interval is known there."""
    if len(x):
        axes.vlines(x, y, upper, color=SAMPLED, linewidth=0.6, alpha=0.6, zorder=2)
        axes.plot(x, upper, "v", markersize=3, color=SAMPLED, alpha=0.6, zorder=2)
        axes.plot(
            x, y, "o", markersize=3.2, markerfacecolor="white", color=SAMPLED, zorder=3,
            label=f"fewer than {MIN_EFFECTIVE_COUNT:.0f} effective counts, 95% upper bound",
        )  # fmt: skip


def exact_line(axes: Axes, density: Density, exact_b: FloatArray) -> None:
    """Draw exact values at the bins' middles as a line with gaps where there are none."""
    middle = 0.5 * (density.edges[:-1] + density.edges[1:])
    shown = np.flatnonzero(np.isfinite(exact_b))
    part = slice(shown[0], shown[-1] + 1) if shown.size else slice(0)
    lonely = shown[~np.isin(shown - 1, shown) & ~np.isin(shown + 1, shown)]
    y = np.where(np.isfinite(exact_b), exact_b, np.nan)
    axes.plot(middle[part], y[part], color=EXACT, linewidth=1.1, label="exact", zorder=4)
    axes.plot(middle[lonely], y[lonely], "_", color=EXACT, markersize=7, zorder=4)


def _density_panel(axes: Axes, density: Density, exact: Exact | None) -> None:
    """Draw log10 of the number of inputs per bin."""
    shift = 0.0 if exact is None else offset(density, exact)
    middle = 0.5 * (density.edges[:-1] + density.edges[1:])
    few = np.isfinite(density.log_g_upper_b)
    bins = (density.count_b > 0) & ~few
    log10_g, error = (density.log_g_b + shift) / LN10, density.log_g_error_b / LN10
    points(axes, middle[bins], log10_g[bins], error[bins], SAMPLED_LABEL)
    _bounds(axes, middle[few], log10_g[few], (density.log_g_upper_b[few] + shift) / LN10)
    if exact is not None:
        exact_line(axes, density, exact.log_g_b / LN10)
    absolute = density.absolute or exact is not None
    what = "number of inputs" if absolute else "share of inputs"
    axes.set_ylabel(rf"$\log_{{10}}$ {what} per bin")
    axes.legend(loc="best")


def _difference_panel(axes: Axes, density: Density, exact: Exact) -> None:
    """Draw ln g, sampled minus exact, where errors can be seen; its range is the common bins'."""
    bins = np.flatnonzero((density.count_b > 0) & np.isfinite(exact.log_g_b))
    middle = 0.5 * (density.edges[bins] + density.edges[bins + 1])
    error = density.log_g_error_b[bins]
    delta = density.log_g_b[bins] + offset(density, exact) - exact.log_g_b[bins]
    reach = np.abs(delta) + np.where(np.isfinite(error), error, 0.0)
    rare = exact.log_g_b[bins] < np.log(RARE)
    if rare.all():
        rare[:] = False
    if rare.any():
        points(axes, middle[rare], delta[rare], error[rare], "rare", FAINT)
    points(axes, middle[~rare], delta[~rare], error[~rare], SAMPLED_LABEL)
    axes.axhline(0.0, color=EXACT, linewidth=1.1, zorder=4)
    limit = 1.6 * reach[~rare].max(initial=1e-6)
    axes.set_ylim(-limit, limit)
    axes.set_ylabel("ln g,\nsampled \N{MINUS SIGN} exact")
    if rare.any():
        note = f"grey: bins with fewer than {RARE:,} inputs, which reach beyond this panel"
        axes.set_title(note, loc="left", fontsize=9, color="#595959")


def density_figure(density: Density, label: str, exact: Exact | None = None) -> Figure:
    """Return the density above its errors, or above its difference from the exact one."""
    with mpl.rc_context(STYLE):
        figure, (top, bottom) = panels([3.2, 2.0])
        _density_panel(top, density, exact)
        bins = np.flatnonzero(density.count_b)
        middle = 0.5 * (density.edges[bins] + density.edges[bins + 1])
        error = density.log_g_error_b[bins]
        if exact is None:
            for errors, mark, colour, name in (
                (error, ".", SAMPLED, "from lanes"),
                (density.block_error_b[bins], "x", OTHER, "from blocks of rounds"),
            ):
                known = np.isfinite(errors) & (errors > 0)
                if known.any():
                    bottom.plot(
                        middle[known], errors[known], mark, color=colour, markersize=3.5, label=name
                    )
            bottom.set_yscale("log")
            decades = np.log10(bottom.get_ylim())
            bottom.set_ylim(10.0 ** np.floor(decades[0]), 10.0 ** np.ceil(decades[1]))
            bottom.set_ylabel("standard error\nof ln g")
            if bottom.lines:
                bottom.legend(loc="best", ncols=2)
        else:
            _difference_panel(bottom, density, exact)
        bottom.set_xlabel(label)
    return figure


def rho_r_figure(density: Density, curve: Curve, label: str, exact: Exact) -> Figure:
    """Return sampled against exact: inputs per bin, their difference, and mean score r(z)."""
    with mpl.rc_context(STYLE):
        figure, (top, middle_panel, bottom) = panels([3.0, 1.5, 2.3])
        _density_panel(top, density, exact)
        _difference_panel(middle_panel, density, exact)
        known = np.isfinite(curve.r_b) & ~curve.interpolated_b
        middle = 0.5 * (density.edges[:-1] + density.edges[1:])
        points(bottom, middle[known], curve.r_b[known], curve.r_error_b[known], SAMPLED_LABEL)
        gaps = curve.interpolated_b
        if gaps.any():
            bottom.plot(middle[gaps], curve.r_b[gaps], "x", color=FAINT, label="interpolated")
        exact_line(bottom, density, exact.r_b)
        bottom.set_ylim(-0.05, 1.05)
        bottom.set_ylabel("mean score r(z)")
        bottom.set_xlabel(label)
        bottom.legend(loc="best")
    return figure


def curve_figure(
    density: Density,
    curve: Curve,
    exact: Exact | None = None,
    exact_curve: ExactCurve | None = None,
) -> Figure:
    """Return precision over log10 recall with its 95% band."""
    shift = 0.0 if exact is None else offset(density, exact)
    with mpl.rc_context(STYLE):
        figure, (axes,) = panels([4.0])
        shown = np.isfinite(curve.log_recall_t)
        x = (curve.log_recall_t[shown] + shift) / LN10
        axes.fill_between(
            x, curve.precision_low_t[shown], curve.precision_high_t[shown],
            color=SAMPLED, alpha=0.25, linewidth=0, label="95% band",
        )  # fmt: skip
        error = curve.aupr_error
        digits = int(np.clip(1 - np.log10(error), 4, 8)) if 0 < error < np.inf else 4
        name = f"sampled, AUPR {curve.aupr:.{digits}f} $\\pm$ {error:.{digits}f}"
        axes.plot(x, curve.precision_t[shown], ".-", color=SAMPLED, markersize=3, label=name)
        thin = curve.thin_b[curve.bin_t][shown]
        if thin.any():
            axes.plot(
                x[thin], curve.precision_t[shown][thin], "o", markersize=4, color=SAMPLED,
                markerfacecolor="white", label="with a bin of too few inputs or lanes",
            )  # fmt: skip
        if exact_curve is not None:
            axes.plot(
                exact_curve.log_recall_t / LN10, exact_curve.precision_t, "--", color=EXACT,
                label=f"exact, AUPR {exact_curve.aupr:.{digits}f}",
            )  # fmt: skip
        axes.set_ylim(-0.03, 1.03)
        absolute = density.absolute or exact is not None
        what = "number of right inputs found" if absolute else "right inputs found, share of all"
        axes.set_xlabel(rf"$\log_{{10}}$ recall ({what})")
        axes.set_ylabel("precision")
        axes.legend(loc="best")
    return figure


def save(figure: Figure, path: Path) -> None:
    """Write a figure as PNG, and as PDF (vectors) beside it."""
    with mpl.rc_context(STYLE):
        figure.savefig(path, format="png")
        figure.savefig(path.with_suffix(".pdf"), format="pdf", metadata={"CreationDate": None})
