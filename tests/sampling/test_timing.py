"""The clock: seconds by part, waiting put aside, and the table."""

import re

import pytest

from omniinput_hpc.sampling import timing
from omniinput_hpc.sampling.timing import PARTS, WAITING, Clock


class World:
    """A world of two ranks that are alike."""

    size, waited = 2, 0.0

    def sum(self, values):
        return 2 * values


@pytest.fixture
def clock(monkeypatch):
    """A clock, and a way to let time pass: of it, some waiting."""
    now, world = [100.0], World()
    monkeypatch.setattr(timing.time, "perf_counter", lambda: now[0])
    clock = Clock(world)

    def passes(seconds, waiting=0.0):
        now[0] += seconds
        world.waited += waiting

    return clock, passes


def test_waiting_is_a_part_of_its_own(clock):
    clock, passes = clock
    for _ in range(2):
        with clock.part("moves"):
            passes(3.0)
        with clock.part("exchange"):
            passes(2.0, waiting=1.5)
    passes(1.0)  # in no part
    assert clock.seconds == {
        "moves": 6.0, "exchange": 1.0, "recording": 0.0, "writing": 0.0, WAITING: 3.0
    }  # fmt: skip
    lines = clock.table().splitlines()
    assert len(lines) == len(PARTS) + 4
    shares = {line.split()[0]: re.findall(r"[\d.]+", line) for line in lines[1:]}
    assert shares["moves"] == ["6.0", "54.5"] and shares["waiting"] == ["3.0", "27.3"]
    assert shares["other"] == ["1.0", "9.1"] and shares["total"] == ["11.0"]


def test_a_part_that_fails_is_counted(clock):
    clock, passes = clock
    with pytest.raises(ValueError, match="within"), clock.part("writing"):
        passes(4.0)
        raise ValueError("within")
    assert clock.seconds["writing"] == 4.0
