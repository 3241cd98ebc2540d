"""The scripts of analysis/, called in this process, and what their tests look at."""

import json
import sys

import pytest
from _common import run_script
from matplotlib.figure import Figure
from run_tools import loaded

from omniinput_hpc.plots import style


def call_script(script, arguments, capsys):
    """Call a script in this process, which is faster than in its own: (code, stdout, stderr)."""
    code = run_script(loaded(f"analysis/{script}").main, [str(a) for a in arguments])
    printed = capsys.readouterr()
    return code, printed.out, printed.err


@pytest.fixture
def inside(tmp_path, monkeypatch, capsys):
    """Return a way to call a script in this process, in the test's folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield lambda script, *arguments: call_script(script, arguments, capsys)


@pytest.fixture
def undrawn(monkeypatch):
    """Have pictures made, but not drawn, where no test looks at them: that takes the longest."""

    def save(_, file, format="png", **options):
        if hasattr(file, "write"):
            file.write('<svg width="1pt" height="1pt"></svg>' if format == "svg" else b"")
        else:
            file.write_bytes(b"")

    monkeypatch.setattr(Figure, "savefig", save)
    monkeypatch.setattr(style, "plain_names", lambda figure: None)  # it would make all ticks


def about(table):
    """Return what RUN.results.json says of a table, a line each."""
    run, _, _ = table.name.partition(".")
    found = json.loads(table.with_name(f"{run}.results.json").read_text())
    entries = [t for a in found["analyses"] for t in a["tables"] if t["file"] == table.name]
    return entries[-1]["about"]


def is_plain(code, stderr, word):
    """Exit code 2, one line on stderr, no traceback."""
    lines = stderr.splitlines()
    return code == 2 and len(lines) == 1 and lines[0].startswith("error: ") and word in lines[0]


def is_png(path):
    return path.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n" and path.stat().st_size > 10_000
