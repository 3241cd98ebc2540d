"""`--verify` and the files of rescored samples beside a run (the checkpoint: test_salvage.py)."""

import h5py
import pytest
from runs_in_progress import launched

from omniinput_hpc.cli import rescore
from omniinput_hpc.cli.verify import verify_file


@pytest.fixture
def path(tmp_path):
    path = launched(tmp_path)
    assert rescore.main([str(path), str(tmp_path / "lattice.toml")]) == 0
    return path


def test_whole_ones_are_a_note(path):
    notes, findings = verify_file(path)
    assert notes[-1] == f"{path.with_name('run.rescored.lattice.h5')}: 5 rounds"
    assert findings == []


def test_changed_outputs_are_found(path):
    side = path.with_name("run.rescored.lattice.h5")
    with h5py.File(side, "r+") as file:
        file["samples/z"][2, 3, 4] += 1
    (finding,) = verify_file(path)[1]
    assert finding == (
        f"rescored samples: {side}: samples/z of round 2, rung 3 does not match its checksum; "
        "move it away, and rescore the run again"
    )


def test_a_damaged_file_is_found(path):
    side = path.with_name("run.rescored.lattice.h5")
    side.write_bytes(side.read_bytes()[:700])
    (finding,) = verify_file(path)[1]
    assert finding == f"rescored samples: {side} is not a readable HDF5 file"


def test_another_runs_are_a_note(path, tmp_path):
    (tmp_path / "other").mkdir()
    other = launched(tmp_path / "other")
    with h5py.File(other, "r+") as file:
        file.attrs["created"] = "another time"
    side = other.with_name("run.rescored.lattice.h5")
    side.write_bytes(path.with_name(side.name).read_bytes())
    notes, findings = verify_file(other)
    assert notes[-1] == f"{side} holds samples of another run; no script reads it"
    assert not any(line.startswith("rescored") for line in findings)
