"""Shared parts of all figures: style, palette, axis labels with units, panels, saving."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.container import ErrorbarContainer
from matplotlib.figure import Figure
from matplotlib.layout_engine import PlaceHolderLayoutEngine
from matplotlib.style import context as style_context
from matplotlib.text import Text

from omniinput_hpc.estimators import FloatArray
from omniinput_hpc.plots import look
from omniinput_hpc.text import LN10 as LN10
from omniinput_hpc.text import WORDS_OF

P = ParamSpec("P")

# Okabe & Ito's palette without its yellow: distinct for any colour vision
BLUE, VERMILION, GREEN, PINK = "#0072B2", "#D55E00", "#009E73", "#CC79A7"
ORANGE, SKY, BLACK, GREY = "#E69F00", "#56B4E9", "#000000", "#8C8C8C"
FAINT = GREY
NOTE = "#595959"  # colour of small print
GRID = "#E4E4E4"
PAPER = "#FFFFFF"
SERIES = (BLUE, VERMILION, GREEN, PINK, ORANGE, SKY, BLACK)
MARKERS = ("o", "s", "^", "D", "v", "P", "X")

FULL_WIDTH = 7.2  # inches
TITLE_LETTER, REMARK_LETTER = 0.067, 0.054  # inches, mean width of a letter at 9 and 7 points
TITLE_MARGIN = 0.1  # inches
_NO_BYTE = re.compile("[\ud800-\udc7f\udd00-\udfff]")
"""Surrogates that do not stand for the bytes of a file's name."""
FORMULAS = (r"$\log_{10}$", r"$\mathdefault")
"""How labels with formulas begin: this package's, and matplotlib's tick labels."""
LEGEND_MARGIN = 0.12
"""Share of a panel's height that a legend of one line needs."""
STYLE: Any = {
    "figure.dpi": 150,
    "figure.constrained_layout.use": True,
    "pdf.fonttype": 42,
    "font.size": 11,
    "axes.labelsize": "medium",
    "axes.titlesize": "medium",
    "axes.grid": True,
    "axes.formatter.useoffset": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "legend.fontsize": 10,
    "lines.linewidth": 1.4,
    "errorbar.capsize": 1.5,
}


def styled(draw: Callable[P, Figure]) -> Callable[P, Figure]:
    """Return a drawing function that uses the common style, and on top of it the user's."""

    @wraps(draw)
    def in_style(*args: P.args, **options: P.kwargs) -> Figure:
        with _common():
            return draw(*args, **options)

    return in_style


@contextmanager
def _common() -> Iterator[None]:
    with style_context([STYLE, dict(look.current().style)]):
        yield


def colour(index: int) -> str:
    """Return the colour of a figure's `index`-th series; from the eighth on they repeat."""
    series = look.current().colours(SERIES)
    return series[index % len(series)]


def sampled() -> str:
    """Return the colour of sampled values."""
    return colour(0)


def exact() -> str:
    """Return the colour of exact values, and of lines at which two quantities are equal."""
    return colour(1)


def other() -> str:
    """Return the colour of a second estimate of the same quantity."""
    return colour(2)


def named(default: str, index: int = 0) -> str:
    """Return the user's name of the `index`-th run of the figure, else `default`."""
    return look.current().named(default, index)


def marker(index: int) -> str:
    """Return the marker of a figure's `index`-th series; from the eighth on they repeat."""
    return MARKERS[index % len(MARKERS)]


def inputs_label(absolute: bool, per: str = "bin", measure: str = "count") -> str:
    """Return the axis label of log10 of inputs, or their probability, per bin or unit of z."""
    return rf"$\log_{{10}}$ {WORDS_OF[measure].per_bin(absolute)} per {per}"


def recall_label(absolute: bool, otherwise: str = "share of all", measure: str = "count") -> str:
    """Return the axis label of log10 recall; `otherwise` is its unit for a relative density."""
    number = WORDS_OF[measure].number
    what = f"{number} of right inputs found" if absolute else f"right inputs found, {otherwise}"
    return rf"$\log_{{10}}$ recall ({what})"


def middles(edges: FloatArray) -> FloatArray:
    """Return the middle of each bin, float64 [B], from its edges, float64 [B + 1]."""
    return np.asarray(0.5 * (edges[:-1] + edges[1:]))


def panels(
    heights: list[float], width: float = FULL_WIDTH, share_x: bool = True
) -> tuple[Figure, list[Axes]]:
    """Return a figure with panels above one another; heights and width are in inches."""
    figure = blank(width, sum(heights))
    axes = figure.subplots(
        len(heights), 1, sharex=share_x, squeeze=False, gridspec_kw={"height_ratios": heights}
    )
    return figure, list(axes[:, 0])


def blank(width: float, height: float) -> Figure:
    """Return an empty figure of a size in inches, which needs no display."""
    figure = Figure(figsize=(width, height))
    FigureCanvasAgg(figure)
    return figure


def points(
    axes: Axes,
    x: FloatArray,
    y: FloatArray,
    error: FloatArray,
    label: str | None = None,
    color: str | None = None,
) -> None:
    """Draw points with bars of one standard error; hollow if the error is unknown."""
    label = label or f"{named('sampled')}, ± 1 standard error"
    color = color or sampled()
    known = np.isfinite(error)
    bars: dict[str, Any] = {"fmt": "o", "markersize": 2.4, "color": color, "elinewidth": 1.0}
    axes.errorbar(x[known], y[known], yerr=error[known], label=label, zorder=3, **bars)
    hollow(axes, x[~known], y[~known], "error not known", color, markerfacecolor="none")


def hollow(
    axes: Axes, x: FloatArray, y: FloatArray, label: str, color: str | None = None,
    **options: Any,
) -> None:  # fmt: skip
    """Draw hollow points, for values that are not reliable, if there are any."""
    marks: dict[str, Any] = {"markersize": 4, "markerfacecolor": PAPER, "zorder": 3, **options}
    if len(x):
        axes.plot(x, y, "o", label=label, color=color or sampled(), **marks)


def frame(axes: Axes) -> None:
    """Draw a thin frame around a picture, which shows where its white ends; no ticks."""
    axes.set(xticks=[], yticks=[])
    for spine in axes.spines.values():
        spine.set(visible=True, linewidth=0.4, color=FAINT)


def band(
    axes: Axes, x: FloatArray, low: FloatArray, high: FloatArray, color: str, label: str = ""
) -> None:
    """Fill the space between two lines."""
    axes.fill_between(x, low, high, color=color, alpha=0.25, linewidth=0, label=label or None)


def bin_limits(axes: Axes, edges: FloatArray) -> None:
    """Mark the beginning and end of the bins: nothing is counted beyond."""
    for z, side in ((edges[0], "left"), (edges[-1], "right")):
        axes.axvline(float(z), color=FAINT, linewidth=0.8, linestyle=(0, (2, 3)), zorder=1)
        axes.annotate(
            "bins begin" if side == "left" else "bins end", (float(z), 0.98),
            xycoords=("data", "axes fraction"), rotation=90, fontsize=7, color=NOTE,
            ha="right" if side == "left" else "left", va="top",  # beyond the bins: no point there
            xytext=(-2 if side == "left" else 2, 0),
            textcoords="offset points",
        )  # fmt: skip


def legend(axes: Axes, **options: Any) -> None:
    """Put the legend where it covers least, with error-bar entries first."""
    entries = zip(*axes.get_legend_handles_labels(), strict=True)
    ordered = sorted(entries, key=lambda entry: not isinstance(entry[0], ErrorbarContainer))
    options = {"loc": "best", **options}
    axes.legend([h for h, _ in ordered], [name for _, name in ordered], **options)


def legend_in_margin(axes: Axes) -> None:
    """Put a one-line legend at the bottom of a panel, which is extended for it."""
    low, high = axes.get_ylim()
    axes.set_ylim(low - LEGEND_MARGIN * (high - low), high)
    legend(axes, loc="lower center", ncols=3, fontsize=8, borderaxespad=0.2, columnspacing=1.2)


def legend_beside(axes: Axes, **options: Any) -> None:
    """Put the legend to the right of a panel."""
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), **options)


def legend_above(axes: Axes, ncols: int) -> None:
    """Put the legend above a panel."""
    axes.legend(
        ncols=ncols, fontsize=8, loc="lower left", bbox_to_anchor=(0.0, 1.0), borderaxespad=0.2,
        columnspacing=1.2, handlelength=1.6,
    )  # fmt: skip


def legend_below(axes: Axes) -> None:
    """Put a legend of many long entries below a panel, and enlarge the figure accordingly."""
    axes.legend(fontsize=8, loc="upper left", bbox_to_anchor=(0.0, -0.3), borderaxespad=0.0)
    figure = axes.get_figure(root=True)
    assert figure is not None
    n_entries = len(axes.get_legend_handles_labels()[1])
    figure.set_figheight(figure.get_figheight() + 0.2 * n_entries)  # inches


def plain_names(figure: Figure) -> None:
    """Show names literally, dollar signs included: only this package's labels hold formulas.

    Escaped bytes of a file name are decoded as UTF-8; invalid ones become replacement characters.
    """
    for text in figure.findobj(Text):
        words = text.get_text()
        if not words.isascii():
            words = _NO_BYTE.sub("\N{REPLACEMENT CHARACTER}", words)
            words = words.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
            text.set_text(words)
        if "$" in words and not words.startswith(FORMULAS):
            text.set_parse_math(False)


def _lines(text: str, most: float) -> list[str]:
    """Return a text in lines of at most `most` letters."""
    return [line for given in text.splitlines() for line in textwrap.wrap(given, int(most))]


def write_caption(figure: Figure, caption: look.Caption) -> None:
    """Write title and remark, and "NOT CONVERGED" if the runs have not converged.

    The caption's title goes above a title that the figure already has.
    """
    width, height = figure.get_size_inches()
    if caption.title:
        title = "\n".join([*_lines(caption.title, width / TITLE_LETTER), figure.get_suptitle()])
        unplaced = isinstance(figure.get_layout_engine(), PlaceHolderLayoutEngine | None)
        y = 1.0 - TITLE_MARGIN / height if unplaced else None  # a share of the height
        figure.suptitle(title.rstrip(), x=0.01, y=y, ha="left", va="top", fontsize=9, color=NOTE)
    if caption.remark:
        remark = "\n".join(_lines(caption.remark, width / REMARK_LETTER))
        figure.supxlabel(remark, fontsize=7, color=NOTE)
    if not caption.converged:
        figure.text(
            0.5, 0.5, "NOT CONVERGED", ha="center", va="center", rotation=25, fontsize=38,
            color=VERMILION, alpha=0.16, fontweight="bold", zorder=10, in_layout=False,
        )  # fmt: skip


def save(figure: Figure, path: Path, caption: look.Caption | None = None) -> None:
    """Write a figure as PNG to `path`, and as PDF (vectors) to the same name with ``.pdf``."""
    with _common():
        write_caption(figure, caption or look.Caption())
        plain_names(figure)
        figure.savefig(path, format="png")
        with style_context({"figure.constrained_layout.use": False}):  # it has been laid out
            figure.set_layout_engine(None)
        figure.savefig(path.with_suffix(".pdf"), format="pdf", metadata={"CreationDate": None})
