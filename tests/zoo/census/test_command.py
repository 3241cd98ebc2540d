"""omniinput census: what it writes, refuses, and resumes."""

import json
import os
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import numpy as np
import pytest
from census_cases import enumerated
from enumerable_decoders import save_decoder
from run_tools import PATIENCE, ROOT, command, environment

from omniinput_hpc.parallel import stopping
from omniinput_hpc.parallel.signals import StopRequest
from omniinput_hpc.results.tables import read_table
from omniinput_hpc.runfile import census_file
from omniinput_zoo.census import command as census
from omniinput_zoo.census import report
from omniinput_zoo.census.found import Found
from omniinput_zoo.census.report import complete_bins
from omniinput_zoo.census.search import CensusState, Space
from omniinput_zoo.exact import MarkovChain

MARKOV = """
[run]
output = "{output}"
seed = 1
rounds = 1
[model]
{model}
[sampler]
walkers = 64
steps = 1
exchanges = 1
[ladder]
betas = [0.0, 1.0]
[bins]
lower = 0.0
upper = 8.0
width = 0.25
[samples]
every = 1
"""
CHAIN = 'kind = "python"\nfactory = "omniinput_hpc.zoo.exact:markov"\n'
CHAIN += "options = { n_sites = 5, n_values = 4 }"


@pytest.fixture
def toml(tmp_path):
    """Return a way to write an input file of a model's keys."""

    def write(model=CHAIN, more=""):
        path = tmp_path / "my.toml"
        path.write_text(MARKOV.format(output=tmp_path / "my.h5", model=model) + more)
        return path

    return write


def call(capfd, *arguments):
    code = census.main([str(a) for a in arguments])
    return code, "".join(capfd.readouterr())


def lines_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_the_list_the_counts_and_the_bounds(capfd, toml, tmp_path):
    x, z = enumerated(MarkovChain(5, 4))
    below = float(np.quantile(z, 0.4))
    code, said = call(capfd, toml(), "--below", below)
    assert code == 0, said
    inside = z.astype(float) <= below
    assert f"complete for z <= {below:.6g}: {inside.sum()} inputs" in said
    listed = lines_of(tmp_path / "my.census.jsonl")
    assert [line["z"] for line in listed] == sorted(z[inside].astype(float))
    assert {tuple(line["x"]) for line in listed} == {tuple(row) for row in x[inside].tolist()}
    assert listed[0]["text"] == "-".join(map(str, listed[0]["x"]))

    columns = ["z_lower", "z_upper", "log_g", "log_g_error", "count"]
    _, table = read_table(tmp_path / "my.census.csv", columns)
    counts = np.histogram(z, np.arange(0, 8.01, 0.25))[0]
    n_whole = int(below // 0.25)
    filled = np.flatnonzero(counts[:n_whole])
    np.testing.assert_array_equal(table["count"], counts[filled])
    np.testing.assert_allclose(table["z_lower"], 0.25 * filled)

    _, bounds = read_table(
        tmp_path / "my.census.bounds.csv", ["z", "log_inputs_low", "log_inputs_high"]
    )
    true = np.log([(z < at).sum() for at in bounds["z"]])
    assert bounds["z"][0] == pytest.approx(0.25 * (n_whole + 1))
    assert (bounds["log_inputs_low"] <= true + 1e-12).all()
    assert (true <= bounds["log_inputs_high"] + 1e-12).all()
    assert bounds["log_inputs_high"][-1] <= 5 * np.log(4) + 1e-9

    record = json.loads((tmp_path / "my.census.results.json").read_text())["analyses"][0]
    assert record["analysis"] == "census"
    assert record["values"]["complete below"]["value"] == below
    again = call(capfd, toml(), "--below", below)
    assert again[0] == 0 and "resuming" in again[1]
    assert lines_of(tmp_path / "my.census.jsonl") == listed


def test_seconds_alone_go_to_the_end_of_a_small_space(capfd, toml, tmp_path):
    code, said = call(capfd, toml(), "--seconds", 60, "--list", 100)
    assert code == 0, said
    assert "complete for all z" in said and "found: 1,024 inputs" in said
    z = np.sort(enumerated(MarkovChain(5, 4))[1])
    listed = [line["z"] for line in lines_of(tmp_path / "my.census.jsonl")]
    assert 0 < len(listed) <= 100
    np.testing.assert_array_equal(listed, z[: len(listed)])
    _, table = read_table(tmp_path / "my.census.csv", ["count"])
    assert table["count"].sum() == 1024


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "give --below Z, or --seconds S, or both"),
        (["--below", "nan"], "expected a finite number, found 'nan'"),
        (["--below", "inf"], "expected a finite number, found 'inf'"),
        (["--seconds", "-1"], "expected a number of seconds above 0"),
        (["--below", "1", "--frontier", "3"], "--frontier must be at least 4"),
        (["--below", "1", "--output", "my.h5"], "must end with .census.h5"),
        (["--below", "1", "--set", "model.noise=true"], "requires a model without noise"),
        (["--below", "1", "--set", 'analysis.side="high"'], "lists inputs with low outputs"),
        (["--below", "1", "--set", "model.options.n_sites=1"], "no predicted site"),
    ],
)
def test_mistakes_are_told_in_a_sentence(capfd, toml, tmp_path, arguments, words):
    code, said = call(capfd, toml(), *arguments)
    assert (code, words in said) == (2, True), said
    assert not list(tmp_path.glob("*census*"))


def test_a_model_that_is_not_autoregressive_is_refused(capfd, toml):
    code, said = call(
        capfd, toml('kind = "python"\nfactory = "toy_models:lattice"'), "--below", 1.0
    )
    assert code == 2
    assert "a census needs an autoregressive model with conditional_logits" in said


OFF = """
from omniinput_zoo.exact import MarkovChain
class Sum(MarkovChain):
    def output(self, x):
        return super().output(x) * (self.n_sites - 1)
def make(device):
    return Sum(5, 4)
"""


def test_a_z_that_is_not_the_mean_is_refused(capfd, toml, tmp_path, monkeypatch):
    (tmp_path / "sum_model.py").write_text(OFF)
    monkeypatch.chdir(tmp_path)
    code, said = call(capfd, toml('kind = "python"\nfactory = "sum_model:make"'), "--below", 1.0)
    assert code == 2
    assert "differs from the mean of -l over its predicted sites" in said


def test_a_file_of_another_census_is_refused(capfd, toml, tmp_path):
    assert call(capfd, toml(), "--below", 1.0)[0] == 0
    before = (tmp_path / "my.census.h5").read_bytes()
    for arguments, words in (
        (["--below", 1.5], "made with --below 1"),
        (["--seconds", 5], "made with --below 1"),
        (["--below", 1, "--margin", 0.1], "made with --margin"),
        (["--below", 1, "--set", "bins.upper=4.0"], "made with other bins"),
        (["--below", 1, "--set", "model.options.n_values=5"], "of another model"),
    ):
        code, said = call(capfd, toml(), *arguments)
        assert (code, words in said) == (2, True), said
    assert (tmp_path / "my.census.h5").read_bytes() == before


def test_a_model_whose_outputs_have_changed_is_refused(capfd, toml, tmp_path, monkeypatch):
    """As by an edit of the factory's file, which the fingerprint does not cover."""
    for _ in range(2):
        assert call(capfd, toml(), "--below", 1.0)[0] == 0
    before = (tmp_path / "my.census.h5").read_bytes()
    exact = sys.modules["omniinput_hpc.zoo.exact"]
    monkeypatch.setattr(exact, "markov", lambda device, **sizes: MarkovChain(**sizes, spread=1.6))
    code, said = call(capfd, toml(), "--below", 1.0)
    assert (code, "a census of a model with other outputs" in said) == (2, True), said
    assert (tmp_path / "my.census.h5").read_bytes() == before


def test_changed_outputs_are_noticed_before_an_input_is_found(capfd, toml, tmp_path, monkeypatch):
    monkeypatch.setattr(census, "request", StopRequest())
    checks, real = [], stopping.StopCheck.check

    def check(self):
        """Stop after one round."""
        checks.append(1)
        census.request.reason = None if len(checks) % 2 else "a test"
        return real(self)

    monkeypatch.setattr(stopping.StopCheck, "check", check)
    few = ["--seconds", 100, "--prefixes", 4]
    for _ in range(2):  # the second resumes an unchanged model
        assert call(capfd, toml(), *few)[0] == 75
    stored = census_file.read(tmp_path / "my.census.h5")
    assert not len(stored.arrays["found/z"]) and stored.arrays["open/depth"].max() > 1
    before = (tmp_path / "my.census.h5").read_bytes()
    exact = sys.modules["omniinput_hpc.zoo.exact"]
    monkeypatch.setattr(exact, "markov", lambda device, **sizes: MarkovChain(**sizes, spread=1.6))
    code, said = call(capfd, toml(), *few)
    assert (code, "a census of a model with other outputs" in said) == (2, True), said
    assert (tmp_path / "my.census.h5").read_bytes() == before


def test_a_stop_commits_and_a_resume_equals_one_go(capfd, toml, tmp_path, monkeypatch):
    """Stopped after every round, by turns with either order, to the end."""
    monkeypatch.setattr(census, "request", StopRequest())
    below, small = 2.0, ["--prefixes", 4]
    assert call(capfd, toml(), "--below", below, *small)[0] == 0
    whole = [(tmp_path / f"my.census{end}").read_bytes() for end in (".jsonl", ".csv")]
    (tmp_path / "my.census.h5").unlink()
    checks = []

    def check(self):
        checks.append(1)
        if len(checks) % 2 == 0:
            census.request.reason = "a test"
        if len(checks) % 2 == 1:
            census.request.reason = None
        return real(self)

    real = stopping.StopCheck.check
    monkeypatch.setattr(stopping.StopCheck, "check", check)
    codes = []
    while not codes or codes[-1] == 75:
        order = ["--seconds", 100] if len(codes) % 2 else []
        code, said = call(capfd, toml(), "--below", below, *small, *order)
        codes.append(code)
        assert len(codes) < 200, said
    assert codes[-1] == 0 and len(codes) > 3
    assert "stopped early (a test); everything committed is safe" not in said
    assert whole == [(tmp_path / f"my.census{end}").read_bytes() for end in (".jsonl", ".csv")]


def test_whole_bins_are_those_below():
    edges = np.array([0.0, 1.0, 2.0, 3.0])
    for z, n in ((-1.0, 0), (0.5, 0), (1.0, 1), (1.5, 1), (2.99, 2), (3.0, 3), (np.inf, 3)):
        assert complete_bins(edges, z) == n, z
    assert report.complete_bins(edges, -np.inf) == 0


def test_a_number_of_inputs_holds_only_complete_ones():
    """Six inputs lie below the bins; three have z up to 4, and two of these are listed."""
    found = Found(np.array([5.0, 6.0]), np.zeros((0, 5), np.uint8), 2)
    found.add(np.zeros((6, 5), np.uint8), np.array([1, 2, 3, 4.2, 4.5, 4.9], np.float32))
    space = Space(5, 4, 1, None, 0.0, 64, "cpu")
    for z, n in ((4.0, "more than 2 inputs"), (5.2, "6 inputs in whole bins")):
        frontier = SimpleNamespace(least=space.m * z, open_mass=0.1, nodes=[])
        assert report.lines(CensusState(frontier, found), space)[0].endswith(f": {n}")


@pytest.mark.slow
def test_killed_and_resumed_on_other_ranks_equals_one_go(toml, tmp_path):
    folder = tmp_path / "gpt2"
    save_decoder("gpt2", folder)
    path = toml(f'kind = "causal-lm"\npath = "{folder}"\nlength = 5')
    words = ["--below", "1.6", "--prefixes", "8"]
    whole = subprocess.run(
        command(path, *words, "--output", tmp_path / "whole.census.h5",
                module="omniinput_hpc.census"),
        env=environment(), cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE, check=False,
    )  # fmt: skip
    assert whole.returncode == 0, whole.stderr
    parts = tmp_path / "parts.census.h5"
    kills = 0
    for ranks in (2, 1):
        process = subprocess.Popen(
            command(path, *words, "--output", parts, ranks=ranks, module="eager_census"),
            env=environment(), cwd=ROOT, start_new_session=True,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        begun = parts.stat().st_mtime_ns if parts.exists() else 0
        end = time.monotonic() + PATIENCE
        while process.poll() is None and time.monotonic() < end:
            if parts.exists() and parts.stat().st_mtime_ns != begun:
                break
            time.sleep(0.02)
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            kills += 1
        process.wait()
        census_file.read(parts)
    last = subprocess.run(
        command(path, *words, "--output", parts, ranks=2, module="omniinput_hpc.census"),
        env=environment(), cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE, check=False,
    )  # fmt: skip
    assert last.returncode == 0, last.stderr
    assert kills == 2
    for end in (".jsonl", ".csv"):
        one, other = (tmp_path / f"{name}.census{end}" for name in ("whole", "parts"))
        assert one.read_bytes() == other.read_bytes()
    assert len(lines_of(tmp_path / "parts.census.jsonl")) > 500
