"""Find how many walkers fill a device (``[sampler] walkers = "auto"``), by trial moves.

W is the size of one batch: a rung, or one of the blocks into which its walkers are split. W is
doubled as long as this increases the walker moves per second by at least a tenth, the walkers fit
into the rank's share of the device's memory, and a round takes at most five minutes. A single
doubling without a gain does not end the search, since other load may have disturbed that trial. All
ranks try the same numbers together; a number is accepted only if it has a gain and fits on every
rank. The number is stored with the input in the run file, and a resumed run uses it.
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
"""The search begins here, because errors come from the spread between groups of lanes."""
MAX_WALKERS = 4096
MIN_GAIN = 1.1
"""The factor by which doubling the walkers must increase the walker moves per second."""
MEMORY_SHARE = 0.8
"""The share of the free memory that the walkers may use."""
TRIAL_MOVES = 4
"""Moves per trial."""
TRIAL_SECONDS = 0.3
"""A trial is repeated for this long; its fastest repetition counts."""
LONGEST_ROUND = 300.0
"""The largest number of seconds per round; a kill loses the round in progress."""
MAX_MISSES = 2
"""The search ends after this many doublings in a row without a gain."""


@dataclass(frozen=True)
class Trial:
    """Time and memory of trial moves of one batch of W walkers (a rung or a block)."""

    n_walkers: int  # W
    seconds: float  # per move of all W walkers; infinite if the memory did not suffice
    peak: int  # bytes used while they move, including recorded CUDA graphs
    per_further_batch: int  # bytes that each further batch on the rank keeps

    def need(self, n_batches: int) -> int:
        """Return the bytes that a rank needs for some batches, which move one after the other."""
        return self.peak + (n_batches - 1) * self.per_further_batch


@dataclass(frozen=True)
class MemoryBudget:
    """The memory that a rank may use."""

    n_batches: int  # batches on the rank: rungs, or blocks of them
    device: float  # bytes
    host: float  # bytes
    records: float  # bytes on the host per walker for the rank's records
    on_device: int = 0  # bytes in use already
    on_host: int = 0  # bytes in use already

    def fits(self, last: Trial, n_walkers: int) -> bool:
        """Whether n walkers fit, extrapolated from a trial with another number."""
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
    """Return this rank's trials of the accepted numbers of walkers; the last is the result.

    `trial` moves a batch of W walkers. `most` is the largest allowed W, the same on all ranks. A
    number is rejected if a rank's `moves_per_round` would take more than five minutes; this does
    not apply to the smallest number. Raises a UserError if not even the smallest number fits.
    """
    first = trial(FIRST_WALKERS)
    if not world.all(bool(np.isfinite(first.seconds)) and budget.fits(first, FIRST_WALKERS)):
        raise UserError(
            f'sampler.walkers = "auto": not even {FIRST_WALKERS} walkers per rung fit into memory; '
            'set a number, start more ranks (fewer rungs each), or set model.dtype = "bfloat16"'
        )
    trials, last, missed = [first], first, 0
    while missed < MAX_MISSES and 2 * last.n_walkers <= most:
        twice = 2 * last.n_walkers
        if not world.all(budget.fits(last, twice)):
            break
        last = trial(twice)
        # The time is infinite if the memory did not suffice for the trial.
        longest = LONGEST_ROUND / moves_per_round if moves_per_round else np.finfo(np.float64).max
        if not world.all(last.seconds <= longest and budget.fits(last, twice)):
            break
        gains = world.all(gain(trials[-1], last) >= MIN_GAIN ** (missed + 1))
        missed = 0 if gains else missed + 1
        if gains:
            trials.append(last)
    return trials


def gain(one: Trial, other: Trial) -> float:
    """Return the walker moves per second of the other trial, relative to the first one."""
    return other.n_walkers * one.seconds / (one.n_walkers * other.seconds)


def try_rung(
    make: Callable[[], Rung], g: Geometry, device: str, threads: int, several: bool
) -> Trial:
    """Move a rung's walkers from uniformly random inputs; return the time and memory used.

    The rung and the random numbers are used only for the trial. `several` is whether the rank holds
    several batches; if so, the memory of a second one is measured as well.
    """
    from omniinput_hpc.models import device as devices
    from omniinput_hpc.sampling.walkers import OutOfMemoryError

    # CPU time if single-threaded, so that other load does not disturb the trial
    clock = time.process_time if (device, threads) == ("cpu", 1) else time.perf_counter
    devices.reset_peak(device)
    before, outside = devices.held_bytes(device), devices.outside_bytes(device)
    times = [float("inf")]
    try:
        rung = _moved(make(), g, clock)  # allocates the memory that it keeps
        while len(times) == 1 or sum(times[1:]) < TRIAL_SECONDS:
            times.append(_segment(rung, clock))
        held, peak, further = devices.held_bytes(device), devices.peak_bytes(device) - before, 0
        peak += max(0, devices.outside_bytes(device) - outside)  # recorded graphs
        if several:  # memory that rungs share, such as a KV cache, is already allocated
            second = _moved(make(), g, clock)
            further = devices.held_bytes(device) - held
            del second  # only now: its memory must be in use during the measurement
    except (OutOfMemoryError, UserError):  # `try_out` raises a UserError if memory runs out
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
    """Move the walkers, with the same random numbers each time; return the seconds."""
    rung.walkers.place(*rung.walkers.configurations())  # as a run does after each exchange
    own, shared = (rng.generator(0, "trial", index) for index in range(2))
    begin = clock()
    rung.walkers.begin_segment(own, shared, 0).run(steps=TRIAL_MOVES)
    return clock() - begin


def most_walkers(config: Config) -> int:
    """Return the largest batch whose counts fit the file's counters, at most `MAX_WALKERS`."""
    moves = config.sampler.moves_per_round * config.sampler.blocks
    return min(MAX_WALKERS, int(np.iinfo(np.uint32).max) // moves)


def shown(trials: list[Trial], batch: str = "rung") -> str:
    """Return a sentence on the result of the trials; "" if there were none.

    `batch` is the word for a batch of walkers.
    """
    if not trials:
        return ""
    rates = (f"{t.n_walkers}: {t.n_walkers / t.seconds:,.3g}" for t in trials)
    return f'found by "auto", moves/s of a {batch} with {", ".join(rates)}'


def measured(world: World, trial: Trial, budget: MemoryBudget, device: str) -> str:
    """Return a sentence on the largest memory use of any rank (all ranks call this)."""
    need = trial.need(budget.n_batches)
    on_host = budget.on_host + budget.records * trial.n_walkers + (need if device == "cpu" else 0)
    on_device = budget.on_device + need
    host, card = world.max(np.array([on_host, on_device]))
    text = f"in trial moves, {amount(host)} of host memory per rank, including the libraries"
    return text if device == "cpu" else f"{text}, and {amount(card)} of device memory"
