"""How many walkers fill a device: ``[sampler] walkers = "auto"``, found by trial moves.

The number is doubled for as long as that moves at least a tenth more walkers a second and all of it
fits into the rank's share of the device's memory; one number that does not gain is passed over, in
case the machine was disturbed. All ranks go through the same numbers together, and what one of them
does not gain from, or has no room for, no rank takes. A run stores the number in its file's input
and never looks for it again.
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

FEWEST = MAX_GROUPS
"""Where the search begins: errors come from the spread among groups of lanes (see `recorders`)."""
MOST = 4096
GAIN = 1.1
"""How many times more walkers a second must move when there are twice as many."""
FILL = 0.8
"""The share of the free memory that may be planned with."""
MOVES = 4
"""Of a trial, which is repeated for some seconds; the fastest counts."""
REPEATED = 0.3
MISSES = 2
"""Numbers in a row that do not gain, after which the search ends."""


@dataclass(frozen=True)
class Trial:
    """What trial moves of one rung with W walkers took.

    Attributes
    ----------
    n_walkers : W
    seconds : of a move of all of them; infinite where the memory did not suffice
    peak : bytes that it takes while it moves
    more : bytes that stay with each further rung of the rank
    """

    n_walkers: int
    seconds: float
    peak: int
    more: int

    def need(self, n_rungs: int) -> int:
        """Return the bytes that a rank of some rungs takes, which move one after the other."""
        return self.peak + (n_rungs - 1) * self.more


@dataclass(frozen=True)
class Room:
    """What a rank may take.

    Attributes
    ----------
    n_rungs : that it holds, each with its own batch
    device, host : bytes
    records : bytes on the host that a rank's records take, of a walker
    on_device, on_host : bytes that it has already
    """

    n_rungs: int
    device: float
    host: float
    records: float
    on_device: int = 0
    on_host: int = 0

    def fits(self, last: Trial, n_walkers: int) -> bool:
        """Whether n walkers fit, by what another number of them took."""
        times = n_walkers / last.n_walkers
        need = times * last.need(self.n_rungs)
        return need <= self.device and need + self.records * n_walkers <= self.host


def find(world: World, trial: Callable[[int], Trial], room: Room, most: int) -> list[Trial]:
    """Return this rank's trials of the numbers that gained; the last one is what was found.

    Parameters
    ----------
    trial : moves W walkers
    most : the largest W that is allowed; all ranks give the same

    Raises
    ------
    UserError
        Not even the smallest number fits.
    """
    first = trial(FEWEST)
    if not world.all(bool(np.isfinite(first.seconds)) and room.fits(first, FEWEST)):
        raise UserError(
            f'sampler.walkers = "auto": not even {FEWEST} walkers a rung fit into the memory; give '
            'a number, start more ranks (fewer rungs each), or set model.dtype = "bfloat16"'
        )
    trials, last, missed = [first], first, 0
    while missed < MISSES and 2 * last.n_walkers <= most:
        twice = 2 * last.n_walkers
        if not world.all(room.fits(last, twice)):
            break
        last = trial(twice)
        if not world.all(np.isfinite(last.seconds) and room.fits(last, twice)):
            break
        gains = world.all(gain(trials[-1], last) >= GAIN ** (missed + 1))
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
    import torch

    from omniinput_hpc.models import device as devices

    # a rank's own seconds, where it computes on one core: others' work is no matter then
    clock = time.process_time if (device, threads) == ("cpu", 1) else time.perf_counter
    devices.forget_most(device)
    before, times = devices.held(device), [float("inf")]
    try:
        rung = _moved(make(), g, clock)  # it takes its room, once
        while len(times) == 1 or sum(times[1:]) < REPEATED:
            times.append(_segment(rung, clock))
        held, peak, more = devices.held(device), devices.most_held(device) - before, 0
        if several:  # what rungs share, such as keys and values, is there already
            second = _moved(make(), g, clock)
            more = devices.held(device) - held
            del second  # not before: its room would be free again
    except (torch.OutOfMemoryError, UserError):  # the latter from trying the model out
        return Trial(g.n_walkers, float("inf"), 0, 0)
    return Trial(g.n_walkers, min(times) / MOVES, max(peak, 0), max(more, 0))


def _moved(rung: Rung, g: Geometry, clock: Callable[[], float]) -> Rung:
    """Return a rung whose walkers have moved from uniformly random inputs."""
    random = rng.generator(0, "trial", 2)
    x = random.integers(g.n_values, size=(g.n_walkers, g.n_sites)).astype(g.x_dtype)
    rung.walkers.place(x, rung.walkers.evaluate(x))
    _segment(rung, clock)
    return rung


def _segment(rung: Rung, clock: Callable[[], float]) -> float:
    """Move the walkers, by the same random numbers each time, and return the seconds."""
    own, shared = (rng.generator(0, "trial", index) for index in range(2))
    begin = clock()
    segment = rung.walkers.begin_segment(own, shared, 0)
    for _ in range(MOVES):
        segment.step()
    segment.recorded()
    return clock() - begin


def trial_config(config: Config, n_walkers: int) -> Config:
    """Return what a trial's rung is made from: short segments."""
    sampler = config.sampler.model_copy(update={"walkers": n_walkers, "steps": MOVES})
    return config.model_copy(update={"sampler": sampler})


def most_walkers(config: Config) -> int:
    """Return the largest number that the file's counters hold, at most `MOST`."""
    return min(MOST, int(np.iinfo(np.uint32).max) // config.sampler.moves_per_round)


def shown(trials: list[Trial]) -> str:
    """Return what trials found, for a person; "" where there were none."""
    if not trials:
        return ""
    rates = (f"{t.n_walkers}: {t.n_walkers / t.seconds:,.3g}" for t in trials)
    return f'found by "auto", moves/s of a rung with {", ".join(rates)}'


def measured(world: World, trial: Trial, room: Room, device: str) -> str:
    """Return the memory of the rank that takes most, for a person (all ranks call this)."""
    need = trial.need(room.n_rungs)
    on_host = room.on_host + room.records * trial.n_walkers + (need if device == "cpu" else 0)
    on_device = room.on_device + need
    host, card = world.max(np.array([on_host, on_device]))
    text = f"by trial moves, {amount(host)} of a host's memory a rank, the libraries included"
    return text if device == "cpu" else f"{text}, and {amount(card)} of its device's"
