"""What a person is told while a run goes on: rounds that are too long to lose."""

import logging

import numpy as np
import pytest

from omniinput_hpc.sampling.progress import Progress, shorter_rounds


def told(caplog, seconds_per_round, shown=True, first=-2, exchanges=10):
    """Return the warnings of a run whose rounds take that long, by a clock that is set by hand."""
    now = [50.0]
    progress = Progress(first, 4, 2, 1000, shown, exchanges, clock=lambda: now[0])
    caplog.clear()
    with caplog.at_level(logging.WARNING, logger="omniinput_hpc"):
        for round_ in range(first, 4):
            now[0] += seconds_per_round
            progress.committed(round_, np.array([0.5]))
    return [record.getMessage() for record in caplog.records]


@pytest.fixture(autouse=True)
def heard(monkeypatch):
    """Runs that tests have made before may have taken the messages away from pytest."""
    monkeypatch.setattr(logging.getLogger("omniinput_hpc"), "propagate", True)


def test_a_long_round_is_named_once_with_the_exchanges_to_set(caplog):
    (text,) = told(caplog, 1020.0)
    assert "a round takes 17 min" in text
    assert "set sampler.exchanges = 2 instead of 10" in text
    assert len(told(caplog, 301.0, first=1)) == 1  # also after a resume


def test_short_rounds_and_other_ranks_say_nothing(caplog):
    assert told(caplog, 299.0) == []
    assert told(caplog, 1020.0, shown=False) == []


def test_a_round_without_swaps_mentions_none(caplog):
    progress = Progress(0, 1, 0, 1000, True)
    with caplog.at_level(logging.INFO, logger="omniinput_hpc"):
        progress.committed(0, np.empty(0))
    assert "moves/s, 0 s left" in caplog.text


@pytest.mark.parametrize("seconds", [301.0, 450.0, 1020.0, 3000.0])
def test_the_advice_makes_rounds_short_enough(seconds):
    text = shorter_rounds(seconds, 10)
    exchanges = int(text.split("sampler.exchanges = ")[1].split()[0])
    assert exchanges >= 1
    assert seconds / 10 * exchanges <= 300.0 < seconds / 10 * (exchanges + 1)


@pytest.mark.parametrize("exchanges", [1, 3])
def test_where_one_exchange_is_too_long_the_steps_are_named(exchanges):
    text = shorter_rounds(1000.0 * exchanges, exchanges)
    assert "a smaller sampler.steps" in text
    assert ("sampler.exchanges = 1 and" in text) == (exchanges > 1)


def test_exchanges_are_told_until_the_first_round_is_written(caplog):
    now = [50.0]
    progress = Progress(-2, 4, 2, 1000, True, 10, clock=lambda: now[0])
    with caplog.at_level(logging.INFO, logger="omniinput_hpc"):
        for done in range(1, 11):
            now[0] += 4.0
            progress.exchanged(done)
        first = [record.getMessage() for record in caplog.records]
        progress.committed(-2, np.array([0.5]))
        caplog.clear()
        now[0] += 100.0
        progress.exchanged(3)
    assert first[0] == "exchange 2 of 10; the first round will be written in 32 s"
    assert len(first) == 4 and not caplog.records


def lines_of(caplog, seconds, rounds, burn_in):
    """Return the times and the lines of a run in a log, whose rounds take `seconds`."""
    now = [50.0]
    progress = Progress(-burn_in, rounds, burn_in, 1000, True, clock=lambda: now[0])
    said = []
    for round_ in range(-burn_in, rounds):
        now[0] += seconds
        caplog.clear()
        with caplog.at_level(logging.INFO, logger="omniinput_hpc"):
            progress.committed(round_, np.array([0.5]))
        said += [(now[0] - 50.0, record.getMessage()) for record in caplog.records]
    return said


def test_lines_get_rarer_but_the_first_the_last_and_the_end_of_burn_in_are_said(caplog):
    said = lines_of(caplog, 1.0, 300, 60)  # six minutes; with a line each 5 s they had 72
    assert len(said) <= 24
    assert said[0][1].startswith("burn-in round 1 of 60 (")
    assert any(text.startswith("burn-in round 60 of 60 (") for _, text in said)
    assert said[-1][1].startswith("round 300 of 300 (100%)")
    gaps = np.diff([second for second, _ in said])
    assert gaps.max() <= 60.0
    again = lines_of(caplog, 10.0, 720, 0)  # two hours: never silent for more than a minute
    assert np.diff([second for second, _ in again]).max() <= 60.0
    assert [text.split(" (")[0] for _, text in lines_of(caplog, 0.1, 3, 2)] == [
        "burn-in round 1 of 2", "burn-in round 2 of 2", "round 3 of 3"
    ]  # fmt: skip
