"""The central loop: moves, exchanges, commits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from omniinput_hpc import rng
from omniinput_hpc.config import Config
from omniinput_hpc.errors import ending_all_ranks
from omniinput_hpc.parallel.comm import World
from omniinput_hpc.parallel.stopping import StopCheck
from omniinput_hpc.runfile.block_histograms import BlockCounts
from omniinput_hpc.runfile.layout import Geometry
from omniinput_hpc.runfile.records import slabs_of_round
from omniinput_hpc.runfile.side_checkpoint import SideWriter
from omniinput_hpc.runfile.writers import GuardedWriter
from omniinput_hpc.sampling.blocks import Gathering
from omniinput_hpc.sampling.built import RungsOfRank
from omniinput_hpc.sampling.burn_in import BurnIn
from omniinput_hpc.sampling.exchange import Exchanger
from omniinput_hpc.sampling.joined import Joined
from omniinput_hpc.sampling.observer import Observer
from omniinput_hpc.sampling.output_check import OutputCheck
from omniinput_hpc.sampling.progress import Progress
from omniinput_hpc.sampling.rung import Rung, kernel_moves, observe_all
from omniinput_hpc.sampling.stats import RoundStats
from omniinput_hpc.sampling.timing import Clock
from omniinput_hpc.sampling.walkers import Recorded
from omniinput_hpc.tempering.ladder import Block


@dataclass
class LiveRun(RungsOfRank):
    """A rank's part of a run in progress."""

    config: Config
    geometry: Geometry
    rungs: Sequence[Rung]  # rungs, or blocks of rungs, on this rank; they own the ensembles
    gathering: Gathering  # of their records, on the ranks that write them
    block_counts: BlockCounts  # used if several rounds share a histogram
    exchanger: Exchanger
    burn_in: BurnIn
    observer: Observer
    joined: Joined | None  # the rungs of this rank as one batch, if they move as one
    writer: GuardedWriter
    side: SideWriter
    world: World
    stopping: StopCheck
    clock: Clock
    progress: Progress
    next_round: int  # burn-in rounds are numbered -burn_in to -1
    output_check: OutputCheck = field(default_factory=OutputCheck)

    @property
    def rounds_before(self) -> int:
        """The number of rounds before the present one, burn-in included."""
        return self.next_round + self.config.run.burn_in


def sample(run: LiveRun) -> None:
    """Sample until all rounds are committed.

    Raises a StopRun if the ranks agree to stop (the unfinished round is dropped), a LostWalker if
    the exchange has a defect, and a WriteError if the disk is full or broken.
    """
    while run.next_round < run.config.run.rounds:
        begin_round(run)
        for exchange in range(run.config.sampler.exchanges):
            with ending_all_ranks():
                move = move_and_exchange if run.joined is None else move_joined
                move(run, exchange)
            run.progress.exchanged(exchange + 1)
        with run.clock.part("moves"):
            if run.joined is not None:
                run.joined.end_round()
            run.output_check.look(run.world, run.config, run.rungs, run.rounds_before)
            stats = RoundStats.reduced(run.world, run.geometry, run.rungs, run.exchanger)
            run.exchanger.check(stats.imbalance_w)
            run.burn_in.after_round(run.next_round, stats, run.stopping)
        with run.clock.part("writing"):
            commit(run, stats)
        run.progress.committed(run.next_round, stats.swap_rate_p)
        run.observer.after_round(run.next_round, stats)
        run.next_round += 1


def move_and_exchange(run: LiveRun, exchange: int) -> None:
    """Move the walkers of all rungs through a segment and record them, then exchange.

    Raises a UserError if a user's own code fails, maybe on one rank only.
    """
    s, moves_r2p = run.config.sampler, []
    for rung in run.rungs:
        with run.clock.part("moves"):
            recorded = move(run, rung, exchange)
        with run.clock.part("recording"):
            rung.record(recorded, run.config.samples.every, exchange * s.steps)
            moves_r2p.append(kernel_moves(recorded))
    with run.clock.part("recording"):
        run.burn_in.after_moves(run.next_round, moves_r2p)
    if s.swaps:
        with run.clock.part("exchange"):
            run.exchanger.swap(run.rungs, run.rounds_before * s.exchanges + exchange)


def move_joined(run: LiveRun, exchange: int) -> None:
    """Do the same with all rungs as one batch, for kernels that learn nothing."""
    assert run.joined is not None
    s = run.config.sampler
    with run.clock.part("moves"):
        run.joined.move(run.rounds_before, exchange, run.stopping.after_moves)
    if s.swaps:
        with run.clock.part("exchange"):
            run.joined.swap(run.rounds_before * s.exchanges + exchange)


def begin_round(run: LiveRun) -> None:
    """Zero the counts of the round; before the first counted round, also those of burn-in."""
    run.exchanger.begin_round()
    for rung in run.rungs:
        rung.begin_round()
        if run.next_round == 0:
            rung.histogram.clear_all()
    if run.joined is not None:
        run.joined.begin_round()


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


def move(run: LiveRun, rung: Rung, exchange: int) -> Recorded:
    """Move one rung's walkers through the segment before an exchange."""
    s = run.config.sampler
    own, shared = streams(run.config.run.seed, rung.block, run.rounds_before, exchange)
    try:
        segment = rung.begin_segment(own, shared, first_move=exchange * s.steps)
        return segment.run(run.stopping.after_move)
    except Exception as error:
        error.add_note(f"in rung {rung.k} (beta = {rung.ensemble.beta:g}), round {run.next_round}")
        raise


def commit(run: LiveRun, stats: RoundStats) -> None:
    """Commit the round to the run file, and copy it to the side file if that is due."""
    round_, tuning = run.next_round, run.burn_in.tuning
    of_ladder = {
        "exchange/attempted": stats.swaps_k2[:, 0],
        "exchange/accepted": stats.swaps_k2[:, 1],
        "exchange/round_trips": stats.trips_v,
        "ladder/rejection": tuning.rejection_k,
        "ladder/z_std": tuning.z_std_k,
        "state/swaps": tuning.swaps_k2,
    }
    if run.geometry.observables and round_ >= 0:
        run.world.together(partial(observe_all, run.rungs))
    records = run.gathering.records(run.rungs)
    counts_kb = run.block_counts.of_round(round_, records)
    slabs = slabs_of_round(records, of_ladder, run.written, run.geometry, counts_kb)
    run.writer.commit(round_, slabs, round_ + 1 if round_ >= 0 else run.rounds_before + 1)
    run.side.after_commit(round_, slabs, run.written, run.geometry)
