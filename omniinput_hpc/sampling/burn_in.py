"""Burn-in: kernels, ensembles and the ladder learn, and are frozen before the counted rounds."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from omniinput_hpc.config import Config
from omniinput_hpc.errors import UserError
from omniinput_hpc.kernels import SearchBudget
from omniinput_hpc.kernels.look_ahead.continuations import Texts, texts_of
from omniinput_hpc.kernels.look_ahead.search import likeliest
from omniinput_hpc.parallel.comm import World
from omniinput_hpc.parallel.stopping import StopCheck
from omniinput_hpc.runfile.layout import Geometry
from omniinput_hpc.sampling.rung import Rung
from omniinput_hpc.sampling.stats import RoundStats, Totals, outside_words
from omniinput_hpc.sampling.transitions import warn_of_transitions
from omniinput_hpc.tempering.adaptation import LadderTuning
from omniinput_hpc.tempering.ensembles import Ensemble, of_parameters

EQUILIBRATION_SHARE = 4
"""The ladder and look_ahead are frozen in the last 1 / 4 of burn-in, step sizes at its end."""

SEARCH_SHARE = 1.0
"""Batches of inputs per search, as a multiple of the moves of learning rungs since the last one."""

log = logging.getLogger("omniinput_hpc")


class BurnIn:
    """Everything that is done in burn-in only. In counted rounds its methods do nothing.

    All ranks call each method together. Rounds of burn-in are numbered -burn_in to -1.

    Attributes
    ----------
    tuning : of the ladder; its results are committed with every round
    seen : counts of the burn-in rounds since this process began
    """

    def __init__(
        self,
        world: World,
        config: Config,
        geometry: Geometry,
        rungs: Sequence[Rung],
        tuning: LadderTuning,
    ) -> None:
        self._world, self._config, self._g, self._rungs = world, config, geometry, rungs
        self._learning_ends = -(config.run.burn_in // EQUILIBRATION_SHARE)
        self.tuning, self.seen = tuning, Totals.zeros(geometry.n_rungs)

    def after_moves(self, round_: int, moves_r2p: Sequence[NDArray[np.int64]]) -> None:
        """Let each rung learn from a segment of moves.

        moves_r2p : `kernel_moves` of each rung of this rank. They are summed over the blocks of a
            rung, so that all its blocks learn the same.
        """
        if round_ >= 0:
            return
        moves_k2p = np.zeros((self._g.n_rungs, *moves_r2p[0].shape), dtype=np.int64)
        for rung, moves_2p in zip(self._rungs, moves_r2p, strict=True):
            moves_k2p[rung.k] += moves_2p
        if self._g.n_tuned and self._config.sampler.blocks > 1:
            moves_k2p = self._world.sum(moves_k2p)
        for rung in self._rungs:
            rung.adapt(moves_k2p[rung.k])

    def after_round(self, round_: int, stats: RoundStats, stopping: StopCheck) -> None:
        """Adapt to a round; end all learning before the last quarter; report after the last round.

        It is called before the commit, so that a run cannot be resumed past an error. All ranks
        raise a StopRun if one was asked to stop during a search, and a UserError if all outputs of
        burn-in fell outside the bins, or if no walker of a rung has reached its window.
        """
        if round_ >= 0:
            return
        self.seen.add(stats)
        if round_ == -1:
            self._require_bins()
        if self._config.kernel.learns_ahead and round_ < self._learning_ends:
            self._learn(round_ + self._config.run.burn_in + 1, stats.parameters_k3, stopping)
        self._tune_ladder(round_, stats)
        if round_ >= self._learning_ends - 1:
            self._world.together(self._freeze)
        if round_ == -1:
            self._report(stats)

    def _require_bins(self) -> None:
        """Raise a UserError if all outputs of burn-in fell outside the bins.

        If the run was resumed during burn-in, only outputs since then count.
        """
        moves, inside = self.seen.moves_k2.sum(axis=0)
        if moves and not inside:
            bins = self._config.bins
            where = outside_words(self.seen.extremes, (bins.lower, bins.upper))
            raise UserError(
                f"all outputs of burn-in fell outside the bins: {where}; set bins.lower and "
                "bins.upper so that they include these, and choose another run.output"
            )

    def _learn(self, rounds: int, parameters_k3: NDArray[np.float64], stopping: StopCheck) -> None:
        """Let the kernels learn after so many rounds of burn-in.

        Every rung learns from its walkers. After 1, 2, 4, 8, ... rounds it also learns from a
        search, and from the likeliest inputs that any rung found. These are evaluated in shares by
        its blocks, which all learn the same.
        """
        ensembles = {k: of_parameters(*map(float, p)) for k, p in enumerate(parameters_k3)}
        learning = {k: e for k, e in ensembles.items() if self._rungs[0].learns(e)}
        if not learning:
            return
        found_k: dict[int, Texts] = {}
        if rounds & (rounds - 1) == 0:
            if self._world.rank == 0:
                log.info("look_ahead: searching for texts that the model has memorized")
            found_k = self._search(rounds, learning, stopping)
        g = self._g
        likely_kwd = np.zeros((len(found_k), g.n_walkers, g.n_sites), dtype=np.int64)
        for i, found in enumerate(found_k.values()):
            likely_kwd[i] = likeliest(found, g.n_walkers)
        mine = {}
        for rung in self._rungs:
            if rung.k in learning:
                some = likely_kwd[:, rung.lanes.start : rung.lanes.stop].reshape(-1, g.n_sites)
                mine[rung.k, rung.block.number] = rung.texts(some)
        n_parts = dict.fromkeys(learning, self._config.sampler.blocks)
        texts_k = self._of_all_ranks(mine, n_parts)
        for rung in self._rungs:
            if rung.k in learning:
                texts = texts_k[rung.k]
                rung.learn(found_k[rung.k].with_others(texts) if found_k else texts)

    def _search(
        self, rounds: int, learning: Mapping[int, Ensemble], stopping: StopCheck
    ) -> dict[int, Texts]:
        """Return the inputs found after `rounds` of burn-in for each of the rungs that learn.

        The blocks of all rungs, dealt to these rungs in turn, share the work equally.
        """
        blocks, n_learning = self._config.sampler.blocks, len(learning)
        tuned_kn = np.zeros((self._g.n_rungs, self._g.n_tuned))
        for rung in self._rungs:
            if rung.k in learning and rung.block.number == 0:
                tuned_kn[rung.k] = rung.walkers.kernel.tuned
        tuned_kn = self._bits_of_all_ranks(tuned_kn)
        moves = (rounds - rounds // 2) * self._config.sampler.moves_per_round
        mine: dict[tuple[int, int], Texts] = {}
        n_parts = {
            k: len(range(i, self._g.n_rungs * blocks, n_learning)) for i, k in enumerate(learning)
        }

        def search(between: Callable[[], None]) -> None:
            for rung in self._rungs:
                part, i = divmod(rung.block.index, n_learning)
                k = list(learning)[i]
                share = blocks / n_parts[k]
                n_batches = max(1, round(SEARCH_SHARE * moves * share))
                budget = SearchBudget(n_batches, share=share, between=between)
                mine[k, part] = rung.search(rounds - 1, learning[k], tuned_kn[k], budget)

        stopping.alone(search)
        return self._of_all_ranks(mine, n_parts)

    def _of_all_ranks(
        self, mine: Mapping[tuple[int, int], Texts], n_parts: Mapping[int, int]
    ) -> dict[int, Texts]:
        """Return all texts of each rung in the order of their parts, of which this rank has some.

        mine : by rung and part; all parts of a rung have as many texts
        n_parts : by rung
        """
        whole = {}
        for k, n in n_parts.items():
            rows = {part: texts.rows() for (rung, part), texts in mine.items() if rung == k}
            most = np.array([max(map(len, rows.values()), default=0)])
            rows_p = np.zeros((n, int(self._world.max(most)[0]), 3 * self._g.n_sites + 1))
            for part, of_part in rows.items():
                rows_p[part] = of_part
            whole[k] = texts_of(self._bits_of_all_ranks(rows_p).reshape(-1, rows_p.shape[2]))
        return whole

    def _bits_of_all_ranks(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the sum over ranks of numbers of which each is nonzero on one rank at most.

        They are summed as integers, so that they keep every bit.
        """
        return self._world.sum(values.view(np.int64)).view(np.float64)

    def _tune_ladder(self, round_: int, stats: RoundStats) -> None:
        """Move the rungs if a stage of tuning ends with this round."""
        new_k3 = self.tuning.after_round(
            round_, stats.parameters_k3, stats.swaps_k2, stats.moments_k3
        )
        if new_k3 is not None:
            for rung in self._rungs:
                rung.set_ensemble(of_parameters(*map(float, new_k3[rung.k])))

    def _freeze(self) -> None:
        for rung in self._rungs:
            rung.freeze()

    def _report(self, stats: RoundStats) -> None:
        """Log the results of burn-in, and warn of what it did not reach."""
        if self._world.rank == 0:
            self.tuning.report(stats.parameters_k3)
        warn_of_transitions(self._world, self._config, self._rungs, stats, self.tuning)
        unfinished = [
            f"rung {rung.k} (ln f = {rung.learner.ln_f:.2g})"
            for rung in self._rungs
            if rung.learner is not None and not rung.learner.reached
        ]
        for text in self._world.texts(", ".join(unfinished)):
            if text and self._world.rank == 0:
                log.warning(
                    "warning: Wang-Landau did not reach ln_f_last with a flat histogram in %s; its "
                    "weights are frozen as they are; results stay exact, but may converge slowly: "
                    "raise run.burn_in",
                    text,
                )
