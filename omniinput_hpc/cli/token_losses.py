"""The loss of each token of some inputs, by the run's own model, which is loaded for it."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from omniinput_hpc import models
from omniinput_hpc.runfile.reader import RunReader


def losses_of(run: RunReader, x_nd: NDArray[Any]) -> NDArray[np.float32]:
    """Return the loss of each value of inputs, ids [n, D], on a CPU; NaN if it is not predicted.

    Raises a UserError if the model cannot be built, or has no conditional probabilities.
    """
    from omniinput_hpc.models import batches  # imports torch

    folder = models.preflight(run.config).get("folder")
    model = models.build(run.config, "cpu", folder)
    return batches.token_losses(model, models.space_of(model).to_values(x_nd), "cpu")
