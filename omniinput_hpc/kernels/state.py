"""The protocol of kernels, what their moves take and return, and the acceptance step they share."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from omniinput_hpc.kernels.parts.device_rng import DeviceStream
from omniinput_hpc.tempering.ensembles import Ensemble


@dataclass(frozen=True)
class State:
    """Walkers of one rung. The ensemble is no part of it, so that a swap invalidates nothing.

    Attributes
    ----------
    x : int64 [W, D]
    z : float32 [W], the model's output of x
    cache : what else the kernel computed (the gradient at x, say). `Kernel.start` or the first
        `Kernel.step` makes it, each `Kernel.step` replaces it, and nobody but the kernel reads it
    """

    x: torch.Tensor
    z: torch.Tensor
    cache: Any = None


@dataclass(frozen=True)
class Info:
    """What one move did.

    Attributes
    ----------
    accepted : bool [W]
    part : which of the kernel's `parts` moved, the same one for all walkers
    log_q : float64 [W, K], log-probability of the walkers' inputs under every rung, where the move
        drew them independently and the run keeps it; else None
    exact : drawn from the ensemble directly: always accepted, not a move of the kernel
    """

    accepted: torch.Tensor
    part: int = 0
    log_q: torch.Tensor | None = None
    exact: bool = False


@dataclass(frozen=True)
class SearchBudget:
    """What a rung's search of burn-in may look at.

    Attributes
    ----------
    n_batches : of inputs drawn at random
    first_values : int64 [n], at an input's first site; beginnings from these are met in order, and
        those from other values by other rungs. Those that matter most come first
    """

    n_batches: int
    first_values: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))


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


class Untuned:
    """A kernel that tunes nothing (`tuned` is float64 [0]) and starts with an empty cache."""

    def __init__(self) -> None:
        self.tuned: NDArray[np.float64] = np.empty(0)

    def start(self, x: torch.Tensor, z: torch.Tensor) -> State:
        """Return the state of walkers, with an empty cache."""
        return State(x, z)

    def adapt(self, attempted_p: NDArray[np.int64], accepted_p: NDArray[np.int64]) -> None:
        """Do nothing."""

    def searches(self, ensemble: Ensemble) -> bool:
        """Return False: nothing is learned."""
        return False

    def search(
        self, ensemble: Ensemble, like: torch.Tensor, stream: DeviceStream, budget: SearchBudget
    ) -> torch.Tensor | None:
        """Return None: nothing is learned."""
        return None

    def learn(self, ensemble: Ensemble, x: torch.Tensor, n_walkers: int) -> None:
        """Do nothing."""


def decide(
    ensemble: Ensemble,
    z: torch.Tensor,
    z_new: torch.Tensor,
    log_proposal_ratio: torch.Tensor | float,
    u: torch.Tensor,
) -> torch.Tensor:
    """Return which proposals are accepted, bool [W] (Hastings 1970, eq. 1.6).

    Given are the outputs z and z_new, [W]; ln q(x | x') - ln q(x' | x), float64 [W], or 0 for a
    symmetric proposal; and u, float64 [W], uniform in [0, 1).
    """
    log_ratio: torch.Tensor = ensemble.log_weight(z_new.double()) - ensemble.log_weight(z.double())
    return u.log() < log_ratio + log_proposal_ratio


def accept(accepted: torch.Tensor, new: torch.Tensor, old: torch.Tensor) -> torch.Tensor:
    """Return new [W, ...] where accepted, bool [W], else old."""
    return torch.where(accepted.view(-1, *[1] * (new.dim() - 1)), new, old)
