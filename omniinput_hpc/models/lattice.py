"""Detect outputs on the edges of bins, where rounding decides which bin counts them.

This happens if both the outputs and the edges are multiples of a unit. A model's own outputs are at
least rounded in the same way each time; sums of changes fall on either side.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from omniinput_hpc import rng
from omniinput_hpc.models.protocol import Model, offers_of

FEW = 0.02
"""Outputs are taken to lie on edges if at least this share of them is near an edge."""
NEAR = 8.0
"""An output within this many float32 spacings of an edge is near it."""
N_PROBES = 256
"""Least number of random inputs to evaluate."""
N_CHANGES = 64
"""Number of consecutive changes whose sums must be exact."""

log = logging.getLogger("omniinput_hpc")


def unit_of(z_n: NDArray[Any]) -> float:
    """Return the unit of which all outputs [n] are multiples, up to a shift; 0 if there is none.

    The unit is the smallest distance between two distinct outputs, if at most half of the outputs
    are distinct and all distances are multiples of it within rounding.
    """
    z = np.sort(z_n.astype(np.float64).ravel())
    least = NEAR * float(np.spacing(np.float32(np.abs(z).max(initial=1e-30))))
    gaps = np.diff(z)
    gaps = gaps[gaps > least]
    if not len(gaps) or len(gaps) + 1 > len(z) / 2:
        return 0.0
    unit = float(gaps.min())
    apart = np.abs(gaps - np.round(gaps / unit) * unit)
    return unit if (apart < np.maximum(least, 1e-3 * unit)).all() else 0.0


def better_lower(z_n: NDArray[Any], lower: float, width: float) -> float | None:
    """Return a better lower edge of the bins if outputs [n] lie on edges; otherwise None.

    Outputs that all lie exactly on edges, such as whole numbers, need no other edges.
    """
    z = z_n.astype(np.float64).ravel()
    place = (z - lower) / width
    apart = np.abs(place - np.round(place)) * width
    near = apart <= NEAR * np.spacing(np.abs(z).astype(np.float32))
    unit = unit_of(z)
    if near.mean() < FEW or not unit or not apart[near].any():
        return None
    return float(f"{lower - 0.5 * min(float(f'{unit:.4g}'), width):.12g}")


def keep_off_edges(model: Any, lower: float, width: float, n_walkers: int, device: str) -> None:
    """Warn if outputs lie on edges of bins; stop using changes if their sums are inexact.

    `model` is a `CheckedModel`; changes are removed from its `offers`, so that each move evaluates
    the whole input.
    """
    random = rng.generator(0, "fingerprint", model.n_sites, 5)
    probes: list[NDArray[Any]] = []
    shape = (n_walkers, model.n_sites)
    while len(probes) * n_walkers < N_PROBES:
        x = torch.from_numpy(random.integers(model.n_values, size=shape)).to(device)
        z = model.output(x)
        probes.append(z.cpu().numpy())
    better = better_lower(np.concatenate(probes), lower, width)
    if better is None:
        return
    said = "warning: outputs lie on the edges of bins, so rounding decides which bin counts them"
    offers = offers_of(model)
    if offers.change is not None or offers.compiled_change is not None:
        exact = offers.change and _sums_are_exact(offers.change, model, x, z, random)
        if not exact:
            said += "; changes are not used: each move evaluates the model, which is slower"
            model.offers = replace(offers, change=None, compiled_change=None)
    log.warning("%s; set bins.lower = %.12g to put the edges between outputs", said, better)


def _sums_are_exact(
    change: Any, model: Model, x: torch.Tensor, z: torch.Tensor, random: np.random.Generator
) -> bool:
    """Return whether z plus consecutive changes equals the model's z to the bit."""
    total, n_walkers = z.double(), len(x)
    for _ in range(N_CHANGES):
        site, shift = (
            torch.from_numpy(random.integers(low, high, size=n_walkers)).to(x.device)
            for low, high in ((0, model.n_sites), (1, model.n_values))
        )
        value = (x.gather(1, site[:, None])[:, 0] + shift) % model.n_values
        total = total + change(x, site, value).double()
        x = x.scatter(1, site[:, None], value[:, None])
        if not torch.equal(total.to(z.dtype), model.output(x)):
            return False
    return True
