"""Plot representative inputs: a row of pictures, or some lines of text, per bin of z.

Pictures of several runs are drawn side by side.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from matplotlib import font_manager, ft2font
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import imread

from omniinput_hpc.plots.style import FULL_WIDTH, GRID, NOTE, blank, frame, named, styled

LINE_HEIGHT, TEXT_LEFT, LABEL_WIDTH = 0.17, 1.1, 1.3  # inches
TEXT_SIZE = 8.5  # points
MAX_TEXT_LINES, MAX_TOKEN_LINES = 6, 14  # 66 tokens of S0's Fig. 8 are 10 lines
LEAST_CELL, GAP = 0.45, 0.3  # inches: side of a picture; space between two runs
HEAD, LEAST_WIDTH = 0.8, 4.6  # inches: height of the title; least width


@dataclass(frozen=True)
class ShownInput:
    """An input in a figure.

    Attributes
    ----------
    z, z_text : its output, and how it is written
    words : small print beside it: output, score, number of draws
    content : its text, or its picture as a data URI
    tokens : whether the text is a list of tokens
    """

    z: float
    z_text: str
    words: str
    content: str
    tokens: bool = False


@dataclass(frozen=True)
class ShownBin:
    """A bin in a figure: its range of z, and its inputs."""

    range: str
    inputs: Sequence[ShownInput]


@styled
def texts_figure(bins: Sequence[ShownBin], label: str) -> Figure:
    """Draw the texts of each bin, in the order given; `label` is the axis label of z."""
    blocks = [(b.range, [(item.words, _first_lines(item)) for item in b.inputs]) for b in bins]
    lines = sum(1.5 + sum(0.3 + len(wrapped) for _, wrapped in texts) for _, texts in blocks)
    height = HEAD + LINE_HEIGHT * (lines + 1.5)
    figure = blank(FULL_WIDTH, height)
    figure.set_layout_engine("none")
    axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
    axes.set_axis_off()
    axes.set_xlim(0.0, FULL_WIDTH)
    axes.set_ylim(height, 0.0)
    figure.suptitle(f"{label}\n{_how_to_read(bins)}", x=0.01, ha="left", fontsize=9)
    y = HEAD
    for name, texts in blocks:
        axes.hlines(y, 0.1, FULL_WIDTH - 0.1, color=GRID, linewidth=0.8)
        y = _write(axes, 0.1, y + 0.25 * LINE_HEIGHT, name, fontsize=9, fontweight="bold")
        y += 0.25 * LINE_HEIGHT
        for said, wrapped in texts:
            _write(axes, 0.1, y, said, fontsize=7.5, color=NOTE)
            for line in wrapped:
                y = _write(axes, TEXT_LEFT, y, line, fontsize=TEXT_SIZE)
            y += 0.3 * LINE_HEIGHT
    return figure


@styled
def pictures_figure(runs: Sequence[Sequence[ShownBin]], names: Sequence[str], label: str) -> Figure:
    """Draw pictures of several runs next to each other: rows are bins, which all runs share.

    `names` are those of the runs, or "" for a single run, which needs none.
    """
    names = [name and named(name, i) for i, name in enumerate(names)]
    bins = runs[0]
    most = [max(len(b.inputs) for b in one) for one in runs]
    gaps = GAP * (len(runs) - 1)
    cell = min(max((FULL_WIDTH - LABEL_WIDTH - gaps) / sum(most), LEAST_CELL), 0.8)
    width = max(LABEL_WIDTH + cell * sum(most) + gaps, LEAST_WIDTH)
    figure = blank(width, (cell + 0.25) * len(bins) + HEAD + (0.2 if any(names) else 0.0))
    below = -0.136 / cell  # the line of small print, in units of a picture
    # between two runs stands an empty column
    widths = [w for n in most for w in [*[cell] * n, GAP]][:-1]
    grid = figure.subplots(
        len(bins), len(widths), squeeze=False, gridspec_kw={"width_ratios": widths}
    )
    for axes in grid.ravel():
        axes.set_axis_off()
        axes.set_box_aspect(1.0)
    at: dict[str, Any] = {"ha": "right", "va": "center", "fontsize": 9}
    for row, b in zip(grid, bins, strict=True):
        row[0].text(-0.12, 0.5, b.range, transform=row[0].transAxes, **at)
    for n, (one, name) in enumerate(zip(runs, names, strict=True)):
        first = sum(most[:n]) + n
        here = grid[:, first : first + most[n]]
        if name:
            over: dict[str, Any] = {"transform": here[0, 0].transAxes, "in_layout": False}
            here[0, 0].text(0.0, 1.1, name, fontsize=9, **over)
        for row, b in zip(here, one, strict=True):
            for axes, item in zip(row, b.inputs, strict=False):
                axes.imshow(
                    pixels_of(item), cmap="gray", vmin=0.0, vmax=1.0, interpolation="nearest"
                )
                axes.set_axis_on()
                frame(axes)
                axes.set_title(item.words, fontsize=7, pad=2, y=below, color=NOTE)
    shown = [b for one in runs for b in one]
    figure.suptitle(f"{label}\n{_how_to_read(shown)}", x=0.01, ha="left", fontsize=9)
    return figure


def _how_to_read(bins: Sequence[ShownBin]) -> str:
    """Return what stands beside the inputs of some bins."""
    words = " ".join(item.words for b in bins for item in b.inputs)
    score = ", its score" if "score" in words else ""
    drawn = (
        ", \N{MULTIPLICATION SIGN}n if drawn n times" if "\N{MULTIPLICATION SIGN}" in words else ""
    )
    return f"with each input: its z{score}{drawn}"


def pixels_of(item: ShownInput) -> Any:
    """Return the pixels of a picture."""
    return imread(io.BytesIO(base64.b64decode(item.content.partition(",")[2])))


def _write(axes: Axes, x: float, y: float, words: str, **style: Any) -> float:
    """Write one line, and return where the next one begins."""
    axes.text(x, y, words, va="top", ha="left", parse_math=False, **style)
    return y + LINE_HEIGHT


def _first_lines(item: ShownInput) -> list[str]:
    lines = wrapped(item.content, FULL_WIDTH - TEXT_LEFT - 0.1)
    most = MAX_TOKEN_LINES if item.tokens else MAX_TEXT_LINES
    return lines if len(lines) <= most else [*lines[: most - 1], "[...]"]


def wrapped(text: str, width: float) -> list[str]:
    """Return a text in lines of `width` inches, with codes for characters that the font lacks."""
    return _lines("".join(_drawable(character) for character in text), width) or ["(no text)"]


def _lines(text: str, inches: float) -> list[str]:
    """Return a text in lines that fit, broken at blanks if possible."""
    # drawing rounds each character's width to pixels: up to 4% at 150 dots per inch
    most, lines, font = 0.96 * 72.0 * inches, [], _font()
    while text:
        width, end, blank = 0.0, 0, 0
        while end < len(text):
            width += _advance(text[end], font)
            if width > most:
                break
            end += 1
            blank = end if text[end - 1] == " " else blank
        end = blank if blank and end < len(text) else max(end, 1)
        lines.append(text[:end].rstrip())
        text = text[end:]
    return lines


def _drawable(character: str) -> str:
    if character == "\n":
        return "\N{DOWNWARDS ARROW WITH CORNER LEFTWARDS} "
    code = ord(character)
    shown = character.isprintable() or character == "\N{NO-BREAK SPACE}"
    if shown and code in _glyphs(_font()):
        return character
    return f"<U+{code:04X}>"


def _font() -> str:
    """Return the file of the figures' font, which a style may set."""
    return font_manager.findfont(font_manager.FontProperties())


@cache
def _glyphs(font: str) -> frozenset[int]:
    """Return the characters that a font has."""
    return frozenset(ft2font.FT2Font(font).get_charmap())


@cache
def _advance(character: str, font: str) -> float:
    """Return the width of a character, in points."""
    face = ft2font.FT2Font(font)
    face.set_size(TEXT_SIZE, 72)
    return float(face.load_char(ord(character)).linearHoriAdvance) / 65536.0
