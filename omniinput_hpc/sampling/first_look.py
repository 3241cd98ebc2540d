"""Checks of a model before a run: whether it can be sampled, and its outputs at fixed inputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from omniinput_hpc import models, rng
from omniinput_hpc.config import Config
from omniinput_hpc.models import checked
from omniinput_hpc.runfile.layout import Geometry

Evaluate = Callable[[NDArray[Any]], NDArray[np.float32]]
"""Returns outputs, float32 [W], for inputs [W, D]."""

N_PROBES = 16
"""The number of fixed inputs whose z shows whether a resumed run has the same model."""


@checked.refused_unless_finite()
def check(
    model: models.Model, evaluate: Evaluate, config: Config, g: Geometry, device: str, name: str
) -> None:
    """Raise a UserError if the model writes into its inputs, or if its z cannot be used.

    z must be finite, a function of the input, and consistent with what the model's `change`
    returns. `name` is the model's name in messages.
    """
    shape, allowed = (config.sampler.block_walkers, g.n_sites), models.rounding(config)
    checked.check_keeps_inputs(model, shape, name, device, config.model.kind == "python")
    checked.check_is_function(evaluate, shape, g.n_values, allowed, name)
    checked.check_change(model, shape, allowed, name, device)


@checked.refused_unless_finite()
def probe(evaluate: Evaluate, config: Config, g: Geometry) -> list[float]:
    """Return z at `N_PROBES` fixed inputs, which show whether the model is the same."""
    batch = config.sampler.block_walkers
    z: list[float] = []
    random = rng.generator(0, "fingerprint", g.n_sites)
    while len(z) < N_PROBES:
        x = random.integers(g.n_values, size=(batch, g.n_sites)).astype(g.x_dtype)
        z.extend(evaluate(x).tolist())
    return z[:N_PROBES]
