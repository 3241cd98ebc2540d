"""Shared by the tests of exports: a scored run, and Inspect or what stands in for it."""

import shutil
import sys
from importlib.util import find_spec

import pytest
from rules_file import MODEL, write_rules
from run_files import write_run
from run_tools import ROOT
from score_files import write_score_files
from script_tools import inside

__all__ = ["inside"]


@pytest.fixture(scope="module")
def scored_run(tmp_path_factory):
    """Return a folder with good.h5, its tasks, and the scores of ann and of ben, a judge."""
    folder = tmp_path_factory.mktemp("scored")
    run = write_run(folder / "good.h5", walkers=16, model=MODEL)
    _, ben = write_score_files(folder / "good.h5", run, ["ann", "ben"])
    text = ben.read_text().replace('"annotator"', '"judge": "rule x:y", "annotator"')
    (folder / "good.judge-scores.ben.jsonl").write_text(text)
    ben.unlink()
    write_rules(folder)
    return folder


@pytest.fixture
def export(scored_run, tmp_path, inside):
    """Return a way to export the run, in the test's folder: (code, stdout, stderr)."""
    shutil.copytree(scored_run, tmp_path, dirs_exist_ok=True)
    return lambda to, *words: inside("export.py", "good.h5", "--to", to, *words)


@pytest.fixture
def inspect_log(monkeypatch):
    """Return the module inspect_ai.log; without the package, the one that stands in for it."""
    installed = find_spec("inspect_ai") is not None
    if not installed:
        monkeypatch.syspath_prepend(ROOT / "tests/helpers/inspect_stand_in")
    import inspect_ai.log

    yield inspect_ai.log
    for name in [] if installed else ["inspect_ai.log", "inspect_ai"]:
        del sys.modules[name]
