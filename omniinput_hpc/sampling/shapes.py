"""What an input and the number of ranks decide: devices, shares of rungs, shapes of arrays."""

from __future__ import annotations

import math

import numpy as np

from omniinput_hpc.config import Config
from omniinput_hpc.errors import UserError
from omniinput_hpc.histogram import MAX_GROUPS
from omniinput_hpc.parallel import launched
from omniinput_hpc.parallel.comm import World
from omniinput_hpc.runfile.block_histograms import rounds_per_block
from omniinput_hpc.runfile.layout import Geometry

FIRST_WALKERS = MAX_GROUPS
"""The search for walkers = "auto" begins here: errors come from the spread of groups of lanes."""
MAX_WALKERS = 4096
"""The search ends here."""


def choose_device(world: World, config: Config) -> str:
    """Return this rank's device, "cpu" or "cuda:2" (all ranks call this).

    Raises a UserError on all ranks if one lacks the requested device, or if only some have a GPU.
    """

    def choose() -> str:
        from omniinput_hpc.models import device as devices

        c = config.run
        return devices.choose(c.device, local_rank, c.threads, c.precision)

    local_rank = world.local_rank()
    device = world.together(choose)
    device_r, host_r = world.texts(device), world.hosts()

    def check() -> None:
        from omniinput_hpc.models import device as devices

        devices.check_alike(device_r, host_r)

    world.together(check)
    return device


def check_launch(connected: int) -> None:
    """Check that this is one run of many ranks, not many runs of one rank that share a file.

    `connected` is the size of MPI's world. Raises a UserError if it is 1 although the launcher
    started several processes.
    """
    if connected > 1:
        return
    for name, n_launched in launched.sizes().items():
        if n_launched > 1:
            raise UserError(
                f"{n_launched} processes were launched ({name}), but MPI connects none of "
                "them: the launcher does not fit this MPI library (under srun, try --mpi=pmi2 or "
                "--mpi=pmix)"
            )


def check_shares(n_rungs: int, n_ranks: int, n_blocks: int = 1, remedy: str = "") -> None:
    """Raise a UserError if the ranks cannot share the rungs, or their blocks, equally."""
    n_units = n_rungs * n_blocks
    if n_units % n_ranks:
        what = "are more than" if n_ranks > n_units else "do not divide"
        of_blocks = f" of {n_blocks} blocks each (sampler.blocks)" if n_blocks > 1 else ""
        raise UserError(
            f"{n_ranks} ranks {what} the ladder's {n_rungs} rungs{of_blocks}; "
            f"{_that_fit(n_units)}{remedy}"
        )


def check_ranks(config: Config, n_ranks: int) -> None:
    """Raise a UserError if the ranks cannot share the rungs, or their blocks, equally.

    The message gives the number of blocks that would work.
    """
    n_blocks = config.sampler.blocks
    if not config.sampler.whole_ladders:
        check_shares(len(config.beta_k), n_ranks, n_blocks, _more_blocks(config, n_ranks))
    elif n_blocks % n_ranks:
        raise UserError(
            f"{n_ranks} ranks do not divide sampler.blocks = {n_blocks}: with sampler.method = "
            '"annealed" ranks share the blocks of walkers, each of which goes through the whole '
            f"ladder; {_that_fit(n_blocks)}; or set sampler.blocks in a new run"
        )


def _that_fit(n_units: int) -> str:
    divisors = (str(n) for n in range(1, n_units + 1) if n_units % n == 0)
    return f"numbers of ranks that fit: {', '.join(divisors)}"


def _more_blocks(config: Config, n_ranks: int) -> str:
    """Return the end of a message: the sampler.blocks with which the ranks can share the work."""
    if config.sampler.method == "wang-landau":
        return ""
    n_blocks = n_ranks // math.gcd(len(config.beta_k), n_ranks)
    walkers = config.sampler.walkers
    if walkers != "auto" and walkers % n_blocks:
        more = -(-walkers // n_blocks) * n_blocks
        return f"; or set sampler.blocks = {n_blocks} and sampler.walkers = {more}, in a new run"
    return f"; or set sampler.blocks = {n_blocks}, in a new run"


def geometry_of(config: Config, n_values: int, n_sites: int, n_ids: int = 0) -> Geometry:
    """Return the shapes of a run; for n_ids see `Geometry`."""
    return Geometry(
        rounds=config.run.rounds,
        n_rungs=len(config.beta_k),
        n_walkers=config.sampler.n_walkers,
        n_bins=len(config.bins.edges) - 1,
        samples_per_round=config.samples_per_round,
        n_sites=n_sites,
        n_values=n_values,
        n_ids=n_ids,
        observables=tuple(config.observed),
        n_kernels=len(config.kernel.part_names),
        n_tuned=config.kernel.n_tuned,
        flat=bool(config.windows),
        log_q=config.sampler.weighs_draws,
        annealed=config.sampler.method == "annealed",
        checksums=True,
        rounds_per_block=_rounds_per_block(config),
        curved=config.ladder is not None and config.ladder.tune and config.ladder.kappa is not None,
        headed=config.wang_landau is not None and config.wang_landau.keeps_direction,
    )


def _rounds_per_block(config: Config) -> int:
    counts = config.sampler.moves_per_round * config.sampler.n_walkers
    return rounds_per_block(config.run.rounds, config.run.histogram_blocks, counts)


def check_counters(config: Config) -> None:
    """Raise a UserError if a bin's counts could overflow 32 bits.

    The limit applies to a round, and to a block of rounds that shares a histogram.
    """
    counts = config.sampler.moves_per_round * config.sampler.n_walkers
    if counts > np.iinfo(np.uint32).max:
        raise UserError(
            f"sampler.walkers * steps * exchanges = {counts:.3g} counts per round overflow 32 "
            "bits; set a smaller sampler.exchanges and more run.rounds"
        )
    _rounds_per_block(config)


def bytes_of_records(g: Geometry, n_rungs: float) -> int:
    """Return the bytes on the host for a rank's records of a round."""
    a_sample = g.n_sites * g.x_dtype.itemsize + 8 * (1 + g.n_log_q + len(g.observables))
    a_bin = 8 * (3 + min(MAX_GROUPS, g.n_walkers))
    return int(n_rungs * (g.samples_per_round * a_sample + a_bin * g.n_bins))


def bytes_of_commit(g: Geometry, n_rungs: float, n_ranks: int) -> tuple[int, int]:
    """Return the bytes on the host that committing a round takes beside its records.

    Of each rank, which writes the histograms of so many rungs as one array; and of the first rank,
    which also writes those of all rungs into the side file.
    """
    a_rung = 8 * min(MAX_GROUPS, g.n_walkers) * g.n_bins
    copies = 2 if n_ranks == 1 else 3  # as gathered, as bytes, and as a file
    return int(a_rung * n_rungs), copies * a_rung * g.n_rungs
