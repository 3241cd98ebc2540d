"""A model that waits, asleep, for a time or until a test has done what it wants, and may fail."""

from __future__ import annotations

import time
from pathlib import Path

from toy_models import LatticeModel, TableModel

FIRST_ROUND = 30
"""An evaluation in a start's first round: some come before it, and it has 60."""


class SlowModel(LatticeModel):
    """The lattice model, with a pause in each evaluation.

    seconds : of the pause
    hold : from this evaluation of a process on, it waits for the test
    hurry : a file; once it is there, nothing pauses or waits
    fails : in how many starts it fails: in the first after evaluation `after`, in later ones in the
        first round
    mark : a file with a letter for each start that has failed
    """

    seconds, hold = 0.0, 0
    fails, after = 0, FIRST_ROUND
    mark = hurry = Path()
    evaluations = 0

    def output(self, x):
        self.evaluations += 1
        wait(self.seconds, self.hurry, self.hold and self.evaluations >= self.hold)
        if self.fails:
            self._perhaps_fail()
        return super().output(x)

    def _perhaps_fail(self):
        starts = len(self.mark.read_text()) if self.mark.exists() else 0
        after = FIRST_ROUND if starts else self.after
        if starts < self.fails and self.evaluations > after:
            self.mark.write_text("x" * (starts + 1))
            raise RuntimeError("as it was told to")


def slow(device, seconds=0.0, hold=0, hurry="", fails=0, after=FIRST_ROUND, mark=""):
    """Make a model that pauses for `seconds` per batch; see `SlowModel`."""
    model = SlowModel(6, 4, 0.25, device)
    model.seconds, model.hold = seconds, hold
    model.mark, model.hurry = Path(mark), Path(hurry)
    model.fails, model.after = fails, after
    return model


class SlowTable(TableModel):
    """A model of `model_pair`; from evaluation `hold` of a process on, it waits for the test."""

    evaluations = 0

    def output(self, x):
        self.evaluations += 1
        wait(0.0, self.hurry, self.evaluations >= self.hold)
        return super().output(x)


def slow_table(device, which, hold, hurry):
    model = SlowTable(which, device)
    model.hold, model.hurry = hold, Path(hurry)
    return model


def held(hold, hurry):
    """Return the settings of a run that goes on after evaluation `hold` when a file is there."""
    options = f"model.options={{hold={hold}, hurry='{hurry}'}}"
    return ["model.factory=slow_models:slow", options]


def wait(seconds, hurry, hold):
    """Sleep for some seconds, and if it holds until the file is there; not at all if it is."""
    if not hurry.is_file():
        time.sleep(seconds)
        while hold and not hurry.is_file():
            time.sleep(0.01)
