"""Fingerprints of models that are taken beside other work: hashing 14 GB takes seconds."""

from __future__ import annotations

import threading
from collections.abc import Callable


class PendingFingerprint:
    """What a function returns, which runs in a thread of its own from now on.

    Hashing and reading release Python's lock, so that a model is loaded meanwhile. The thread does
    not keep a program that ends from ending.
    """

    def __init__(self, take: Callable[[], str]) -> None:
        self._take, self._found = take, ""
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._found = self._take()
        except BaseException as error:  # raised where the result is asked for
            self._error = error

    def result(self) -> str:
        """Wait for the fingerprint and return it, or raise what the function raised."""
        self._thread.join()
        if self._error is not None:
            raise self._error
        return self._found
