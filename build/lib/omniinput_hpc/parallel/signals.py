"""Stop requests: a signal or the wall-time limit sets a flag, which the ranks check together.

Imported before torch and mpi4py: their imports take seconds, in which a signal would otherwise
end the process.
"""

from __future__ import annotations

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
        self.reason: str | None = None  # why; None: it was not asked to
        self._first_interrupt: float | None = None

    def install(self) -> None:
        """Catch SIGTERM, SIGUSR1 and SIGINT from now on."""
        for number in _SIGNALS:
            signal.signal(number, self._on_signal)

    def ignore(self) -> None:
        """Ignore the signals from now on: the run is over, and its exit code must not change."""
        for number in _SIGNALS:
            signal.signal(number, signal.SIG_IGN)

    def check_walltime(self, seconds: float | None) -> None:
        """Request a stop when the process is older than `seconds`."""
        if self.reason is None and seconds is not None and self.age > seconds:
            self.reason = f"--max-walltime {seconds:g} s is over"

    @property
    def age(self) -> float:
        """Seconds since this process started to catch signals."""
        return time.monotonic() - self.begin

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if number == signal.SIGINT:
            if self._first_interrupt is None:
                self._first_interrupt = now
            elif now - self._first_interrupt >= SECOND_INTERRUPT_AFTER:
                signal.signal(signal.SIGINT, signal.SIG_DFL)
                os.kill(os.getpid(), signal.SIGINT)
        if self.reason is None:
            self.reason = signal.Signals(number).name


request = StopRequest()
"""The request of this process: global, as signal handlers are."""
