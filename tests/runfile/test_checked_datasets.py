"""What readers do about damage: refuse, warn, or tell a live run's file from a damaged one."""

import shutil

import h5py
import numpy as np
import pytest
from runs_in_progress import launched
from sealed_changes import changing

from omniinput_hpc.errors import UserError
from omniinput_hpc.runfile.checked_datasets import (
    BeingWritten,
    BrokenRun,
    WrongChecksum,
    refuse,
    refuse_impossible,
    warn,
)
from omniinput_hpc.runfile.reader import open_run


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A finished run: 3 burn-in rounds and 5 counted ones, 4 rungs."""
    folder = tmp_path_factory.mktemp("checked")
    return launched(folder)


@pytest.fixture
def path(whole, tmp_path):
    return shutil.copy(whole, tmp_path / "run.h5")


def overwrite(path, name, data):
    """Write bytes where the first slab of a dataset lies, as another process would."""
    with h5py.File(path, "r", locking=False) as file:
        offset = file[name].id.get_offset()
    with open(path, "r+b") as file:
        file.seek(offset)
        file.write(data)


def put(path, name, where, value):
    with h5py.File(path, "r+", locking=False) as file:
        file[name][where] = value


def test_the_ways_to_take_damage(path, caplog, monkeypatch):
    monkeypatch.setattr("omniinput_hpc.runfile.checked_datasets.log.propagate", True)
    with pytest.raises(WrongChecksum, match="is damaged: x of round 3") as caught:
        refuse(path, "x of round 3 does not match its checksum")
    assert caught.value.can_be_read
    with pytest.raises(BrokenRun) as caught:
        refuse_impossible(path, "x")
    assert not isinstance(caught.value, WrongChecksum)
    warn(path, "x")
    assert caplog.records[0].getMessage() == f"warning: {path} is damaged: x"


READS = {
    "samples/z": ((2, 1, 3), 1.25, lambda run: run.samples_z()),
    "samples/x": ((2, 1, 3, 0), 9, lambda run: list(run.samples())),
    "histogram/counts": ((2, 1, 3), 77, lambda run: run.counts_kb()),
    "histogram/outside": ((2, 1, 0), 77, lambda run: run.outside_k2()),
    "histogram/lane_counts": ((0, 1, 3, 2), 77, lambda run: run.lane_counts_kgb()),
    "histogram/z_sum": ((0, 1, 3), -7.0, lambda run: run.z_sum_kb()),
    "kernel/accepted": ((2, 1, 0), 5, lambda run: run.acceptance_kn()),
    "exchange/accepted": ((2, 1), 5, lambda run: run.swaps_k2()),
    "exchange/round_trips": ((2, 1), 5, lambda run: run.round_trips_v()),
    "exchange/walker": ((2, 1, 3), 5, lambda run: run.round(2).walker_kw),
    "ensemble/log_weight": ((1, 3), 5.0, lambda run: run.log_weight_kb()),
    "ensemble/kappa": ((1,), 5.0, lambda run: run.kappa_k()),
    "ensemble/z0": ((1,), 5.0, lambda run: run.z0_k()),
    "state/z": ((0, 1, 3), 5.0, lambda run: run.checkpoint(range(4))),
    "state/swaps": ((0, 1, 0), 5, lambda run: run.checkpoint(range(4))),
}


@pytest.mark.parametrize("name", READS)
def test_what_is_read_is_compared(path, name):
    where, value, read = READS[name]
    put(path, name, where, value)
    place = ".*round (2|4)" if not name.startswith("ensemble") else ""
    with open_run(path) as run, pytest.raises(WrongChecksum, match=f"{name}{place}"):
        read(run)


def test_other_things_are_not_in_the_way(path):
    """What a reader does not ask for is no reason to refuse it."""
    put(path, "samples/x", (2, 1, 3, 0), 9)
    put(path, "histogram/z_sum", (0, 1, 3), -7.0)
    with open_run(path) as run:
        run.samples_z()
        run.counts_kb()


def test_damage_is_told_once(path):
    put(path, "samples/z", (2, 1, 3), 1.25)
    found = []
    with open_run(path, lambda _, words: found.append(words)) as run:
        run.samples_z()
        run.samples_z(slice(1, 4), slice(1, 2))
        run.samples_z(slice(1, 4), slice(2, 4))
    assert found == ["samples/z of round 2, rung 1 does not match its checksum"]


IMPOSSIBLE = {
    "samples/z": ((2, 1, 3), np.nan, "1 outputs are not finite"),
    "samples/x": ((2, 1, 3, 0), 9, "a value of x is 9, not below 4"),
    "histogram/counts": ((2, 1, 3), 777, "counts for 120 moves"),
    "histogram/lane_counts": ((0, 1, 3, 2), 777, "counts for 600 moves"),
    "histogram/z_sum": ((0, 1, 3), np.nan, "in 1 bins the mean z"),
    "kernel/accepted": ((2, 1, 0), -5, "accepted of"),
    "exchange/accepted": ((2, 1), 500, "accepted of"),
    "exchange/round_trips": ((2, 1), -5, "a count is -5"),
    "exchange/walker": ((2, 1, 3), 500, "a walker's number"),
    "state/z": ((0, 1, 3), np.nan, "stored walkers are damaged"),
    "ladder/beta": ((1,), 1.5, "do not ascend"),
}


@pytest.mark.parametrize("on_damage", [refuse, warn])
@pytest.mark.parametrize("name", IMPOSSIBLE)
def test_what_no_run_writes_is_always_refused(path, name, on_damage):
    where, value, words = IMPOSSIBLE[name]
    with changing(path) as file:
        file[name][where] = value
    read = READS[name][2] if name in READS else None
    with pytest.raises(BrokenRun, match=words), open_run(path, on_damage) as run:
        read(run)


def test_a_file_that_is_written_to_is_not_called_damaged(path):
    with open_run(path) as run:
        overwrite(path, "state/z", bytes(64))
        overwrite(path, "progress/rounds_committed", bytes([3]))  # no longer what it was
        with pytest.raises(BeingWritten, match="another job"):
            run.checkpoint(range(4))
        assert issubclass(BeingWritten, UserError) and not issubclass(BeingWritten, BrokenRun)


def test_sums_are_of_the_round_that_was_counted(path):
    """They were read when the file was opened: a live run overwrites them."""
    with open_run(path) as run:
        overwrite(path, "histogram/z_sum", bytes(64))
        overwrite(path, "histogram/lane_counts", bytes(64))
        assert (run.z_sum_kb() >= -1).all() and run.lane_counts_kgb().sum() > 0
