"""Exact anchors of a ladder: rungs whose ensemble can be drawn from directly."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from omniinput_hpc.kernels import Kernel
from omniinput_hpc.kernels.independent import (
    AncestralSampler,
    AutoregressiveSampler,
    UniformSampler,
    is_normalized,
    predicted_from,
)
from omniinput_hpc.sampling.starts import cold_start
from omniinput_hpc.tempering.ensembles import Canonical, Ensemble


class Anchors:
    """Which draws a rung gets, if any.

    At beta = 0 every move is a fresh uniform draw, which costs as much as any move and is
    independent; at beta = m, for models whose conditionals are log-probabilities, the last move
    before every exchange is a sequence drawn from the model.

    Parameters
    ----------
    wanted : ``[ladder] anchors``
    x : int64 [W, D], inputs on which the conditionals are tried
    ancestral_beta_k : the ladder's betas where every rung is to be drawn from; else None
    """

    def __init__(
        self, model: Any, x: torch.Tensor, wanted: bool, ancestral_beta_k: list[float] | None
    ) -> None:
        n_walkers, self._model, self._like = len(x), model, x
        self._ancestral = self._uniform = self._model_itself = None
        self._m = float(model.n_sites - predicted_from(model))
        if ancestral_beta_k is not None:
            self._ancestral = AncestralSampler(model, n_walkers, ancestral_beta_k)
        elif wanted:
            self._uniform = UniformSampler(model, n_walkers)
            if is_normalized(model, x[:4]):
                self._model_itself = AutoregressiveSampler(model, n_walkers)

    @property
    def model_beta(self) -> float | None:
        """The beta of the model's own distribution, where it can be drawn from."""
        return self._m if self._model_itself is not None else None

    def cold_start(self, beta: float, random: np.random.Generator) -> torch.Tensor | None:
        """Return where the walkers of a rung colder than the model itself start; None: anywhere.

        See `starts.cold_start`.
        """
        if self._model_itself is None or not beta > self._m:
            return None
        return cold_start(self._model, self._model_itself, self._m, self._like, random)

    def of(self, ensemble: Ensemble) -> tuple[Kernel | None, bool]:
        """Return the draws of a rung, and whether every move is one (else a segment's last)."""
        if not isinstance(ensemble, Canonical):
            return None, False
        if self._ancestral is not None:
            return self._ancestral, True
        if ensemble.beta == 0.0 and self._uniform is not None:
            return self._uniform, True
        if ensemble.beta == self._m and self._model_itself is not None:
            return self._model_itself, False
        return None, False
