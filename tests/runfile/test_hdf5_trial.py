"""The first look at an HDF5 file: what is a crash by the file, and what says nothing about it."""

import os
import signal
import sys
from pathlib import Path

import h5py
import pytest

from omniinput_hpc.runfile import hdf5_trial
from omniinput_hpc.runfile.checked_datasets import BrokenRun
from omniinput_hpc.runfile.reader import open_run

pytestmark = pytest.mark.usefixtures("hdf5_trials")


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "run.h5"
    with h5py.File(path, "w") as file:
        file["a/b"] = [1.0, 2.0]
        file.attrs["c"] = "d"
    return path


@pytest.fixture
def stub(tmp_path, monkeypatch):
    """Return a function that puts a shell script in the looking process's place."""

    def put(script):
        program = tmp_path / "stub"
        program.write_text(f"#!/bin/sh\necho x >>{tmp_path}/calls\n{script}\n")
        program.chmod(0o755)
        monkeypatch.setattr(sys, "executable", str(program))

    return put


def calls(folder):
    return len((folder / "calls").read_text().splitlines())


def test_a_good_file_is_looked_at_once_until_it_is_written_to(path, monkeypatch, stub, tmp_path):
    assert hdf5_trial.crash_on(path) is None  # the real process, which opens it
    stub("exit 0")
    assert hdf5_trial.crash_on(path) is None
    assert not (tmp_path / "calls").exists()
    os.utime(path, ns=(1, 1))
    for _ in range(2):
        assert hdf5_trial.crash_on(path) is None
    assert calls(tmp_path) == 1


@pytest.mark.parametrize("name", ["SEGV", "BUS", "ABRT", "FPE", "ILL"])
def test_a_crash_is_the_files(path, stub, name):
    stub(f"printf begun; kill -{name} $$")
    number = getattr(signal, f"SIG{name}")
    assert hdf5_trial.crash_on(path) == f"crashes (signal {number:d})"
    with pytest.raises(BrokenRun, match=r"run.h5 is damaged: the HDF5 library crashes \(signal"):
        open_run(path)


def test_so_is_what_is_opened_and_cannot_be_listed(path, stub):
    stub("printf 'begun bad version number'; exit 3")
    assert hdf5_trial.crash_on(path) == "fails (bad version number)"


def test_damage_that_cannot_be_listed_is_found_by_the_real_look(path):
    data = bytearray(path.read_bytes())
    at = data.index(b"c\0\0\0\0\0\0\0")  # the attribute's name; its type's message follows
    data[at + 8] ^= 0xFF
    path.write_bytes(data)
    assert hdf5_trial.crash_on(path) is not None


def test_so_is_a_look_without_an_end(path, stub):
    stub("printf begun; kill -XCPU $$")
    assert hdf5_trial.crash_on(path) == "does not end within 5 s"


@pytest.mark.parametrize("name", ["TERM", "USR1", "INT", "KILL", "HUP"])
def test_a_signal_from_outside_is_not(path, stub, tmp_path, name):
    """The look is taken again at the next opening: nothing was learnt."""
    stub(f"printf begun; kill -{name} $$")
    for _ in range(2):
        assert hdf5_trial.crash_on(path) is None
    assert calls(tmp_path) == 2


def test_nor_is_a_process_that_fails_before_it_opens_the_file(path, stub, tmp_path):
    """Another MPI library, say, or an h5py that is not there."""
    for script in ("kill -SEGV $$", "exit 1"):
        stub(script)
        assert hdf5_trial.crash_on(path) is None
    assert calls(tmp_path) == 2


def test_nor_is_one_that_waits_or_cannot_be_started(path, stub, monkeypatch, tmp_path):
    monkeypatch.setattr(hdf5_trial, "SECONDS", 0.1)
    stub("exec sleep 60")
    assert hdf5_trial.crash_on(path) is None
    monkeypatch.setattr(sys, "executable", str(tmp_path / "nothing"))
    assert hdf5_trial.crash_on(path) is None


def test_what_is_no_file_is_not_looked_at(tmp_path, stub):
    stub("printf begun; kill -SEGV $$")
    os.mkfifo(tmp_path / "fifo")
    for path in (tmp_path / "fifo", tmp_path, tmp_path / "none", Path("a" * 300), Path("a\0b")):
        assert hdf5_trial.crash_on(path) is None
    assert not (tmp_path / "calls").exists()


def test_the_process_is_no_rank_and_hears_no_interrupt(path, stub, monkeypatch, tmp_path):
    for name in ("PMI_RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID"):
        monkeypatch.setenv(name, "1")
    stub(f"env >{tmp_path}/env; cut -d ' ' -f 6 /proc/$$/stat >{tmp_path}/session")
    assert hdf5_trial.crash_on(path) is None
    assert "_RANK=" not in (tmp_path / "env").read_text()
    assert "SLURM" not in (tmp_path / "env").read_text()
    assert int((tmp_path / "session").read_text()) != os.getsid(0)


def test_what_hdf5_refuses_is_no_crash(tmp_path):
    path = tmp_path / "text.h5"
    path.write_text("hello")
    assert hdf5_trial.crash_on(path) is None
