"""A model that takes a known time, mostly asleep, and may fail."""

from __future__ import annotations

import time
from pathlib import Path

from toy_models import LatticeModel

FIRST_ROUND = 30
"""An evaluation in a start's first round: some come before it, and it has 60."""


class SlowModel(LatticeModel):
    """The lattice model, with a pause in each evaluation.

    seconds : of the pause
    fails : in how many starts it fails: in the first after evaluation `after`, in later ones in the
        first round
    mark : a file with a letter for each start that has failed
    """

    seconds = 0.0
    fails, after = 0, FIRST_ROUND
    mark = Path()
    evaluations = 0

    def output(self, x):
        time.sleep(self.seconds)
        self.evaluations += 1
        if self.fails:
            self._perhaps_fail()
        return super().output(x)

    def _perhaps_fail(self):
        starts = len(self.mark.read_text()) if self.mark.exists() else 0
        after = FIRST_ROUND if starts else self.after
        if starts < self.fails and self.evaluations > after:
            self.mark.write_text("x" * (starts + 1))
            raise RuntimeError("as it was told to")


def slow(device, seconds=0.0, fails=0, after=FIRST_ROUND, mark=""):
    """Make a model that pauses for `seconds` per batch; see `SlowModel`."""
    model = SlowModel(6, 4, 0.25, device)
    model.seconds, model.mark = seconds, Path(mark)
    model.fails, model.after = fails, after
    return model
