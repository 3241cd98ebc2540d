"""What is written on pages by program, and how it should be.

    .venv/bin/python tests/helpers/written_pages.py

writes docs/input-file.md, and in docs/architecture.md the tree of folders (each with the first line
of its docstring) and the tables of tests/test_layers.py. Tests compare all of them.
"""

import ast
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("omniinput_hpc", "omniinput_zoo")
PAGE = ROOT / "docs/architecture.md"


def first_line(path):
    """Return the first line of a module's docstring, without markup."""
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return text.split("\n", 1)[0].replace("``", "").replace("`", "").rstrip(".")


def tree():
    """Return the tree: what each folder is for."""
    lines = []

    def visit(path, depth):
        init = path / "__init__.py"
        lines.append(f"{'  ' * depth}{path.name}/  {first_line(init)}")
        for inner in sorted(p.parent for p in path.glob("*/__init__.py")):
            visit(inner, depth + 1)

    for package in PACKAGES:
        visit(ROOT / package, 0)
    return "\n".join(f"    {line}" for line in lines)


def imports():
    """Return the tables of tests/test_layers.py as Markdown."""
    sys.path.append(str(ROOT / "tests"))
    import test_layers as layers

    def listed(names):
        leaves = set(layers.LEAVES) <= set(names)
        short = ["leaves"] * leaves + [
            f"`{n}`" for n in names if not (leaves and n in layers.LEAVES)
        ]
        return ", ".join(short) or "nothing"

    def most(room):
        return f"{layers.MAX_ROOM_LINES[room]:,}" if room in layers.MAX_ROOM_LINES else ""

    rows = ["| room | lines, at most | may import, of the package |", "| --- | --- | --- |"]
    leaves = ", ".join(f"`{name}`" for name in layers.LEAVES)
    rows.append(f"| leaves: {leaves} | untrusted: {most('untrusted')} | `errors` |")
    rows += [
        f"| `{room}` | {most(room)} | {listed(names)} |"
        for room, names in layers.MAY_IMPORT.items()
        if room not in layers.LEAVES
    ]
    rows.append(f"| the commands: {', '.join(f'`{c}`' for c in layers.COMMANDS)} | | as `cli` |")
    rows += ["", "| library | only in |", "| --- | --- |"]
    rows += [f"| {name} | {listed(rooms)} |" for name, rooms in layers.LIBRARIES.items()]
    return "\n".join(rows)


def filled(text):
    """Return the page's text with the generated parts as they should be."""
    for name, part in (("tree", tree()), ("imports", imports())):
        pattern = rf"(<!-- {name} -->\n).*?(\n<!-- end of {name} -->)"
        assert re.search(pattern, text, re.DOTALL), f"docs/architecture.md has no part {name}"
        text = re.sub(
            pattern, lambda m, p=part: m[1] + "\n" + p + "\n" + m[2], text, flags=re.DOTALL
        )
    return text


if __name__ == "__main__":
    sys.path.append(str(ROOT))
    from omniinput_hpc.config.describe import page

    (ROOT / "docs/input-file.md").write_text(page(), encoding="utf-8")
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
