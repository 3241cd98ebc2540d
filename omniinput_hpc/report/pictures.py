"""Figures as part of the page: SVG whose colours follow the page's, light, dark or printed."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from omniinput_hpc.plots import style
from omniinput_hpc.report.page import text

INK = "#010203"  # stands for the page's own colour of text
COLOURS = {
    INK: "currentColor",
    style.BLACK: "currentColor",
    style.GRID: "var(--grid)",
    style.BLUE: "var(--blue)",
    style.VERMILION: "var(--red)",
    style.GREEN: "var(--green)",
    style.GREY: "var(--soft)",
    style.NOTE: "var(--soft)",
    style.PAPER: "var(--page)",
}
INK_STYLE: Any = {
    name: INK
    for name in ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color")
}


def inline_svg(make: Callable[[], Figure], caption: str, salt: str) -> str:
    """Return a figure as HTML.

    Parameters
    ----------
    make : draws the figure (it must be drawn here, in the page's colours)
    caption : what it shows, also for screen readers
    salt : any text that no other figure of the page has: its inner names are made from it
    """
    with mpl.rc_context({**INK_STYLE, "svg.hashsalt": salt}):
        figure, file = make(), io.StringIO()
        figure.savefig(file, format="svg", transparent=True, metadata={"Date": None})
    svg = file.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    for colour, name in COLOURS.items():
        svg = re.sub(re.escape(colour), name, svg, flags=re.IGNORECASE)
    svg = svg.replace("<svg ", f'<svg role="img" aria-label="{text(caption)}" ', 1)
    return f"<figure>{svg}<figcaption>{text(caption)}</figcaption></figure>\n"
