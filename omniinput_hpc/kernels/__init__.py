"""Kernels: one Markov transition a file. Here are the protocol and `build`.

The table of kernels is `omniinput_hpc.config.kernels.KERNELS`, which needs no torch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from omniinput_hpc.config import KernelTable
from omniinput_hpc.config import Mixture as MixtureOptions
from omniinput_hpc.config.kernels import Metropolis as MetropolisOptions
from omniinput_hpc.errors import UserError
from omniinput_hpc.kernels.metropolis import reaches_every_input
from omniinput_hpc.kernels.mixture import Mixture
from omniinput_hpc.kernels.parts.device_rng import DeviceStream
from omniinput_hpc.kernels.state import Info, SearchBudget, State
from omniinput_hpc.models import Model
from omniinput_hpc.tempering.ensembles import Ensemble

__all__ = ["DeviceStream", "Info", "Kernel", "SearchBudget", "State", "build"]


class Kernel(Protocol):
    """A transition that leaves the ensemble's distribution invariant.

    Attributes
    ----------
    uniforms_per_move : int
        How many random numbers a move of all walkers takes (a hint for drawing them in blocks).
    parts : tuple of str
        Names of the kinds of move that are counted each on its own (`Info.part` is the index).
    tuned : float64 [n_tuned], may be empty
        What burn-in tunes. It is stored with the state, and assigned when a run is resumed; it
        is assigned as a whole and never written into, since a kernel may make it anew when asked.
    """

    uniforms_per_move: int
    parts: tuple[str, ...]
    tuned: NDArray[np.float64]

    def start(self, x: torch.Tensor, z: torch.Tensor) -> State:
        """Return the state of walkers x, int64 [W, D], with outputs z, float32 [W].

        Called after every exchange as well: what a kernel caches is computed here, or at the
        next step. It is kept in the state, and only the kernel reads it.
        """
        ...

    def step(self, state: State, ensemble: Ensemble, stream: DeviceStream) -> tuple[State, Info]:
        """Move every walker once; return the new state, and which moves were accepted."""
        ...

    def adapt(self, attempted_p: NDArray[np.int64], accepted_p: NDArray[np.int64]) -> None:
        """Change `tuned`, given a segment's moves by part, int64 [n_parts]. In burn-in only."""
        ...

    def searches(self, ensemble: Ensemble) -> bool:
        """Return whether `search` searches on this ensemble."""
        ...

    def search(
        self, ensemble: Ensemble, like: torch.Tensor, stream: DeviceStream, budget: SearchBudget
    ) -> torch.Tensor | None:
        """Search for inputs to learn from; return W of them, int64 [W, D], if any.

        After some rounds of the first part of burn-in. `like` are W inputs.
        """
        ...

    def learn(self, ensemble: Ensemble, x: torch.Tensor, n_walkers: int) -> None:
        """Change `tuned` after a round of the first part of burn-in, by what the model says of x.

        x : int64 [n W, D], the W = `n_walkers` of the rung, and what all rungs' searches found
        """
        ...


def build(options: KernelTable, model: Model, n_walkers: int) -> Kernel:
    """Make the kernel that the input file names, for one rung.

    A `UserError` says what the model lacks, which option does not fit the model, or that the
    kernel would never reach some inputs.
    """
    parts = options.parts if isinstance(options, MixtureOptions) else [options]
    kernels = [_build_part(part, model, n_walkers) for part in parts]
    _check_reach(parts, model)
    if isinstance(options, MixtureOptions):
        return Mixture(kernels, [part.weight for part in options.parts], options.part_names)
    return kernels[0]


def _build_part(options: KernelTable, model: Model, n_walkers: int) -> Kernel:
    module, _, name = options.implementation.partition(":")
    make: Callable[[Any, Model, int], Kernel] = getattr(import_module(module), name)
    return make(options, model, n_walkers)


def _check_reach(parts: Sequence[KernelTable], model: Model) -> None:
    """Raise a `UserError` where all parts' moves conserve something: inputs would be missing."""
    sites = [part.sites for part in parts if isinstance(part, MetropolisOptions)]
    if len(sites) == len(parts) and not reaches_every_input(sites, model.n_values, model.n_sites):
        raise UserError(
            f"kernel.sites = {', '.join(map(str, sites))}: with {model.n_values} values a site "
            "such moves flip an even number of sites, or all of them, and never reach half of the "
            "inputs; set kernel.sites = 1, or add a part to a mixture"
        )
