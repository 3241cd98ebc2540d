"""Compute the fingerprint of a model in a thread: hashing 14 GB takes seconds."""

from __future__ import annotations

import threading
from collections.abc import Callable


class PendingFingerprint:
    """The result of a function that runs in its own thread from now on.

    Hashing and reading release Python's lock, so the model can be loaded meanwhile. The thread is a
    daemon: it does not delay the end of the program.
    """

    def __init__(self, take: Callable[[], str]) -> None:
        self._take, self._found = take, ""
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._found = self._take()
        except BaseException as error:  # raised again by `result`
            self._error = error

    def result(self) -> str:
        """Wait for the fingerprint and return it, or raise what the function raised."""
        self._thread.join()
        if self._error is not None:
            raise self._error
        return self._found
