"""Propose an input for a model that is already built: measure, choose, rehearse, choose again."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from omniinput_hpc import models
from omniinput_hpc.config import input_file
from omniinput_hpc.errors import UserError
from omniinput_hpc.pilot import draws, measure, model_table, question, rehearse, settings
from omniinput_hpc.pilot.rehearse import Seen
from omniinput_hpc.pilot.settings import FloatArray, Length, Rehearsal, Spread
from omniinput_hpc.sampling import auto_walkers
from omniinput_hpc.sampling.trial import clock_of

if TYPE_CHECKING:
    from omniinput_hpc.parallel.comm import World
    from omniinput_hpc.parallel.stopping import StopCheck
    from omniinput_hpc.sampling.built import Built

MAX_CPU_WALKERS = 64
"""On a CPU more walkers gain little, and each walker would make fewer moves per round."""
GIVEN = ("model", "law", "output", "space", "run")
"""Tables that the pilot takes as they are."""
TOO_SHORT = "the run will probably be too short to count as converged"
ONE_END = "--end: a ladder to the model's own distribution has only one end"
SHARES = {"at zero": 0.07, "spread": 0.28, "first": 0.2, "second": 0.4}
"""Shares of the pilot's seconds. The rest is for finding the number of walkers."""

log = logging.getLogger("omniinput_hpc")


@dataclass(frozen=True)
class Aim:
    """What a run is for.

    Attributes
    ----------
    errors : of log g
    hours : length of the run on one process, in place of `errors`
    end : the only end of z, "low" or "high", that the ladder goes to; None for both
    method : "parallel-tempering" or "ancestral"; None to leave it to the model
    """

    errors: float = 0.1
    hours: float | None = None
    end: str | None = None
    method: str | None = None


@dataclass(frozen=True)
class Proposal:
    """A proposed input, and the measurements behind it.

    Attributes
    ----------
    tree : the input, as tables; its rounds, burn-in and exchanges are placeholders
    length : the proposed rounds, burn-in, exchanges and steps
    z_at_zero : mean and standard deviation of z of inputs at beta = 0
    spread : of z, at the betas measured last
    m : beta of the model's own distribution; None if it cannot be sampled directly
    ends : why the ladder ends, by side; empty if the model can be sampled directly
    reach : how far the ladder may go
    seen : the result of the last rehearsal
    side : "low" or "high", the side of z on which the model is confident; None if there is none
    notes : sentences for the user
    """

    tree: dict[str, Any]
    length: Length
    z_at_zero: tuple[float, float]
    spread: Spread
    m: float | None
    ends: Mapping[str, str]
    reach: question.Reach
    seen: Seen
    side: str | None
    notes: list[str] = field(default_factory=list)

    @property
    def at_zero(self) -> bool:
        """Whether the run samples only beta = 0."""
        return bool(self.tree["ladder"]["betas"] == [0.0])

    @property
    def seconds(self) -> float:
        """Estimated seconds of the whole run, including burn-in, on one process."""
        return self.length.moves * self.seen.rehearsal.seconds


def first_input(model: Mapping[str, Any], asked: Mapping[str, Any]) -> dict[str, Any]:
    """Return the tables of an input with which to build the model; its bins are placeholders.

    `asked` are the tables of a question.
    """
    return {
        "run": {"output": "pilot.h5", "seed": 1, "rounds": 1},
        "model": dict(model),
        **asked,
        "sampler": {"walkers": 16, "steps": 10, "exchanges": 1},
        # At beta = 0 inputs are drawn, but trials must time moves of the kernel.
        "ladder": {"betas": [0.0, 1e-9]},
        "bins": {"lower": -1.0, "upper": 1.0, "width": 1.0},
        "samples": {"every": 10},
    }


def make(world: World, built: Built, aim: Aim, seconds: float, stopping: StopCheck) -> Proposal:
    """Return a proposed input for a model, after a pilot of about `seconds`.

    Raises a UserError if the model cannot be sampled.
    """
    built.check_is_function()
    if built.model_beta is not None and aim.end:
        raise UserError(ONE_END)
    clock = clock_of(built.device, built.config)
    z = _z_at_zero(built, seconds, stopping)
    time_of_spread = SHARES["spread"] * seconds
    drawn = draws.tried(built, aim.method, z, time_of_spread, stopping.after_move)
    if drawn is not None and drawn.are_best(built, aim.method):
        return _of_draws(built, z, drawn, aim)
    if aim.hours is None and _is_sure(built, z):
        return _at_zero(world, built, seconds, stopping)
    kernel = measure.kernel_table(built.model, built.law)
    built, a_move = _with_walkers(world, measure.with_kernel(built, kernel, 16))
    m, reach = built.model_beta, question.reach_of(built.config, built.model, aim.end)
    ends: dict[str, str] = {}
    if drawn is not None:
        spread = drawn.spread
    elif m is not None:
        deadline = measure.Deadline(time_of_spread, clock)
        spread, _, _ = measure.drawn_spread(built, z, deadline, stopping.after_move)
    else:
        spread, ends = measure.cooled_spread(
            built, z, time_of_spread, stopping.after_move, a_move, (reach.lowest, reach.highest)
        )
    log.info("z seen: %.4g to %.4g", spread.lowest, spread.highest)
    steps = measure.steps_of(kernel, built.geometry.n_sites)
    kept = (0.0,) if m is None else (0.0, m)
    tree, seen = _input(built, kernel, spread, z, steps, settings.barrier(spread), kept), None
    for part in ("first", "second"):
        config = input_file.checked(tree, "the input that the pilot proposes")
        seen = rehearse.run(world, built, config, seconds, SHARES[part], stopping)
        _log_rehearsal(seen, len(config.beta_k))
        if seen.times > 1.0:
            trip = settings.expected_trip(spread, config.beta_k)
            seen = replace(seen, rehearsal=replace(seen.rehearsal, trip=trip))
            if seen.times > SHARES["second"] / SHARES["first"]:
                break
            continue  # there is more time for the second
        spread = _joined(seen.spread, spread)
        tree["bins"] = _bins(built, spread, z, tree["ladder"]["betas"])
        if part == "first" or np.nanmax(seen.rejection_k) > WORST_REJECTION:
            lambda_k = settings.measured_barrier(seen.spread, seen.rejection_k)
            tree = _input(built, kernel, spread, z, steps, lambda_k, kept)
    assert seen is not None
    more = len(tree["ladder"]["betas"]) / len(config.beta_k)  # rungs than in the last rehearsal
    seconds = more * seen.rehearsal.seconds
    seen = replace(seen, rehearsal=replace(seen.rehearsal, seconds=seconds))
    length = _length(aim, seen.rehearsal, steps)
    tree["sampler"]["steps"] = tree["samples"]["every"] = length.steps
    notes = _notes(seen) + _short_notes(length, seen) + _width_notes(tree)
    at_zero = (float(z.mean()), float(z.std()))
    return Proposal(tree, length, at_zero, spread, m, ends, reach, seen, _side(built), notes)


def _z_at_zero(built: Built, seconds: float, stopping: StopCheck) -> FloatArray:
    clock = clock_of(built.device, built.config)
    deadline = measure.Deadline(SHARES["at zero"] * seconds, clock)
    z = measure.outputs_at_zero(built, deadline, stopping.after_move)
    log.info("z of %d inputs at beta = 0: %.4g +- %.3g", len(z), z.mean(), z.std())
    return z


def _of_draws(built: Built, z: FloatArray, drawn: draws.Drawn, aim: Aim) -> Proposal:
    """Return a proposed run of independent draws; `z` are outputs at beta = 0."""
    tree, length, rehearsal = draws.propose(built, drawn, aim.errors, aim.hours)
    spread = drawn.spread
    log.info("z seen: %.4g to %.4g", spread.lowest, spread.highest)
    seen = Seen(rehearsal, spread, np.full(len(tree["ladder"]["betas"]) - 1, np.nan))
    z_at_zero, notes = (float(z.mean()), float(z.std())), []
    if length.rounds < draws.FEWEST_ROUNDS:
        seconds = rehearsal.seconds * draws.FEWEST_ROUNDS
        notes = [f"{TOO_SHORT}: --hours {1.05 * seconds / 3600:.2g} would be enough (estimated)"]
    m, reach = built.model_beta, question.Reach()
    return Proposal(tree, length, z_at_zero, spread, m, {}, reach, seen, _side(built), notes)


def _at_zero(world: World, built: Built, seconds: float, stopping: StopCheck) -> Proposal:
    """Return a proposed run of independent draws, all at beta = 0."""
    built, _ = _with_walkers(world, built)
    clock = clock_of(built.device, built.config)
    begun = clock()
    deadline = measure.Deadline(SHARES["spread"] * seconds, clock)
    z = measure.outputs_at_zero(built, deadline, stopping.after_move)
    per_move = (clock() - begun) * built.geometry.n_walkers / len(z)
    tree, length, rehearsal = draws.at_zero(built, z, per_move)
    spread = Spread.of(np.zeros(1), [z])
    seen, at_zero = Seen(rehearsal, spread, np.empty(0)), (float(z.mean()), float(z.std()))
    reach = question.Reach()
    return Proposal(tree, length, at_zero, spread, None, {}, reach, seen, _side(built))


def _side(built: Built) -> str | None:
    if built.config.output is None:
        has_conditionals = models.offers_of(built.model).conditional_logits is not None
        table = built.config.model.model_dump(exclude_unset=True)
        return model_table.default_side(table, has_conditionals)
    analysis = models.with_side(built.config).analysis
    return None if analysis is None else analysis.side


SURE = 0.5
"""Probability of random inputs from which on draws at beta = 0 are proposed."""

WORST_REJECTION = 0.8
"""If a pair rejects more after the second rehearsal, betas are chosen again."""


def _with_walkers(world: World, built: Built) -> tuple[Built, float]:
    """Return `built` with the number of walkers that fills the device, and seconds per move."""
    most = MAX_CPU_WALKERS if built.device == "cpu" else None
    found, trials, _ = auto_walkers.find_walkers(world, built, most)
    log.info("%d walkers per rung", found.geometry.n_walkers)
    return found, trials[-1].seconds


def _joined(newer: Spread, older: Spread) -> Spread:
    """Return the newer spread with the extremes of both."""
    lowest, highest = min(newer.lowest, older.lowest), max(newer.highest, older.highest)
    return Spread(newer.beta_i, newer.mean_i, newer.sd_i, lowest, highest)


def _input(
    built: Built,
    kernel: dict[str, Any],
    spread: Spread,
    z_n: FloatArray,
    steps: int,
    lambda_i: FloatArray,
    kept: tuple[float, ...],
) -> dict[str, Any]:
    """Choose the ladder and the bins; return the input's tables with placeholders for rounds."""
    betas = settings.ladder(spread.beta_i, lambda_i, kept).tolist()
    tables = built.config.model_dump(exclude_unset=True, exclude_none=True)
    return {
        **{name: tables[name] for name in GIVEN if name in tables},
        "sampler": {
            "method": "parallel-tempering",
            "walkers": built.geometry.n_walkers,
            "steps": steps,
            "exchanges": 1,
        },
        "ladder": {"betas": betas, "tune": True},
        **kernel,
        "bins": _bins(built, spread, z_n, betas),
        "samples": {"every": steps},
    }


def _bins(
    built: Built, spread: Spread, z_n: FloatArray, betas: Sequence[float]
) -> dict[str, float]:
    """Return the table of bins that hold what was seen."""
    tables = built.config.model_dump(exclude_unset=True, exclude_none=True)
    floor, ceiling = bounds(tables, m_known=built.model_beta is not None)
    found = settings.bins(spread, float(np.abs(betas).max()), floor, ceiling)
    found = settings.off_lattice(found, z_n)
    return {"lower": found.lower, "upper": found.upper, "width": found.width}


def bounds(tables: Mapping[str, Any], m_known: bool) -> tuple[float, float]:
    """Return the lowest and highest possible z, from an input's tables.

    m_known : whether the model's conditionals are probabilities, so that z is at least 0
    """
    model, output = tables["model"], tables.get("output", {})
    loss = output.get("name") in (None, "next", "text") and "against" not in output
    if m_known or (model["kind"] == "causal-lm" and loss):
        return 0.0, np.inf
    if output:
        return -np.inf, np.inf
    if "log-softmax" in (model.get("target"), model.get("output")):
        return (-np.inf, 0.0) if model.get("sign", 1) == 1 else (0.0, np.inf)
    return -np.inf, np.inf


def _is_sure(built: Built, z_n: FloatArray) -> bool:
    """Return whether z is ln p and random inputs, whose outputs are z_n, already get a large p."""
    tables = built.config.model_dump(exclude_unset=True, exclude_none=True)
    ceiling = bounds(tables, m_known=built.model_beta is not None)[1]
    return ceiling == 0.0 and math.exp(z_n.mean()) > SURE


def _length(aim: Aim, seen: Rehearsal, steps: int) -> Length:
    if aim.hours is None:
        return settings.length_for_errors(aim.errors, seen, steps)
    return settings.length_for_time(3600 * aim.hours, seen, steps)


def _log_rehearsal(seen: Seen, n_rungs: int) -> None:
    known = seen.rejection_k[np.isfinite(seen.rejection_k)]
    swaps = f"neighbours accept {1 - known.max():.0%} or more of their swaps" if known.size else ""
    error = f"errors of ln g are about {seen.rehearsal.error:.2g}"
    log.info("trial run with %d betas: %s", n_rungs, seen.problem or f"{swaps}, {error}")


def _short_notes(length: Length, seen: Seen) -> list[str]:
    """Return a note if the run is too short to judge its convergence."""
    hours = settings.hours_to_judge(length, seen.rehearsal)
    if hours is None:
        return []
    return [
        f"{TOO_SHORT}: by the pilot's autocorrelation time, --hours {1.05 * hours:.2g} would be "
        "enough (estimated)"
    ]


def _width_notes(tree: Mapping[str, Any]) -> list[str]:
    """Return a note if the bins are too wide for the largest beta."""
    product, fine = settings.width_times_beta(tree["bins"], tree["ladder"]["betas"])
    if fine:
        return []
    limit = settings.WIDTH_TIMES_BETA
    return [
        f"largest |beta| * bins.width = {product:.2g} is above {limit:g}, since finer bins would "
        f"be more than {settings.MOST_BINS:,}, or finer than z: weights vary inside a bin, and "
        "the density is less exact at this beta"
    ]


def _notes(seen: Seen) -> list[str]:
    """Return notes for the user on the last rehearsal."""
    notes = []
    if seen.problem:
        notes.append(f"errors were not estimated, and run.rounds is a guess: {seen.problem}")
    known = np.nan_to_num(seen.rejection_k, nan=0.0)
    worst = int(np.argmax(known)) if known.size else 0
    if known.size and known[worst] > WORST_REJECTION:
        beta_k = seen.spread.beta_i
        notes.append(
            f"neighbours at beta = {beta_k[worst]:.3g} and {beta_k[worst + 1]:.3g} accepted "
            f"only {1 - known[worst]:.0%} of their swaps in the pilot: few outputs lie between them"
        )
    return notes
