"""Where walkers colder than a language model itself start: repetitions, and the model's own text.

Near b = 1.1 to 1.2 a repetition phase sets in. Half the lanes start on either side of that barrier,
so that a ladder which nobody crosses shows: the halves then go on to disagree.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from omniinput_hpc.kernels.independent import AutoregressiveSampler
from omniinput_hpc.kernels.parts.device_rng import DeviceStream
from omniinput_hpc.tempering.ensembles import Canonical

BEST_VALUES = 16  # whose pairs are tried


def cold_start(
    model: Any,
    draws: AutoregressiveSampler,
    m: float,
    like: torch.Tensor,
    random: np.random.Generator,
) -> torch.Tensor:
    """Return inputs, int64 [W, D]: half of the lanes from the model, the others repetitions.

    Parameters
    ----------
    m : the model's own beta
    like : int64 [W, D], gives shape and device
    """
    n_walkers = len(like)
    stream = DeviceStream(random, like.device, n_walkers * like.shape[1])
    z = torch.zeros(n_walkers, device=like.device)
    state, _ = draws.step(draws.start(like, z), Canonical(m), stream)
    n_own = (n_walkers + 1) // 2  # the first half of the groups of lanes, as `equilibration` has it
    repeated = repetitions(model, like, n_walkers - n_own)
    return torch.cat([state.x[:n_own], repeated])


def repetitions(model: Any, like: torch.Tensor, n: int) -> torch.Tensor:
    """Return the n sequences of lowest z that repeat one value, or two in turn: int64 [n, D]."""
    n_values, n_sites = model.n_values, like.shape[1]
    values = torch.arange(n_values, device=like.device)
    constant = values[:, None].expand(-1, n_sites)  # [V, D], no memory of its own
    z_constant = _outputs(model, constant, like)
    best = z_constant.argsort(stable=True)[:BEST_VALUES]
    pairs = torch.cartesian_prod(best, best)
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    odd = torch.arange(n_sites, device=like.device) % 2
    alternating = pairs[:, odd]  # [P, D]
    keep = z_constant.argsort(stable=True)[:n]
    candidates = torch.cat([constant[keep], alternating])
    z = torch.cat([z_constant[keep], _outputs(model, alternating, like)])
    chosen = candidates[z.argsort(stable=True)[:n]]
    return chosen[torch.arange(n, device=like.device) % len(chosen)]


def _outputs(model: Any, x: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """Return z of many inputs, float32, evaluated in batches of the run's own shape."""
    z = []
    for begin in range(0, len(x), len(like)):
        part = x[begin : begin + len(like)]
        batch = torch.cat([part, like.new_zeros(len(like) - len(part), like.shape[1])])
        z.append(model.output(batch)[: len(part)])
    return torch.cat(z) if z else torch.zeros(0, device=like.device)
