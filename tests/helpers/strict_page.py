"""What a page that needs nothing else may hold: no handlers, nothing from outside.

A script is bad unless the page's own policy names its hash.
"""

import base64
import hashlib
import re
from html.parser import HTMLParser

FORBIDDEN = {"script", "iframe", "object", "embed", "form", "base", "link", "audio", "video"}
ADDRESSES = {"src", "href", "xlink:href", "action", "data", "srcset", "poster", "background"}


class Strict(HTMLParser):
    """Collects what a page must not hold, and all of its text."""

    def __init__(self):
        super().__init__()
        self.bad, self.words, self.open, self.allowed = [], [], [], ""

    def handle_starttag(self, tag, attributes):
        if tag == "meta":
            self.allowed += "".join(re.findall("sha256-[^']+", str(attributes)))
        if tag in FORBIDDEN - {"script"}:
            self.bad.append(tag)
        self.open += [] if tag in ("meta", "img", "path", "use", "rect") else [tag]
        for name, value in attributes:
            outside = not (value or "").startswith(("data:image/png;", "data:text/csv;", "#"))
            if name.startswith("on") or (name in ADDRESSES and outside):
                self.bad.append(f"{tag} {name}={value}")

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        if self.open and self.open[-1] == tag:
            self.open.pop()

    def handle_endtag(self, tag):
        if self.open and self.open[-1] == tag:
            self.open.pop()
        elif tag not in ("path", "use", "rect"):
            self.bad.append(f"stray </{tag}>")

    def handle_data(self, data):
        if self.open and self.open[-1] == "script":
            found = base64.b64encode(hashlib.sha256(data.encode()).digest()).decode()
            self.bad += [] if f"sha256-{found}" in self.allowed else ["script"]
            return
        self.words.append(data)
        if self.open and self.open[-1] == "style" and ("@import" in data or "//" in data):
            self.bad.append("style from outside")


def problems_of(html):
    """Return what is bad in a page, and its text."""
    strict = Strict()
    strict.feed(html)
    strict.close()
    return strict.bad + [f"open <{tag}>" for tag in strict.open], "".join(strict.words)
