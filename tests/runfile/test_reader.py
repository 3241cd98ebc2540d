"""The reader: each typed record equals the dataset that holds it, of committed rounds only."""

import contextlib
import os
import resource
import shutil

import h5py
import numpy as np
import pytest
from runs_in_progress import launched, sampled
from sealed_changes import changing

from omniinput_hpc.errors import UserError
from omniinput_hpc.runfile import reader
from omniinput_hpc.runfile.checked_datasets import BrokenRun
from omniinput_hpc.runfile.layout import checkpoint_of
from omniinput_hpc.runfile.reader import open_run

RECORDS = {
    "outside_k2": "histogram/outside",
    "samples_x": "samples/x",
    "samples_z": "samples/z",
    "samples_walker": "samples/walker",
    "attempted_kn": "kernel/attempted",
    "accepted_kn": "kernel/accepted",
    "swaps_attempted_k": "exchange/attempted",
    "swaps_accepted_k": "exchange/accepted",
    "walker_kw": "exchange/walker",
    "round_trips_v": "exchange/round_trips",
}
STATE = {"x": "x", "z": "z", "walker_w": "walker", "direction_w": "direction"}


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """A finished run: 3 burn-in rounds and 5 counted ones, 4 rungs."""
    folder = tmp_path_factory.mktemp("reader")
    return launched(folder)


@pytest.mark.parametrize("name", RECORDS)
def test_records_of_a_round(name, path):
    with open_run(path) as run, h5py.File(path, locking=False) as file:
        stored = file[RECORDS[name]]
        for number in range(5):
            found = getattr(run.round(number), name)
            assert found.dtype == stored.dtype
            np.testing.assert_array_equal(found, stored[number])
        if name != "round_trips_v":  # of all walkers, whatever the rungs
            some = getattr(run.round(2, range(1, 3)), name)
            np.testing.assert_array_equal(some, stored[2, 1:3])


def test_stored_walkers_are_the_last_rounds(path):
    with open_run(path) as run, h5py.File(path, locking=False) as file:
        found = run.stored().rungs
        for name, dataset in STATE.items():
            stacked = np.stack([getattr(rung, name) for rung in found])
            np.testing.assert_array_equal(stacked, file["state/" + dataset][4 % 2])


def test_a_run_without_rounds_has_no_stored_walkers(path, tmp_path):
    copy = tmp_path / "run.h5"
    copy.write_bytes(path.read_bytes())
    with changing(copy) as file:
        file["progress/rounds_committed"][0] = 0
        file["progress/burn_in_committed"][0] = 0
    with open_run(copy) as run:
        assert run.stored() is None
        assert not run.lane_counts_kgb().any()


def failing(monkeypatch, error):
    """Let every further read of a dataset fail."""

    def read(*_):
        raise error

    monkeypatch.setattr(h5py.Dataset, "__getitem__", read)


READS = {
    "samples/z": lambda run: run.samples_z(),
    "ensemble/log_weight": lambda run: run.log_weight_kb(),
    "ensemble/kappa": lambda run: run.kappa_k(),
    "ensemble/z0": lambda run: run.z0_k(),
    "histogram/outside": lambda run: run.outside_k2(),
    "kernel/attempted": lambda run: run.acceptance_kn(),
    "exchange/round_trips": lambda run: run.round_trips_v(),
    "bins/edges": lambda run: run.check_header(),
    "samples/x": lambda run: next(run.samples()),
    "histogram/counts": lambda run: run.counts_kb(),
    "state/kernel": lambda run: run.checkpoint(range(4)),
    "samples/walker": lambda run: run.entry("samples/walker", 0),
}


@pytest.mark.parametrize("name", READS)
def test_a_bad_sector_is_a_broken_run(path, monkeypatch, name):
    with open_run(path) as run:
        failing(monkeypatch, OSError(5, "Input/output error"))
        with pytest.raises(BrokenRun, match=f"run.h5: {name} cannot be read: .*Input/output"):
            READS[name](run)


@pytest.mark.parametrize("error", [MemoryError, AttributeError, TypeError, KeyError])
def test_what_is_no_damage_is_not_called_so(path, monkeypatch, error):
    """Our own mistakes, and a lack of memory."""
    with open_run(path) as run:
        failing(monkeypatch, error)
        with pytest.raises(error):
            run.counts_kb()


def copied(path, folder):
    for file in (path, checkpoint_of(path)):
        shutil.copy(file, folder)
    return folder / path.name


def test_salvage_is_advised_for_damage_only(path, tmp_path, monkeypatch):
    copy = copied(path, tmp_path)
    whole, advice = copy.read_bytes(), "omniinput salvage RUN.h5 NEW.h5"
    with h5py.File(copy, "r+") as file:
        file.attrs["format_version"] = 4
    assert advice not in refusal(copy)
    with h5py.File(copy, "w") as file:
        file["a"] = 1
    assert refusal(copy).endswith("but not an omniinput_hpc run")
    copy.write_bytes(whole)
    monkeypatch.setattr(reader, "MAX_ATTEMPTS", 0)
    assert refusal(copy).endswith("is being written too fast to be read")
    monkeypatch.undo()
    copy.write_bytes(whole[:500])
    assert refusal(copy).startswith(f"{copy} is not a readable HDF5 file; its rounds can be")
    assert advice in refusal(copy)
    copy.write_bytes(whole)
    with h5py.File(copy, "r+") as file:
        del file["samples/z"]
    assert advice in refusal(copy)


def refusal(path):
    with pytest.raises(UserError) as error:
        open_run(path)
    return str(error.value)


def test_what_the_system_refuses_is_no_damage(path, tmp_path):
    """No more open files; a name that is too long; a link to itself."""
    copy, loop = copied(path, tmp_path), tmp_path / "loop.h5"
    mine, limits = [os.open(copy, os.O_RDONLY)], resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(mine) + 1, limits[1]))
        with contextlib.suppress(OSError):
            while True:  # there may be gaps below
                mine.append(os.dup(mine[0]))
        words = refusal(copy)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        for descriptor in mine:
            os.close(descriptor)
    assert words == f"{copy} cannot be read: Too many open files"
    assert refusal(tmp_path / ("a" * 300)).endswith("cannot be read: File name too long")
    loop.symlink_to("loop.h5")
    assert "Too many levels of symbolic links" in refusal(loop)


def test_betas_of_two_stages_of_tuning_do_not_close_a_file(tmp_path):
    """A kill between the writes of two ranks leaves them; a resume reads the state's."""
    path = sampled(tmp_path, "run.burn_in=8", "ladder.tune=true", until=-6)
    with h5py.File(path, "r+") as file:
        file["ladder/beta"][:] = file["ladder/beta"][()][::-1]
    with open_run(path) as run:
        assert not run.is_frozen and run.beta_k[0] > run.beta_k[1]
