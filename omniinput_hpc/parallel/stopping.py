"""Agreeing to stop: the ranks look at each other's stop requests together, every few moves."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from omniinput_hpc.errors import StopRun
from omniinput_hpc.parallel.comm import World
from omniinput_hpc.parallel.signals import StopRequest

SECONDS_BETWEEN_LOOKS = 4.0


class Lookout:
    """Counts moves, and lets all ranks look together every n of them.

    All ranks make equally many moves, so they all look at the same ones. n is chosen from the
    slowest rank's time since the last look, which is part of what is agreed; it affects no result.
    `sign_of_life` is called at each look.
    """

    def __init__(
        self,
        request: StopRequest,
        world: World,
        max_walltime: float | None,
        sign_of_life: Callable[[], object] = lambda: None,
    ) -> None:
        self._request, self._world, self._max_walltime = request, world, max_walltime
        self._sign_of_life = sign_of_life
        self._moves_to_look = self._interval = 1
        self._last = time.monotonic()

    def after_move(self) -> None:
        """Count a move; look when it is time.

        Raises
        ------
        StopRun
            On all ranks together, when one was asked to stop.
        """
        self._moves_to_look -= 1
        if self._moves_to_look == 0:
            self.look()

    def look(self) -> None:
        """Look now; see `after_move`."""
        self._request.check_walltime(self._max_walltime)
        self._sign_of_life()
        now = time.monotonic()
        wanted = self._request.reason is not None
        stop, milliseconds = self._world.max(
            np.array([wanted, (now - self._last) * 1e3], dtype=np.int64)
        )
        if stop:
            texts = self._world.texts(self._request.reason or "")
            raise StopRun(next(text for text in texts if text))
        # At most doubled: a first look may have come early by chance.
        ideal = self._interval * SECONDS_BETWEEN_LOOKS * 1e3 / max(int(milliseconds), 1)
        self._interval = max(1, min(2 * self._interval, int(ideal)))
        self._moves_to_look = self._interval
        self._last = now
