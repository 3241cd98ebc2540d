"""The central loop: moves, exchanges, commits."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from omniinput_hpc import streams
from omniinput_hpc.clock import Clock
from omniinput_hpc.comm import World
from omniinput_hpc.commit import Writer
from omniinput_hpc.config import Config
from omniinput_hpc.lookout import Lookout
from omniinput_hpc.progress import Progress

if TYPE_CHECKING:
    from omniinput_hpc.exchange import Exchanger
    from omniinput_hpc.rung import Rung


log = logging.getLogger("omniinput_hpc")


@dataclass
class Totals:
    """What all ranks did together since this process began.

    Attributes
    ----------
    swaps_k2 : int64 [K - 1, 2], attempted and accepted
    moves_k2 : int64 [K, 2], moves counted, and those of them inside the bins
    """

    swaps_k2: NDArray[np.int64]
    moves_k2: NDArray[np.int64]


def run(
    config: Config,
    rungs: Sequence[Rung],
    exchanger: Exchanger,
    writer: Writer,
    world: World,
    lookout: Lookout,
    clock: Clock,
    progress: Progress,
    first_round: int,
) -> Totals:
    """Sample until all rounds are committed. Burn-in rounds have the numbers -burn_in to -1.

    Raises
    ------
    StopRun
        The ranks agreed to stop; the unfinished round is dropped.
    LostWalker
        A defect of the exchange.
    WriteError
        The disk is full or broken.
    """
    n_rungs = len(config.ladder.beta_k)
    totals = Totals(np.zeros((n_rungs - 1, 2), np.int64), np.zeros((n_rungs, 2), np.int64))
    s = config.sampler
    first_warning = max(first_round, 0) + config.run.rounds // 10
    round_ = first_round
    while round_ < config.run.rounds:
        begin_round(round_, rungs, exchanger)
        for exchange in range(s.exchanges):
            for rung in rungs:
                with clock.part("moves"):
                    move(rung, config, round_, exchange, lookout)
                with clock.part("recording"):
                    rung.record(config.samples.every, exchange * s.steps)
            with clock.part("exchange"):
                exchanger.swap(rungs, (round_ + config.run.burn_in) * s.exchanges + exchange)
        with clock.part("writing"):
            swaps_k2 = commit(round_, config, rungs, exchanger, writer, world, totals)
        progress.committed(round_, swaps_k2[:, 1] / np.maximum(swaps_k2[:, 0], 1))
        if round_ == first_warning and world.rank == 0:
            warn(config, totals)
        round_ += 1
    return totals


def begin_round(round_: int, rungs: Sequence[Rung], exchanger: Exchanger) -> None:
    """Zero the round's counts, and at the first counted round those of burn-in."""
    exchanger.begin_round()
    for rung in rungs:
        rung.begin_round()
        if round_ == 0:
            rung.histogram.clear_all()


def move(rung: Rung, config: Config, round_: int, exchange: int, lookout: Lookout) -> None:
    """Move one rung's walkers through the segment before an exchange."""
    s = config.sampler
    own, shared = (
        streams.generator(config.run.seed, purpose, rung.k, round_ + config.run.burn_in, exchange)
        for purpose in ("moves", "choices")
    )
    try:
        rung.batch.begin_segment(own, shared, first_move=exchange * s.steps)
        for _ in range(s.steps):
            rung.batch.step()
            lookout.after_move()
        rung.collect()
    except Exception as error:
        error.add_note(
            f"in rung {rung.k} (beta = {config.ladder.beta_k[rung.k]:g}), round {round_}"
        )
        raise


def commit(
    round_: int,
    config: Config,
    rungs: Sequence[Rung],
    exchanger: Exchanger,
    writer: Writer,
    world: World,
    totals: Totals,
) -> NDArray[np.int64]:
    """Check the round's exchanges, commit it, and return its swaps, int64 [K - 1, 2]."""
    exchanger.check(world.sum(exchanger.imbalance_w))
    n_rungs = len(config.ladder.beta_k)
    swaps_k2 = np.stack([exchanger.attempted_k, exchanger.accepted_k], axis=1)
    moves_k2 = np.zeros((n_rungs, 2), dtype=np.int64)
    for rung in rungs:
        moves_k2[rung.k] = rung.attempted_p.sum(), rung.histogram.counts_b.sum()
    together = world.sum(np.concatenate([moves_k2, swaps_k2]))
    parts = [rung.values() for rung in rungs]
    values = {name: np.stack([part[name] for part in parts]) for name in parts[0]}
    pairs = slice(rungs[0].k, min(rungs[-1].k + 1, n_rungs - 1))
    values["exchange/attempted"] = exchanger.attempted_k[pairs]
    values["exchange/accepted"] = exchanger.accepted_k[pairs]
    values["exchange/round_trips"] = exchanger.trips
    committed = round_ + 1 + (config.run.burn_in if round_ < 0 else 0)
    writer.commit(round_, values, committed)
    if round_ >= 0:
        totals.moves_k2 += together[:n_rungs]
        totals.swaps_k2 += together[n_rungs:]
    return np.asarray(together[n_rungs:])


def warn(config: Config, totals: Totals) -> None:
    """Log what only shows while running: rungs outside the bins, pairs that never swap."""
    beta_k = config.ladder.beta_k
    for k in np.flatnonzero((totals.moves_k2[:, 1] == 0) & (totals.moves_k2[:, 0] > 0)):
        log.warning(
            "warning: rung %d (beta = %g): all outputs fell outside the bins; widen [bins]",
            k, beta_k[k],
        )  # fmt: skip
    for k in np.flatnonzero((totals.swaps_k2[:, 1] == 0) & (totals.swaps_k2[:, 0] > 0)):
        log.warning(
            "warning: rungs %d and %d never swapped: add a rung between beta = %g and %g",
            k, k + 1, beta_k[k], beta_k[k + 1],
        )  # fmt: skip
