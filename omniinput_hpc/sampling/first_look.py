"""A rank's first look at its model: whether it can be sampled, on inputs that never change."""

from __future__ import annotations

from typing import TYPE_CHECKING

from omniinput_hpc import models, rng
from omniinput_hpc.models import checked

if TYPE_CHECKING:
    from omniinput_hpc.sampling.build import Built

N_PROBES = 16
"""Inputs whose z tells whether a resumed run has the same model."""


@checked.refused_unless_finite()
def check(built: Built, name: str) -> None:
    """Raise a UserError where the model writes into its inputs, or where z cannot be used.

    That is so if it is not finite, not a function of the input, or not what the model says of
    changed inputs. `name` is the model's, for the message.
    """
    config, g, device = built.config, built.geometry, built.device
    shape, allowed = (config.sampler.block_walkers, g.n_sites), models.rounding(config)
    checked.check_keeps_inputs(built.model, shape, name, device, config.model.kind == "python")
    evaluate = built.rungs[0].walkers.evaluate
    checked.check_is_function(evaluate, shape, g.n_values, allowed, name)
    checked.check_change(built.model, shape, allowed, name, device)


@checked.refused_unless_finite()
def probe(built: Built) -> list[float]:
    """Return z at 16 inputs: they tell whether the model is the same."""
    g, batch = built.geometry, built.config.sampler.block_walkers
    z: list[float] = []
    random = rng.generator(0, "fingerprint", g.n_sites)
    while len(z) < N_PROBES:
        x = random.integers(g.n_values, size=(batch, g.n_sites)).astype(g.x_dtype)
        z.extend(built.rungs[0].walkers.evaluate(x).tolist())
    return z[:N_PROBES]
