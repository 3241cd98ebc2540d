"""Collective operations: errors agreed on, values from rank 0, gathered arrays, stops."""

import json
import time
import tomllib

import numpy as np
import pytest

from omniinput_hpc.errors import StopRun, UserError
from omniinput_hpc.parallel.comm import World
from omniinput_hpc.parallel.signals import StopRequest
from omniinput_hpc.parallel.stopping import StopCheck


@pytest.mark.mpi(min_size=2)
def test_a_mistake_seen_by_one_rank_is_raised_by_all():
    world = World()

    def check():
        if world.rank == world.size - 1:
            raise UserError("only the last rank sees this")

    with pytest.raises(UserError, match="only the last rank sees this"):
        world.together(check)
    with pytest.raises(UserError, match="rank 0 says no"):
        world.on_rank_0(lambda: (_ for _ in ()).throw(UserError("rank 0 says no")))
    assert world.together(lambda: world.rank) == world.rank
    assert world.on_rank_0(lambda: {"a": [1, 2.5, None]}) == {"a": [1, 2.5, None]}


@pytest.mark.mpi(min_size=2)
def test_all_that_toml_has_arrives_with_its_type():
    text = 'a = 2026-11-26\nb = 2026-11-26T10:00:00Z\nc = [{d = 10:00:00.5}, 1.0, 1, inf, "e"]'
    tables = tomllib.loads(text)
    found = World().on_rank_0(lambda: tables)
    assert found == tables and repr(found) == repr(tables)


@pytest.mark.mpi(min_size=2)
def test_gather_takes_arrays_of_any_length():
    world = World()
    mine = np.full((world.rank, 2), world.rank, dtype=np.uint16)
    parts = world.gather(mine)
    if world.rank == 0:
        assert [len(p) for p in parts] == list(range(world.size))
        assert all((p == r).all() for r, p in enumerate(parts))
    else:
        assert parts is None
    assert world.texts(f"rank {world.rank}") == [f"rank {r}" for r in range(world.size)]


@pytest.mark.mpi(min_size=2)
def test_all_ranks_stop_at_the_same_move():
    world, request = World(), StopRequest()
    stopping = StopCheck(request, world, None)
    moves = 0
    with pytest.raises(StopRun, match="SIGUSR1"):
        while moves < 10_000_000:
            if world.rank == world.size - 1 and moves == 1000:
                request.reason = "SIGUSR1"
            moves += 1
            stopping.after_move()
    assert world.texts(str(moves)) == [str(moves)] * world.size


@pytest.mark.mpi(min_size=2)
def test_unsigned_sums_wrap_around():
    world = World()
    total = world.sum(np.array([2**63], dtype=np.uint64))
    assert int(total[0]) == world.size * 2**63 % 2**64


@pytest.mark.mpi(min_size=2)
def test_one_rank_of_a_host_goes_first():
    world = World()

    def slow():
        begin = time.monotonic()
        time.sleep(0.05)
        return [begin, time.monotonic()]

    times = [json.loads(text) for text in world.texts(json.dumps(world.one_a_host_first(slow)))]
    leads = json.loads(world.texts(json.dumps(world.local_rank()))[0]) == 0
    assert leads  # on one host, that is rank 0
    assert all(times[0][1] <= begin for begin, _ in times[1:])
    calls = []

    def refuse():
        calls.append(world.rank)
        raise UserError(f"rank {world.rank} cannot")

    with pytest.raises(UserError, match=r"^rank 0 cannot$"):
        world.one_a_host_first(refuse)
    assert len(calls) == (world.rank == 0)  # the others did not even begin
