"""Shared by the scripts' tests: scripts called in this process."""

import importlib.util
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def inside(tmp_path, monkeypatch, capsys):
    """Return a way to call a script in this process, which is faster: (code, stdout, stderr)."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))

    from _common import run_script

    def call_inside(script, *arguments):
        spec = importlib.util.spec_from_file_location(
            f"script_{script[:-3]}", ROOT / "analysis" / script
        )
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        code = run_script(module.main, [str(a) for a in arguments])
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    yield call_inside
    sys.modules.pop("my_rules", None)
