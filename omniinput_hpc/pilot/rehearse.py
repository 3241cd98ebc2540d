"""Rehearse a chosen input: run it for some seconds in a temporary folder, and analyse the file.

The rehearsal uses the program itself, so its errors, swaps and times are those of a real run.
"""

from __future__ import annotations

import logging
import math
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import tomli_w

from omniinput_hpc.config import Config
from omniinput_hpc.estimators import EstimateError
from omniinput_hpc.estimators.density.density import density_of_run
from omniinput_hpc.estimators.errors.chains import chain_diagnostics
from omniinput_hpc.pilot import settings
from omniinput_hpc.pilot.settings import (
    LEAST_EXCHANGES,
    FloatArray,
    Rehearsal,
    Spread,
    typical_error,
)
from omniinput_hpc.runfile import lock
from omniinput_hpc.runfile.reader import RunReader, open_run
from omniinput_hpc.sampling import build
from omniinput_hpc.sampling.restart import Existing, Identity
from omniinput_hpc.sampling.trial import Clock, clock_of, try_exchanges
from omniinput_hpc.tempering import ladder

if TYPE_CHECKING:
    from omniinput_hpc.parallel.comm import World
    from omniinput_hpc.parallel.stopping import StopCheck
    from omniinput_hpc.runfile.layout import Geometry
    from omniinput_hpc.sampling.built import Built

BURN_IN, ROUNDS = 6, 8
PATIENCE = 3.0
"""A rehearsal is not begun if it would take more than this many times the given seconds."""

log = logging.getLogger("omniinput_hpc")


@dataclass(frozen=True)
class Seen:
    """The result of a rehearsal.

    Attributes
    ----------
    rehearsal : errors and times
    spread : of z on the ladder after burn-in
    rejection_k : float64 [K - 1], share of rejected swaps of each pair; NaN if none was tried
    problem : why there is no density, as a sentence; "" if there is one
    times : of the given seconds that the rehearsal would have taken; 1 or less if it was made
    """

    rehearsal: Rehearsal
    spread: Spread
    rejection_k: FloatArray
    problem: str = ""
    times: float = 0.0


def run(
    world: World, built: Built, config: Config, seconds: float, share: float, stopping: StopCheck
) -> Seen:
    """Run an input with a model that is already built, for about a share of the pilot's seconds.

    Raises a UserError if the model is not a function of its input, or does not support the kernel.
    """
    built = build.with_input(built, config, range(len(config.beta_k)))
    built.check_is_function()
    clock = clock_of(built.device, config)
    tried = try_exchanges(world, built, 2, share * seconds, clock, stopping.after_move)
    once, steps = max(tried.seconds, 1e-4), config.sampler.steps
    times = once * (BURN_IN + ROUNDS) / (PATIENCE * share * seconds)  # one exchange per round
    if times > 1.0:
        return _unseen(built.geometry, once / steps, steps, times, seconds)
    least = LEAST_EXCHANGES if LEAST_EXCHANGES * times <= 1.0 else 1
    exchanges = max(least, int(share * seconds / once / (BURN_IN + ROUNDS)))
    with tempfile.TemporaryDirectory(prefix="omniinput-init-") as folder:
        output = Path(folder) / "pilot.h5"
        config = build.with_look_ahead(_short(config, str(output), exchanges), built.model)
        built = build.with_input(built, config, range(len(config.beta_k)))
        per_move = _sample(world, built, output, stopping, clock)
        with open_run(output, tried=True) as reader:
            return _look(reader, config, per_move)


def _unseen(g: Geometry, per_move: float, steps: int, times: float, seconds: float) -> Seen:
    """Return the result if there was no time for a rehearsal: only the time per move is known.

    A pilot would take so many times its `seconds`.
    """
    nothing = np.full(g.n_rungs, np.nan)
    moves = settings.ROUNDS * LEAST_EXCHANGES * steps // 4
    return Seen(
        Rehearsal(np.inf, moves, np.nan, per_move),
        Spread(nothing, nothing, nothing, np.inf, -np.inf),
        nothing[1:],
        f"the pilot had no time for a trial run of its {g.n_rungs} betas; --seconds "
        f"{math.ceil(1.2 * times * seconds / 10) * 10} would be enough",
        times,
    )


def _short(config: Config, output: str, exchanges: int) -> Config:
    """Return the input with the rounds, exchanges and output file of the rehearsal."""
    return config.model_copy(
        update={
            "run": config.run.model_copy(
                update={"output": output, "rounds": ROUNDS, "burn_in": BURN_IN, "writer": "gather"}
            ),
            "sampler": config.sampler.model_copy(update={"exchanges": exchanges}),
            "samples": config.samples.model_copy(update={"every": config.sampler.steps}),
        }
    )


def _sample(world: World, built: Built, output: Path, stopping: StopCheck, clock: Clock) -> float:
    """Sample; return the seconds per move of all walkers of all rungs."""
    from omniinput_hpc.sampling import loop

    header = {"config": tomli_w.dumps(built.config.model_dump(exclude_none=True))}
    here = Identity("pilot", built.probe(), {}, float("nan"))
    begin = clock()
    with lock.hold(output, world) as held, _silent():
        build.prepare_file(built, here, Existing(), header, held.heartbeat)
        run = build.start(world, built, "gather", stopping, held, shown=False)
        try:
            loop.sample(run)
        finally:
            run.progress.close()
            run.writer.close()
    sampler = built.config.sampler
    return (clock() - begin) / ((BURN_IN + ROUNDS) * sampler.moves_per_round)


@contextmanager
def _silent() -> Iterator[None]:
    """Suppress the rehearsal's log lines and warnings, since they do not concern the user's run."""
    level = log.level
    log.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        log.setLevel(level)


def _look(run: RunReader, config: Config, per_move: float) -> Seen:
    """Return the result of the rehearsal from its file."""
    moves = config.sampler.moves_per_round * ROUNDS
    spread = Spread.of(run.beta_k, list(run.samples_z().swapaxes(0, 1)))
    swaps_k2 = run.swaps_k2()
    with np.errstate(invalid="ignore"):
        rejection_k = 1.0 - swaps_k2[:, 1] / swaps_k2[:, 0]
    _, tau_k, _ = chain_diagnostics(run.data)
    tau = float(np.nanmax(tau_k)) if np.isfinite(tau_k).any() else np.nan
    error, problem = np.inf, ""
    try:
        density = density_of_run(run.data)
        error = typical_error(density.log_g_error_b, density.count_b)
    except EstimateError as why:
        problem = str(why)
    per_round = config.sampler.moves_per_round
    trip = ladder.trip_time(rejection_k)
    found = Rehearsal(error, moves, tau * per_round, per_move, trip)
    return Seen(found, spread, rejection_k, problem)
