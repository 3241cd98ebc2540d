"""How many walkers fill a device: ``[sampler] walkers = "auto"``, found by trial moves.

They are those of a batch: of a rung, or of each of the blocks that its walkers are cut into.
The number is doubled for as long as that moves at least a tenth more walkers a second, all of it
fits into the rank's share of the device's memory, and a round takes five minutes at most; one
number that does not gain is passed over, in case the machine was disturbed. All ranks go through
the same numbers together, and what one of them does not gain from, or has no memory for, no rank
takes. A run stores the number in its file's input and never looks for it again.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from omniinput_hpc import rng
from omniinput_hpc.config import Config
from omniinput_hpc.errors import UserError
from omniinput_hpc.histogram import MAX_GROUPS
from omniinput_hpc.runfile.layout import Geometry
from omniinput_hpc.text import amount

if TYPE_CHECKING:
    from omniinput_hpc.parallel.comm import World
    from omniinput_hpc.sampling.rung import Rung

FIRST_WALKERS = MAX_GROUPS
"""Where the search begins: errors come from the spread among groups of lanes (see `histogram`)."""
MAX_WALKERS = 4096
MIN_GAIN = 1.1
"""How many times more walkers a second must move when there are twice as many."""
MEMORY_SHARE = 0.8
"""The share of the free memory that may be planned with."""
TRIAL_MOVES = 4
"""Moves of a trial."""
TRIAL_SECONDS = 0.3
"""A trial is repeated for so long; its fastest repetition counts."""
LONGEST_ROUND = 300.0
"""Seconds of a round, which a kill loses, at most."""
MAX_MISSES = 2
"""Numbers of walkers in a row without a gain, after which the search ends."""


@dataclass(frozen=True)
class Trial:
    """What trial moves of one batch of W walkers took, a rung's or a block's: time and memory."""

    n_walkers: int  # W
    seconds: float  # for a move of all of them; infinite where the memory did not suffice
    peak: int  # bytes taken while they move, those of recorded graphs too
    per_further_batch: int  # bytes that each further batch of the rank keeps

    def need(self, n_batches: int) -> int:
        """Return the bytes that a rank of some batches takes, which move one after the other."""
        return self.peak + (n_batches - 1) * self.per_further_batch


@dataclass(frozen=True)
class MemoryBudget:
    """The memory that a rank may use."""

    n_batches: int  # of the rank: its rungs, or blocks of them
    device: float  # bytes
    host: float  # bytes
    records: float  # bytes on the host that a rank's records take per walker
    on_device: int = 0  # bytes in use already
    on_host: int = 0  # bytes in use already

    def fits(self, last: Trial, n_walkers: int) -> bool:
        """Whether n walkers fit, estimated from a trial of another number."""
        times = n_walkers / last.n_walkers
        need = times * last.need(self.n_batches)
        return need <= self.device and need + self.records * n_walkers <= self.host


def find(
    world: World,
    trial: Callable[[int], Trial],
    budget: MemoryBudget,
    most: int,
    moves_per_round: int = 0,
) -> list[Trial]:
    """Return this rank's trials of the numbers that gained; the last one is what was found.

    `trial` moves a batch of W walkers; `most` is the largest W that is allowed, the same on all
    ranks. A number with which a rank's `moves_per_round` would take over five minutes is not taken,
    unless it is the smallest. Raises a UserError where not even the smallest number fits.
    """
    first = trial(FIRST_WALKERS)
    if not world.all(bool(np.isfinite(first.seconds)) and budget.fits(first, FIRST_WALKERS)):
        raise UserError(
            f'sampler.walkers = "auto": not even {FIRST_WALKERS} walkers a rung fit into memory; '
            'give a number, start more ranks (fewer rungs each), or set model.dtype = "bfloat16"'
        )
    trials, last, missed = [first], first, 0
    while missed < MAX_MISSES and 2 * last.n_walkers <= most:
        twice = 2 * last.n_walkers
        if not world.all(budget.fits(last, twice)):
            break
        last = trial(twice)
        # An infinite time is that of a trial for which the memory did not suffice.
        longest = LONGEST_ROUND / moves_per_round if moves_per_round else np.finfo(np.float64).max
        if not world.all(last.seconds <= longest and budget.fits(last, twice)):
            break
        gains = world.all(gain(trials[-1], last) >= MIN_GAIN ** (missed + 1))
        missed = 0 if gains else missed + 1
        if gains:
            trials.append(last)
    return trials


def gain(one: Trial, other: Trial) -> float:
    """Return how many times more walkers a second the other trial moved."""
    return other.n_walkers * one.seconds / (one.n_walkers * other.seconds)


def try_rung(
    make: Callable[[], Rung], g: Geometry, device: str, threads: int, several: bool
) -> Trial:
    """Move a rung's walkers from uniformly random inputs, and say what that took.

    The rung is of the trial alone, and so are the random numbers. `several` says whether the rank
    holds further rungs; then what a second one takes is seen, too.
    """
    from omniinput_hpc.models import device as devices
    from omniinput_hpc.sampling.walkers import OutOfMemoryError

    # CPU time if single-threaded, so that other load does not disturb the trial
    clock = time.process_time if (device, threads) == ("cpu", 1) else time.perf_counter
    devices.reset_peak(device)
    before, outside = devices.held_bytes(device), devices.outside_bytes(device)
    times = [float("inf")]
    try:
        rung = _moved(make(), g, clock)  # allocates what it keeps
        while len(times) == 1 or sum(times[1:]) < TRIAL_SECONDS:
            times.append(_segment(rung, clock))
        held, peak, further = devices.held_bytes(device), devices.peak_bytes(device) - before, 0
        peak += max(0, devices.outside_bytes(device) - outside)  # recorded graphs
        if several:  # what rungs share, such as a KV cache, is allocated already
            second = _moved(make(), g, clock)
            further = devices.held_bytes(device) - held
            del second  # only now: its memory must not be free while it is measured
    except (OutOfMemoryError, UserError):  # the latter from trying the model out
        return Trial(g.n_walkers, float("inf"), 0, 0)
    return Trial(g.n_walkers, min(times) / TRIAL_MOVES, max(peak, 0), max(further, 0))


def _moved(rung: Rung, g: Geometry, clock: Callable[[], float]) -> Rung:
    """Return a rung whose walkers have moved from uniformly random inputs."""
    random = rng.generator(0, "trial", 2)
    x = random.integers(g.n_values, size=(g.n_walkers, g.n_sites)).astype(g.x_dtype)
    rung.walkers.place(x, rung.walkers.evaluate(x))
    _segment(rung, clock)
    return rung


def _segment(rung: Rung, clock: Callable[[], float]) -> float:
    """Move the walkers, by the same random numbers each time, and return the seconds."""
    rung.walkers.place(*rung.walkers.configurations())  # as a run does after each exchange
    own, shared = (rng.generator(0, "trial", index) for index in range(2))
    begin = clock()
    rung.walkers.begin_segment(own, shared, 0).run(steps=TRIAL_MOVES)
    return clock() - begin


def most_walkers(config: Config) -> int:
    """Return the largest batch that the file's counters hold, at most `MAX_WALKERS`."""
    moves = config.sampler.moves_per_round * config.sampler.blocks
    return min(MAX_WALKERS, int(np.iinfo(np.uint32).max) // moves)


def shown(trials: list[Trial], batch: str = "rung") -> str:
    """Return a sentence on what the trials found; "" where there were none.

    `batch` is what a batch of walkers is.
    """
    if not trials:
        return ""
    rates = (f"{t.n_walkers}: {t.n_walkers / t.seconds:,.3g}" for t in trials)
    return f'found by "auto", moves/s of a {batch} with {", ".join(rates)}'


def measured(world: World, trial: Trial, budget: MemoryBudget, device: str) -> str:
    """Return a sentence on the memory of the rank that uses most (all ranks call this)."""
    need = trial.need(budget.n_batches)
    on_host = budget.on_host + budget.records * trial.n_walkers + (need if device == "cpu" else 0)
    on_device = budget.on_device + need
    host, card = world.max(np.array([on_host, on_device]))
    text = f"by trial moves, {amount(host)} of a host's memory a rank, the libraries included"
    return text if device == "cpu" else f"{text}, and {amount(card)} of its device's"
