"""The scripts as a user calls them: results, pictures, plain messages, exit codes."""

import os
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest
from run_files import BETA_K, EDGES, MODEL, write_exact, write_run
from script_tools import about, is_plain, is_png

from omniinput_hpc.results.tables import read_table

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
RULE = "def first_is_zero(x):\n    return (x[:, 0] == 0) * 1.0\ndef wrong(x):\n    return x[:, 0]\n"


def call(script, *arguments, folder):
    """Run a script from the folder; PYTHONPATH is not set: it must find the package itself."""
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    return subprocess.run(
        [sys.executable, str(ROOT / "analysis" / script), *map(str, arguments)],
        capture_output=True, text=True, cwd=folder, env=environment, timeout=400,
    )  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a folder with a good run, its exact values, and rules."""
    path = tmp_path_factory.mktemp("scripts")
    (path / "runs").mkdir()
    write_run(path / "runs" / "lattice.h5", walkers=16, seed=1)
    write_exact(path / "exact.csv")
    (path / "my_rules.py").write_text(RULE)
    return path


def test_reweight(folder):
    low = ["--exact", "exact.csv", "--range", "-9", "1.125"]
    done = call("reweight.py", "runs/lattice.h5", *low, folder=folder)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert done.stdout.splitlines()[-2:] == ["runs/lattice.density.csv", "runs/lattice.density.png"]
    assert "converged: yes" in done.stdout
    truth = round(MODEL.count_l()[MODEL.z_l() < 1.125].sum())
    assert " of all (" in done.stdout and "), 95% interval " in done.stdout
    assert f"; exactly {truth:,}\n" in done.stdout
    assert MODEL.count_l().max() < 10_000
    assert "truth >= 10,000 inputs: no such bin" in done.stdout
    assert f"truth >= 1,000 inputs: {(MODEL.count_l() >= 1_000).sum()} bins" in done.stdout
    header = about(folder / "runs" / "lattice.density.csv")
    _, columns = read_table(folder / "runs" / "lattice.density.csv", [])
    assert list(columns)[:5] == ["z_lower", "z_upper", "log_g", "log_g_error", "count"]
    assert header[0].startswith("absolute: yes") and header[1] == "converged: yes"
    assert np.exp(columns["log_g"]).sum() == pytest.approx(MODEL.n_values**MODEL.n_sites)
    level = np.rint((columns["z_lower"] / MODEL.unit) + 0.5).astype(int)
    error = columns["log_g_error"]
    delta = columns["log_g"] - np.log(MODEL.count_l()[level])
    assert (np.abs(delta) < 4.5 * error).all()
    assert is_png(folder / "runs" / "lattice.density.png")


def test_precision_recall(folder, inside, monkeypatch):
    monkeypatch.chdir(folder)
    code, out, err = inside(
        "precision_recall.py", "runs/lattice.h5", "--rule", "my_rules:first_is_zero",
        "--exact", "exact.csv",
    )  # fmt: skip
    assert (code, err) == (0, "")
    names = [f"runs/lattice.{end}" for end in ("pr.csv", "pr.png", "roc.png", "rho_r.png")]
    assert out.splitlines()[-4:] == names
    header, (_, columns) = about(folder / names[0]), read_table(folder / names[0], [])
    assert list(columns)[:7] == [
        "threshold", "precision", "precision_low", "precision_high",
        "log_recall", "log_recall_low", "log_recall_high",
    ]  # fmt: skip
    assert (np.diff(columns["threshold"]) > 0).all()
    assert columns["log_recall"][-1] == pytest.approx(np.log(MODEL.right_l().sum()), abs=0.1)
    assert any(line.startswith("AUPR: 0.") for line in header)
    assert any("scores: my_rules:first_is_zero" in line for line in header)
    words = out.partition("exact AUPR")[2].split()
    assert abs(float(words[words.index("difference") + 1])) < 0.05
    for what in ("r(z) in bins of 1,000", "precision where 1,000", "ln recall there"):
        assert what in out and "bands contain it" in out.partition(what)[2]
    assert all(is_png(folder / name) for name in names[1:])


def test_precision_recall_from_above_without_exact_values(folder, inside, undrawn, monkeypatch):
    monkeypatch.chdir(folder)
    code, out, err = inside(
        "precision_recall.py", "runs/lattice.h5", "--rule", "my_rules:first_is_zero",
        "--side", "high",
    )  # fmt: skip
    assert (code, err) == (0, "")
    _, columns = read_table(folder / out.splitlines()[-3], [])
    assert (np.diff(columns["threshold"]) < 0).all()
    assert "rho_r" not in out


def test_one_round_and_unfinished_runs_give_results(tmp_path, inside, undrawn):
    (tmp_path / "my_rules.py").write_text(RULE)
    write_run(tmp_path / "one.h5", planned=9, rounds=1, walkers=4, moves=50)
    write_run(tmp_path / "lane.h5", rounds=3, walkers=1, moves=50, beta_k=BETA_K[BETA_K != 0])
    write_exact(tmp_path / "exact.csv")
    for name in ("one.h5", "lane.h5"):
        for script, extra in (
            ("reweight.py", []),
            ("precision_recall.py", ["--rule", "my_rules:first_is_zero"]),
        ):
            for exact in ([], ["--exact", "exact.csv"]):
                code, out, err = inside(script, name, *extra, *exact)
                assert (code, err) == (0, "") and "not converged: " in out
    assert "1 of 9 rounds, not finished" in about(tmp_path / "one.density.csv")[-1]
    _, columns = read_table(tmp_path / "lane.density.csv", [])
    assert np.isposinf(columns["log_g_error"]).all()


def test_users_mistakes_get_one_plain_line(folder, tmp_path, inside):
    good = folder / "runs" / "lattice.h5"
    (tmp_path / "my_rules.py").write_text(RULE)
    write_exact(tmp_path / "exact.csv", with_r=False)
    write_exact(tmp_path / "other.csv", edges=EDGES + 0.01)
    (tmp_path / "text.h5").write_text("no HDF5")
    with h5py.File(tmp_path / "foreign.h5", "w") as file:
        file["a"] = 1
    write_run(tmp_path / "empty.h5", rounds=2, committed=0)
    write_run(tmp_path / "gap.h5", rounds=2, beta_k=np.array([-300.0, 0.0, 300.0]), moves=2)
    write_run(tmp_path / "outside.h5", rounds=2, edges=EDGES + 100)
    whole = good.read_bytes()
    (tmp_path / "half.h5").write_bytes(whole[: len(whole) // 2])

    for name, word in [
        ("missing.h5", "no such"),
        ("text.h5", "not a readable HDF5"),
        ("half.h5", "half.h5"),
        ("foreign.h5", "not an omniinput_hpc run"),
        ("empty.h5", "no committed round"),
        ("gap.h5", "share no bin"),
        ("outside.h5", "outside the bins"),
    ]:
        code, _, err = inside("reweight.py", name)
        assert is_plain(code, err, word), (name, err)
    rule = ["--rule", "my_rules:first_is_zero"]
    for arguments, word in [
        (["empty.h5", *rule], "no committed round"),
        ([good, "--rule", "my_rules:missing"], "no function missing"),
        ([good, "--rule", "none:rule"], "cannot import none"),
        ([good, "--rule", "my_rules:wrong"], "scores must lie in [0, 1]"),
        ([good, *rule, "--exact", "exact.csv"], "no column r"),
        ([good, *rule, "--exact", "other.csv"], "not one of the run's bins"),
        ([good, *rule, "--exact", "nothing.csv"], "nothing.csv: no such file"),
    ]:
        code, _, err = inside("precision_recall.py", *arguments)
        assert is_plain(code, err, word), (arguments, err)
    code, _, err = inside("reweight.py", "gap.h5")
    assert is_plain(code, err, "between beta = -300 and beta = 0")
    assert call("precision_recall.py", good, folder=tmp_path).returncode == 2
    assert not list(tmp_path.glob("*.png")) and not list(tmp_path.glob("*.partial"))


@pytest.mark.parametrize(
    ("script", "arguments", "words"),
    [
        ("overlay.py", ["--output", "a.png", "--inputs", "-1"], "--inputs: expected a whole"),
        ("next_scores.py", ["--scores", "s", "--budget", "-50"], "--budget: expected a whole"),
        ("next_scores.py", ["--scores", "s", "--fewest-inputs", "0"], "at least 1, found '0'"),
        ("annotators.py", ["--scores", "s", "--fewest-lanes", "-1"], "at least 1, found '-1'"),
    ],
)
def test_numbers_that_make_no_sense(inside, capsys, script, arguments, words):
    with pytest.raises(SystemExit) as ended:
        inside(script, "run.h5", *arguments)
    assert ended.value.code == 2 and words in capsys.readouterr().err


RANGE = ["--range", "0", "1", "--width", "0.5"]


@pytest.mark.parametrize(
    ("script", "arguments", "words"),
    [
        ("next_scores.py", ["r.h5", "--scores", "s", "--budget", 10**9], "at most 1,000,000"),
        ("choose.py", ["r.h5", *RANGE, "--per-bin", 65537], "from 1 to 65536, found 65537"),
        ("choose.py", ["r.h5", *RANGE, "--output", "a.jsonl"], "must end with .tasks.jsonl"),
        ("choose.py", ["r.h5", *RANGE, "--output", "r.h5"], "must end with .tasks.jsonl"),
        ("choose.py", ["r.h5", *RANGE, "--gold", "g.tasks.jsonl", "--output", "g.tasks.jsonl"],
         "is one of the input files"),
        ("bank.py", ["r.h5", "--bank", "r.h5"], "--bank r.h5: the name must end with .jsonl"),
        ("reweight.py", ["r.h5", "r.toml"], "r.toml is an input file: give the file of its run"),
        ("overlay.py", ["r.h5", "--output", "./r.h5"], "must end with .png"),
        ("overlay.py", ["r.h5", "--output", "other.svg"], "must end with .png"),
        ("report.py", ["r.h5", "--tasks", "t.tasks.jsonl", "--output", "t.tasks.jsonl"],
         "is one of the input files"),
    ],
)  # fmt: skip
def test_no_file_is_overwritten_that_is_read(inside, script, arguments, words):
    code, _, err = inside(script, *arguments)
    assert is_plain(code, err, words), err


def test_results_that_cannot_be_written(tmp_path, inside):
    """A folder in the way of the result (root may write anywhere, so permissions show nothing)."""
    write_run(tmp_path / "a.h5", rounds=2)
    (tmp_path / "a.density.csv").mkdir()
    code, _, err = inside("reweight.py", "a.h5")
    assert is_plain(code, err, "a.density.csv"), err


def test_reweight_joins_several_runs(tmp_path, inside):
    one = write_run(tmp_path / "one.h5", walkers=16, seed=1, config_seed=1)
    two = write_run(tmp_path / "two.h5", walkers=16, seed=2, beta_k=BETA_K[2:], config_seed=2)
    code, out, err = inside("reweight.py", "one.h5", "two.h5")
    assert (code, err) == (0, "") and "one.h5, 16 of 16 rounds; two.h5, 16 of 16" in out
    assert is_png(tmp_path / "one+two.density.png")
    _, columns = read_table(tmp_path / "one+two.density.csv", [])
    assert columns["count"].sum() == one.counts_kb.sum() + two.counts_kb.sum()
    write_run(tmp_path / "same.h5", rounds=2, config_seed=1)
    code, _, err = inside("reweight.py", "one.h5", "same.h5")
    assert is_plain(code, err, "same [run] seed")
    write_run(tmp_path / "other.h5", rounds=2, edges=EDGES + 0.01, config_seed=3)
    code, _, err = inside("reweight.py", "one.h5", "other.h5")
    assert is_plain(code, err, "different bins")
