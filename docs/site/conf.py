"""The documentation site, made by Sphinx from the pages as they are: see CONTRIBUTING.md.

Its source folder is the repository, so that links between pages, and to pictures and input files,
hold here as well as on a code host. The first page is README.md.
"""

import re
from typing import Any

from sphinx.application import Sphinx

from omniinput_hpc.text import __version__

project = "omniinput_hpc"
author = copyright = "The authors of omniinput_hpc"
version = release = __version__
root_doc = "README"
include_patterns = ["*.md", "docs/**"]
exclude_patterns = [
    ".*",
    "**/.*",
    "analysis",
    "build",
    "dist",
    "inputs",
    "omniinput_*",
    "runs",
    "tests",
]
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
myst_heading_anchors = 4
autodoc_default_options = {
    "members": True,
    "exclude-members": "about, about_figure, drawn, figure, figures, name, record, source, write",
}
autodoc_member_order = "bysource"
autodoc_type_aliases = {name: name for name in ("Columns", "FloatArray", "IntArray")}
napoleon_use_ivar = True
python_use_unqualified_type_names = True
html_theme = "furo"
html_title = f"{project} {version}"
html_extra_path = ["index.html"]

CONTENTS = "```{{toctree}}\n:hidden:\n:caption: {title}\n{options}\n{pages}\n```\n"


def contents(readme: str) -> str:
    """Return the lists of pages that README's section "Pages" gives, for the sidebar."""
    section = readme.partition("\n## Pages\n")[2].partition("\n## ")[0]
    groups = re.findall(r"^- (\w[\w ]*): (.*?)(?=^- |\n\n)", section, re.DOTALL | re.MULTILINE)
    lists = []
    for title, links in groups:
        pages = list(dict.fromkeys(re.findall(r"\(([\w./-]+)\.md", links)))
        if "docs/python-api" in pages:
            pages.append("docs/site/reference")
        lists.append(CONTENTS.format(title=title, options="", pages="\n".join(pages)))
    return "\n".join(lists)


def add_contents(app: Sphinx, page: str, source: list[str]) -> None:
    """Append lists of pages to the two pages that lead to the others."""
    if page == "README":
        source[0] += "\n" + contents(source[0])
    elif page == "docs/results/README":
        source[0] += "\n" + CONTENTS.format(title="Measured", options=":glob:", pages="*")


def describe(app: Sphinx, kind: str, name: str, what: Any, options: Any, lines: list[str]) -> None:
    """Turn the docstrings' `name : description` into what numpydoc takes for a description."""
    for index, line in reversed(list(enumerate(lines))):
        if found := re.fullmatch(r"(\w+(?:, \w+)*) : (.*)", line):
            lines[index : index + 1] = [found[1], "    " + found[2]]


def setup(app: Sphinx) -> None:
    """Register with Sphinx."""
    app.connect("source-read", add_contents)
    app.connect("autodoc-process-docstring", describe, priority=1)  # before napoleon
