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


def layers():
    """Return tests/test_layers.py, which holds the tables."""
    sys.path.append(str(ROOT / "tests"))
    import test_layers

    return test_layers


def tree():
    """Return the tree: the most lines of each room, and what each folder is for."""
    lines, most = [], layers().MAX_ROOM_LINES

    def visit(path, depth):
        init = path / "__init__.py"
        limit = f" {most[path.name]:,}" if depth == 1 and path.name in most else ""
        lines.append(f"{'  ' * depth}{path.name}/{limit}  {first_line(init)}")
        for inner in sorted(p.parent for p in path.glob("*/__init__.py")):
            visit(inner, depth + 1)

    for package in PACKAGES:
        visit(ROOT / package, 0)
    return "\n".join(f"    {line}" for line in lines)


def imports():
    """Return the tables of tests/test_layers.py as Markdown."""
    rooms = layers()

    def listed(names):
        leaves = set(rooms.LEAVES) <= set(names)
        short = ["leaves"] * leaves + [
            f"`{n}`" for n in names if not (leaves and n in rooms.LEAVES)
        ]
        return ", ".join(short) or "nothing"

    rows = ["| room | may import, of the package |", "| --- | --- |"]
    leaves = ", ".join(f"`{name}`" for name in rooms.LEAVES)
    rows.append(f"| leaves: {leaves} | `errors` |")
    rows += [
        f"| `{room}` | {listed(names)} |"
        for room, names in rooms.MAY_IMPORT.items()
        if room not in rooms.LEAVES
    ]
    rows.append(f"| the commands: {', '.join(f'`{c}`' for c in rooms.COMMANDS)} | as `cli` |")
    rows += ["", "| library | only in |", "| --- | --- |"]
    rows += [f"| {name} | {listed(rooms)} |" for name, rooms in rooms.LIBRARIES.items()]
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


def run_example(name):
    """Run a script of docs/examples/; return its names."""
    names = {}
    exec((ROOT / "docs/examples" / name).read_text(encoding="utf-8"), names)
    return names


if __name__ == "__main__":
    sys.path.append(str(ROOT))
    from input_file_page import page

    (ROOT / "docs/input-file.md").write_text(page(), encoding="utf-8")
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
