"""Stop requests: the first reason counts, and a second interrupt ends the process."""

import ctypes
import os
import signal

import pytest

from omniinput_hpc.parallel import signals
from omniinput_hpc.parallel.signals import StopRequest


@pytest.fixture
def request_():
    before = {number: signal.getsignal(number) for number in signals._SIGNALS}
    pipe = signal.set_wakeup_fd(-1)
    request = StopRequest()
    request.install()
    yield request
    for number, handler in before.items():
        signal.signal(number, handler)
    signal.set_wakeup_fd(pipe)


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


@pytest.mark.parametrize("names", [("SIGTERM", "SIGUSR1"), ("SIGUSR1", "SIGTERM"),
                                   ("SIGTERM", "SIGINT", "SIGUSR1")])  # fmt: skip
@pytest.mark.parametrize("times", [1, 2])
def test_the_first_of_several_during_one_long_call_is_named(request_, names, times):
    """Python calls handlers after the call, in the order of the signals' numbers."""
    for _ in range(times):  # MPI's initialization takes SIGUSR1: handlers are installed twice
        request_.install()
    numbers = [int(signal.Signals[name]) for name in names]
    list(map(ctypes.CDLL(None)["raise"], numbers))  # one call of C as far as Python sees
    assert request_.reason == names[0]


def test_a_signal_is_named_where_another_took_the_pipe(request_):
    """A user's module may run asyncio, say, which sets its own."""
    reader, writer = os.pipe2(os.O_NONBLOCK)
    signal.set_wakeup_fd(writer)
    os.kill(os.getpid(), signal.SIGTERM)
    assert request_.reason == "SIGTERM"
    signal.set_wakeup_fd(-1)
    os.close(reader)
    os.close(writer)


def test_the_walltime_is_the_age_of_the_process(request_):
    request_.check_walltime(None)
    request_.check_walltime(1000.0)
    assert request_.reason is None
    request_.begin -= 1000
    request_.check_walltime(1000.0)
    assert request_.reason == "--max-walltime 1000 s is reached"


def test_a_repeated_interrupt_counts_once_and_a_later_one_ends_the_process(request_, monkeypatch):
    monkeypatch.setattr(signals, "SECOND_INTERRUPT_AFTER", float("inf"))
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
