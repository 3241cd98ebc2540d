"""A run in surroundings of the user's: a module that meddles with the process, any names."""

import signal
import subprocess

import h5py
import pytest
from run_tools import LATTICE, command, environment, run

from omniinput_hpc.runfile.reader import open_run

MEDDLING = """
import logging, os, signal
import numpy as np
import torch
def meddle():
    os.chdir("/")
    for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    logging.disable(logging.CRITICAL)
    torch.set_grad_enabled(False)
meddle()
class Model:
    n_sites, n_values = np.int64(6), np.int32(4)
    def __init__(self):
        meddle()
        self.weights = torch.nn.Parameter(torch.arange(4.0) / 4)
        self.set_up = False
    def output(self, x):
        os.chdir("/")
        if not self.set_up:
            meddle()
            self.set_up = True
        return self.weights[x].sum(1)
def make(device): return Model()
"""
NAME = "12:30 it's l\u00e4uft\nx.h5"


@pytest.mark.slow
def test_a_module_that_meddles_neither_moves_nor_holds_nor_silences_the_run(tmp_path):
    """Its file stays where it was asked for, its log is written, and SIGTERM stops it."""
    (tmp_path / "meddling.py").write_text(MEDDLING)
    (tmp_path / "a.toml").write_text(LATTICE.format(output="runs/12:30.h5"))
    words = ["--set", "model.factory=meddling:make", "--set", "run.rounds=100000"]
    words = command("a.toml", *words, "--set", "run.histogram_blocks=10")
    with subprocess.Popen(
        words, cwd=tmp_path, env=environment(), stderr=subprocess.PIPE, text=True
    ) as process:
        lines = []
        for line in process.stderr:
            lines.append(line)
            if "round 1 of" in line:
                process.send_signal(signal.SIGTERM)
    assert process.returncode == 75, lines
    assert any("stopped early (SIGTERM)" in line for line in lines)
    with open_run(tmp_path / "runs/12:30.h5") as found:
        assert found.rounds + found.burn_in_committed > 0
    made = {p.name for p in tmp_path.iterdir()} - {"__pycache__"}
    assert made == {"a.toml", "meddling.py", "runs"}
    names = {p.name for p in (tmp_path / "runs").iterdir()}
    assert names <= {"12:30.h5", "12:30.h5.checkpoint"}


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [pytest.param(1, marks=pytest.mark.release), 2])
def test_a_name_of_any_characters_is_run_resumed_and_named(tmp_path, ranks):
    (tmp_path / "a.toml").write_text(LATTICE.format(output="a.h5"))
    toml = NAME.replace("\n", "\\n")
    done = run(
        "a.toml", "--set", f'run.output="{toml}"', "--set", "run.rounds=2", ranks=ranks,
        cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    moved = f"$NOT_SET {NAME}"  # a run file's own name is taken as it is
    for ending in ("", ".checkpoint"):
        (tmp_path / (NAME + ending)).rename(tmp_path / (moved + ending))
    done = run(tmp_path / moved, "--set", "run.rounds=4", ranks=ranks, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    quoted = str(tmp_path / moved).replace("'", "'\"'\"'")
    assert f"reweight '{quoted}'" in done.stderr
    assert run(tmp_path / moved, "--verify", cwd=tmp_path).returncode == 0
    assert {p.name for p in tmp_path.iterdir()} == {"a.toml", moved, f"{moved}.checkpoint"}
    with h5py.File(tmp_path / moved, locking=False) as file:
        assert file["progress/rounds_committed"][0] == 4
