"""Checks of a model before a run: whether it can be sampled, and its outputs at fixed inputs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from omniinput_hpc import models, rng
from omniinput_hpc.config import Config
from omniinput_hpc.config.space import Space
from omniinput_hpc.errors import UserError
from omniinput_hpc.kernels.parts import law
from omniinput_hpc.kernels.parts.constrained import InputLaw
from omniinput_hpc.models import batch_invariant, checked
from omniinput_hpc.models.observables import LABEL, SAME_Y, Observe
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
    shape, allowed = (config.sampler.block_walkers, g.n_sites), models.rounding(config, model)
    checked.check_keeps_inputs(model, shape, name, device, config.model.kind == "python")
    checked.check_is_function(evaluate, shape, g.n_values, allowed, name)
    checked.check_change(model, shape, allowed, name, device)
    if device == "cpu":
        batch_invariant.check(model, shape, name)


@checked.refused_unless_finite()
def probe(evaluate: Evaluate, config: Config, g: Geometry) -> list[float]:
    """Return z at `N_PROBES` fixed inputs, which show whether the model is the same."""
    z = np.concatenate([evaluate(x) for x in _fixed_inputs(config, g)])
    return list(z[:N_PROBES].tolist())


def marks(
    input_law: InputLaw | None, observed: Mapping[str, Observe], space: Space, config: Config,
    g: Geometry, device: str,
) -> dict[str, Any]:  # fmt: skip
    """Return attributes that show whether the law and the observables are the same.

    These are numbers at fixed inputs, and a hash of the law's prompts. Observables of a constrained
    space need not take these inputs; the fingerprint covers a classifier's class.
    """
    x_wd = next(_fixed_inputs(config, g))  # a law gets batches of one size
    found = law.marks(input_law, x_wd, device) if isinstance(input_law, law.Law) else {}
    if found:
        found["law_log_q"] = found["law_log_q"][:N_PROBES]
    id_nd = space.to_ids(x_wd[:N_PROBES].astype(np.int64))
    names = [n for n in observed if config.observed[n] != LABEL and not config.constrained]
    y = [_of_each_alone(observed[name], id_nd, f"observables.{name}") for name in names]
    return {**found, "observables_y": np.concatenate(y)} if y else found


def _of_each_alone(y: Observe, id_nd: NDArray[np.int64], key: str) -> NDArray[np.float64]:
    """Return y of inputs; raise a UserError if that of the first depends on the others.

    The law of a second direction would then depend on the batch.
    """
    together, alone = y(id_nd), y(id_nd[:1])
    if not np.allclose(alone, together[:1], SAME_Y, SAME_Y):
        raise UserError(
            f"{key} gives an input {together[0]:.6g} beside others, but {alone[0]:.6g} on its own: "
            "its function must depend on nothing but the input"
        )
    return together


def _fixed_inputs(config: Config, g: Geometry) -> Iterator[NDArray[Any]]:
    """Yield at least `N_PROBES` fixed inputs in batches, [W, D]."""
    random, batch = rng.generator(0, "fingerprint", g.n_sites), config.sampler.block_walkers
    for _ in range(0, N_PROBES, batch):
        yield random.integers(g.n_values, size=(batch, g.n_sites)).astype(g.x_dtype)
