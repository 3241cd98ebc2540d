"""Kernels: one Markov transition a file; here the protocol and the table of names."""

from __future__ import annotations

from typing import Protocol

import torch

from omniinput_hpc.config import Metropolis as MetropolisOptions
from omniinput_hpc.ensembles import Ensemble
from omniinput_hpc.kernels.device_stream import DeviceStream
from omniinput_hpc.kernels.metropolis import Metropolis
from omniinput_hpc.kernels.state import Info, State
from omniinput_hpc.models import Model

__all__ = ["DeviceStream", "Info", "Kernel", "State", "build"]


class Kernel(Protocol):
    """A transition that leaves the ensemble's law invariant.

    Attributes
    ----------
    uniforms_per_move : int
        How many random numbers a move of all walkers takes (a hint for drawing them in blocks).
    """

    uniforms_per_move: int

    def start(self, x: torch.Tensor, z: torch.Tensor) -> State:
        """Return the state of walkers x, int64 [W, D], with outputs z, float32 [W].

        Called after every exchange as well: what a kernel caches is computed here.
        """
        ...

    def step(self, state: State, ensemble: Ensemble, stream: DeviceStream) -> tuple[State, Info]:
        """Move every walker once: what is carried on is in the state, what is counted in info."""
        ...


_KERNELS = {"metropolis": Metropolis}


def build(options: MetropolisOptions, model: Model, n_walkers: int) -> Kernel:
    """Make the kernel that the input file names.

    Raises
    ------
    UserError
        The model lacks what the kernel needs, or the options do not fit the model.
    """
    return _KERNELS[options.name](options, model, n_walkers)
