"""A single process without MPI, for commands whose work only rank 0 does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

T = TypeVar("T")


class Ranks(Protocol):
    """The interface that such a command needs: `comm.World` or `Alone`."""

    rank: int

    def on_rank_0(self, function: Callable[[], T]) -> T:
        """Call a function on rank 0; all ranks return its value or raise its `UserError`."""

    def together(self, function: Callable[[], T]) -> T:
        """Call a function on every rank; all raise the `UserError` of one."""


class Alone:
    """A world that consists only of this process."""

    rank = 0

    def on_rank_0(self, function: Callable[[], T]) -> T:
        """Call a function and return its value."""
        return function()

    together = on_rank_0
