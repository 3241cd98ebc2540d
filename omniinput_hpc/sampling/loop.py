"""The central loop: moves, exchanges, commits."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from omniinput_hpc import rng
from omniinput_hpc.config import Config
from omniinput_hpc.errors import UserError
from omniinput_hpc.parallel.comm import World
from omniinput_hpc.parallel.stopping import StopCheck
from omniinput_hpc.runfile.block_histograms import BlockCounts
from omniinput_hpc.runfile.fields import ends_block
from omniinput_hpc.runfile.layout import Geometry, layout
from omniinput_hpc.runfile.records import ExchangeRecord, RungRecord, slabs_of_round
from omniinput_hpc.runfile.side_checkpoint import SideWriter
from omniinput_hpc.runfile.writers import GuardedWriter
from omniinput_hpc.sampling.blocks import Gathering
from omniinput_hpc.sampling.built import RungsOfRank
from omniinput_hpc.sampling.exchange import Exchanger
from omniinput_hpc.sampling.output_check import OutputCheck
from omniinput_hpc.sampling.progress import Progress
from omniinput_hpc.sampling.rung import Rung, kernel_moves
from omniinput_hpc.sampling.timing import Clock
from omniinput_hpc.sampling.transitions import warn_of_transitions
from omniinput_hpc.sampling.walkers import Recorded
from omniinput_hpc.tempering.adaptation import LadderTuning
from omniinput_hpc.tempering.ensembles import of_parameters, parameters_of
from omniinput_hpc.tempering.ladder import Block

EQUILIBRATION_SHARE = 4
"""All learning is frozen in the last 1 / 4 of burn-in."""

SEARCH_SHARE = 1.0
"""Batches of inputs per search, as a multiple of burn-in's moves since the last search."""

OUTSIDE = 0.01
"""The share of burn-in's outputs outside the bins above which the user is warned."""

log = logging.getLogger("omniinput_hpc")


@dataclass
class Totals:
    """Counts of all ranks since this process began."""

    moves_k2: NDArray[np.int64]  # [K, 2], all counted moves, and those inside the bins
    swaps_k2: NDArray[np.int64]  # [K - 1, 2], attempted and accepted
    extremes: NDArray[np.float64]  # [2], lowest and highest output; of all ranks only in burn-in

    @classmethod
    def zeros(cls, n_rungs: int) -> Totals:
        """Return empty totals."""
        nothing = np.array([np.inf, -np.inf])
        return cls(np.zeros((n_rungs, 2), np.int64), np.zeros((n_rungs - 1, 2), np.int64), nothing)

    def add(self, other: Totals) -> None:
        """Add the counts of another round."""
        self.moves_k2 += other.moves_k2
        self.swaps_k2 += other.swaps_k2
        self.extremes[0] = min(self.extremes[0], other.extremes[0])
        self.extremes[1] = max(self.extremes[1], other.extremes[1])


@dataclass
class Run(RungsOfRank):
    """A rank's part of a run in progress."""

    config: Config
    geometry: Geometry
    rungs: Sequence[Rung]  # rungs, or blocks of rungs, on this rank; they own the ensembles
    gathering: Gathering  # of their records, on the ranks that write them
    block_counts: BlockCounts  # used if several rounds share a histogram
    exchanger: Exchanger
    tuning: LadderTuning
    writer: GuardedWriter
    side: SideWriter
    world: World
    stopping: StopCheck
    clock: Clock
    progress: Progress
    next_round: int  # burn-in rounds are numbered -burn_in to -1
    totals: Totals  # of the counted rounds since this process began
    burn_in: Totals  # of the burn-in rounds since this process began
    output_check: OutputCheck = field(default_factory=OutputCheck)
    n_eager: int = 0  # ranks known to evaluate without CUDA graphs

    def beta_k(self) -> NDArray[np.float64]:
        """Return the present betas of all rungs, float64 [K] (all ranks call this)."""
        return self.parameters_k3()[:, 0]

    def parameters_k3(self) -> NDArray[np.float64]:
        """Return beta (NaN if flat), kappa and z0 of all rungs, [K, 3] (all ranks call this)."""
        rung_k3 = np.zeros((self.geometry.n_rungs, 3))
        for rung in self.rungs:
            if rung.block.number == 0:
                rung_k3[rung.k] = parameters_of(rung.ensemble)
        return np.asarray(self.world.sum(rung_k3))

    def freeze(self) -> None:
        """End all learning on this rank's rungs."""
        for rung in self.rungs:
            rung.freeze()


def sample(run: Run) -> None:
    """Sample until all rounds are committed.

    Raises a StopRun if the ranks agree to stop (the unfinished round is dropped), a LostWalker if
    the exchange has a defect, and a WriteError if the disk is full or broken.
    """
    s = run.config.sampler
    first_round = run.next_round
    first_warning = max(run.next_round, 0) + run.config.run.rounds // 10
    while run.next_round < run.config.run.rounds:
        begin_round(run)
        for exchange in range(s.exchanges):
            moves_r2p = []
            for rung in run.rungs:
                with run.clock.part("moves"):
                    recorded = move(run, rung, exchange)
                with run.clock.part("recording"):
                    rung.record(recorded, run.config.samples.every, exchange * s.steps)
                    moves_r2p.append(kernel_moves(recorded))
            if run.next_round < 0:
                with run.clock.part("recording"):
                    adapt(run, moves_r2p)
            if s.swaps:
                with run.clock.part("exchange"):
                    rounds_before = run.next_round + run.config.run.burn_in
                    run.exchanger.swap(run.rungs, rounds_before * s.exchanges + exchange)
            run.progress.exchanged(exchange + 1)
        with run.clock.part("moves"):
            learn(run)
            rounds_before = run.next_round + run.config.run.burn_in
            run.output_check.look(run.world, run.config, run.rungs, rounds_before)
        with run.clock.part("writing"):
            swaps_k2 = commit(run)
        tried_k2 = swaps_k2[swaps_k2[:, 0] > 0]
        run.progress.committed(run.next_round, tried_k2[:, 1] / tried_k2[:, 0])
        if run.next_round in (first_round, -1):
            warn_of_bins(run)
            warn_of_eager_passes(run)
        if run.next_round == first_warning:
            warn(run)
        run.next_round += 1


def begin_round(run: Run) -> None:
    """Zero the counts of the round; before the first counted round, also those of burn-in."""
    run.exchanger.begin_round()
    for rung in run.rungs:
        rung.begin_round()
        if run.next_round == 0:
            rung.histogram.clear_all()


def adapt(run: Run, moves_r2p: Sequence[NDArray[np.int64]]) -> None:
    """Let each rung learn from a segment of burn-in (all ranks call this).

    moves_r2p : `kernel_moves` of each of `run.rungs`. They are summed over the blocks of a rung, so
        that all its blocks learn the same.
    """
    moves_k2p = np.zeros((run.geometry.n_rungs, *moves_r2p[0].shape), dtype=np.int64)
    for rung, moves_2p in zip(run.rungs, moves_r2p, strict=True):
        moves_k2p[rung.k] += moves_2p
    if run.geometry.n_tuned:
        moves_k2p = run.gathering.sum(moves_k2p)
    for rung in run.rungs:
        rung.adapt(moves_k2p[rung.k])


def streams(
    seed: int, block: Block, rounds_before: int, exchange: int
) -> tuple[np.random.Generator, np.random.Generator]:
    """Return a segment's two generators: one for each walker's own numbers, one shared by all.

    The schedule of moves (which kernel, which sites, how many) is drawn from the shared generator,
    which is the same for all rungs and blocks. At each step all rungs make moves of the same
    length, so none waits for another at the exchange. This is exact because the schedule is
    independent of every state. Given the schedule, each rung's move leaves its ensemble invariant,
    with its own random numbers, so all moves together leave the product of the ensembles invariant.
    """
    own = rng.generator(seed, "moves", block.k, rounds_before, exchange, *block.key)
    return own, rng.generator(seed, "choices", rounds_before, exchange)


def move(run: Run, rung: Rung, exchange: int) -> Recorded:
    """Move one rung's walkers through the segment before an exchange."""
    s = run.config.sampler
    rounds_before = run.next_round + run.config.run.burn_in
    own, shared = streams(run.config.run.seed, rung.block, rounds_before, exchange)
    try:
        segment = rung.begin_segment(own, shared, first_move=exchange * s.steps)
        return segment.run(run.stopping.after_move)
    except Exception as error:
        error.add_note(f"in rung {rung.k} (beta = {rung.ensemble.beta:g}), round {run.next_round}")
        raise


def learn(run: Run) -> None:
    """Let the kernels learn after a round, in the first part of burn-in (all ranks call this).

    After 1, 2, 4, 8, ... rounds the rungs search for likely inputs, and every rung learns from the
    inputs that any rung found.
    """
    burn_in = run.config.run.burn_in
    if not run.config.kernel.learns_ahead or run.next_round >= -(burn_in // EQUILIBRATION_SHARE):
        return
    rounds = run.next_round + burn_in + 1
    some = np.zeros((0, run.geometry.n_sites), dtype=np.int64)
    if rounds & (rounds - 1) == 0:
        some = search(run, rounds)
    for rung in run.rungs:
        rung.learn(some)


def search(run: Run, rounds: int) -> NDArray[np.int64]:
    """Return the inputs found after `rounds` of burn-in, [n W, D] (all ranks call this)."""
    g = run.geometry
    searches_k = np.zeros(g.n_rungs, dtype=np.int64)
    for rung in run.rungs:
        searches_k[rung.k] = rung.searches
    searches_k = run.world.sum(searches_k)
    part_k, n_parts = np.cumsum(searches_k) - 1, int(searches_k.sum())
    found_kwd = np.zeros((g.n_rungs, g.n_walkers, g.n_sites), dtype=np.int64)
    since = rounds - rounds // 2
    n_batches = max(1, round(SEARCH_SHARE * since * run.config.sampler.moves_per_round))
    for rung in run.rungs:
        if searches_k[rung.k]:
            found = rung.search(rounds - 1, n_batches, int(part_k[rung.k]), n_parts)
            if found is not None:
                found_kwd[rung.k] = found + 1  # 0 if this rung has found nothing
    found_kwd = run.world.sum(found_kwd)
    return np.asarray(found_kwd[found_kwd.any(axis=(1, 2))].reshape(-1, g.n_sites) - 1)


def commit(run: Run) -> NDArray[np.int64]:
    """Check the round's exchanges, commit the round, and return its swaps, int64 [K - 1, 2]."""
    round_, exchanger, tuning = run.next_round, run.exchanger, run.tuning
    exchanger.check(run.world.sum(exchanger.imbalance_w))
    totals = totals_of_round(run)
    if round_ < 0:
        run.burn_in.add(totals)
        if round_ == -1:  # before the commit, so that the same command cannot resume past the error
            require_bins(run)
        end_burn_in_round(run, totals.swaps_k2)
    exchanges = ExchangeRecord(
        attempted_k=totals.swaps_k2[:, 0],
        accepted_k=totals.swaps_k2[:, 1],
        round_trips_v=run.gathering.sum(exchanger.trips),
        swaps_k2=tuning.swaps_k2,
        rejection_k=tuning.rejection_k,
        z_std_k=tuning.z_std_k,
    )
    records = run.gathering.records(run.rungs)
    committed = round_ + 1 + (run.config.run.burn_in if round_ < 0 else 0)
    counts_kb = counts_of_block(run, records)
    slabs = slabs_of_round(records, exchanges, run.written, run.geometry, counts_kb)
    run.writer.commit(round_, slabs, committed)
    run.side.after_commit(round_, slabs, run.written, run.geometry)
    if round_ >= 0:
        run.totals.add(totals)
    return totals.swaps_k2


def counts_of_block(run: Run, records: Sequence[RungRecord]) -> NDArray[np.uint32] | None:
    """Return the counts of the block of rounds that ends now; None if no block ends here."""
    field, round_ = layout(run.geometry)["histogram/counts"], run.next_round
    if field.per != "block" or round_ < 0 or not records or not ends_block(field, round_):
        return None
    return run.block_counts.end_block(records)


def totals_of_round(run: Run) -> Totals:
    """Return the round's counts over all ranks (all ranks call this)."""
    n_rungs, exchanger = run.geometry.n_rungs, run.exchanger
    mine = Totals.zeros(n_rungs)
    mine.swaps_k2[:] = np.stack([exchanger.attempted_k, exchanger.accepted_k], axis=1)
    for rung in run.rungs:
        mine.moves_k2[rung.k] += rung.attempted_p.sum(), rung.histogram.counts_b.sum()
        mine.extremes[0] = min(mine.extremes[0], rung.histogram.extremes[0])
        mine.extremes[1] = max(mine.extremes[1], rung.histogram.extremes[1])
    together = np.asarray(run.world.sum(np.concatenate([mine.moves_k2, mine.swaps_k2])))
    if run.next_round < 0:  # only the extremes of burn-in are reported
        less_lowest, highest = run.world.max(mine.extremes * (-1, 1))
        mine.extremes[:] = -less_lowest, highest
    return Totals(together[:n_rungs], together[n_rungs:], mine.extremes)


def end_burn_in_round(run: Run, swaps_k2: NDArray[np.int64]) -> None:
    """Adapt the ladder to a burn-in round's swaps; end all learning before the last quarter."""
    moments_bk3 = np.zeros((run.config.sampler.blocks, run.geometry.n_rungs, 3))
    for rung in run.rungs:
        moments_bk3[rung.block.number, rung.k] = rung.histogram.moments
    # Each number comes from one rank; blocks are added in order: the bits do not depend on ranks.
    moments_k3 = run.world.sum(moments_bk3).sum(axis=0)
    new_k3 = run.tuning.after_round(run.next_round, run.parameters_k3(), swaps_k2, moments_k3)
    if new_k3 is not None:
        for rung in run.rungs:
            rung.set_ensemble(of_parameters(*map(float, new_k3[rung.k])))
    if run.next_round >= -(run.config.run.burn_in // EQUILIBRATION_SHARE) - 1:
        run.world.together(run.freeze)
    if run.next_round == -1:
        report_burn_in(run)


def report_burn_in(run: Run) -> None:
    """Log the results of burn-in, and warn of what it did not reach (all ranks call this)."""
    rung_k3 = run.parameters_k3()
    if run.world.rank == 0:
        run.tuning.report(rung_k3)
    warn_of_transitions(run.world, run.config, run.rungs, run.tuning.swaps_k2, rung_k3)
    unfinished = [
        f"rung {rung.k} (ln f = {rung.learner.ln_f:.2g})"
        for rung in run.rungs
        if rung.learner is not None and not rung.learner.reached
    ]
    for text in run.world.texts(", ".join(unfinished)):
        if text and run.world.rank == 0:
            log.warning(
                "warning: Wang-Landau did not reach ln_f_last in %s; its weights are frozen as "
                "they are; results stay exact, but may converge slowly: raise run.burn_in",
                text,
            )


def require_bins(run: Run) -> None:
    """Raise a UserError if all outputs of burn-in fell outside the bins (all ranks call this).

    If the run was resumed during burn-in, only outputs since then count.
    """
    moves, inside = run.burn_in.moves_k2.sum(axis=0)
    if moves and not inside:
        bins = run.config.bins
        where = outside_words(run.burn_in.extremes, (bins.lower, bins.upper))
        raise UserError(
            f"all outputs of burn-in fell outside the bins: {where}; set bins.lower and bins.upper "
            "so that they include these, and choose another run.output"
        )


def warn_of_bins(run: Run) -> None:
    """Warn if more than `OUTSIDE` of burn-in's outputs fell outside the bins."""
    seen, bins = run.burn_in, run.config.bins
    moves, inside = seen.moves_k2.sum(axis=0)
    if moves - inside <= OUTSIDE * moves:
        return
    if run.world.rank == 0:
        where = outside_words(seen.extremes, (bins.lower, bins.upper))
        share = f"{(moves - inside) / moves:.0%}" if inside else "all"
        log.warning("warning: %s of burn-in's outputs fell outside the bins: %s", share, where)


def warn_of_eager_passes(run: Run) -> None:
    """Warn if the number of ranks that evaluate without CUDA graphs has grown.

    Neighbours wait for each other, so one such rank slows down all. All ranks call this.
    """
    reasons = run.world.texts(run.rungs[0].walkers.model.offers.without_graphs())
    slow = [rank for rank, reason in enumerate(reasons) if reason]
    if len(slow) > run.n_eager and run.world.rank == 0:
        log.warning(
            "warning: %d of %d ranks evaluate the model without CUDA graphs, which may be "
            "several times slower, and all ranks wait for them: %s (rank %d)",
            len(slow), len(reasons), reasons[slow[0]], slow[0],
        )  # fmt: skip
    run.n_eager = len(slow)


def outside_words(extremes: NDArray[np.float64], ends: tuple[float, float]) -> str:
    """Return the range of all outputs, and the ends of the bins that it exceeds, in words."""
    (lowest, highest), (lower, upper) = extremes, ends
    sides = [f"bins begin at {lower:g}"] if lowest < lower else []
    sides += [f"bins end at {upper:g}"] if highest > upper else []
    return f"z ranged from {lowest:.4g} to {highest:.4g}; {' and '.join(sides)}"


def warn(run: Run) -> None:
    """Warn of rungs outside the bins, pairs that never swap, and passes without CUDA graphs.

    All ranks call this.
    """
    warn_of_eager_passes(run)
    beta_k, moves_k2, swaps_k2 = run.beta_k(), run.totals.moves_k2, run.totals.swaps_k2
    if run.world.rank != 0:
        return
    for k in np.flatnonzero((moves_k2[:, 1] == 0) & (moves_k2[:, 0] > 0)):
        log.warning(
            "warning: rung %d (beta = %g): all outputs fell outside the bins; widen [bins]",
            k, beta_k[k],
        )  # fmt: skip
    for k in np.flatnonzero((swaps_k2[:, 1] == 0) & (swaps_k2[:, 0] > 0)):
        remedy = f"add a rung between beta = {beta_k[k]:g} and {beta_k[k + 1]:g}"
        if np.isnan(beta_k[k : k + 2]).any():
            remedy = "let their ranges of z overlap more (wang_landau.overlap, or more windows)"
        log.warning("warning: rungs %d and %d never swapped: %s", k, k + 1, remedy)
