"""A write that fails on one rank, or a lost file: all hear of it, and no round is claimed."""

import errno

import h5py
import numpy as np
import pytest
from mpi4py import MPI
from runs_in_progress import HeldLock

from omniinput_hpc.parallel.comm import World
from omniinput_hpc.runfile import layout, writers
from omniinput_hpc.runfile.open_file import FileLost, OpenFile
from omniinput_hpc.runfile.reader import open_run
from omniinput_hpc.tempering.ladder import placement

G = layout.Geometry(4, 12, 4, 6, 8, 3, 5, 1, checksums=True)
TOML = '[run]\noutput = "a.h5"\nseed = 1\nrounds = 4\n'


def values(rungs, round_):
    """Return a rank's slabs of a round, filled with numbers that tell round and rung."""
    filled = {}
    for name, field in layout.layout(G).items():
        where = layout.slab(field, round_, rungs, G.n_rungs)
        shape = np.zeros(field.shape, dtype=np.int8)[where].shape if where else (0,)
        filled[name] = np.full(shape, 10 * (round_ + 1), dtype=field.dtype)
    return filled


def make(path, world):
    if world.rank == 0:
        attributes = {"config": TOML, "model_fingerprint": "none"}
        layout.create(path, G, layout.first_values(np.arange(12.0), np.arange(7.0)), attributes)
    world.barrier()


@pytest.mark.mpi(min_size=2)
@pytest.mark.parametrize("kind", ["mpio", "gather"])
def test_commits_are_complete(kind, shared_folder):
    world = World()
    rungs = placement(G.n_rungs, world.size, world.rank)
    make(shared_folder / "a.h5", world)
    writer = writers.open_writer(kind, shared_folder / "a.h5", G, rungs, world)
    for round_ in range(3):
        writer.commit(round_, values(rungs, round_), round_ + 1)
    writer.close()
    world.barrier()
    with open_run(shared_folder / "a.h5") as run:
        assert run.rounds == 3
        for name, field in layout.layout(G).items():
            if name == "checksum/round":
                for round_ in range(3):
                    run._data.slab("samples/z", round_, range(G.n_rungs))  # raises what differs
            elif field.per == "round":
                data = run._file[name][:3]
                expected = np.arange(10, 40, 10).reshape(-1, *[1] * (data.ndim - 1))
                assert (data == expected).all(), name


@pytest.mark.mpi(min_size=2)
@pytest.mark.parametrize("kind", ["mpio", "gather"])
@pytest.mark.parametrize("failing_call", [0, 5, 11])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_a_failed_write_is_never_committed(kind, failing_call, code, shared_folder, monkeypatch):
    world = World()
    rungs = placement(G.n_rungs, world.size, world.rank)
    make(shared_folder / "a.h5", world)
    writer = writers.open_writer(kind, shared_folder / "a.h5", G, rungs, world)
    writer.commit(0, values(rungs, 0), 1)
    calls, write = [], h5py.Dataset.__setitem__
    victim = world.size - 1 if kind == "mpio" else 0

    def faulty(dataset, where, data):
        calls.append(where)
        if len(calls) == failing_call + 1 and world.rank == victim:
            raise OSError(code, "no space, or broken")
        write(dataset, where, data)

    monkeypatch.setattr(h5py.Dataset, "__setitem__", faulty)
    with pytest.raises(writers.WriteError, match=r"round 1 could not be written.*no space"):
        writer.commit(1, values(rungs, 1), 2)
    monkeypatch.undo()
    writer.close()
    world.barrier()
    with open_run(shared_folder / "a.h5") as run:
        assert run.rounds == 1
        assert (run._file["histogram/counts"][0] == 10).all()
        assert (run.lane_counts_kgb() == 10).all()  # the slab of the committed round is intact
    MPI.COMM_WORLD.Barrier()


@pytest.mark.mpi(min_size=2)
@pytest.mark.parametrize("kind", ["mpio", "gather"])
def test_all_ranks_hear_of_a_lost_file(kind, shared_folder):
    """Rank 0 alone looks; where one rank raised alone, the others would wait for it."""
    world, path = World(), shared_folder / "a.h5"
    rungs = placement(G.n_rungs, world.size, world.rank)
    make(path, world)
    file = OpenFile(path, acting=world.rank == 0)
    opened = writers.open_writer(kind, path, G, rungs, world)
    writer = writers.GuardedWriter(opened, HeldLock(), file, world)
    writer.commit(0, values(rungs, 0), 1)
    world.barrier()
    if world.rank == 0:
        path.rename(shared_folder / "moved.h5")
    world.barrier()
    with pytest.raises(FileLost, match=r"is no longer there; .* is .*moved\.h5: put it back"):
        writer.commit(1, values(rungs, 1), 2)
    writer.close()
    world.barrier()
    with open_run(shared_folder / "moved.h5") as run:
        assert run.rounds == 1
    MPI.COMM_WORLD.Barrier()
