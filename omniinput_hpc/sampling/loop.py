"""The central loop: moves, exchanges, commits."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from omniinput_hpc import rng
from omniinput_hpc.config import Config
from omniinput_hpc.parallel.comm import World
from omniinput_hpc.parallel.stopping import StopCheck
from omniinput_hpc.runfile.writers import Writer
from omniinput_hpc.sampling.progress import Progress
from omniinput_hpc.sampling.timing import Clock
from omniinput_hpc.tempering.adaptation import LadderTuning
from omniinput_hpc.tempering.ensembles import Canonical

if TYPE_CHECKING:
    from omniinput_hpc.sampling.exchange import Exchanger
    from omniinput_hpc.sampling.rung import Rung


EQUILIBRATION_SHARE = 4
"""The last 1 / 4 of burn-in is sampled with everything that learns frozen."""

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
    tuning: LadderTuning,
    writer: Writer,
    world: World,
    stopping: StopCheck,
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
    n_rungs = len(config.beta_k)
    totals = Totals(np.zeros((n_rungs - 1, 2), np.int64), np.zeros((n_rungs, 2), np.int64))
    s = config.sampler
    first_warning = max(first_round, 0) + config.run.rounds // 10
    round_ = first_round
    while round_ < config.run.rounds:
        begin_round(round_, rungs, exchanger)
        for exchange in range(s.exchanges):
            for rung in rungs:
                with clock.part("moves"):
                    move(rung, config, round_, exchange, stopping)
                with clock.part("recording"):
                    rung.record(config.samples.every, exchange * s.steps)
                    if round_ < 0:
                        rung.adapt()
            if s.method == "ancestral":
                continue  # draws are independent: nothing to exchange
            with clock.part("exchange"):
                exchanger.swap(rungs, (round_ + config.run.burn_in) * s.exchanges + exchange)
        with clock.part("writing"):
            swaps_k2 = commit(round_, config, rungs, exchanger, tuning, writer, world, totals)
        progress.committed(round_, swaps_k2[:, 1] / np.maximum(swaps_k2[:, 0], 1))
        if round_ == first_warning and world.rank == 0:
            warn(totals, tuning.beta_k)
        round_ += 1
    return totals


def begin_round(round_: int, rungs: Sequence[Rung], exchanger: Exchanger) -> None:
    """Zero the round's counts, and at the first counted round those of burn-in."""
    exchanger.begin_round()
    for rung in rungs:
        rung.begin_round()
        if round_ == 0:
            rung.histogram.clear_all()


def move(rung: Rung, config: Config, round_: int, exchange: int, stopping: StopCheck) -> None:
    """Move one rung's walkers through the segment before an exchange."""
    s = config.sampler
    own, shared = (
        rng.generator(config.run.seed, purpose, rung.k, round_ + config.run.burn_in, exchange)
        for purpose in ("moves", "choices")
    )
    try:
        rung.batch.begin_segment(own, shared, first_move=exchange * s.steps)
        for _ in range(s.steps):
            rung.batch.step()
            stopping.after_move()
        rung.collect()
    except Exception as error:
        error.add_note(f"in rung {rung.k} (beta = {rung.beta:g}), round {round_}")
        raise


def commit(
    round_: int,
    config: Config,
    rungs: Sequence[Rung],
    exchanger: Exchanger,
    tuning: LadderTuning,
    writer: Writer,
    world: World,
    totals: Totals,
) -> NDArray[np.int64]:
    """Check the round's exchanges, commit it, and return its swaps, int64 [K - 1, 2]."""
    exchanger.check(world.sum(exchanger.imbalance_w))
    n_rungs = len(config.beta_k)
    swaps_k2 = np.stack([exchanger.attempted_k, exchanger.accepted_k], axis=1)
    moves_k2 = np.zeros((n_rungs, 2), dtype=np.int64)
    for rung in rungs:
        moves_k2[rung.k] = rung.attempted_p.sum(), rung.histogram.counts_b.sum()
    together = world.sum(np.concatenate([moves_k2, swaps_k2]))
    if round_ < 0:
        end_burn_in_round(round_, config, rungs, exchanger, tuning, world, together[n_rungs:])
    parts = [rung.values() for rung in rungs]
    values = {name: np.stack([part[name] for part in parts]) for name in parts[0]}
    pairs = slice(rungs[0].k, min(rungs[-1].k + 1, n_rungs - 1))
    values["exchange/attempted"] = exchanger.attempted_k[pairs]
    values["exchange/accepted"] = exchanger.accepted_k[pairs]
    values["exchange/round_trips"] = exchanger.trips
    values["ladder/rejection"] = tuning.rejection_k[pairs]
    values["ladder/z_std"] = tuning.z_std_k[rungs[0].k : rungs[-1].k + 1]
    values["state/swaps"] = tuning.swaps_k2[pairs]
    committed = round_ + 1 + (config.run.burn_in if round_ < 0 else 0)
    writer.commit(round_, values, committed)
    if round_ >= 0:
        totals.moves_k2 += together[:n_rungs]
        totals.swaps_k2 += together[n_rungs:]
    return np.asarray(together[n_rungs:])


def end_burn_in_round(
    round_: int,
    config: Config,
    rungs: Sequence[Rung],
    exchanger: Exchanger,
    tuning: LadderTuning,
    world: World,
    swaps_k2: NDArray[np.int64],
) -> None:
    """Adapt the ladder to a burn-in round's swaps, and end all learning when its time is over."""
    moments_k3 = np.zeros((len(config.beta_k), 3))
    for rung in rungs:
        moments_k3[rung.k] = rung.histogram.moments
    if tuning.after_round(round_, swaps_k2, world.sum(moments_k3)):
        take_betas(tuning, rungs, exchanger)
    if round_ >= -(config.run.burn_in // EQUILIBRATION_SHARE) - 1:
        world.together(lambda: freeze(rungs))
    if round_ == -1:
        report_burn_in(rungs, tuning, world)


def freeze(rungs: Sequence[Rung]) -> None:
    """End all learning."""
    for rung in rungs:
        rung.freeze()


def take_betas(tuning: LadderTuning, rungs: Sequence[Rung], exchanger: Exchanger) -> None:
    """Let all rungs and exchanges go by the tuned betas."""
    exchanger.ensembles[:] = [Canonical(float(beta)) for beta in tuning.beta_k]
    for rung in rungs:
        ensemble = exchanger.ensembles[rung.k]
        rung.sample_by(ensemble, ensemble, float(tuning.beta_k[rung.k]))


def report_burn_in(rungs: Sequence[Rung], tuning: LadderTuning, world: World) -> None:
    """Log what burn-in found, and what it did not reach."""
    if world.rank == 0:
        tuning.report()
    late = [
        f"rung {rung.k} (ln f = {rung.learner.ln_f:.2g})"
        for rung in rungs
        if rung.learner is not None and not rung.learner.reached
    ]
    for text in world.texts(", ".join(late)):
        if text and world.rank == 0:
            log.warning(
                "warning: Wang-Landau did not reach ln_f_last in %s; its weights are frozen as "
                "they are, which is exact but may mix slowly: raise run.burn_in",
                text,
            )


def warn(totals: Totals, beta_k: NDArray[np.float64]) -> None:
    """Log what only shows while running: rungs outside the bins, pairs that never swap."""
    for k in np.flatnonzero((totals.moves_k2[:, 1] == 0) & (totals.moves_k2[:, 0] > 0)):
        log.warning(
            "warning: rung %d (beta = %g): all outputs fell outside the bins; widen [bins]",
            k, beta_k[k],
        )  # fmt: skip
    for k in np.flatnonzero((totals.swaps_k2[:, 1] == 0) & (totals.swaps_k2[:, 0] > 0)):
        remedy = f"add a rung between beta = {beta_k[k]:g} and {beta_k[k + 1]:g}"
        if np.isnan(beta_k[k : k + 2]).any():
            remedy = "let their ranges of z overlap more (wang_landau.overlap, or more windows)"
        log.warning("warning: rungs %d and %d never swapped: %s", k, k + 1, remedy)
