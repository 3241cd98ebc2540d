"""One rung, or a block of its lanes: its ensemble, its walkers and their records of a round."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from omniinput_hpc import rng
from omniinput_hpc.errors import UserError
from omniinput_hpc.histogram import Histogram, groups_of, lane_groups
from omniinput_hpc.kernels import SearchBudget, Target
from omniinput_hpc.kernels.look_ahead.continuations import Texts
from omniinput_hpc.kernels.wang_landau import (
    LearningState,
    WangLandauEnsemble,
    first_headings,
)
from omniinput_hpc.models.observables import Observe
from omniinput_hpc.runfile.layout import N_LEARNING, Geometry, dataset_of, layout
from omniinput_hpc.runfile.records import Record, RungState
from omniinput_hpc.sampling.anchors import Anchors
from omniinput_hpc.sampling.population import OwnDraws, Population
from omniinput_hpc.sampling.walkers import Recorded, Segment, Walkers
from omniinput_hpc.tempering.ensembles import (
    Ensemble,
    log_weight_b,
    of_parameters,
    parameters_of,
)
from omniinput_hpc.tempering.ladder import Block


class Rung:
    """Rung k of the ladder, or one of the blocks into which its lanes are split.

    The rung owns its ensemble, and nothing else keeps a copy. The blocks of a rung have equal
    ensembles. In this class W is the number of lanes of the block.

    Attributes
    ----------
    k : int
    block : the block of the rung that this object holds
    lanes : the block's lanes, out of all lanes of the rung
    walkers : their configurations, on their device
    walker_w : int32 [W], the identity of the walker in each slot
    direction_w : int8 [W], see `ladder.count_round_trips`
    heading_w : int8 [W], see `WangLandauEnsemble.headings`; travels with the walkers through all
        rungs, and is meaningful only if the run's walkers keep a direction
    histogram : counts of z, in the round and since the first counted round
    attempted_p, accepted_p : int64 [n_kernels], the round's moves by part of the kernel
    population : in an annealed run, the source of the walkers and their weights; else None
    """

    def __init__(
        self,
        block: Block,
        walkers: Walkers,
        anchors: Anchors | OwnDraws,
        geometry: Geometry,
        edges: NDArray[np.float64],
        seed: int,
        observables: Mapping[str, Observe] | None = None,
    ) -> None:
        self.k, self.block, self.walkers = block.k, block, walkers
        self._g, self._seed, self._anchors, self._edges = geometry, seed, anchors, edges
        self.observables = observables or {}
        self._observed: Record = {}
        self._written = {n for n, field in layout(geometry).items() if field.per != "once"}
        self.lanes = block.lanes(geometry.n_walkers)
        w, n_samples = len(self.lanes), geometry.samples_per_round // geometry.n_walkers
        self.walker_w = np.array(self.lanes, dtype=np.int32) + self.k * geometry.n_walkers
        self.direction_w = np.zeros(w, dtype=np.int8)
        self.heading_w = first_headings(w)
        self.histogram = Histogram(edges, geometry.n_walkers, self.lanes)
        self.attempted_p = np.zeros(geometry.n_kernels, dtype=np.int64)
        self.accepted_p = np.zeros(geometry.n_kernels, dtype=np.int64)
        self._n_samples = 0
        self._x_swd = np.zeros((n_samples, w, geometry.n_sites), dtype=geometry.x_dtype)
        self._z_sw = np.zeros((n_samples, w), dtype=np.float32)
        self._walker_sw = np.zeros((n_samples, w), dtype=np.int32)
        self._log_q_swk = np.zeros((n_samples, w, geometry.n_log_q))
        self.population: Population | None = None
        self.set_ensemble(walkers.ensemble)

    @property
    def ensemble(self) -> Ensemble:
        """The ensemble that the walkers sample."""
        return self.walkers.ensemble

    def set_ensemble(self, ensemble: Ensemble) -> None:
        """Sample another ensemble, with its exact sampler if it has one."""
        self.walkers.set_ensemble(ensemble, *self._anchors.of(ensemble))

    @property
    def model_beta(self) -> float | None:
        """The beta of the model's own distribution; None if it cannot be sampled directly."""
        return self._anchors.model_beta

    @property
    def learner(self) -> WangLandauEnsemble | None:
        """The ensemble if it is a Wang-Landau ensemble, which learns in burn-in; else None."""
        return self.ensemble if isinstance(self.ensemble, WangLandauEnsemble) else None

    def start(self, between: Callable[[], None] = lambda: None) -> None:
        """Put the walkers on random inputs (see `first_inputs` and `cold_start` of `Anchors`).

        between : called between the parts of a start that may take minutes; may raise
        """
        random = rng.generator(self._seed, "start", self.k, *self.block.key)
        beta, n_walkers = self.ensemble.beta, self._g.n_walkers
        cold = self._anchors.cold_start(beta, random, self.lanes, n_walkers, between)
        x = self.draw(random) if cold is None else cold.cpu().numpy().astype(self._g.x_dtype)
        self.walkers.place(x, self.walkers.evaluate(x))

    def draw(self, random: np.random.Generator) -> NDArray[Any]:
        """Return an input per lane, [W, D], as at beta = 0: draws of the law, or uniform ones."""
        drawn = self._anchors.first_inputs(random, len(self.lanes))
        if drawn is not None:
            return drawn.cpu().numpy().astype(self._g.x_dtype)
        shape = (len(self.lanes), self._g.n_sites)
        return random.integers(self._g.n_values, size=shape).astype(self._g.x_dtype)

    def resume(self, checkpoint: RungState, tuned_beta: bool) -> None:
        """Restore the walkers and everything that burn-in tuned from the rung's checkpoint.

        tuned_beta : whether burn-in tunes beta, kappa and z0, so that they come from the checkpoint
        """
        lanes = slice(self.lanes.start, self.lanes.stop)
        self.walker_w = checkpoint.walker_w[lanes].copy()
        self.direction_w = checkpoint.direction_w[lanes].copy()
        if checkpoint.heading_w is not None:
            self.heading_w = checkpoint.heading_w[lanes].copy()
        self._resume_counts(checkpoint)
        self.walkers.kernel.tuned = checkpoint.tuned.copy()
        if self.learner is not None:
            self.learner.restore(
                LearningState(checkpoint.entropy, checkpoint.visits, checkpoint.learning)
            )
        elif tuned_beta:
            self.set_ensemble(of_parameters(checkpoint.beta, checkpoint.kappa, checkpoint.z0))
        x = self.walkers.model.space.to_values(checkpoint.x[lanes])
        self.walkers.place(x, checkpoint.z[lanes])

    def _resume_counts(self, checkpoint: RungState) -> None:
        """Take this block's share of the rung's counts; see `keep_sums`."""
        groups = groups_of(self.lanes, self._g.n_walkers)
        counts_gb = checkpoint.lane_counts_gb[groups.start : groups.stop].copy()
        first = self.lanes.start
        if first and lane_groups(self._g.n_walkers)[first - 1] == groups.start:
            counts_gb[0] = 0  # if two blocks share a group of lanes, the first keeps its counts
        self.histogram.lane_counts_gb[:] = counts_gb
        self.keep_sums(checkpoint.z_sum_b)

    def keep_sums(self, z_sum_b: NDArray[np.float64]) -> None:
        """Keep the rung's sums of z so far, float64 [B], in its first block only.

        Each round then adds to them in the same order, whichever rank holds which block.
        """
        self.histogram.z_sum_b[:] = z_sum_b if self.block.number == 0 else 0.0

    def begin_round(self) -> None:
        """Clear the round's counts."""
        self.histogram.clear_round()
        self._n_samples = 0
        self.attempted_p[:], self.accepted_p[:] = 0, 0

    def begin_segment(
        self, generator: np.random.Generator, shared: np.random.Generator, first_move: int
    ) -> Segment:
        """Return a segment of moves; in an annealed run, first take the previous rung's walkers."""
        if self.population is not None:
            self.population.arrive(generator)
        if self._g.headed and self.learner is not None:
            self.learner.set_headings(self.heading_w)
        return self.walkers.begin_segment(generator, shared, first_move)

    def record(self, recorded: Recorded, every: int, first_move: int) -> None:
        """Count a segment whose first move has the number `first_move` in the round."""
        steps = len(recorded.z_tw)
        if self._g.headed and self.learner is not None:
            self.heading_w = self.learner.headings()
        self.histogram.add(recorded.z_tw)
        self.attempted_p += recorded.attempted_p
        self.accepted_p += recorded.accepted_p
        moves = first_move + 1 + np.arange(steps)
        some = slice(self._n_samples, self._n_samples + len(recorded.x_swd))
        self._x_swd[some] = recorded.x_swd
        self._z_sw[some] = recorded.z_tw[moves % every == 0]
        walker_sw = recorded.walker_sw
        self._walker_sw[some] = self.walker_w if walker_sw is None else walker_sw
        if self.population is not None:
            self._log_q_swk[some] = self.population.weigh(self._z_sw[some], recorded.log_q_swk)
        elif recorded.log_q_swk is not None:
            self._log_q_swk[some] = recorded.log_q_swk
        self._n_samples = some.stop

    def adapt(self, moves_2p: NDArray[np.int64]) -> None:
        """Tune the kernel and learn the ensemble from a segment (burn-in only).

        moves_2p : int64 [2, n_kernels], `kernel_moves` of all blocks of the rung
        """
        self.walkers.kernel.adapt(*moves_2p)
        if self.learner is not None:
            self.learner.after_segment()
            self._bring_inside()

    def learns(self, ensemble: Ensemble) -> bool:
        """Return whether a rung with this ensemble learns from inputs."""
        return self.walkers.kernel.learner(ensemble) is not None

    def search(
        self,
        rounds_before: int,
        ensemble: Ensemble,
        tuned: NDArray[np.float64],
        budget: SearchBudget,
    ) -> Texts:
        """Return inputs from which a rung can learn, given its ensemble and its kernel's numbers.

        Each block of each rung takes as many of the possible first values. They are dealt again
        after each round of burn-in with a search.
        """
        key = (self.k, rounds_before, *self.block.key)
        random = rng.generator(self._seed, "look-ahead", *key)
        shared = rng.generator(self._seed, "first-values", rounds_before)
        values = shared.permutation(self.walkers.model.n_values)
        some = values[self.block.index :: self._g.n_rungs * self.block.of]
        return self.walkers.search(
            random, Target(ensemble, tuned, replace(budget, first_values=some))
        )

    def texts(self, found: NDArray[np.int64]) -> Texts:
        """Return the walkers and inputs that were found, [n W, D], to learn from."""
        return self.walkers.texts(found)

    def learn(self, texts: Texts) -> None:
        """Let the kernel learn from inputs of all blocks of the rung."""
        self.walkers.learn(texts)

    def freeze(self) -> None:
        """End learning, whether or not it has converged.

        Raises a UserError if no walker has reached the window.
        """
        if self.learner is not None:
            self.learner.freeze()
            self._bring_inside()

    def _bring_inside(self) -> None:
        """Replace each walker outside the window by a copy of one inside, if weights are frozen."""
        if self.learner is None or self.learner.learning:
            return
        # With frozen weights it would never return: its weight is 0 everywhere outside, so nothing
        # leads it back. The rest of burn-in decorrelates the copies.
        x, z = self.walkers.configurations()
        frozen = self.learner.on_host()
        inside_w = frozen.inside(z)
        if inside_w.all():
            return
        if not inside_w.any():
            low, high = (self._edges[i] for i in frozen.window)
            raise UserError(
                f"no walker has reached the window [{low:g}, {high:g}] of rung {self.k}: raise "
                "run.burn_in, or let the windows of [wang_landau] overlap more"
            )
        take = np.arange(len(z))
        donors = np.flatnonzero(inside_w)
        take[~inside_w] = np.resize(donors, int((~inside_w).sum()))
        self.walkers.place(x[take], z[take])

    def observe(self) -> None:
        """Compute the observables of the round's samples, for `record_of_round`.

        Raises a UserError if a user's function fails, maybe on one rank only.
        """
        x = self._samples_x().astype(np.int64)
        self._observed = {dataset_of(name): y(x) for name, y in self.observables.items()}

    def _samples_x(self) -> NDArray[Any]:
        x_swd = self._x_swd.reshape(-1, self._g.n_sites)
        return self.walkers.model.space.to_ids(x_swd)

    def record_of_round(self) -> Record:
        """Return this rung's (or block's, see `blocks`) part of a round, to commit.

        Its inputs consist of ids, as in files.
        """
        space, counts = self.walkers.model.space, self.histogram
        x, z = self.walkers.configurations()
        learning = self._learning_state()
        beta, kappa, z0 = map(np.asarray, parameters_of(self.ensemble))
        record = {
            "ladder/beta": beta,
            "ensemble/log_weight": log_weight_b(self.ensemble.on_host(), self._edges),
            "ensemble/kappa": kappa,
            "ensemble/z0": z0,
            "histogram/counts": counts.counts_b.astype(np.uint32),
            "histogram/outside": counts.outside.astype(np.uint32),
            "histogram/lane_counts": counts.lane_counts_gb,
            "histogram/z_sum": counts.z_sum_b,
            "samples/x": self._samples_x(),
            "samples/z": self._z_sw.reshape(-1),
            "samples/walker": self._walker_sw.reshape(-1),
            "samples/log_q": self._log_q_swk.reshape(self._z_sw.size, self._g.n_log_q),
            "exchange/walker": self.walker_w,
            "kernel/attempted": self.attempted_p,
            "kernel/accepted": self.accepted_p,
            "state/x": space.to_ids(x),
            "state/z": z,
            "state/walker": self.walker_w,
            "state/direction": self.direction_w,
            "state/heading": self.heading_w,
            "state/beta": beta,
            "state/gaussian": np.stack([kappa, z0]),
            "state/kernel": self.walkers.kernel.tuned,
            "state/entropy": learning.entropy,
            "state/visits": learning.visits,
            "state/learning": learning.learning,
        }
        record |= self._observed
        return {name: values for name, values in record.items() if name in self._written}

    def _learning_state(self) -> LearningState:
        if self.learner is not None:
            return self.learner.learning_state()
        n_learnt = self._g.n_bins + 2 if self._g.flat else 0
        return LearningState(np.full(n_learnt, np.nan), np.zeros(n_learnt), np.zeros(N_LEARNING))


def kernel_moves(recorded: Recorded) -> NDArray[np.int64]:
    """Return attempted and accepted moves of a segment by part of the kernel, int64 [2, n_kernels].

    Exact draws do not count as moves of the kernel: they say nothing about its step sizes.
    """
    moves_2p = np.stack([recorded.attempted_p, recorded.accepted_p])
    moves_2p[:, 0] -= recorded.n_exact
    return moves_2p


def observe_all(rungs: Sequence[Rung]) -> None:
    """Compute the observables of the round's samples of these rungs; see `Rung.observe`."""
    for rung in rungs:
        rung.observe()


def start_all(rungs: Sequence[Rung], between: Callable[[], None]) -> None:
    """Place the walkers of these rungs at the start of a run; see `Rung.start`."""
    for rung in rungs:
        rung.start(between)


def link_populations(rungs: Sequence[Rung], n_walkers: int) -> None:
    """Link the populations of each block from rung to rung; `rungs` are in the ladder's order."""
    last: dict[int, Population] = {}
    for rung in rungs:
        number = rung.block.number
        before = last.get(number)
        last[number] = rung.population = Population(rung.walkers, rung.lanes, n_walkers, before)
