"""One process without MPI, for what rank 0 alone does; and what is asked of a world for that."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

T = TypeVar("T")


class Ranks(Protocol):
    """What a command asks of the world whose rank 0 does its work: `comm.World`, or `Alone`."""

    rank: int

    def on_rank_0(self, function: Callable[[], T]) -> T:
        """Call a function on rank 0; all ranks return its value or raise its `UserError`."""


class Alone:
    """A world of this process alone."""

    rank = 0

    def on_rank_0(self, function: Callable[[], T]) -> T:
        """Call a function and return its value."""
        return function()
