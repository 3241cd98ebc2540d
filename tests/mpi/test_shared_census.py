"""A census on several ranks: the list of one rank, also begun on another number of ranks."""

import pytest
from mpi4py import MPI
from patient import barrier

from omniinput_hpc.parallel.comm import World
from omniinput_hpc.parallel.signals import StopRequest
from omniinput_zoo.census import command as census
from omniinput_zoo.census import session

TOML = """
[run]
output = "{output}"
seed = 1
rounds = 1
[model]
kind = "python"
factory = "omniinput_hpc.zoo.exact:markov"
options = {{ n_sites = 6, n_values = 5 }}
[sampler]
walkers = 64
steps = 1
exchanges = 1
[ladder]
betas = [0.0, 1.0]
[bins]
lower = 0.0
upper = 8.0
width = 0.1
[samples]
every = 1
"""


@pytest.fixture
def census_on(shared_folder, monkeypatch):
    """Return a function that makes a census on the first n ranks; its exit code on all."""
    toml = shared_folder / "my.toml"
    if MPI.COMM_WORLD.rank == 0:
        toml.write_text(TOML.format(output=shared_folder / "my.h5"))
    MPI.COMM_WORLD.Barrier()

    def call(n_ranks, name, *arguments):
        comm = MPI.COMM_WORLD
        part = comm.Split(0 if comm.rank < n_ranks else 1)
        code = None
        if comm.rank < n_ranks:
            words = [toml, "--output", shared_folder / f"{name}.census.h5", *arguments]
            monkeypatch.setattr(census, "request", StopRequest())  # nobody asked this one
            code = census.main([str(word) for word in words], World(part))
        barrier(comm)
        return comm.bcast(code)

    return call


@pytest.mark.mpi(min_size=2)
def test_any_number_of_ranks_gives_the_same_list(census_on, shared_folder):
    words = ["--below", 1.5, "--prefixes", 32]
    assert census_on(1, "one", *words) == 0
    assert census_on(2, "two", *words) == 0
    # a frontier that overflows on two ranks, and best-first parts on one and on two
    assert census_on(2, "parts", *words, "--seconds", 1e-6) == 0
    assert census_on(1, "parts", *words, "--seconds", 1e-6) == 0
    assert census_on(2, "parts", *words, "--max-walltime", 1e-6) == 75
    assert census_on(2, "parts", *words) == 0
    for end in (".jsonl", ".csv"):
        one = (shared_folder / f"one.census{end}").read_bytes()
        assert one.count(b"\n") > 10
        assert one == (shared_folder / f"two.census{end}").read_bytes()
        assert one == (shared_folder / f"parts.census{end}").read_bytes()


@pytest.mark.mpi(min_size=2)
def test_a_frontier_that_overflows_on_two_ranks_tells_what_it_holds(
    census_on, shared_folder, monkeypatch
):
    monkeypatch.setattr(session, "SECONDS_BETWEEN_COMMITS", 0.0)
    assert census_on(1, "whole", "--seconds", 100, "--prefixes", 32) == 0
    assert census_on(2, "small", "--seconds", 100, "--prefixes", 4, "--frontier", 40) == 0
    whole, small = (
        (shared_folder / f"{name}.census.jsonl").read_text().splitlines()
        for name in ("whole", "small")
    )
    assert 0 < len(small) < len(whole) == 5**6
    assert small == whole[: len(small)]
