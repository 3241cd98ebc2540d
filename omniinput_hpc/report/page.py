"""The report's HTML: templates that escape all values, and figures in the page's colours."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from matplotlib.figure import Figure

from omniinput_hpc.estimators import FloatArray
from omniinput_hpc.plots import look, style

TEMPLATES = Path(__file__).parent / "templates"
INK = "#010203"  # placeholder in a figure for the page's text colour
PAGE_COLOURS = {
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
USUAL = 20
"""Elements of a figure with the same style from which on it becomes a class."""
INK_STYLE: Any = {
    name: INK
    for name in ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color")
}


def page(title: str, parts: Sequence[Markup], scripts: Sequence[str] = ()) -> str:
    """Return the whole page, which refers to nothing outside itself.

    It holds the scripts of these files; its policy allows no other.
    """
    return render(
        "page.html",
        title=title,
        parts=parts,
        script=_script(scripts),
        policy=Markup(policy(scripts)),
    )


def _script(scripts: Sequence[str]) -> Markup:
    return Markup("".join((TEMPLATES / name).read_text(encoding="utf-8") for name in scripts))


def policy(scripts: Sequence[str]) -> str:
    """Return the content security policy of a page with these scripts.

    Only `explore.js` may make requests, to its own server.
    """
    allowed = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; "
    if scripts:
        found = hashlib.sha256(_script(scripts).encode()).digest()
        allowed += f"script-src 'sha256-{base64.b64encode(found).decode('ascii')}'; "
    if "explore.js" in scripts:
        allowed += "connect-src 'self'; "
    return f"{allowed}base-uri 'none'; form-action 'none'"


def render(template: str, **values: Any) -> Markup:
    """Return a template filled with values, each escaped unless it is Markup."""
    return Markup(environment().get_template(template).render(values))


def environment(autoescape: bool = True) -> Environment:
    """Return the Jinja environment that reads and fills the templates."""
    made = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=autoescape,
        finalize=lambda value: value if isinstance(value, Markup) else visible(value),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.globals["coloured"] = lambda item: zip(item.tokens, item.losses, strict=False)
    return made


def visible(value: object) -> str:
    """Return text with codes for control characters, direction marks and lone surrogates."""
    return "".join(map(_visible, str(value)))


def _visible(character: str) -> str:
    code = ord(character)
    control = (code < 0x20 and character not in "\n\t") or 0x7F <= code < 0xA0
    marks = 0x202A <= code <= 0x202E or 0x2066 <= code <= 0x2069 or code in (0x200E, 0x200F)
    hidden = control or marks or 0xD800 <= code < 0xE000
    return f"<U+{code:04X}>" if hidden else character


@dataclass(frozen=True)
class Marks:
    """Points of a figure's first panel that can be pointed at.

    Attributes
    ----------
    x, y, z : float64 [n], places in the panel's units, and the output that each is about
    words : what is said of each
    axis : 0 if what is pointed at is the nearest in x, 1 in y
    slider : name of the slider that chooses one
    """

    x: FloatArray
    y: FloatArray
    z: FloatArray
    words: Sequence[str]
    axis: int
    slider: str

    def placed(self, figure: Figure) -> str:
        """Return the marks as JSON, their places as shares of the figure's width and height."""
        places = figure.axes[0].transData.transform(np.column_stack([self.x, self.y]))
        rows = zip(places / figure.bbox.size, self.z, self.words, strict=True)
        return json.dumps([[*place.round(4).tolist(), round(z, 6), w] for place, z, w in rows])


@dataclass(frozen=True)
class Drawing:
    """A figure as part of the page; its caption describes it, also to screen readers.

    Attributes
    ----------
    marks, axis, slider : see `Marks`; "" if nothing can be pointed at
    """

    svg: Markup
    caption: str
    marks: str = ""
    axis: int = 0
    slider: str = ""


def drawing(
    make: Callable[[], Figure],
    caption: str,
    salt: str,
    converged: bool = True,
    marks: Marks | None = None,
) -> Drawing:
    """Return a figure as SVG whose colours follow the page's: light, dark or printed.

    `make` is called here, so that text is drawn in the page's colour. `salt`, from which the SVG's
    ids are made, must be unique on the page. If `converged` is false, "NOT CONVERGED" is written
    across the figure.
    """
    with mpl.rc_context({**INK_STYLE, "svg.hashsalt": salt}):
        figure, file = make(), io.StringIO()
        style.write_caption(figure, look.Caption(converged=converged))
        style.plain_names(figure)
        figure.savefig(file, format="svg", transparent=True, metadata={"Date": None})
    svg = file.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    for colour, name in PAGE_COLOURS.items():
        svg = re.sub(re.escape(colour), name, svg, flags=re.IGNORECASE)
    svg = _smaller(svg)
    if marks is None or not len(marks.z):
        return Drawing(Markup(svg), caption)
    return Drawing(Markup(svg), caption, marks.placed(figure), marks.axis, marks.slider)


def _smaller(svg: str) -> str:
    """Return an SVG with places to 0.01 points, and with its usual styles as classes.

    A figure of thousands of bins is half as large so.
    """
    svg = re.sub(r' (?:d|x|y)="[^"]*"', lambda found: re.sub(r"(\.\d\d)\d+", r"\1", found[0]), svg)
    svg, rules = re.sub(r">\s+<", "><", svg).replace("xlink:href", "href"), ""
    for style_, n in Counter(re.findall(r' style="([^"]*)"', svg)).items():
        if n > USUAL:
            name = f"s{hashlib.sha256(style_.encode()).hexdigest()[:6]}"  # one for the whole page
            svg = svg.replace(f' style="{style_}"', f' class="{name}"')
            rules += f".{name}{{{style_}}}"
    return svg.replace("</svg>", f"<style>{rules}</style></svg>") if rules else svg
