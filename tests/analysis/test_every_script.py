"""Every script of analysis/ on runs that are not what it wants: a plain message, no traceback.

Also the largest run files: bounded memory.
"""

import io
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import h5py
import jsonschema
import pandas
import pytest
from rules_file import MODEL, RULE, write_rules
from run_files import write_run
from run_tools import ROOT, loaded
from score_files import write_score_files
from script_tools import is_plain

from omniinput_hpc.cli.scripts import run_script
from omniinput_hpc.results.record import SCHEMA

pytestmark = pytest.mark.usefixtures("undrawn")

NOT_ON_RUNS = {"_common.py", "annotate.py", "example.py", "explore.py", "judge.py", "scores.py"}
SCRIPTS = sorted({p.name for p in (ROOT / "analysis").glob("*.py")} - NOT_ON_RUNS)
SCORES = ["--scores", "good.scores.ann.jsonl", "good.scores.ben.jsonl"]
ARGUMENTS = {
    "precision_recall.py": ["RUN", "--rule", RULE],
    "next_scores.py": ["RUN", *SCORES],
    "agreement.py": ["RUN", *SCORES],
    "bank.py": ["RUN", "--bank", "bank.jsonl", *SCORES],
    "annotators.py": ["RUN", *SCORES],
    "report.py": ["RUN", *SCORES],
    "choose.py": ["RUN", "--width", "0.5", "--range", "-0.125", "1.875",
                  "--output", "chosen.tasks.jsonl"],
    "compare.py": ["other.h5", "RUN"],
    "export.py": ["RUN", "--to", "every-eval-ever", *SCORES],
    "overlay.py": ["good.h5", "RUN", "--output", "overlay.png"],
    "normalize.py": ["good.h5", "RUN", "--range", "1.0", "2.0"],
    "changes.py": ["RUN", "good.rescored.other.h5"],
    "difference.py": ["good.h5", "RUN"],
    "average.py": ["RUN", "--observable", "distinct"],
    "joint.py": ["RUN", "--observable", "distinct"],
    "observe.py": ["RUN", "--add", "distinct"],
}  # fmt: skip
"""Of scripts that want more than the run file; a script that is missing here gets that alone."""
OTHERS = {"normalize.py", "changes.py", "difference.py", "observe.py"}
"""Those that want another model's outputs, or write no results."""
STATES = {
    "missing": "missing.h5",
    "empty": "empty.h5",
    "half": "half.h5",
    "text": "text.h5",
    "truncated dataset": "lacking.h5",
    "a folder": "folder.h5",
    "the root": "/",
    "no name": "",
    "here": ".",
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Return a folder with runs in every state; `lacking` is whole HDF5, but half a run."""
    folder = tmp_path_factory.mktemp("states")
    run = write_run(folder / "good.h5", walkers=16, model=MODEL)
    write_score_files(folder / "good.h5", run, ["ann", "ben"])
    write_run(folder / "empty.h5", rounds=2, committed=0)
    write_run(folder / "one.h5", planned=9, rounds=1, walkers=4, moves=50, model=MODEL)
    shutil.copy(folder / "good.h5", folder / "other.h5")  # to compare with
    whole = (folder / "good.h5").read_bytes()
    (folder / "half.h5").write_bytes(whole[: len(whole) // 2])
    (folder / "text.h5").write_text("no HDF5")
    (folder / "folder.h5").mkdir()
    shutil.copy(folder / "good.h5", folder / "lacking.h5")
    with h5py.File(folder / "lacking.h5", "r+") as file:
        del file["samples/z"]
    write_rules(folder)
    return folder


@pytest.fixture
def call(runs, tmp_path, inside):
    """Return a way to call a script on one of the runs, in a folder of its own."""

    def call_on(script, name):
        shutil.copytree(runs, tmp_path, dirs_exist_ok=True)
        words = [name if word == "RUN" else word for word in ARGUMENTS.get(script, ["RUN"])]
        try:
            code, out, err = inside(script, *words)
        except SystemExit:
            pytest.fail(f"{script} {' '.join(words)}: not its arguments; name them in ARGUMENTS")
        results = {p.name for p in tmp_path.iterdir()} - {p.name for p in runs.iterdir()}
        return code, out, err, results

    return call_on


@pytest.mark.parametrize("name", STATES.values(), ids=STATES.keys())
@pytest.mark.parametrize("script", SCRIPTS)
def test_a_run_that_holds_nothing_is_named(script, name, call):
    code, _, err, results = call(script, name)
    assert is_plain(code, err, name), (code, err)
    assert not results


@pytest.mark.slow
@pytest.mark.parametrize("script", SCRIPTS)
def test_one_round_gives_results_or_a_plain_message(script, call):
    code, out, err, _ = call(script, "one.h5")
    if code == 0:
        assert err == "" and out
    else:
        assert is_plain(code, err, ""), (code, err)


@pytest.mark.slow
@pytest.mark.parametrize("script", [s for s in SCRIPTS if s not in OTHERS])
def test_the_good_run_is_good(script, call):
    """The states above fail for what they are, not for the arguments.

    (For the others see test_two_model_scripts, test_changes_script, test_observable_scripts.)
    """
    code, out, err, results = call(script, "good.h5")
    assert (code, err) == (0, "") and results and out
    (json_file,) = (name for name in results if name.endswith(".results.json"))
    found = json.loads(Path(json_file).read_text())
    jsonschema.validate(found, json.loads(SCHEMA.read_text()))
    (entry,) = found["analyses"]
    assert entry["analysis"] == script.removesuffix(".py").replace("_", "-")
    assert entry["runs"] and all(Path(file).is_file() for file in entry["files"])
    tables = {table["file"]: table for table in entry["tables"]}
    assert set(tables) == {name for name in results if name.endswith(".csv")}
    for name, table in tables.items():
        frame = pandas.read_csv(name)
        assert (list(frame), len(frame)) == (table["columns"], table["rows"])


def without_output(script):
    """Return a script's arguments for the good run, without --output where it can be left out."""
    words = ["good.h5" if w == "RUN" else w for w in ARGUMENTS.get(script, ["RUN"])]
    return words[: words.index("--output")] if script == "choose.py" else words


@pytest.mark.parametrize(
    "script",
    ["diagnose.py", *(pytest.param(s, marks=pytest.mark.slow) for s in SCRIPTS if s not in OTHERS)],
)
def test_results_go_to_a_folder_of_choice(script, runs, tmp_path, inside):
    shutil.copytree(runs, tmp_path, dirs_exist_ok=True)
    before = {p.name for p in tmp_path.iterdir()}
    code, _, err = inside(script, *without_output(script), "--results", "far/away")
    assert (code, err) == (0, "")
    allowed = {"overlay.py": {"overlay.png", "overlay.pdf"}, "bank.py": {"bank.jsonl"}}
    assert {p.name for p in tmp_path.iterdir()} - before - allowed.get(script, set()) == {"far"}
    (results,) = (tmp_path / "far/away").glob("*.results.json")
    (entry,) = json.loads(results.read_text())["analyses"]
    assert "results" not in entry["parameters"]
    assert all((results.parent / file).is_file() for file in entry["files"])


@pytest.mark.parametrize(
    "script",
    ["diagnose.py", *(pytest.param(s, marks=pytest.mark.slow) for s in SCRIPTS if s not in OTHERS)],
)
def test_a_terminal_of_ascii_gets_any_name(script, runs, tmp_path, monkeypatch):
    """LC_ALL=C, PYTHONIOENCODING=ascii: what a terminal lacks is printed as its code."""
    shutil.copytree(runs, tmp_path, dirs_exist_ok=True)
    name = "l\u00e4ufe \u2211 it's $x.h5"
    shutil.copy(runs / "good.h5", tmp_path / name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="ascii") for _ in range(2))
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", err)
    words = [name if word == "good.h5" else word for word in without_output(script)]
    code = run_script(loaded(f"analysis/{script}").main, words)
    out.flush()
    err.flush()
    assert (code, err.buffer.getvalue()) == (0, b"")
    printed = out.buffer.getvalue()
    assert script == "overlay.py" or b"l\\xe4ufe \\u2211 it's $x" in printed


def test_scores_of_tasks_go_there_too_and_are_found_there(runs, tmp_path, inside):
    shutil.copytree(runs, tmp_path, dirs_exist_ok=True)
    before, there = {p.name for p in tmp_path.iterdir()}, ["--results", "far"]
    tasks = "good.tasks.jsonl"
    code, out, err = inside("judge.py", tasks, "--judge", RULE, *there)
    assert (code, err) == (0, ""), err
    scores = "far/good.judge-scores.first_is_zero.jsonl"
    assert scores in out
    code, out, err = inside("scores.py", tasks, "--export", "csv", *there)
    assert (code, err) == (0, "") and "far/good.scores.csv" in out, out
    assert "first_is_zero" in (tmp_path / "far/good.scores.csv").read_text()
    words = ["good.h5", "--scores", *SCORES[1:], scores, "--key", "good.tasks.key.jsonl"]
    assert inside("agreement.py", *words, *there)[::2] == (0, "")
    new = {p.name for p in tmp_path.iterdir()} - before
    assert new - {"__pycache__"} == {"far"}  # of the rule's module, where Python keeps bytecode


READ_ONLY = """
import os, sys
sys.path[:0] = [{root!r} + "/analysis", {root!r}]
import omniinput_hpc.cli.verbs.{verb} as verb
from omniinput_hpc.cli.scripts import run_script
sys.exit(run_script(verb.main, sys.argv[1:]))
"""


@pytest.mark.skipif(not shutil.which("setpriv"), reason="no setpriv: root may write anywhere")
def test_a_folder_that_may_not_be_written_is_named_with_the_remedy(runs, tmp_path, inside):
    """Really not: by a process without root's capabilities. The remedy writes nothing there."""
    folder = tmp_path / "archive"
    shutil.copytree(runs, folder)
    before = {p.name for p in folder.iterdir()}
    folder.chmod(0o555)
    (tmp_path / "call.py").write_text(READ_ONLY.format(root=str(ROOT), verb="diagnose"))
    drop = ["setpriv", "--bounding-set", "-dac_override"] if os.geteuid() == 0 else []

    words = [*drop, sys.executable, str(tmp_path / "call.py"), "archive/good.h5"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True)
    assert is_plain(done.returncode, done.stderr, "--results"), done
    assert "the folder archive cannot be written" in done.stderr
    code, _, err = inside("diagnose.py", "archive/good.h5", "--results", "mine")
    assert (code, err) == (0, "")
    assert (tmp_path / "mine/good.diagnose.csv").is_file()
    assert {p.name for p in folder.iterdir()} == before
    folder.chmod(0o755)


@pytest.mark.slow
@pytest.mark.release
def test_a_large_run_is_analysed_in_bounded_memory(tmp_path):
    """6 GiB (of holes), 420 MiB of outputs: under half of these above what a small run takes."""
    large_run = loaded("tests/benchmarks/large_run.py")
    peaks = []
    for gib in (0.1, 6.0):
        file = Path(tmp_path) / "large.h5"
        assert large_run.write(file, gib) > gib * 2**30
        assert file.stat().st_blocks * 512 < 2**26, "the file system has no holes"
        _, _, peak, printed = large_run.analyse(file)
        assert "log_g is absolute" in printed
        peaks.append(peak)
    assert peaks[1] - peaks[0] < 210
