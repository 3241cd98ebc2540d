"""Trials: moves that are made before a run, to measure times, memory and outputs.

`--check`, ``walkers = "auto"`` and `init` draw their conclusions from these measurements. Trials
have random streams of their own, and change no run.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from omniinput_hpc import rng
from omniinput_hpc.errors import UserError
from omniinput_hpc.sampling import build
from omniinput_hpc.sampling.built import Built
from omniinput_hpc.sampling.stats import RoundStats

if TYPE_CHECKING:
    from omniinput_hpc.config import Config
    from omniinput_hpc.parallel.comm import World
    from omniinput_hpc.sampling.joined import Joined
    from omniinput_hpc.sampling.rung import Rung
    from omniinput_hpc.sampling.walkers import Walkers

BATCH_MOVES = 4
"""Moves of a batch that is tried."""
BATCH_SECONDS = 0.3
"""A batch is tried again for this long; its fastest repetition counts."""

AfterMove = Callable[[], object]
Clock = Callable[[], float]
Streams = tuple[np.random.Generator, np.random.Generator]


def clock_of(device: str, config: Config) -> Clock:
    """Return CPU time if single-threaded, which other load does not disturb; else real time.

    A python model, law or output may wait for another process, or have threads of its own.
    """
    single = device == "cpu" and config.run.threads == 1
    law, output = config.law, config.output
    parts = (config.model, law, law and law.prompt, getattr(output, "other", None))
    kinds = [getattr(part, "kind", "") for part in parts] + [getattr(output, "name", "")]
    return time.process_time if single and "python" not in kinds else time.monotonic


def streams(seed: int, first: int, *key: int) -> Streams:
    """Return a segment's two generators; `first` is apart by 10 for each use of trials."""
    own, shared = (rng.generator(seed, "trial", first + i, *key) for i in range(2))
    return own, shared


@dataclass(frozen=True)
class BatchTrial:
    """Time and memory of trial moves of one batch of W walkers (a rung or a block)."""

    n_walkers: int  # W
    seconds: float  # per move of all W walkers; infinite if the memory did not suffice
    peak: int  # bytes used while they move, including recorded CUDA graphs
    per_further_batch: int  # bytes that each further batch on the rank keeps

    def need(self, n_batches: int) -> int:
        """Return the bytes that a rank needs for some batches, which move one after the other."""
        return self.peak + (n_batches - 1) * self.per_further_batch


def try_batch(built: Built, n_walkers: int, k: int, several: bool) -> BatchTrial:
    """Move a batch of some walkers of rung k; return the time and memory used.

    The walkers start from uniformly random inputs, and are used only for the trial. `several` is
    whether the rank holds several batches; if so, the memory of a second one is measured as well.
    """
    from omniinput_hpc.models import device as devices
    from omniinput_hpc.sampling.walkers import OutOfMemoryError

    def segment(walkers: Walkers) -> float:
        walkers.place(*walkers.configurations())  # as a run does after each exchange
        begin, of_segment = clock(), streams(0, 0)  # the same each time
        walkers.begin_segment(*of_segment, first_move=0).run()
        return clock() - begin

    def moved() -> Walkers:
        of_batch = build.with_input(built, config, [k])
        walkers, g = of_batch.rungs[0].walkers, of_batch.geometry
        x = rng.generator(0, "trial", 2).integers(g.n_values, size=(n_walkers, g.n_sites))
        walkers.place(x, walkers.evaluate(x))
        segment(walkers)
        return walkers

    update = {"walkers": n_walkers, "blocks": 1, "steps": BATCH_MOVES}
    sampler = built.config.sampler.model_copy(update=update)
    config, device = built.config.model_copy(update={"sampler": sampler}), built.device
    clock = clock_of(device, config)
    devices.reset_peak(device)
    before, outside = devices.held_bytes(device), devices.outside_bytes(device)
    times = [float("inf")]
    try:
        walkers = moved()  # allocates the memory that it keeps
        while len(times) == 1 or sum(times[1:]) < BATCH_SECONDS:
            times.append(segment(walkers))
        held, peak, further = devices.held_bytes(device), devices.peak_bytes(device) - before, 0
        peak += max(0, devices.outside_bytes(device) - outside)  # recorded graphs
        if several:  # memory that rungs share, such as a KV cache, is already allocated
            second = moved()
            further = devices.held_bytes(device) - held
            del second  # only now: its memory must be in use during the measurement
    except (OutOfMemoryError, UserError):  # `try_out` raises a UserError if memory runs out
        return BatchTrial(n_walkers, float("inf"), 0, 0)
    return BatchTrial(n_walkers, min(times) / BATCH_MOVES, max(peak, 0), max(further, 0))


@dataclass(frozen=True)
class ExchangeTrial:
    """The result of trial exchanges; the same on all ranks.

    Attributes
    ----------
    exchanges : completed exchanges; 0 if not even one fitted into the time
    seconds : time of one exchange and the moves before it
    z_kw : float64 [K, W], the last outputs of each rung; NaN without a completed exchange
    extremes : float64 [2], lowest and highest output of all moves
    outside : share of all outputs outside the bins
    """

    exchanges: int
    seconds: float
    z_kw: NDArray[np.float64]
    extremes: NDArray[np.float64]
    outside: float


def try_exchanges(
    world: World,
    built: Built,
    most: int,
    seconds: float = np.inf,
    clock: Clock = time.monotonic,
    after_move: AfterMove = lambda: None,
) -> ExchangeTrial:
    """Place the walkers and try `most` exchanges, or as many as fit into `seconds`.

    All ranks call this together and make the moves of a run, so that the times include the cost of
    shared devices. The time of the first exchange, which includes one-off costs, does not count if
    there is another one. Without a whole exchange its time is estimated from single moves.
    """
    from omniinput_hpc.models.checked import refused_unless_finite
    from omniinput_hpc.sampling.joined import join

    @refused_unless_finite()
    def place() -> None:
        for rung in built.rungs:
            rung.start()
            rung.begin_round()
        if joined is not None:
            joined.begin_round()

    @refused_unless_finite()
    def move(exchange: int, left: float) -> tuple[bool, float]:
        if joined is not None:
            return _move_joined(joined, steps, exchange, left, clock, after_move)
        of_rung = partial(_move, built, exchange, left / len(built.rungs), clock, after_move)
        moved = [of_rung(rung) for rung in built.rungs]
        return all(done == steps for done, _ in moved), sum(each for _, each in moved)

    config, g = built.config, built.geometry
    steps = config.sampler.steps
    exchanger = build.exchanger_of(world, built)
    joined = join(built.rungs, exchanger, config.run.seed, "trial")
    swap = partial(exchanger.swap, built.rungs) if joined is None else joined.swap
    world.together(place)
    begin, mine = clock(), 0.0
    each: list[float] = []
    while len(each) < most:
        start = clock()
        whole, a_move = world.together(partial(move, len(each), seconds - (start - begin)))
        if not world.all(whole):
            mine = a_move * steps
            break
        if config.sampler.swaps:
            swap(len(each))
        each.append(clock() - start)
        if not world.all(clock() - begin + each[-1] < seconds):
            break
    if each:
        mine = float(np.mean(each[1:] or each))
    if joined is not None:
        joined.end_round()
    return _result(world, built, RoundStats.reduced(world, g, built.rungs, exchanger), each, mine)


def _result(
    world: World, built: Built, stats: RoundStats, each: list[float], seconds: float
) -> ExchangeTrial:
    """Return the result of some exchanges, given the time of each, and this rank's of one."""
    g = built.geometry
    moves, inside = stats.moves_k2.sum(axis=0)
    return ExchangeTrial(
        exchanges=len(each),
        seconds=float(world.max(np.array([seconds]))[0]),
        z_kw=_outputs(world, built) if each else np.full((g.n_rungs, g.n_walkers), np.nan),
        extremes=stats.extremes,
        outside=float((moves - inside) / max(moves, 1)),
    )


def _move(
    built: Built, exchange: int, seconds: float, clock: Clock, after_move: AfterMove, rung: Rung
) -> tuple[int, float]:
    """Move a rung's walkers up to an exchange; return the number of moves, and seconds per move.

    The moves are recorded only if all moves of the segment fit into `seconds`.
    """
    from omniinput_hpc.sampling.rung import kernel_moves

    config, steps, begin = built.config, built.config.sampler.steps, clock()
    of_segment = streams(config.run.seed, 40, rung.k, exchange, *rung.block.key)
    segment = rung.begin_segment(*of_segment, first_move=exchange * steps)
    done = 0
    while done < steps and (done == 0 or clock() - begin < seconds):
        made = segment.advance(steps - done)
        done += made
        for _ in range(made):
            after_move()
    if done == steps:
        recorded = segment.recorded()
        rung.record(recorded, config.samples.every, exchange * steps)
        rung.adapt(kernel_moves(recorded))
    return done, (clock() - begin) / done


def _move_joined(
    joined: Joined, steps: int, exchange: int, seconds: float, clock: Clock, after_move: AfterMove
) -> tuple[bool, float]:
    """Move all rungs up to an exchange; return whether there was time, and seconds per move."""
    begin = clock()

    def after_moves(n: int) -> bool:
        for _ in range(n):
            after_move()
        return clock() - begin >= seconds

    made = joined.move(0, exchange, after_moves)
    return made == steps, (clock() - begin) / made


def _outputs(world: World, built: Built) -> NDArray[np.float64]:
    """Return the present outputs of all walkers, float64 [K, W] (all ranks call this)."""
    z_kw = np.zeros((built.geometry.n_rungs, built.geometry.n_walkers))
    for rung in built.rungs:
        z_kw[rung.k, rung.lanes.start : rung.lanes.stop] = rung.walkers.configurations()[1]
    return np.asarray(world.sum(z_kw))
