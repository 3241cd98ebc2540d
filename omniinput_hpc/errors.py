"""The two ways in which a run can end early: a user's mistake, or a request to stop."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class UserError(Exception):
    """A mistake in the user's input; its text is the whole message, and the exit code is 2."""


@contextmanager
def ending_all_ranks() -> Iterator[None]:
    """Turn a `UserError`, which maybe one rank alone raises here, into an error that ends all."""
    try:
        yield
    except UserError as error:
        raise RuntimeError(str(error)) from error


class StopRun(Exception):
    """The ranks agreed to stop; everything committed is in the file, and the exit code is 75.

    outcome : message to the user: which rounds are safe, and what to do next
    """

    outcome = "everything committed is safe: run again to resume"


EXIT_COMPLETE = 0
EXIT_FAILURE = 1
EXIT_BAD_INPUT = 2
EXIT_STOPPED = 75
