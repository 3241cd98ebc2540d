"""A model that is slow on one rank, so that the ranks are never at the same move."""

from __future__ import annotations

import os
import time

from toy_models import LatticeModel

PAUSE = 0.0005
"""Of every rank: rounds long enough to be aimed at on a busy machine."""


class SkewedModel(LatticeModel):
    """The lattice model, with a pause in each evaluation, longer on odd ranks."""

    seconds = 0.0

    def output(self, x):
        odd = int(os.environ.get("PMI_RANK", "0")) % 2
        time.sleep(PAUSE + odd * self.seconds)
        return super().output(x)


def skewed(device, seconds=0.0):
    model = SkewedModel(6, 4, 0.25, device)
    model.seconds = seconds
    return model
