"""Agreeing on stops: every few moves, the ranks compare their stop requests."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import numpy as np

from omniinput_hpc.errors import StopRun
from omniinput_hpc.parallel.comm import World
from omniinput_hpc.parallel.signals import StopRequest
from omniinput_hpc.text import duration

SECONDS_BETWEEN_CHECKS = 4.0
ROOM_FOR_A_ROUND = 1.25
"""The recommended time limit, as a multiple of the time for a start and its first round."""

NOT_STARTED = (
    "this start did not reach its first move: raise --max-walltime, or the job's time limit; "
    "rounds committed before are safe"
)


class _Asked(Exception):
    """Raised on a rank that was asked to stop, and caught there before the ranks agree."""


class StopCheck:
    """Counts moves; after every n moves, all ranks check together whether any was asked to stop.

    A rank is asked by a signal, or when its process is older than `max_walltime` seconds. All ranks
    make the same number of moves, so all check after the same move. They choose n together, from
    the slowest rank's time since the last check; n does not affect the results.
    """

    def __init__(
        self,
        request: StopRequest,
        world: World,
        max_walltime: float | None,
        heartbeat: Callable[[], object] = lambda: None,
    ) -> None:
        self._request, self._world, self._max_walltime = request, world, max_walltime
        self._heartbeat = heartbeat
        self._moves_to_check = self._interval = 1
        self._moves = 0  # up to the last check
        self._begin = self._last = time.monotonic()

    def moves_begin(self) -> None:
        """Record that the start is over; `outcome` times the moves from here."""
        self._begin = time.monotonic()

    def start(self, work: Callable[[Callable[[], None]], object]) -> None:
        """Do what each rank does independently before its first move; see `alone`."""
        try:
            self.alone(work)
        except StopRun as stop:
            stop.outcome = NOT_STARTED
            raise

    def alone(self, work: Callable[[Callable[[], None]], object]) -> None:
        """Do long work that each rank does independently.

        All ranks call this. `work` gets a function to call between its parts, which ends the work
        if this rank was asked to stop. The other ranks learn of this when their own work is done,
        and all raise a StopRun together. If the work of one raises a UserError, all raise it.
        """

        def asked() -> bool:
            try:
                work(self._end_if_asked)
            except _Asked:
                return True
            return False

        if not self._world.all(not self._world.together(asked)):
            self.check()

    def _end_if_asked(self) -> None:
        self._heartbeat()
        self._request.check_walltime(self._max_walltime)
        if self._request.reason is not None:
            raise _Asked

    def after_move(self) -> None:
        """Count a move, and check if a check is due.

        Raises a StopRun on all ranks together if one was asked to stop.
        """
        self._moves_to_check -= 1
        if self._moves_to_check == 0:
            self.check()

    def after_moves(self, n: int) -> None:
        """Count n moves; check at most once, after the last of them."""
        extra = max(0, n - self._moves_to_check)
        self._moves_to_check -= n - extra
        if self._moves_to_check == 0:
            self._moves += extra
            self.check()

    def check(self) -> None:
        """Check now; see `after_move`."""
        self._request.check_walltime(self._max_walltime)
        self._heartbeat()
        self._moves += self._interval - self._moves_to_check
        now = time.monotonic()
        asked = self._request.reason is not None
        stop, milliseconds = self._world.max(
            np.array([asked, (now - self._last) * 1e3], dtype=np.int64)
        )
        if stop:
            texts = self._world.texts(self._request.reason or "")
            raise StopRun(next(text for text in texts if text))
        # At most double it, since the first moves may have been fast by chance.
        ideal = self._interval * SECONDS_BETWEEN_CHECKS * 1e3 / max(int(milliseconds), 1)
        self._interval = max(1, min(2 * self._interval, int(ideal)))
        self._moves_to_check = self._interval
        self._last = now

    def outcome(self, moves_per_round: int, remedy: str = "") -> str:
        """Return a message for a StopRun; it tells the user if this start committed no round.

        moves_per_round : of this rank
        remedy : text on what else the user can do if a round takes too long
        """
        if self._moves > moves_per_round:
            return StopRun.outcome
        seconds = time.monotonic() - self._begin
        a_round = seconds / max(self._moves, 1) * moves_per_round
        needed = ROOM_FOR_A_ROUND * (self._request.age - seconds + a_round)
        return (
            f"no round was committed since this start, and one takes about {duration(a_round)}: "
            f"set --max-walltime, or the job's time limit, to {math.ceil(needed)} s or more"
            f"{remedy}; rounds committed before are safe"
        )
