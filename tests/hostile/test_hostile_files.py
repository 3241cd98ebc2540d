"""Hostile HDF5 files: plain messages, bounded memory and time, and nothing is changed."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import h5py
import pytest
from hostile.files import CANNOT_GO_ON, CONTENT, STRUCTURE
from run_tools import LATTICE, environment

from omniinput_hpc import launch

MEGABYTES, SECONDS = 500, 10.0


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    """Return what every reader said of every file, and the memory that they took in all."""
    folder = tmp_path_factory.mktemp("hostile")
    toml = folder / "lattice.toml"
    toml.write_text(LATTICE.format(output=folder / "good.h5"))
    assert launch.main([str(toml)]) == 0
    for kind, changes in (("structure", STRUCTURE), ("content", CONTENT)):
        for name, change in changes.items():
            stays = "-stays" if name in CANNOT_GO_ON else ""
            path = folder / f"{kind}-{name.replace(' ', '_')}{stays}.h5"
            shutil.copy(folder / "good.h5", path)
            with h5py.File(path, "r+", locking=False) as file:
                change(file)
    whole = (folder / "good.h5").read_bytes()
    (folder / "structure-half.h5").write_bytes(whole[: len(whole) // 2])
    (folder / "structure-nothing.h5").write_bytes(b"")
    (folder / "structure-text.h5").write_text("hello")
    worker = Path(__file__).with_name("worker.py")
    done = subprocess.run(
        [sys.executable, worker, folder, toml],
        capture_output=True, text=True, timeout=280, cwd=folder, env=environment(),
    )  # fmt: skip
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 0, done.stderr[-3000:]
    return lines[:-1], lines[-1]


def test_what_is_no_run_file_is_refused_by_every_reader(answers):
    lines, about = answers
    assert {"reweight.py", "precision_recall.py", "--verify", "RUN.h5"} <= set(about["readers"])
    strange = []
    for file, reader, code, text, seconds, touched in lines:
        plain = text.strip() and "Traceback" not in text and len(text) < 1000
        codes = (1, 2) if reader == "--verify" else (2,)  # 1: it says what is wrong
        if file.startswith("structure") and (code not in codes or not plain or touched):
            strange.append((file, reader, code, text, touched))
        if seconds > SECONDS:
            strange.append((file, reader, f"{seconds:.0f} s"))
    assert not strange


def test_nonsense_in_a_whole_file_gives_no_traceback(answers):
    strange = [
        (file, reader, code, text)
        for file, reader, code, text, _, _ in answers[0]
        if file.startswith("content") and (code not in (0, 1, 2) or "Traceback" in text)
    ]
    assert not strange


def test_nobody_goes_on_from_a_damaged_state(answers):
    found = [
        (file, code, text, touched)
        for file, reader, code, text, _, touched in answers[0]
        if file.endswith("-stays") and reader in ("RUN.h5", "run.output")
    ]
    assert len(found) == 2 * len(CANNOT_GO_ON)
    assert not [f for f in found if f[1] != 2 or f[3] or "Traceback" in f[2]]


def test_memory_is_bounded(answers):
    assert answers[1]["megabytes"] < MEGABYTES
