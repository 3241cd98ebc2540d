"""Plot the density of outputs with z upright, and a representative input beside each bin."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import fill

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import ConnectionPatch
from matplotlib.ticker import MaxNLocator

from omniinput_hpc.estimators.density.density import Density
from omniinput_hpc.estimators.precision_recall.curves import Side
from omniinput_hpc.plots import style
from omniinput_hpc.plots.representatives import ShownInput, pixels_of, wrapped

ROW_HEIGHT, IMAGE_HEIGHT = 0.48, 0.62  # inches
CURVE_WIDTH = 2.5  # inches
IMAGES_WIDTH = 1.9  # inches, for z and one image per row
Z_LEFT, TEXT_LEFT, IMAGE_LEFT = 0.07, 0.56, 0.8  # inches, if the layout keeps the width
LETTERS_PER_INCH = 11  # of the label of z
MAX_LINES = 2
TEXT_WIDTH = 4.5  # inches, at the letter size that `wrapped` measures; the text is drawn smaller


@style.styled
def density_with_inputs_figure(
    density: Density,
    items: Sequence[ShownInput],
    ends: tuple[float, float],
    texts: bool,
    side: Side,
    label: str,
) -> Figure:
    """Draw log10 of the number of inputs against z, the confident end on top, with inputs.

    Each of `items`, in their order, stands to the right; a line joins it to its own z. They are
    `texts`, or pictures. `ends` are those of the bins that they come from. `label` is the axis
    label of z, with its unit.
    """
    height = (ROW_HEIGHT if texts else IMAGE_HEIGHT) * len(items)
    width = style.FULL_WIDTH - CURVE_WIDTH if texts else IMAGES_WIDTH
    tall = max(3.0, height + 0.9)
    figure = style.blank(CURVE_WIDTH + width, tall)
    left, right = figure.subplots(1, 2, gridspec_kw={"width_ratios": [CURVE_WIDTH, width]})
    _curve(left, density, fill(label, round(LETTERS_PER_INCH * (tall - 0.9))))
    counted = np.flatnonzero(density.count_b)
    seen = density.edges[counted[0]], density.edges[counted[-1] + 1]
    lowest, highest = max(ends[0], float(seen[0])), min(ends[1], float(seen[1]))
    room = 0.06 * max(highest - lowest, float(np.diff(density.edges).max()))
    left.set_ylim(lowest - room, highest + room)
    if side == "low":
        left.invert_yaxis()
    right.set(xlim=(0.0, width), ylim=(len(items), 0.0))
    right.set_axis_off()
    for place, (item, log10_g) in enumerate(zip(items, _log10_at(density, items), strict=True)):
        figure.add_artist(ConnectionPatch(
            (log10_g, item.z), (0.0, place + 0.5), "data", "data", axesA=left, axesB=right,
            color=style.FAINT, linewidth=0.6, zorder=1,
        ))  # fmt: skip
        left.plot(log10_g, item.z, "o", color=style.exact(), markersize=4, zorder=5)
        right.text(Z_LEFT, place + 0.5, item.z_text, fontsize=8, color=style.NOTE, va="center")
        show = _text if texts else _image
        show(right, place, item)
    return figure


def _curve(axes: Axes, density: Density, label: str) -> None:
    """Draw the density with z upright; error bars are one standard error.

    Points without an interval are hollow.
    """
    counted, error = density.count_b > 0, density.log_g_error_b / style.LN10
    bins = counted & np.isfinite(error) & np.isnan(density.log_g_upper_b)
    few = counted & ~bins
    z, log10_g = style.middles(density.edges), density.log_g_b / style.LN10
    axes.errorbar(
        log10_g[bins], z[bins], xerr=error[bins], fmt="o", markersize=1.6, elinewidth=0.7,
        capsize=0.0, color=style.sampled(), zorder=3,
    )  # fmt: skip
    style.hollow(axes, log10_g[few], z[few], "", markersize=2.4, markeredgewidth=0.6)
    amount = style.inputs_label(density.absolute, measure=density.measure)
    axes.set(xlabel=amount, ylabel=label)
    axes.xaxis.label.set_fontsize(9)
    axes.xaxis.set_major_locator(MaxNLocator(3))


def _log10_at(density: Density, items: Sequence[ShownInput]) -> style.FloatArray:
    """Return log10 of the number of inputs in the bin of each input's output."""
    bins = np.searchsorted(density.edges, [item.z for item in items], side="right") - 1
    log_g_b = density.log_g_b[np.clip(bins, 0, len(density.log_g_b) - 1)]
    return np.asarray(log_g_b / style.LN10)


def _text(axes: Axes, place: int, item: ShownInput) -> None:
    lines = wrapped(item.content.strip(), TEXT_WIDTH)
    if len(lines) > MAX_LINES:
        lines = [*lines[: MAX_LINES - 1], lines[MAX_LINES - 1] + " \N{HORIZONTAL ELLIPSIS}"]
    axes.text(
        TEXT_LEFT, place + 0.5, "\n".join(lines), fontsize=7.5, va="center", parse_math=False,
        linespacing=1.15,
    )  # fmt: skip


def _image(axes: Axes, place: int, item: ShownInput) -> None:
    where = (IMAGE_LEFT, place + 0.04, 1.1 * IMAGE_HEIGHT, 0.92)
    inset = axes.inset_axes(where, transform=axes.transData)
    inset.imshow(pixels_of(item), cmap="gray", vmin=0.0, vmax=1.0, interpolation="nearest")
    style.frame(inset)
