"""Runs on worlds of any size, inside one launch: a communicator is split off for each."""

import shutil
import tempfile
from pathlib import Path

import pytest
from mpi4py import MPI
from patient import barrier

from omniinput_hpc.cli import run as launch
from omniinput_hpc.parallel.comm import World


@pytest.fixture
def shared_folder():
    """A folder that all ranks see, gone after the test."""
    comm = MPI.COMM_WORLD
    path = comm.bcast(tempfile.mkdtemp(prefix="omniinput-") if comm.rank == 0 else None)
    yield Path(path)
    comm.Barrier()
    if comm.rank == 0:
        shutil.rmtree(path)


@pytest.fixture
def run_on():
    """Return a function that runs the program on the first n ranks, all others waiting."""

    def run(n_ranks, *arguments):
        comm = MPI.COMM_WORLD
        part = comm.Split(0 if comm.rank < n_ranks else 1)
        code = None
        if comm.rank < n_ranks:
            code = launch.main(list(map(str, arguments)), World(part))
        barrier(comm)
        return comm.bcast(code)

    return run


@pytest.fixture
def input_file(shared_folder, lattice_toml):
    """The lattice model's input file on the shared folder."""
    path = shared_folder / "lattice.toml"
    if MPI.COMM_WORLD.rank == 0:
        path.write_text(lattice_toml.format(output=shared_folder / "run.h5"))
    MPI.COMM_WORLD.Barrier()
    return path
