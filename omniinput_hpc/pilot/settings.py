"""Choose bins, ladder and rounds from the measurements of a pilot.

Rungs at beta and beta + d accept a swap with probability min(1, exp(d (z' - z))), where z and z'
are their outputs. If z is normal with standard deviation s at both, they reject erf(d s / 2) of
their swaps, which is d s / sqrt(pi) for close rungs. The sum over the ladder is the communication
barrier Lambda (Syed, Bouchard-Cote, Deligiannidis & Doucet 2021). About 1 + 2 Lambda rungs are
wanted, so that neighbours reject half of their swaps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from omniinput_hpc.models.lattice import unit_of
from omniinput_hpc.sampling.forecast import WIDTH_TIMES_BETA
from omniinput_hpc.sampling.restart import least_burn_in
from omniinput_hpc.tempering import ladder as tempering
from omniinput_hpc.tempering.ladder import equal_cuts

FloatArray = NDArray[np.float64]

MOST_REJECTED = 0.95
"""The largest share of rejected swaps that a ladder promises."""
REJECTION = 0.5
"""The intended share of rejected swaps between neighbours."""
LEAST_RUNGS = 4
MAX_RUNGS = 64
RUNGS_MULTIPLE = 4
"""The number of rungs is a multiple of this, so that 2 or 4 processes can share them."""
LEAST_BINS = 200
MOST_BINS = 50_000
"""More bins would take minutes to analyse, and over 30 kB each in the run file of 64 rungs."""
ROOM_OF_RANGE = 0.1
"""Room at each end of the bins beyond the outputs seen by the pilot, as a share of their range."""
ROUNDS = 64
FEWEST_ROUNDS = 8
"""The fewest rounds if the user gives a time, even if the time is too short for them."""
MAX_ROUNDS = 1_000_000
LEAST_EXCHANGES = 2
"""The fewest exchanges per round."""
LONGEST_ROUND = 60.0
"""The longest round, in seconds: a kill loses the round in progress."""
FEWEST_STEPS = 5
"""The fewest moves between two exchanges."""
TRIPS = 3.0
"""A run lasts at least this many of the shortest possible round trips of a walker."""
CORRELATION_TIMES = 60.0
"""The counted rounds last at least this many autocorrelation times: 4 blocks of 10, plus room."""
TOO_SHORT = 2.0
"""A rehearsal of n autocorrelation times shows them too short by this over n, relatively: a time of
half the rehearsal was in truth twice as long (measured for a reward model)."""
EQUILIBRATION = 4
"""Counted rounds per round of burn-in."""


@dataclass(frozen=True)
class Spread:
    """The distribution of outputs at some betas.

    Attributes
    ----------
    beta_i : float64 [n], ascending
    mean_i, sd_i : float64 [n], mean and standard deviation of z
    lowest, highest : extremes of all outputs seen
    """

    beta_i: FloatArray
    mean_i: FloatArray
    sd_i: FloatArray
    lowest: float
    highest: float

    @classmethod
    def of(cls, beta_i: FloatArray, z_i: Sequence[NDArray[Any]]) -> Self:
        """Return the spread of outputs z_i, an array per beta."""
        all_i = [z.astype(np.float64) for z in z_i]
        return cls(
            beta_i,
            np.array([z.mean() for z in all_i]),
            np.array([z.std() for z in all_i]),
            min(float(z.min()) for z in all_i),
            max(float(z.max()) for z in all_i),
        )

    def united(self, other: Self) -> Self:
        """Return the spread at the betas of both, which must differ."""
        beta_i = np.concatenate([self.beta_i, other.beta_i])
        order = np.argsort(beta_i)
        return type(self)(
            beta_i[order],
            np.concatenate([self.mean_i, other.mean_i])[order],
            np.concatenate([self.sd_i, other.sd_i])[order],
            min(self.lowest, other.lowest),
            max(self.highest, other.highest),
        )


def barrier(spread: Spread) -> FloatArray:
    """Return Lambda from the first beta to each beta, float64 [n].

    Between two betas s is the larger of two estimates: the mean of s at both, and the square root
    of -d<z>/dbeta = s^2 from the change of the mean output. Only the second one shows a phase
    transition between the two betas.
    """
    gap_i = np.diff(spread.beta_i)
    between = 0.5 * (spread.sd_i[1:] + spread.sd_i[:-1])
    from_means = np.sqrt(np.abs(np.diff(spread.mean_i)) / gap_i)
    s_i = np.maximum(between, from_means)
    return np.asarray(np.concatenate([[0.0], np.cumsum(gap_i * s_i)]) / np.sqrt(np.pi))


def ladder(
    beta_i: FloatArray,
    lambda_i: FloatArray,
    kept: tuple[float, ...],
    rejection: float = REJECTION,
) -> FloatArray:
    """Return betas from the first to the last measured one, with equal steps of Lambda.

    As many as needed to let neighbours reject at most this share of their swaps, rounded up to a
    multiple of 4, at most 64.

    Parameters
    ----------
    beta_i, lambda_i : float64 [n], ascending; betas, and Lambda up to each
    kept : betas that become rungs if they lie between the ends; the ends always do

    Returns
    -------
    float64 [K], ascending
    """
    first, last = beta_i[[0, -1]]
    stays = [first, *(beta for beta in kept if first < beta < last), last]
    known_i = np.union1d(beta_i, stays)
    barrier_i, stays_i = np.interp(known_i, beta_i, lambda_i), np.isin(known_i, stays)
    parts_s = np.ceil(np.diff(barrier_i[stays_i]) / rejection)
    wanted = 1 + int(np.sum(np.maximum(1, parts_s)))
    n_rungs = min(max(LEAST_RUNGS, -(-wanted // RUNGS_MULTIPLE) * RUNGS_MULTIPLE), MAX_RUNGS)
    cuts = equal_cuts(barrier_i, stays_i, n_rungs)
    stay_k = cuts.kept_k >= 0
    beta_k = np.interp(cuts.at_k, barrier_i, known_i)
    beta_k = np.where(stay_k, known_i[cuts.kept_k], _tidy(beta_k))
    for begin, end in pairwise(np.flatnonzero(stay_k)):
        if (np.diff(beta_k[begin : end + 1]) <= 0).any():  # Lambda is flat there
            even = np.linspace(beta_k[begin], beta_k[end], end - begin + 1)
            beta_k[begin + 1 : end] = _tidy(even[1:-1])
    return beta_k


def expected_trip(spread: Spread, beta_k: FloatArray) -> float:
    """Return the exchanges per round trip of a walker that a ladder promises by its spread."""
    barrier_k = np.interp(beta_k, spread.beta_i, barrier(spread))
    return tempering.trip_time(np.minimum(np.diff(barrier_k), MOST_REJECTED))


def measured_barrier(spread: Spread, rejection_k: FloatArray) -> FloatArray:
    """Return Lambda from the first rung to each rung, float64 [K], from the rejection of swaps.

    Each pair contributes the larger of its rejection and the estimate from its spread: for a pair
    that hardly swaps, the rejection, which is at most 1, is too small.
    """
    by_spread_k = np.diff(barrier(spread))
    return np.concatenate([[0.0], np.cumsum(np.fmax(rejection_k, by_spread_k))])


def _tidy(beta_k: FloatArray) -> FloatArray:
    """Return betas rounded to three significant digits, for readability."""
    return np.array([float(f"{beta:.3g}") for beta in beta_k])


def nice_below(value: float) -> float:
    """Return the largest number 1, 2, 2.5 or 5 times a power of ten that is not above `value`."""
    power = 10.0 ** np.floor(np.log10(value))
    factor = max(f for f in (1.0, 2.0, 2.5, 5.0) if f * power <= value * (1 + 1e-12))
    return float(f"{factor * power:.12g}")


@dataclass(frozen=True)
class BinRange:
    """The values of ``[bins]``."""

    lower: float
    upper: float
    width: float

    @property
    def n_bins(self) -> int:
        """The number of bins."""
        return round((self.upper - self.lower) / self.width)


def bins(
    spread: Spread,
    largest_beta: float,
    floor: float = -np.inf,
    ceiling: float = np.inf,
    fewest: int = LEAST_BINS,
) -> BinRange:
    """Return bins that hold all outputs of the pilot, with room at both ends.

    Since a run sees rarer inputs than the pilot, the room is a tenth of the range plus two standard
    deviations of z at that end of the ladder. No output can be below `floor` or above `ceiling`.
    There are at least `fewest` bins.
    """
    seen = spread.highest - spread.lowest
    seen = seen if seen > 0 else max(abs(spread.highest), 1.0)
    below = spread.lowest - (ROOM_OF_RANGE * seen + 2 * spread.sd_i[-1])
    above = spread.highest + (ROOM_OF_RANGE * seen + 2 * spread.sd_i[0])
    below, above = max(below, floor), min(above, ceiling)
    limit = WIDTH_TIMES_BETA / largest_beta if largest_beta > 0 else np.inf
    width = nice_below(min(limit, (above - below) / fewest))
    spacing = float(np.spacing(np.float32(max(abs(below), abs(above)))))
    finest = max(2 * spacing, (above - below) / MOST_BINS)
    if width < finest:  # the factors are those between nice numbers
        width = min(
            w for w in map(nice_below, finest * np.array([1.0, 1.25, 2.0, 2.5])) if w >= finest
        )
    # The ends lie on a coarser grid of round numbers, whose step is a whole number of widths.
    n = max(1, 10 ** int(np.floor(np.log10((above - below) / width))) // 10)
    step = n * width
    lower, upper = np.floor(below / step) * step, np.ceil(above / step) * step
    if below == floor:
        lower, upper = floor, floor + np.ceil((above - floor) / step) * step
    elif above == ceiling:
        lower, upper = ceiling - np.ceil((ceiling - below) / step) * step, ceiling
    return BinRange(float(f"{lower:.12g}"), float(f"{upper:.12g}"), width)


def width_times_beta(bins: Mapping[str, float], betas: Sequence[float]) -> tuple[float, bool]:
    """Return the largest |beta| times the width of ``[bins]``, and whether it is in the limit."""
    product = max(abs(betas[0]), abs(betas[-1])) * bins["width"]
    return product, product <= WIDTH_TIMES_BETA * (1 + 1e-9)


def off_lattice(found: BinRange, z_n: FloatArray) -> BinRange:
    """Return the bins; shift the edges between outputs if outputs z_n [n] on a lattice hit them."""
    unit = float(f"{unit_of(z_n):.4g}")
    place = z_n / found.width - found.lower / found.width
    if not unit or np.abs(place - np.round(place)).min() > 1e-3:
        return found
    shift = 0.5 * min(unit, found.width)
    lower, upper = found.lower - shift, found.upper + found.width - shift
    return BinRange(float(f"{lower:.12g}"), float(f"{upper:.12g}"), found.width)


@dataclass(frozen=True)
class Rehearsal:
    """The result of a short run of the chosen ladder.

    Attributes
    ----------
    error : typical standard error of log g (see `typical_error`); infinite if unknown
    moves : counted moves per walker
    tau : longest autocorrelation time of z, in moves; NaN if unknown
    seconds : time per move of all walkers of all rungs on one process, including exchanges
    trip : exchanges per round trip of a walker, at best; NaN if unknown
    """

    error: float
    moves: int
    tau: float
    seconds: float
    trip: float = np.nan

    def least_moves(self, steps: int) -> float:
        """Return the counted moves per walker needed to judge convergence; 0 if unknown.

        In a rehearsal that is not much longer than its autocorrelation time the walkers have not
        reached the slowest regions yet, so the time is taken to be longer than it seems.
        """
        tau = self.tau * (1.0 + TOO_SHORT * self.tau / self.moves)
        needed = np.array([CORRELATION_TIMES * tau, TRIPS * self.trip * steps])
        return float(np.nan_to_num(needed, nan=0.0, posinf=0.0).max())


@dataclass(frozen=True)
class Length:
    """The length of a run."""

    rounds: int
    burn_in: int
    exchanges: int
    steps: int

    @property
    def moves(self) -> int:
        """Moves per walker, including burn-in."""
        return (self.rounds + self.burn_in) * self.exchanges * self.steps


def typical_error(error_b: FloatArray, count_b: NDArray[np.int64]) -> float:
    """Return the median standard error of log g over the bins that hold 99% of all counts.

    The outermost bins, with half a percent of the counts on either side, are left out. Infinite if
    there are no counts.
    """
    total = int(count_b.sum())
    if total == 0:
        return np.inf
    share_b = np.cumsum(count_b) / total
    inside_b = (share_b >= 0.005) & (np.concatenate([[0.0], share_b[:-1]]) <= 0.995)
    return float(np.median(error_b[inside_b & (count_b > 0)]))


def length_for_errors(aim: float, seen: Rehearsal, steps: int) -> Length:
    """Return the length at which the typical error of log g is `aim`, as errors ~ 1 / sqrt(moves).

    The run lasts at least 60 times the longest autocorrelation time, so that errors can be checked,
    and three round trips of a walker.
    """
    moves = seen.moves * (seen.error / aim) ** 2 if np.isfinite(seen.error) else 4.0 * seen.moves
    moves = max(moves, seen.least_moves(steps))
    return _cut(moves, seen.seconds, steps, ROUNDS)


def length_for_time(seconds: float, seen: Rehearsal, steps: int) -> Length:
    """Return the length of a run that takes `seconds` on one process, including burn-in.

    If these are too few moves for three round trips of a walker, fewer moves are made between two
    exchanges.
    """
    moves = seconds / seen.seconds / (1 + 1 / EQUILIBRATION)
    if np.isfinite(seen.trip):
        steps = int(np.clip(moves / (TRIPS * seen.trip), min(FEWEST_STEPS, steps), steps))
    return _cut(moves, seen.seconds, steps, FEWEST_ROUNDS)


def hours_to_judge(length: Length, seen: Rehearsal) -> float | None:
    """Return the estimated hours on one process after which convergence can be judged.

    None if `length` is enough, or if the needed length is unknown.
    """
    moves = seen.least_moves(length.steps)
    if length.rounds * length.exchanges * length.steps >= moves:
        return None
    return float(moves * seen.seconds * (1 + 1 / EQUILIBRATION) / 3600)


def _cut(moves: float, seconds_per_move: float, steps: int, fewest: int) -> Length:
    """Divide counted moves into 64 rounds, or more if a round would exceed a minute.

    With few moves there are fewer rounds, but at least `fewest`.
    """
    longest = max(1, int(LONGEST_ROUND / (seconds_per_move * steps)))
    exchanges = max(LEAST_EXCHANGES, int(np.ceil(moves / (ROUNDS * steps))))
    exchanges = max(1, min(exchanges, longest))
    rounds = min(max(fewest, int(np.ceil(moves / (exchanges * steps)))), MAX_ROUNDS)
    burn_in = max(least_burn_in(exchanges), rounds // EQUILIBRATION)
    return Length(rounds, burn_in, exchanges, steps)
