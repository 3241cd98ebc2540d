"""Populations of an annealed run: texts drawn from the model and carried from rung to rung."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from omniinput_hpc.errors import UserError
from omniinput_hpc.histogram import groups_of, lane_groups
from omniinput_hpc.kernels import Kernel
from omniinput_hpc.kernels.independent import AncestralSampler
from omniinput_hpc.kernels.parts.conditionals import require_conditionals
from omniinput_hpc.models import offers_of
from omniinput_hpc.sampling.walkers import Walkers
from omniinput_hpc.tempering.annealing import carry
from omniinput_hpc.tempering.ensembles import Canonical, Ensemble


class OwnDraws:
    """Replaces a ladder's anchors: the lowest rung is drawn at every move, the others never.

    Raises a UserError if the model has no conditionals, or if the lowest beta of the ladder is not
    m, the model's own distribution.
    """

    model_beta: float | None = None  # an annealed run has no exchanges and no cold starts

    def __init__(self, model: Any, n_walkers: int, beta_k: NDArray[np.float64]) -> None:
        method = 'sampler.method = "annealed"'
        require_conditionals(model, method, 'choose "parallel-tempering"')
        self._m = float(model.n_sites - offers_of(model).predicted_from)
        if beta_k[0] != self._m:
            raise UserError(
                f"ladder: {method} begins with the model's own texts, so the lowest beta must "
                f"be m = {self._m:g}, the number of predicted sites; found {beta_k[0]:g}"
            )
        self._sampler = AncestralSampler(model, n_walkers, [self._m])

    def cold_start(
        self,
        beta: float,
        random: np.random.Generator,
        lanes: range,
        n_walkers: int,
        between: Callable[[], None] = lambda: None,
    ) -> None:
        """Return None: the start of walkers does not matter, since every population is drawn."""

    def first_inputs(self, random: np.random.Generator, n: int) -> None:
        """Return None: an annealed run has no law."""

    def of(self, ensemble: Ensemble) -> tuple[Kernel | None, bool]:
        """Return an ensemble's exact sampler, and whether it makes every move."""
        if isinstance(ensemble, Canonical) and ensemble.beta == self._m:
            return self._sampler, True
        return None, False


class Population:
    """The populations on one rung; each group of lanes is an independent population.

    Attributes
    ----------
    walkers : the walkers of the rung, or of one of its blocks
    log_weight_w : float64 [W], the log-weights after a segment; see `tempering.annealing`
    """

    def __init__(
        self, walkers: Walkers, lanes: range, n_walkers: int, before: Population | None
    ) -> None:
        self.walkers, self._before = walkers, before
        groups = groups_of(lanes, n_walkers)
        self._n_groups = len(groups)
        self._group_w = lane_groups(n_walkers)[lanes.start : lanes.stop] - groups.start
        self.log_weight_w = np.zeros(len(lanes))

    def arrive(self, random: np.random.Generator) -> None:
        """Take the walkers of the previous rung, reweighted; the first rung's moves draw them."""
        before = self._before
        if before is None:
            return
        _, z_w = before.walkers.configurations()
        gap = self.walkers.ensemble.beta - before.walkers.ensemble.beta
        u_g = random.random(self._n_groups)
        carried = carry(before.log_weight_w, z_w.astype(np.float64), gap, self._group_w, u_g)
        self.log_weight_w = carried.log_weight_w
        self.walkers.take(before.walkers, carried.source_w)

    def weigh(
        self, z_sw: NDArray[np.float32], log_q_swj: NDArray[np.float64] | None
    ) -> NDArray[np.float64]:
        """Return ln(exp(-beta z) / w), float64 [S, W, 1], of all S samples of a segment.

        The mean over a population's samples of f(x) w / exp(-beta z) estimates the sum of f over
        all inputs. `log_q_swj`, float64 [S, W, 1], holds the log-probabilities of samples that were
        drawn from the model.
        """
        log_weight_sw = -self.walkers.ensemble.beta * z_sw.astype(np.float64)
        if log_q_swj is not None:
            self.log_weight_w = log_weight_sw[-1] - log_q_swj[-1, :, 0]
            return log_q_swj
        return np.asarray((log_weight_sw - self.log_weight_w)[:, :, None])
