"""Stop requests: the first reason counts, and a second interrupt ends the process."""

import os
import signal

import pytest

from omniinput_hpc.parallel import signals
from omniinput_hpc.parallel.signals import StopRequest


@pytest.fixture
def request_():
    before = {number: signal.getsignal(number) for number in signals._SIGNALS}
    request = StopRequest()
    request.install()
    yield request
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("name", ["SIGTERM", "SIGUSR1", "SIGINT"])
def test_a_signal_is_a_request(request_, name):
    assert request_.reason is None
    os.kill(os.getpid(), signal.Signals[name])
    assert request_.reason == name


def test_the_first_reason_stays(request_):
    os.kill(os.getpid(), signal.SIGUSR1)
    os.kill(os.getpid(), signal.SIGTERM)
    request_.check_walltime(0.0)
    assert request_.reason == "SIGUSR1"


def test_the_walltime_is_the_age_of_the_process(request_):
    request_.check_walltime(None)
    request_.check_walltime(1000.0)
    assert request_.reason is None
    request_.begin -= 1000
    request_.check_walltime(1000.0)
    assert request_.reason == "--max-walltime 1000 s is over"


def test_a_repeated_interrupt_counts_once_and_a_later_one_ends_the_process(request_, monkeypatch):
    os.kill(os.getpid(), signal.SIGINT)
    os.kill(os.getpid(), signal.SIGINT)  # as launchers do
    assert request_.reason == "SIGINT"
    monkeypatch.setattr(signals, "SECOND_INTERRUPT_AFTER", 0.0)
    with pytest.raises(KeyboardInterrupt):
        signal.signal(signal.SIGINT, request_._on_signal)
        monkeypatch.setattr(signal, "SIG_DFL", signal.default_int_handler)
        os.kill(os.getpid(), signal.SIGINT)


def test_ignored_signals_change_nothing(request_):
    request_.ignore()
    os.kill(os.getpid(), signal.SIGTERM)
    assert request_.reason is None
