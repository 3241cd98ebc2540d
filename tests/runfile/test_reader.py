"""The reader: each typed record equals the dataset that holds it, of committed rounds only."""

import h5py
import numpy as np
import pytest
from runs_in_progress import launched
from sealed_changes import changing

from omniinput_hpc.runfile.reader import libraries, open_run

RECORDS = {
    "counts_kb": "histogram/counts",
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


def test_libraries():
    assert libraries()["h5py"] == h5py.__version__
    assert libraries()["hdf5"] == h5py.version.hdf5_version
    assert libraries()["parallel"] == ("yes" if h5py.get_config().mpi else "no")
