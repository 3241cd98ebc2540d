"""Warnings during a run: outputs outside the bins, pairs that never swap, slow ranks."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import numpy as np

from omniinput_hpc.config import Config
from omniinput_hpc.parallel.comm import World
from omniinput_hpc.sampling.rung import Rung
from omniinput_hpc.sampling.stats import RoundStats, Totals, outside_words

OUTSIDE = 0.01
"""A larger share of outputs outside the bins in burn-in is worth a warning."""

log = logging.getLogger("omniinput_hpc")


class Observer:
    """Looks at every round and warns; without it a run has the same bits.

    All ranks call each method together.

    Parameters
    ----------
    first_round : the first round of this process; rounds of burn-in are negative
    burn_in : counts of the burn-in rounds since this process began, see `BurnIn.seen`

    Attributes
    ----------
    counted : counts of the counted rounds since this process began
    """

    def __init__(
        self,
        world: World,
        config: Config,
        rungs: Sequence[Rung],
        first_round: int,
        burn_in: Totals,
    ) -> None:
        self._world, self._bins, self._rungs = world, config.bins, rungs
        self._first_round = first_round
        self._first_warning = max(first_round, 0) + config.run.rounds // 10
        self._burn_in, self._ladder = burn_in, config.ladder
        self._rung_k3 = np.column_stack([config.beta_k, np.zeros((len(config.beta_k), 2))])
        self.counted = Totals.zeros(len(config.beta_k))
        self._n_eager = 0  # ranks known to evaluate without CUDA graphs

    def after_round(self, round_: int, stats: RoundStats) -> None:
        """Look at a round that was committed; warn after a few of them."""
        self._rung_k3 = stats.parameters_k3
        if round_ >= 0:
            self.counted.add(stats)
        if round_ in (self._first_round, -1):
            self._warn_of_bins()
            self._warn_of_eager_passes()
        if round_ == self._first_warning:
            self.warn()

    def warn(self) -> None:
        """Warn of rungs outside the bins, pairs that never swap, and passes without CUDA graphs."""
        self._warn_of_eager_passes()
        beta_k, kappa_k, _ = self._rung_k3.T
        moves_k2, swaps_k2 = self.counted.moves_k2, self.counted.swaps_k2
        if self._world.rank != 0:
            return
        since = " since this start" if self._first_round > 0 else ""
        for k in np.flatnonzero((moves_k2[:, 1] == 0) & (moves_k2[:, 0] > 0)):
            log.warning(
                "warning: rung %d (beta = %g): all outputs%s fell outside the bins; widen [bins]",
                k, beta_k[k], since,
            )  # fmt: skip
        for k in np.flatnonzero((swaps_k2[:, 1] == 0) & (swaps_k2[:, 0] > 0)):
            remedy = f"add a rung between beta = {beta_k[k]:g} and {beta_k[k + 1]:g}"
            if self._ladder is not None and self._ladder.lambdas is not None:
                remedy = "add a rung whose beta and lambda lie between theirs"
            elif kappa_k[k : k + 2].any():
                remedy = "add a Gaussian rung whose z0 lies between theirs"
            if np.isnan(beta_k[k : k + 2]).any():
                remedy = "let their ranges of z overlap more (wang_landau.overlap, or more windows)"
            log.warning("warning: rungs %d and %d never swapped%s: %s", k, k + 1, since, remedy)

    def _warn_of_bins(self) -> None:
        """Warn if more than `OUTSIDE` of burn-in's outputs fell outside the bins."""
        moves, inside = self._burn_in.moves_k2.sum(axis=0)
        if moves - inside <= OUTSIDE * moves or self._world.rank != 0:
            return
        where = outside_words(self._burn_in.extremes, (self._bins.lower, self._bins.upper))
        share = f"{(moves - inside) / moves:.0%}" if inside else "all"
        log.warning("warning: %s of burn-in's outputs fell outside the bins: %s", share, where)

    def _warn_of_eager_passes(self) -> None:
        """Warn if the number of ranks that evaluate without CUDA graphs has grown.

        Neighbours wait for each other, so one such rank slows down all.
        """
        reasons = self._world.texts(self._rungs[0].walkers.model.offers.without_graphs())
        slow = [rank for rank, reason in enumerate(reasons) if reason]
        if len(slow) > self._n_eager and self._world.rank == 0:
            log.warning(
                "warning: %d of %d ranks evaluate the model without CUDA graphs, which may be "
                "several times slower, and all ranks wait for them: %s (rank %d)",
                len(slow), len(reasons), reasons[slow[0]], slow[0],
            )  # fmt: skip
        self._n_eager = len(slow)
