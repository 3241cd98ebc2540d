"""Rescoring on several ranks: the bytes of one rank; one message where ranks do not fit."""

import pytest
from mpi4py import MPI
from patient import barrier
from run_tools import LATTICE, assert_same

from omniinput_hpc.cli import rescore
from omniinput_hpc.parallel.comm import World
from omniinput_hpc.runfile.rescored import open_rescored


@pytest.fixture
def rescore_on(run_on, shared_folder):
    """Return a function that rescores a lattice run by another unit, on the first n ranks."""
    toml, other = shared_folder / "a.toml", shared_folder / "b.toml"
    if MPI.COMM_WORLD.rank == 0:
        text = LATTICE.format(output=shared_folder / "a.h5")
        toml.write_text(text)
        other.write_text(text.replace("[sampler]", "options = { unit = 0.3 }\n[sampler]"))
    MPI.COMM_WORLD.Barrier()
    assert run_on(1, toml) == 0

    def call(n_ranks, *arguments):
        comm = MPI.COMM_WORLD
        part = comm.Split(0 if comm.rank < n_ranks else 1)
        code = None
        if comm.rank < n_ranks:
            words = [shared_folder / "a.h5", other, *arguments]
            code = rescore.main([str(word) for word in words], World(part))
        barrier(comm)
        return comm.bcast(code)

    return call


@pytest.mark.mpi(min_size=2)
@pytest.mark.parametrize("writer", ["mpio", "gather"])
def test_any_number_of_ranks_gives_the_same_bytes(writer, rescore_on, shared_folder):
    side = shared_folder / "a.rescored.b.h5"
    for n_ranks in (1, 2, 4):
        if n_ranks > MPI.COMM_WORLD.size:
            continue
        assert rescore_on(n_ranks, "--set", f"run.writer={writer}") == 0
        if MPI.COMM_WORLD.rank == 0:
            side.rename(shared_folder / f"on_{n_ranks}.h5")
        MPI.COMM_WORLD.Barrier()
        assert_same(shared_folder / "on_1.h5", shared_folder / f"on_{n_ranks}.h5")
    with open_rescored(shared_folder / "on_2.h5") as two:
        assert two.rounds == 5


@pytest.mark.mpi(min_size=3)
def test_ranks_that_do_not_divide_the_rungs_are_refused(rescore_on, capfd, shared_folder):
    assert rescore_on(3) == 2
    text = "".join(capfd.readouterr())
    assert ("3 ranks do not divide" in text) == (MPI.COMM_WORLD.rank == 0)
    assert not list(shared_folder.glob("*rescored*"))
