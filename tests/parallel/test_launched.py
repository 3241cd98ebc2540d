"""Ranks by the launcher's variables, and the line before torch and MPI are imported."""

import subprocess
import sys

import pytest
from run_tools import environment

from omniinput_hpc.parallel import launched


@pytest.fixture
def launcher(monkeypatch):
    """Return a way to set what a launcher sets; all else is cleared."""

    def set_names(**names):
        for name in (*launched.RANK_NAMES, *launched.SIZE_NAMES):
            monkeypatch.delenv(name, raising=False)
        for name, text in names.items():
            monkeypatch.setenv(name, text)

    set_names()
    return set_names


@pytest.mark.parametrize(
    ("names", "rank", "n_ranks"),
    [
        ({}, 0, None),
        ({"PMI_RANK": "3", "PMI_SIZE": "4"}, 3, 4),
        ({"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "8", "PMIX_RANK": "0"}, 0, 8),
        ({"SLURM_PROCID": "0"}, 0, None),  # a batch script without srun
        ({"PMIX_RANK": "5", "SLURM_PROCID": "5", "SLURM_STEP_NUM_TASKS": "64"}, 5, 64),
        # mpirun in a job: one task of SLURM per node starts the ranks there
        ({"PMI_RANK": "1", "PMI_SIZE": "64", "SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "8"},
         1, 64),
        ({"PMI_RANK": "", "PMI_SIZE": "many"}, 0, None),
    ],
)  # fmt: skip
def test_rank_and_number_of_ranks(names, rank, n_ranks, launcher, capsys):
    launcher(**names)
    assert launched.rank() == rank
    assert next(iter(launched.sizes().values()), None) == n_ranks
    launched.announce_imports(["inputs/toy.toml"])
    text = capsys.readouterr().err
    assert (text == "") == (rank > 0)
    assert rank > 0 or text.endswith(": importing libraries\n")
    assert (f"{n_ranks} ranks start" in text) == (rank == 0 and n_ranks is not None)


@pytest.mark.parametrize("word", ["-h", "--help", "--version"])
def test_help_needs_no_line(word, launcher, capsys):
    launched.announce_imports(["inputs/toy.toml", word])
    assert capsys.readouterr().err == ""


CODE = """
import os, sys
import omniinput_hpc.cli.omniinput as command

def heavy():
    return sorted({"numpy", "torch", "mpi4py", "h5py", "pydantic"} & set(sys.modules))

def import_module(name):
    print("imports", name, heavy(), file=sys.stderr)
    raise ModuleNotFoundError("stopped here", name=name)

command.import_module = import_module
sys.exit(command.main(sys.argv[1:], "python -m omniinput_hpc"))
"""


@pytest.mark.parametrize("words", [["a.toml"], ["run", "a.toml"], ["rescore", "a.h5", "b.toml"]])
def test_rank_0_speaks_before_the_slow_imports(words):
    """And no other rank does."""
    for rank in ("0", "1"):
        done = subprocess.run(
            [sys.executable, "-c", CODE, *words], capture_output=True, text=True, timeout=400,
            env={**environment(), "PMI_RANK": rank, "PMI_SIZE": "16"},
        )  # fmt: skip
        lines = done.stderr.splitlines()
        first = ["[rank 0] 16 ranks start: importing libraries"] if rank == "0" else []
        assert lines[: len(first)] == first
        assert lines[len(first)].startswith("imports omniinput_hpc.")
        assert lines[len(first)].endswith(" []"), "something slow was imported before"
