"""The kernel protocol, the state and info of a move, and the Metropolis-Hastings acceptance."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from omniinput_hpc.kernels.look_ahead.continuations import Texts
from omniinput_hpc.kernels.parts.device_rng import DeviceStream
from omniinput_hpc.tempering.ensembles import Ensemble


@dataclass(frozen=True)
class State:
    """The walkers of one rung. The ensemble is not part of it, so a swap invalidates nothing.

    Attributes
    ----------
    x : int64 [W, D]
    z : float32 [W], the model's output at x
    cache : anything else that the kernel computed, such as the gradient at x. `Kernel.start` or the
        first `Kernel.step` creates it, each `Kernel.step` replaces it, and only the kernel reads it
    """

    x: torch.Tensor
    z: torch.Tensor
    cache: Any = None


@dataclass(frozen=True)
class Info:
    """The result of one move.

    Attributes
    ----------
    accepted : bool [W]
    part : index into the kernel's `parts`, the same for all walkers
    log_q : float64 [W, K], log-probability of each new input under every rung; None unless the
        inputs are independent draws and the run records it
    exact : whether the inputs were drawn from the ensemble directly, not by a move of the kernel
    """

    accepted: torch.Tensor
    part: int = 0
    log_q: torch.Tensor | None = None
    exact: bool = False


@dataclass(frozen=True)
class SearchBudget:
    """How much one block of a rung may search during burn-in.

    Attributes
    ----------
    n_batches : number of batches of randomly drawn inputs
    first_values : int64 [n], the values of the first site that this block searches, in the order in
        which it tries them; other blocks search the other values
    share : of what a block searches, tries and returns if only the rungs that learn search; at most
        1
    between : called before each batch; it may raise, to end the search
    """

    n_batches: int
    first_values: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    share: float = 1.0
    between: Callable[[], object] = lambda: None


@dataclass(frozen=True)
class Target:
    """The rung for which a block searches, which may be another rung than its own.

    Attributes
    ----------
    ensemble : of the rung
    tuned : float64 [n_tuned], of the rung's kernel
    budget : of the block
    """

    ensemble: Ensemble
    tuned: NDArray[np.float64]
    budget: SearchBudget


class Kernel(Protocol):
    """A transition that leaves the ensemble's distribution invariant.

    Attributes
    ----------
    uniforms_per_move : int
        Random numbers that one move of all walkers uses (a hint for drawing them in blocks).
    parts : tuple of str
        Names of the kinds of move that are counted separately; `Info.part` is an index into it.
    tuned : float64 [n_tuned], may be empty
        The numbers that burn-in tunes. They are saved with the state and restored when a run
        resumes. Assign a new array instead of writing into this one, which may be a copy.
    """

    uniforms_per_move: int
    parts: tuple[str, ...]
    tuned: NDArray[np.float64]

    def start(self, x: torch.Tensor, z: torch.Tensor) -> State:
        """Return the state of walkers x, int64 [W, D], with outputs z, float32 [W].

        Called at the start and after every exchange. The cache is filled here or in the next step.
        """
        ...

    def step(self, state: State, ensemble: Ensemble, stream: DeviceStream) -> tuple[State, Info]:
        """Move every walker once; return the new state and the info of the move."""
        ...

    def adapt(self, attempted_p: NDArray[np.int64], accepted_p: NDArray[np.int64]) -> None:
        """Update `tuned` from the moves of a segment per part, int64 [n_parts]; burn-in only."""
        ...

    def learner(self, ensemble: Ensemble) -> Learner | None:
        """Return what learns from inputs in burn-in for this ensemble; None if nothing does."""
        ...


class Learner(Protocol):
    """What updates a kernel's `tuned` from inputs, early in burn-in."""

    def search(self, target: Target, like: torch.Tensor, stream: DeviceStream) -> Texts:
        """Search for inputs from which a rung can learn, after some rounds.

        `like`, int64 [W, D], gives shape and device.
        """
        ...

    def texts(self, ensemble: Ensemble, x: torch.Tensor, n_walkers: int) -> Texts:
        """Return inputs x, int64 [n W, D], to learn from, evaluated in batches of `n_walkers`."""
        ...

    def learn(self, ensemble: Ensemble, texts: Texts) -> None:
        """Update `tuned` from inputs of all blocks of the rung, after a round."""
        ...


class Untuned:
    """Base class with defaults: nothing is tuned or learned; the cache is empty at the start."""

    def __init__(self) -> None:
        self.tuned: NDArray[np.float64] = np.empty(0)

    def start(self, x: torch.Tensor, z: torch.Tensor) -> State:
        """Return the state of walkers, with an empty cache."""
        return State(x, z)

    def adapt(self, attempted_p: NDArray[np.int64], accepted_p: NDArray[np.int64]) -> None:
        """Do nothing."""

    def learner(self, ensemble: Ensemble) -> Learner | None:
        """Return None: nothing learns."""
        return None


def decide(
    ensemble: Ensemble,
    z: torch.Tensor,
    z_new: torch.Tensor,
    log_proposal_ratio: torch.Tensor | float,
    u: torch.Tensor,
) -> torch.Tensor:
    """Return which proposals are accepted, bool [W] (Hastings 1970, eq. 1.6).

    Parameters
    ----------
    z, z_new : [W], present and proposed outputs
    log_proposal_ratio : ln q(x | x') - ln q(x' | x), float64 [W]; 0 for a symmetric proposal
    u : float64 [W], uniform in [0, 1)
    """
    log_ratio: torch.Tensor = ensemble.log_weight(z_new.double()) - ensemble.log_weight(z.double())
    if isinstance(log_proposal_ratio, torch.Tensor) or log_proposal_ratio:  # adding 0 takes time
        log_ratio = log_ratio + log_proposal_ratio
    return u.log() < log_ratio


def accept(accepted: torch.Tensor, new: torch.Tensor, old: torch.Tensor) -> torch.Tensor:
    """Return `new` [W, ...] for accepted walkers, bool [W], and `old` for the others."""
    if new.dim() > 1:
        accepted = accepted.view(-1, *[1] * (new.dim() - 1))
    return torch.where(accepted, new, old)
