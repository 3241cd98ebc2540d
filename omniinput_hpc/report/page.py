"""HTML of the report: escaped text, tables, data links, and the style for light, dark and print."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from html import escape

POLICY = (
    "default-src 'none'; img-src data:; style-src 'unsafe-inline'; base-uri 'none'; "
    "form-action 'none'"
)
STYLE = """
:root { color-scheme: light dark; --page: #ffffff; --ink: #1d1d1d; --soft: #595959;
  --grid: #e4e4e4; --card: #f5f6f7; --blue: #0072B2; --red: #D55E00; --green: #007a5a; }
@media screen and (prefers-color-scheme: dark) { :root { --page: #16181b; --ink: #e8e8e8;
  --soft: #a9adb3; --grid: #3a3e44; --card: #22262b; --blue: #56B4E9; --red: #f08a4b;
  --green: #3fc79a; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1.5rem 1rem 3rem; max-width: 62rem; background: var(--page);
  color: var(--ink); font: 16px/1.5 system-ui, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.35rem; margin-top: 2.5rem;
  border-bottom: 1px solid var(--grid); } h3 { font-size: 1.1rem; margin: 1.6rem 0 .5rem; }
h4 { margin: 1rem 0 .3rem; }
a { color: var(--blue); } .soft { color: var(--soft); }
.bad { border-left: 4px solid var(--red); padding-left: .7rem; }
.good { border-left: 4px solid var(--green); padding-left: .7rem; }
figure { margin: .5rem 0 1rem; } figure svg { max-width: 100%; height: auto; display: block; }
figcaption { color: var(--soft); font-size: .9rem; }
.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 26rem), 1fr));
  gap: 1rem; }
.wide { overflow-x: auto; } table { border-collapse: collapse; font-size: .9rem;
  overflow-wrap: normal; }
th, td { padding: .2rem .6rem; text-align: right; border-bottom: 1px solid var(--grid);
  font-variant-numeric: tabular-nums; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; }
.facts th { display: none; } .facts td { white-space: normal; text-align: left;
  overflow-wrap: anywhere; }
.facts td:first-child { color: var(--soft); white-space: nowrap; }
pre { background: var(--card); padding: .7rem; overflow-x: auto; font-size: .85rem; }
.inputs { display: flex; flex-wrap: wrap; gap: .6rem; padding: 0; margin: 0; list-style: none; }
.inputs li { background: var(--card); padding: .4rem .6rem; border-radius: .3rem; max-width: 100%;
  overflow: hidden; contain: paint; }
.inputs .soft { font-size: .85rem; }
.inputs .text { white-space: pre-wrap; unicode-bidi: isolate; max-width: 46rem; }
.inputs img { width: 5.5rem; image-rendering: pixelated; display: block; }
summary { cursor: pointer; color: var(--blue); }
@media screen and (max-width: 40rem) { figure { overflow-x: auto; }
  figure svg { max-width: none; width: 32rem; } }
@media print { :root { color-scheme: light; }
  body { max-width: none; font-size: 10pt; padding: 0; }
  figure, li, tr { break-inside: avoid; } h2, h3, h4 { break-after: avoid; }
  .screen, summary { display: none; } pre { white-space: pre-wrap; }
  details::details-content { display: block; content-visibility: visible; }
  table { font-size: 8pt; } th, td { white-space: normal; padding: .1rem .3rem; }
  .wide { overflow: visible; } .figures { display: block; } figure svg { max-width: 80%; } }
"""


def text(value: object) -> str:
    """Return text as HTML; control characters, direction marks and half characters as codes."""
    return escape("".join(map(_visible, str(value))))


def _visible(character: str) -> str:
    code = ord(character)
    control = (code < 0x20 and character not in "\n\t") or 0x7F <= code < 0xA0
    marks = 0x202A <= code <= 0x202E or 0x2066 <= code <= 0x2069 or code in (0x200E, 0x200F)
    hidden = control or marks or 0xD800 <= code < 0xE000
    return f"<U+{code:04X}>" if hidden else character


def table(
    names: Sequence[str],
    rows: Sequence[Sequence[object]],
    marks: Sequence[str] = (),
    kind: str = "",
) -> str:
    """Return a table.

    Parameters
    ----------
    names : of the columns
    rows : of values, as text
    marks : HTML of a first column, a cell for each row (default: none)
    kind : class of the table
    """
    head = "".join(f'<th scope="col">{text(name)}</th>' for name in names)
    body = ""
    for i, row in enumerate(rows):
        first = f"<td>{marks[i]}</td>" if marks else ""
        body += f"<tr>{first}" + "".join(f"<td>{text(value)}</td>" for value in row) + "</tr>\n"
    parts = f"<thead><tr>{head}</tr></thead>\n<tbody>{body}</tbody>"
    return f'<div class="wide"><table class="{kind}">{parts}</table></div>\n'


def data_link(name: str, content: str) -> str:
    """Return a link that saves a file which the page carries with it."""
    data = base64.b64encode(content.encode("utf-8")).decode("ascii")
    return (
        f'<a class="screen" download="{text(name)}" href="data:text/csv;base64,{data}">'
        f"{text(name)}</a>"
    )


def lines(values: Sequence[str], kind: str = "") -> str:
    """Return a paragraph per line."""
    mark = f' class="{kind}"' if kind else ""
    return "".join(f"<p{mark}>{text(value)}</p>\n" for value in values)


def fold(title: str, content: str) -> str:
    """Return a part that opens on demand."""
    return f"<details><summary>{text(title)}</summary>{content}</details>\n"


def page(title: str, content: str) -> str:
    """Return the whole page, which refers to nothing outside itself."""
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{text(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n"
        f"<h1>{text(title)}</h1>\n{content}</body>\n</html>\n"
    )
