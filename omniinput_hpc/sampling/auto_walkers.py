"""Find how many walkers fill a device (``[sampler] walkers = "auto"``), by trial moves.

W is the size of one batch: a rung, or one of the blocks into which its walkers are split. W is
doubled as long as this increases the walker moves per second by at least a tenth, the walkers fit
into the rank's share of the device's memory, and a round takes at most five minutes. A single
doubling without a gain does not end the search, since other load may have disturbed that trial. All
ranks try the same numbers together; a number is accepted only if it has a gain and fits on every
rank. The number is stored with the input in the run file, and a resumed run uses it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from omniinput_hpc.config import Config
from omniinput_hpc.errors import UserError
from omniinput_hpc.sampling import build, shapes
from omniinput_hpc.sampling.built import Built, grid_of
from omniinput_hpc.sampling.shapes import FIRST_WALKERS, MAX_WALKERS
from omniinput_hpc.sampling.trial import BATCH_MOVES, BatchTrial, try_batch
from omniinput_hpc.text import amount

if TYPE_CHECKING:
    from omniinput_hpc.parallel.comm import World

MIN_GAIN = 1.1
"""The factor by which doubling the walkers must increase the walker moves per second."""
MEMORY_SHARE = 0.8
"""The share of the free memory that the walkers may use."""
LONGEST_ROUND = 300.0
"""The largest number of seconds per round; a kill loses the round in progress."""
MAX_MISSES = 2
"""The search ends after this many doublings in a row without a gain."""
MAX_TRIAL_SECONDS = 20.0
"""The longest time that `--check` may spend only on measuring the memory of moves."""


@dataclass(frozen=True)
class MemoryBudget:
    """The memory that a rank may use."""

    n_batches: int  # batches on the rank: rungs, or blocks of them
    device: float  # bytes
    host: float  # bytes
    records: float  # bytes on the host per walker for the rank's records
    on_device: int = 0  # bytes in use already
    on_host: int = 0  # bytes in use already

    def fits(self, last: BatchTrial, n_walkers: int) -> bool:
        """Whether n walkers fit, extrapolated from a trial with another number."""
        times = n_walkers / last.n_walkers
        need = times * last.need(self.n_batches)
        return need <= self.device and need + self.records * n_walkers <= self.host


def find_walkers(
    world: World, built: Built, most: int | None = None
) -> tuple[Built, list[BatchTrial], str]:
    """Find the number of walkers, at most `most`, that fills the devices (all ranks call this).

    Returns `built` with this number, the trials of the accepted numbers, and a sentence on memory.
    """
    _try_walkers(world, built, 1)  # so that a library's first call is not charged to walkers
    budget, sampler = _budget(world, built), built.config.sampler
    built.rungs.clear()
    trials = find(
        world,
        partial(_try_walkers, world, built),
        budget,
        min(most or MAX_WALKERS, most_walkers(built.config)),
        sampler.moves_per_round * budget.n_batches,
    )
    built = build.with_walkers(world, built, trials[-1].n_walkers * sampler.blocks)
    return built, trials, measured(world, trials[-1], budget, built.device)


def memory_of_moves(world: World, built: Built) -> str | None:
    """Return a sentence on the memory of moves; None if trial moves would take too long."""
    of_one, n_walkers = _try_walkers(world, built, 1), built.config.sampler.block_walkers
    budget = _budget(world, built)
    if not world.all(2 * BATCH_MOVES * n_walkers * of_one.seconds < MAX_TRIAL_SECONDS):
        return None
    return measured(world, _try_walkers(world, built, n_walkers), budget, built.device)


def _n_batches(world: World, built: Built) -> int:
    grid = grid_of(world, built.config)
    return len(grid.rungs(world.rank)) * len(grid.blocks(world.rank))


def _try_walkers(world: World, built: Built, n_walkers: int) -> BatchTrial:
    """Try a batch of the rung in the middle of the rank's rungs (all ranks call this)."""
    from omniinput_hpc.models.checked import refused_unless_finite

    @refused_unless_finite()
    def tried() -> BatchTrial:
        return try_batch(built, n_walkers, mine_k[len(mine_k) // 2], several)

    mine_k = grid_of(world, built.config).rungs(world.rank)
    several = _n_batches(world, built) > 1
    return world.together(tried)


def _budget(world: World, built: Built) -> MemoryBudget:
    """Return this rank's memory (all ranks call this)."""
    from omniinput_hpc.models import device as devices

    sampler, device, hosts = built.config.sampler, built.device, world.hosts()
    on_device = sharers(hosts, world.texts(devices.identity(device)), world.rank)
    n_batches = _n_batches(world, built)
    records = shapes.bytes_of_records(built.geometry, n_batches / sampler.blocks)
    return MemoryBudget(
        n_batches,
        MEMORY_SHARE * devices.free_bytes(device) / on_device,
        MEMORY_SHARE * devices.free_bytes("cpu") / hosts.count(hosts[world.rank]),
        records / sampler.block_walkers,
        devices.held_bytes(device),
        devices.held_bytes("cpu"),
    )


def sharers(host_r: list[str], gpu_r: list[str], rank: int) -> int:
    """Return how many ranks share a rank's device, given the host and GPU of every rank.

    `gpu_r` holds the unique identifier of each GPU, "" for a CPU. The device number would not do: a
    launcher may show each rank only one GPU, so that every rank calls its GPU the first.
    """
    place_r = list(zip(host_r, gpu_r, strict=True))
    return place_r.count(place_r[rank])


def find(
    world: World,
    try_walkers: Callable[[int], BatchTrial],
    budget: MemoryBudget,
    most: int,
    moves_per_round: int = 0,
) -> list[BatchTrial]:
    """Return this rank's trials of the accepted numbers of walkers; the last is the result.

    `try_walkers` moves a batch of W walkers. `most` is the largest allowed W, the same on all
    ranks. A number is rejected if a rank's `moves_per_round` would take more than five minutes;
    this does not apply to the smallest number. Raises a UserError if not even the smallest number
    fits.
    """
    first = try_walkers(FIRST_WALKERS)
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
        last = try_walkers(twice)
        # The time is infinite if the memory did not suffice for the trial.
        longest = LONGEST_ROUND / moves_per_round if moves_per_round else np.finfo(np.float64).max
        if not world.all(last.seconds <= longest and budget.fits(last, twice)):
            break
        gains = world.all(gain(trials[-1], last) >= MIN_GAIN ** (missed + 1))
        missed = 0 if gains else missed + 1
        if gains:
            trials.append(last)
    return trials


def gain(one: BatchTrial, other: BatchTrial) -> float:
    """Return the walker moves per second of the other trial, relative to the first one."""
    return other.n_walkers * one.seconds / (one.n_walkers * other.seconds)


def most_walkers(config: Config) -> int:
    """Return the largest batch whose counts fit the file's counters, at most `MAX_WALKERS`."""
    moves = config.sampler.moves_per_round * config.sampler.blocks
    return min(MAX_WALKERS, int(np.iinfo(np.uint32).max) // moves)


def shown(trials: list[BatchTrial], batch: str) -> str:
    """Return a sentence on the result of the trials; `batch` is the word for a batch of walkers."""
    rates = (f"{t.n_walkers}: {t.n_walkers / t.seconds:,.3g}" for t in trials)
    return f'found by "auto", moves/s of a {batch} with {", ".join(rates)}'


def measured(world: World, tried: BatchTrial, budget: MemoryBudget, device: str) -> str:
    """Return a sentence on the largest memory use of any rank (all ranks call this)."""
    need = tried.need(budget.n_batches)
    on_host = budget.on_host + budget.records * tried.n_walkers + (need if device == "cpu" else 0)
    on_device = budget.on_device + need
    host, card = world.max(np.array([on_host, on_device]))
    text = f"in trial moves, {amount(host)} of host memory per rank, including the libraries"
    return text if device == "cpu" else f"{text}, and {amount(card)} of device memory"
