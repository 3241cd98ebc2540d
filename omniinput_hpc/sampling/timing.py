"""A clock for the parts of a run, including the time spent waiting for other ranks."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from omniinput_hpc.parallel.comm import World

WAITING = "waiting"
LABELS = {
    "moves": "moves (kernels, the model's forward)",
    "exchange": "exchange of configurations",
    "recording": "recording (histograms, samples)",
    "writing": "writing the run file",
    WAITING: "waiting for other ranks",
}
"""The parts and their labels in the table."""


class Clock:
    """Adds up seconds by part; `World.waited` is moved from each part to `WAITING`."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.seconds = dict.fromkeys(LABELS, 0.0)
        self.begin = time.perf_counter()

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Add the time of a ``with`` block to a part."""
        begin, waited = time.perf_counter(), self._world.waited
        try:
            yield
        finally:
            waited = self._world.waited - waited
            self.seconds[name] += time.perf_counter() - begin - waited
            self.seconds[WAITING] += waited

    def table(self) -> str:
        """Return a table of the parts, averaged over ranks (all ranks call this)."""
        total = time.perf_counter() - self.begin
        values = np.array([*self.seconds.values(), total])
        mean = self._world.sum(values) / self._world.size
        other = max(mean[-1] - mean[:-1].sum(), 0.0)
        rows = [*zip(LABELS.values(), mean[:-1], strict=True), ("other", other)]
        lines = ["where the time went (mean over ranks):"]
        lines += [f"  {label:<38}{s:9.1f} s {100 * s / mean[-1]:6.1f} %" for label, s in rows]
        return "\n".join([*lines, f"  {'total':<38}{mean[-1]:9.1f} s"])
