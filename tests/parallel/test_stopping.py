"""Checks for stop requests: how often, with a heartbeat each, and how a stop is raised."""

import numpy as np
import pytest

from omniinput_hpc.errors import StopRun
from omniinput_hpc.parallel import stopping
from omniinput_hpc.parallel.comm import World
from omniinput_hpc.parallel.signals import StopRequest
from omniinput_hpc.parallel.stopping import StopCheck


def checks_of(n_moves, seconds_per_move, monkeypatch):
    """Return the moves after which a check was made."""
    now, checks = [0.0], []
    monkeypatch.setattr(stopping.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(World, "max", lambda self, values: values)
    check = StopCheck(StopRequest(), World(), None, lambda: checks.append(move))
    for move in range(1, n_moves + 1):  # noqa: B007
        now[0] += seconds_per_move
        check.after_move()
    return checks


def test_the_interval_doubles_up_to_four_seconds(monkeypatch):
    assert checks_of(100, 0.25, monkeypatch) == [1, 3, 7, 15, 31, 47, 63, 79, 95]


def test_slow_moves_are_checked_each(monkeypatch):
    assert checks_of(5, 10.0, monkeypatch) == [1, 2, 3, 4, 5]


def test_a_request_is_raised_at_the_next_check():
    request = StopRequest()
    check = StopCheck(request, World(), None)
    check.after_move()
    request.reason = "SIGTERM"
    with pytest.raises(StopRun, match="SIGTERM"):
        check.check()


def test_the_walltime_is_a_reason():
    request = StopRequest()
    request.begin -= 10
    with pytest.raises(StopRun, match="--max-walltime 5 s"):
        StopCheck(request, World(), 5.0).after_move()


@pytest.mark.parametrize(("rounds", "said"), [(0.25, True), (0.99, True), (1.2, False), (7, False)])
def test_a_stop_within_the_first_round_says_how_long_one_takes(monkeypatch, rounds, said):
    """A start takes 20 s, a round 400 s; what is set then suffices."""
    now = [100.0]
    monkeypatch.setattr(stopping.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(World, "max", lambda self, values: values)
    request = StopRequest()
    now[0] += 20.0
    limit = 20.0 + 400.0 * rounds
    check = StopCheck(request, World(), limit)
    with pytest.raises(StopRun, match="is reached"):
        while True:
            now[0] += 1.0
            check.after_move()
    words = check.outcome(400, ", or fewer")
    assert ("no round was committed since this start" in words) == said
    if said:
        assert "one takes about 7 min" in words
        assert "to 525 s or more, or fewer; rounds committed before are safe" in words
    else:
        assert words == StopRun.outcome


@pytest.mark.parametrize("asked_after", [None, 0, 2])
def test_a_start_ends_between_its_parts(asked_after):
    request, done = StopRequest(), []
    check = StopCheck(request, World(), None)

    def work(between):
        for part in range(4):
            between()
            done.append(part)
            if part == asked_after:
                request.reason = "SIGTERM"

    if asked_after is None:
        check.start(work)
        assert done == [0, 1, 2, 3]
        return
    with pytest.raises(StopRun, match="SIGTERM") as stop:
        check.start(work)
    assert done == list(range(asked_after + 1))
    assert "this start did not reach its first move" in stop.value.outcome


def test_a_start_that_is_over_is_not_ended():
    """The first move's check then says how long a round takes."""
    request = StopRequest()
    request.reason = "SIGTERM"
    check = StopCheck(request, World(), None)
    check.start(lambda between: None)
    with pytest.raises(StopRun, match="SIGTERM"):
        check.after_move()


def test_ranks_whose_start_is_over_stop_with_one_that_was_ended(monkeypatch):
    """Without the agreement this rank would wait for its neighbour at the first exchange."""
    monkeypatch.setattr(World, "together", lambda self, work: work())
    monkeypatch.setattr(World, "max", lambda self, values: np.ones_like(values))
    monkeypatch.setattr(World, "texts", lambda self, text: [text, "SIGUSR1"])
    with pytest.raises(StopRun, match="SIGUSR1"):
        StopCheck(StopRequest(), World(), None).start(lambda between: between())


@pytest.mark.parametrize(("n", "n_checks"), [(1, 5), (3, 10), (1000, 40)])
def test_moves_counted_together_are_checked_as_often_at_most(n, n_checks, monkeypatch):
    """And none is forgotten: a stop within the first round says so."""
    now, checks = [0.0], []
    monkeypatch.setattr(stopping.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(World, "max", lambda self, values: values)
    request = StopRequest()
    check = StopCheck(request, World(), None, lambda: checks.append(now[0]))
    for _ in range(40):
        now[0] += 0.25 * n
        check.after_moves(n)
    assert len(checks) == n_checks
    request.reason = "SIGTERM"
    with pytest.raises(StopRun):
        check.check()
    assert "no round was committed" in check.outcome(40 * n)
    assert check.outcome(40 * n - 1) == StopRun.outcome
