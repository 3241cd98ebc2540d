"""A model that fails on one rank in the midst of a run, as the environment says.

FAILURE is one of `WAYS`, FAILING_RANK who, FAILING_CALL when; FAILURE_MARK is a file that is made
at that moment.
"""

from __future__ import annotations

import os
from pathlib import Path

import torch
from toy_models import LatticeModel

from omniinput_hpc.errors import UserError

WAYS = {
    "exception": "IndexError: list index out of range",
    "memory": "can't allocate memory",
    "device memory": "OutOfMemoryError: CUDA out of memory",
    "nan": "not finite",
    "own code": "RuntimeError: my function failed",
}
"""Each with words of its message."""
RANK = os.environ.get("PMI_RANK", os.environ.get("OMPI_COMM_WORLD_RANK", "0"))
CALLS = int(os.environ.get("FAILING_CALL", "400"))


class FailingModel(LatticeModel):
    calls = 0

    def output(self, x):
        self.calls += 1
        z = super().output(x)
        how = os.environ.get("FAILURE", "")
        if not how or self.calls < CALLS or os.environ["FAILING_RANK"] != RANK:
            return z
        Path(os.environ["FAILURE_MARK"]).touch()
        if how == "exception":
            return [z][1]
        if how == "own code":  # as an observable or an output by the user's function
            raise UserError("my function failed")
        if how == "memory":
            return torch.empty(1 << 50)  # more than any machine has
        if how == "device memory":  # what torch raises where a GPU is full
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 80.00 GiB")
        return torch.full_like(z, torch.nan)


def failing(device):
    return FailingModel(6, 4, 0.25, device)
