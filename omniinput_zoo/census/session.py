"""Running a census, with commits, until it is complete, out of time or asked to stop."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from pathlib import Path

from omniinput_hpc.errors import StopRun
from omniinput_hpc.parallel.comm import World
from omniinput_hpc.parallel.stopping import StopCheck
from omniinput_hpc.runfile import census_file
from omniinput_zoo.census import saved
from omniinput_zoo.census.search import Search

log = logging.getLogger("omniinput_hpc")

SECONDS_BETWEEN_LINES = 10.0
SECONDS_BETWEEN_COMMITS = 30.0
COMMIT_SHARE = 0.05
"""The largest share of the time that commits may take."""
GO_ON, COMMIT, END = range(3)


class Session:
    """The work on a census in this process; all ranks call `run` together.

    path : the file of the census
    texts : the input file and the model's fingerprint, for that file
    """

    def __init__(self, world: World, search: Search, path: Path, texts: Mapping[str, str]) -> None:
        self._world, self._search, self._path, self._texts = world, search, path, texts
        self._begin = self._line = self._committed = time.monotonic()
        self._before, self._commit_took = search.state.seconds, 0.0

    def run(self, stopping: StopCheck, seconds: float | None) -> None:
        """Do rounds until nothing is open or `seconds` are over; then commit.

        Raises a StopRun on all ranks, after a commit, if one was asked to stop.
        """
        stopping.moves_begin()
        try:
            stopping.check()
            while self._search.step():
                stopping.check()
                next_ = self._world.broadcast(self._after_round(seconds))
                if next_ == COMMIT:
                    self._commit()
                elif next_ == END:
                    break
        except StopRun:
            self._commit()
            raise
        self._commit()

    def _after_round(self, seconds: float | None) -> int:
        """Return what comes next (the answer of rank 0 counts), and log the progress."""
        now = time.monotonic()
        state = self._search.state
        if now - self._line > SECONDS_BETWEEN_LINES and self._world.rank == 0:
            self._line = now
            log.info(
                "%s prefixes evaluated, %s open; %s inputs found; complete for z <= %.4g",
                f"{state.n_evaluated:,}", f"{len(state.frontier.nodes):,}",
                f"{state.found.count_b.sum():,}", self._search.complete_below,
            )  # fmt: skip
        if seconds is not None and now - self._begin > seconds:
            return END
        wait = max(SECONDS_BETWEEN_COMMITS, self._commit_took / COMMIT_SHARE)
        return COMMIT if now - self._committed > wait else GO_ON

    def _commit(self) -> None:
        begin = time.monotonic()
        state = self._search.state
        state.seconds = self._before + begin - self._begin
        self._world.on_rank_0(
            lambda: census_file.write(
                self._path, saved.stored(state, self._search.space, self._texts)
            )
        )
        self._committed = time.monotonic()
        self._commit_took = self._committed - begin
