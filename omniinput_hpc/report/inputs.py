"""The report's representative inputs, bin by bin: escaped text, or pictures inside the page."""

from __future__ import annotations

from omniinput_hpc.estimators.precision_recall.curves import Side
from omniinput_hpc.report.page import text
from omniinput_hpc.results.representatives import Representative, Representatives

MASKED = (
    "E-mail addresses, phone numbers and street addresses are masked where they are written in a "
    "usual way; others may be left."
)


def inputs_part(found: Representatives, side: Side, masked: bool) -> str:
    """Return the part of the page that shows inputs, from the confident end on."""
    parts = [f"<p class='soft'>Shown: {text(found.note)}. Drawn: {text(found.law)}.</p>\n"]
    if masked:
        parts.append(f"<p class='soft'>{MASKED}</p>\n")
    if found.prefix:
        parts.append(
            "<p class='soft'>All begin with:</p>\n"
            f'<pre class="text" dir="auto">{text(found.prefix)}</pre>\n'
        )
    for b in found.bins(side):
        low, high = found.edges[b : b + 2]
        cards = "".join(_card(item, found.kind == "image") for item in found.of_bin(b))
        parts.append(f"<h4>z from {low:.6g} to {high:.6g}</h4>\n<ul class='inputs'>{cards}</ul>\n")
    return "".join(parts)


def _card(item: Representative, image: bool) -> str:
    words = [f"z = {item.z:.4g}"]
    words += [] if item.score is None else [f"score {item.score:.2g}"]
    words += [] if item.draws <= 1 else [f"drawn {item.draws} times"]
    about = f'<div class="soft">{", ".join(words)}</div>'
    if image:
        what = f'<img alt="input with output {item.z:.4g}" src="{text(item.shown)}">'
    else:
        what = f'<div class="text" dir="auto">{text(item.shown)}</div>'
    return f"<li>{what}{about}</li>\n"
