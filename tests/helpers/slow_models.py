"""A model that takes a known time, mostly asleep."""

from __future__ import annotations

import time

from toy_models import LatticeModel


class SlowModel(LatticeModel):
    """The lattice model, with a pause in each evaluation."""

    seconds = 0.0

    def output(self, x):
        time.sleep(self.seconds)
        return super().output(x)


def slow(device, seconds=0.0):
    """Make a model that pauses for `seconds` per batch."""
    model = SlowModel(6, 4, 0.25, device)
    model.seconds = seconds
    return model
