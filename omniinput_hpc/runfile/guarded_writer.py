"""Commits by a run that must still hold its lock, and its end where it cannot commit."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from numpy.typing import NDArray

from omniinput_hpc.parallel.comm import World
from omniinput_hpc.runfile.lock import LockLost, RunLock
from omniinput_hpc.runfile.writers import WriteError, Writer

log = logging.getLogger("omniinput_hpc")


class GuardedWriter:
    """Makes sure before each commit that the run still holds its lock, and touches it."""

    def __init__(self, writer: Writer, lock: RunLock, world: World) -> None:
        self.name = writer.name
        self._writer, self._lock, self._world = writer, lock, world

    def commit(self, round_: int, values: Mapping[str, NDArray[Any]], committed: int) -> None:
        """See `commit.Writer.commit`.

        Raises
        ------
        LockLost
            On all ranks, before anything is written.
        """
        if not self._world.all(self._lock.keep()):
            raise self._lock.lost()
        self._writer.commit(round_, values, committed)

    def close(self) -> None:
        """See `commit.Writer.close`."""
        self._writer.close()

    @contextmanager
    def or_end(self, file: str) -> Iterator[None]:
        """End all ranks, after one line of rank 0's, where a commit within the block fails.

        file : what the line begins with
        """
        try:
            yield
        except WriteError as error:
            self._say(f"{file}: {error}; nothing committed is lost: make room and run again")
            self._lock.release()
            self._world.barrier()  # rank 0 has spoken
            self._world.abort_quietly()
        except LockLost as error:
            self._say(str(error))
            self._world.abort_quietly()

    def _say(self, words: str) -> None:
        if self._world.rank == 0:
            log.error("%s", words)
