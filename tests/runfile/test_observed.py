"""The side file of an observable: what is written is read, and nothing else is."""

import h5py
import numpy as np
import pytest
from run_files import write_run
from runs_in_progress import sampled
from sealed_changes import changing

from omniinput_hpc.errors import UserError
from omniinput_hpc.runfile import observed
from omniinput_hpc.runfile.reader import open_run


@pytest.fixture
def run(tmp_path):
    write_run(tmp_path / "a.h5")
    with open_run(tmp_path / "a.h5") as run:
        yield run


@pytest.fixture
def y(run):
    shape = (run.rounds, run.geometry.n_rungs, run.samples_per_round)
    return np.random.default_rng(1).normal(size=shape)


def test_what_is_written_is_read(run, y):
    path = observed.write(run, "mine", "my:function", y)
    assert path.name == "a.observed.mine.h5"
    np.testing.assert_array_equal(observed.read(run, "mine"), y)
    with h5py.File(path) as file:
        assert file["observables/mine"].dtype == np.float64
        assert file.attrs["function"] == "my:function"


def test_files_that_do_not_fit_are_refused(run, y, tmp_path):
    with pytest.raises(UserError, match="no such file of an observable"):
        observed.read(run, "mine")
    path = observed.write(run, "mine", "f", y[:-1])
    with pytest.raises(UserError, match=r"lacks samples of .*repeat omniinput observe"):
        observed.read(run, "mine")
    observed.write(run, "mine", "f", y)
    with h5py.File(path, "r+") as file:
        file["observables/mine"][0, 0, 0] += 1
    with pytest.raises(UserError, match="does not match its checksum"):
        observed.read(run, "mine")
    observed.write(run, "mine", "f", y)
    with h5py.File(path, "r+") as file:
        file.attrs["run_created"] = "then"
    with pytest.raises(UserError, match="of another run's samples"):
        observed.read(run, "mine")
    path.write_bytes(path.read_bytes()[:700])
    with pytest.raises(UserError, match="observed"):
        observed.read(run, "mine")


def test_rounds_that_were_sampled_again_are_refused(tmp_path):
    """As after salvage, on another machine: the run is the same one, with other inputs."""
    path = sampled(tmp_path, "run.rounds=2", "run.burn_in=0", "sampler.exchanges=1")
    with open_run(path) as run:
        observed.write(run, "mine", "f", np.ones_like(run.samples_z(), np.float64))
        assert (observed.read(run, "mine") == 1).all()
    with changing(path) as file:
        file["samples/x"][1] = file["samples/x"][0]
    with open_run(path) as run, pytest.raises(UserError, match="repeat omniinput observe"):
        observed.read(run, "mine")


def test_a_folder_that_cannot_be_written(run, y, monkeypatch):
    monkeypatch.setattr(observed, "path_of", lambda path, name: path / "below" / "a.h5")
    with pytest.raises(UserError, match="cannot be written"):
        observed.write(run, "mine", "f", y)
