"""What one rank alone sees or suffers before sampling: all ranks end together, or agree."""

import pytest
from mpi4py import MPI
from run_tools import LATTICE

from omniinput_hpc.cli import rescore
from omniinput_hpc.errors import UserError
from omniinput_hpc.models import device
from omniinput_hpc.parallel.comm import World
from omniinput_hpc.runfile import side_checkpoint, writers
from omniinput_hpc.runfile.reader import open_run
from omniinput_hpc.runfile.rescored import open_rescored

RANK, SIZE = MPI.COMM_WORLD.rank, MPI.COMM_WORLD.size
LAST = SIZE - 1
pytestmark = pytest.mark.mpi(min_size=2)


def unreadable(*_, **__):
    raise UserError("it cannot be read here")


def n_ranks():
    """How many ranks divide the lattice's rungs."""
    return 2 if SIZE == 3 else min(SIZE, 4)


@pytest.mark.parametrize("auto", [True, False])
def test_ranks_whose_hosts_see_other_file_systems_take_one_writer(
    run_on, input_file, shared_folder, monkeypatch, auto
):
    """Rank 0 decides: one would gather, and others wait in MPI-IO."""
    chosen = "auto" if auto else "gather"
    if RANK == 1:
        monkeypatch.setattr(writers, "file_system", lambda folder: "nfs4")
    words = ["--set", f"run.writer={chosen}"]
    assert run_on(n_ranks(), input_file, *words) == 0
    with open_run(shared_folder / "run.h5") as run:
        assert run.rounds == 5


@pytest.fixture
def rescore_all(run_on, input_file, shared_folder):
    other = shared_folder / "other.toml"
    if RANK == 0:
        text = LATTICE.format(output=shared_folder / "other.h5")
        other.write_text(text.replace("[sampler]", "options = { unit = 0.3 }\n[sampler]"))
    assert run_on(1, input_file) == 0
    part = MPI.COMM_WORLD.Split(0 if n_ranks() > RANK else 1)

    def call():
        code = None
        if n_ranks() > RANK:
            code = rescore.main([str(shared_folder / "run.h5"), str(other)], World(part))
        MPI.COMM_WORLD.Barrier()
        return MPI.COMM_WORLD.bcast(code)

    return call


def test_a_rank_that_cannot_open_the_run_ends_rescoring_on_all(rescore_all, monkeypatch):
    if RANK == 1:
        monkeypatch.setattr(rescore, "open_run", unreadable)
    assert rescore_all() == 2


def test_rescorings_writer_is_rank_0s(rescore_all, shared_folder, monkeypatch):
    if RANK == 1:
        monkeypatch.setattr(writers, "file_system", lambda folder: "nfs4")
    assert rescore_all() == 0
    with open_rescored(shared_folder / "run.rescored.other.h5") as side:
        assert side.rounds == 5


def test_a_side_file_that_rank_0_cannot_make_ends_all(run_on, input_file, monkeypatch):
    monkeypatch.setattr(side_checkpoint, "open_run", unreadable)
    assert run_on(n_ranks(), input_file) == 2


def test_a_file_that_goes_before_it_is_opened_for_writing_ends_all(
    run_on, input_file, shared_folder, monkeypatch
):
    """Between rank 0's look and the writer's own opening."""
    first = side_checkpoint.SideWriter.__init__

    def removing(*arguments):
        first(*arguments)
        (shared_folder / "run.h5").unlink(missing_ok=True)

    monkeypatch.setattr(side_checkpoint.SideWriter, "__init__", removing)
    assert run_on(n_ranks(), input_file) == 2


@pytest.mark.parametrize("lacking", ["others have a GPU", "its GPU is not seen"])
def test_a_rank_without_the_others_gpu_ends_all_with_one_sentence(
    run_on, input_file, shared_folder, monkeypatch, capfd, lacking
):
    """Where it went on by itself, all others would wait for its CPU."""

    def choose(requested, local_rank, threads, precision):
        if lacking == "its GPU is not seen" and RANK == 1:
            raise UserError('run.device = "auto": this host has a GPU that torch does not see')
        return "cpu" if RANK == 1 else "cuda:0"

    monkeypatch.setattr(device, "choose", choose)
    assert run_on(n_ranks(), input_file) == 2
    text = "".join(capfd.readouterr())
    if RANK == 0:
        known = ["rank 1 on host", "that torch does not see"][lacking.startswith("its")]
        assert known in text
        assert 'run.device = "auto"' in text
    assert "Traceback" not in text
    assert not (shared_folder / "run.h5").exists()
