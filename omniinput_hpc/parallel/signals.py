"""Stop requests: a signal or the wall-time limit sets a flag, which the ranks check together.

Install the handlers before importing torch and mpi4py: those imports take seconds, during which a
signal would otherwise end the process.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from types import FrameType

SECOND_INTERRUPT_AFTER = 1.0
"""Seconds after which a second SIGINT ends the run at once (launchers repeat a signal sooner)."""
_SIGNALS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT)


class StopRequest:
    """Whether this process was asked to stop, and why."""

    def __init__(self) -> None:
        self.begin = time.monotonic()
        self.reason: str | None = None  # None: no stop was requested
        self._first_interrupt: float | None = None
        self._arrivals: tuple[int, int] | None = None  # a pipe of signal numbers, as they arrive

    def install(self) -> None:
        """Catch SIGTERM, SIGUSR1 and SIGINT from now on."""
        # If several signals are pending, Python calls their handlers in the order of their numbers.
        # The pipe keeps the order of arrival: without it, SLURM's SIGTERM would be reported as the
        # SIGUSR1 that its job script sends a moment later.
        self._arrivals = self._arrivals or os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(self._arrivals[1], warn_on_full_buffer=False)
        for number in _SIGNALS:
            signal.signal(number, self._on_signal)

    def ignore(self) -> None:
        """Ignore the signals from now on: the run is over, and its exit code must not change."""
        for number in _SIGNALS:
            signal.signal(number, signal.SIG_IGN)

    def check_walltime(self, seconds: float | None) -> None:
        """Request a stop when the process is older than `seconds`."""
        if self.reason is None and seconds is not None and self.age > seconds:
            self.reason = f"--max-walltime {seconds:g} s is reached"

    @property
    def age(self) -> float:
        """Seconds since the request was created, at the start of the process."""
        return time.monotonic() - self.begin

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        now, first = time.monotonic(), self._first_arrived(number)
        if number == signal.SIGINT:
            if self._first_interrupt is None:
                self._first_interrupt = now
            elif now - self._first_interrupt >= SECOND_INTERRUPT_AFTER:
                signal.signal(signal.SIGINT, signal.SIG_DFL)
                os.kill(os.getpid(), signal.SIGINT)
        if self.reason is None:
            self.reason = signal.Signals(first).name

    def _first_arrived(self, number: int) -> int:
        """Return the pending signal that arrived first; `number` if that is unknown."""
        waiting = b""
        if self._arrivals is not None:
            with contextlib.suppress(BlockingIOError):  # already read, or a module set its own pipe
                waiting = os.read(self._arrivals[0], 4096)
        return next((one for one in waiting if one in _SIGNALS), number)


request = StopRequest()
"""The stop request of this process; global, like signal handlers."""
