"""A mixture of kernels: each move draws one of them, in proportion to its weight."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from omniinput_hpc.kernels.look_ahead.continuations import Texts
from omniinput_hpc.kernels.parts.device_rng import DeviceStream
from omniinput_hpc.kernels.state import Info, Kernel, Learner, State, Target
from omniinput_hpc.tempering.ensembles import Ensemble


class Mixture:
    """Move all walkers with one of the kernels, drawn independently of the state.

    Each kernel leaves the ensemble invariant, and so does their mixture. The cache of a kernel is
    kept until another kernel moves.

    Parameters
    ----------
    weights : relative frequencies of the kernels, positive
    parts : names of the parts of all kernels, in order
    """

    def __init__(
        self, kernels: Sequence[Kernel], weights: Sequence[float], parts: tuple[str, ...]
    ) -> None:
        self._kernels, self.parts = list(kernels), parts
        self._cumulative = np.cumsum(weights) / np.sum(weights)
        n_parts = [len(kernel.parts) for kernel in kernels]
        self._first_part = np.concatenate([[0], np.cumsum(n_parts)])
        assert self._first_part[-1] == len(parts)
        self.uniforms_per_move = max(kernel.uniforms_per_move for kernel in kernels)

    def start(self, x: torch.Tensor, z: torch.Tensor) -> State:
        """Return the state of walkers; each kernel fills its cache when it first moves."""
        return State(x, z, (None,) * len(self._kernels))

    def step(self, state: State, ensemble: Ensemble, stream: DeviceStream) -> tuple[State, Info]:
        """Draw one kernel for all walkers, and move every walker once with it."""
        u = stream.shared_uniform(1)[0]
        index = min(int(np.searchsorted(self._cumulative, u, "right")), len(self._kernels) - 1)
        kernel, cache = self._kernels[index], state.cache[index]
        inner = State(state.x, state.z, cache)
        if cache is None:
            inner = kernel.start(state.x, state.z)
        new, info = kernel.step(inner, ensemble, stream)
        caches: list[Any] = [None] * len(self._kernels)
        caches[index] = new.cache
        part = int(self._first_part[index]) + info.part
        return State(new.x, new.z, tuple(caches)), Info(info.accepted, part)

    @property
    def tuned(self) -> NDArray[np.float64]:
        """The tuned numbers of all kernels, in order, float64 [n_tuned]; read-only."""
        tuned = np.concatenate([kernel.tuned for kernel in self._kernels])
        tuned.flags.writeable = False  # a copy: writing into it would have no effect
        return tuned

    @tuned.setter
    def tuned(self, values: NDArray[np.float64]) -> None:
        for kernel, some in zip(self._kernels, self._parts_of(values), strict=True):
            kernel.tuned = some.copy()

    def _parts_of(self, tuned: NDArray[np.float64]) -> list[NDArray[np.float64]]:
        """Return the tuned numbers of each kernel, given those of the mixture."""
        return np.split(tuned, np.cumsum([len(kernel.tuned) for kernel in self._kernels[:-1]]))

    def adapt(self, attempted_p: NDArray[np.int64], accepted_p: NDArray[np.int64]) -> None:
        """Let each kernel adapt to its own counts; both arguments are int64 [n_parts]."""
        for kernel, first in zip(self._kernels, self._first_part, strict=False):
            some = slice(int(first), int(first) + len(kernel.parts))
            kernel.adapt(attempted_p[some], accepted_p[some])

    def learner(self, ensemble: Ensemble) -> Mixture | None:
        """Return this kernel if one of its kernels learns in this ensemble."""
        return self if self._learners(ensemble) else None

    def search(self, target: Target, like: torch.Tensor, stream: DeviceStream) -> Texts:
        """Let the first kernel that learns search for all."""
        i, learner = next(iter(self._learners(target.ensemble).items()))
        tuned = self._parts_of(target.tuned)[i]
        return learner.search(replace(target, tuned=tuned), like, stream)

    def texts(self, ensemble: Ensemble, x: torch.Tensor, n_walkers: int) -> Texts:
        """Let the first kernel that learns evaluate inputs for all."""
        learner = next(iter(self._learners(ensemble).values()))
        return learner.texts(ensemble, x, n_walkers)

    def learn(self, ensemble: Ensemble, texts: Texts) -> None:
        """Let each kernel that learns do so."""
        for learner in self._learners(ensemble).values():
            learner.learn(ensemble, texts)

    def _learners(self, ensemble: Ensemble) -> dict[int, Learner]:
        """Return what learns, by the number of its kernel."""
        found = ((i, kernel.learner(ensemble)) for i, kernel in enumerate(self._kernels))
        return {i: learner for i, learner in found if learner is not None}
