"""Choosing bins, ladder and rounds from what a pilot measured. Pure arithmetic.

Two rungs at beta and beta + d exchange by min(1, exp(d * (z - z'))). Where z is normal with
standard deviation s at both, they reject erf(d s / 2) of their swaps, which is d s / sqrt(pi) for
close rungs. The sum of that over the ladder is the communication barrier Lambda (Syed,
Bouchard-Cote, Deligiannidis & Doucet 2021); about 1 + 2 Lambda rungs are wanted, so that neighbours
reject a half.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from omniinput_hpc.models.lattice import unit_of

FloatArray = NDArray[np.float64]

REJECTION = 0.5
"""The share of rejected swaps of two neighbours that is aimed at."""
LEAST_RUNGS = 4
MAX_RUNGS = 64
RUNGS_MULTIPLE = 4
"""The number of rungs is a multiple of this, so that 2 or 4 processes can share them."""
WIDTH_TIMES_BETA = 0.25
"""Largest |beta| times the bins' width, at most (docs/choosing-betas-and-bins.md)."""
LEAST_BINS = 200
MOST_BINS = 20_000
ROOM_OF_RANGE = 0.1
"""Room beyond the outputs that the pilot has seen, as a share of their range."""
ROUNDS = 64
FEWEST_ROUNDS = 8
"""Where a time is given that is too short for more."""
MAX_ROUNDS = 1_000_000
LEAST_EXCHANGES = 2
"""Of a round."""
LONGEST_ROUND = 60.0
"""Seconds of a round, which a kill loses."""
TRIPS = 3.0
"""Round trips of a walker, at best, that a run lasts at least: walkers must first get under way."""
CORRELATION_TIMES = 60.0
"""Autocorrelation times of z that the counted rounds last at least: 4 blocks of 10, and room."""
EQUILIBRATION = 4
"""Counted rounds to one round of burn-in."""


@dataclass(frozen=True)
class Spread:
    """Outputs at some betas.

    Attributes
    ----------
    beta_i : float64 [n], ascending
    mean_i, sd_i : float64 [n], mean and standard deviation of z
    lowest, highest : extremes of all outputs that were seen
    """

    beta_i: FloatArray
    mean_i: FloatArray
    sd_i: FloatArray
    lowest: float
    highest: float

    def at(self, beta: float) -> float:
        """Return the standard deviation of z at a beta, interpolated."""
        return float(np.interp(beta, self.beta_i, self.sd_i))


def barrier(spread: Spread) -> FloatArray:
    """Return Lambda from the first beta to each, float64 [n].

    Between two betas s is the larger of two values: the mean of both, and what the mean output's
    change says, since d<z>/dbeta = -s^2. Where a phase ends between them, only the latter shows it.
    """
    gap_i = np.diff(spread.beta_i)
    between = 0.5 * (spread.sd_i[1:] + spread.sd_i[:-1])
    from_means = np.sqrt(np.abs(np.diff(spread.mean_i)) / gap_i)
    s_i = np.maximum(between, from_means)
    return np.asarray(np.concatenate([[0.0], np.cumsum(gap_i * s_i)]) / np.sqrt(np.pi))


def ladder(
    beta_i: FloatArray, lambda_i: FloatArray, kept: tuple[float, ...], n_rungs: int | None = None
) -> FloatArray:
    """Return betas from the first to the last of those measured, neighbours at equal Lambda.

    Parameters
    ----------
    beta_i, lambda_i : float64 [n], ascending: betas, and Lambda up to each
    kept : betas that are rungs where they lie between the ends, which are in any case
    n_rungs : K; None: as many as let neighbours reject a half, rounded up to a multiple of 4, at
        most 64

    Returns
    -------
    float64 [K], ascending
    """
    ends = (float(beta_i[0]), float(beta_i[-1]))
    stays = sorted({*ends, *(beta for beta in kept if ends[0] < beta < ends[1])})
    length_s = np.diff(np.interp(stays, beta_i, lambda_i))
    if n_rungs is None:
        wanted = 1 + int(np.sum(np.maximum(1, np.ceil(length_s / REJECTION))))
        n_rungs = -(-wanted // RUNGS_MULTIPLE) * RUNGS_MULTIPLE
        n_rungs = min(max(LEAST_RUNGS, n_rungs), MAX_RUNGS)
    gaps_s = np.ones(len(length_s), dtype=np.int64)
    for _ in range(n_rungs - 1 - len(gaps_s)):
        gaps_s[np.argmax(length_s / gaps_s)] += 1
    betas = [stays[0]]
    for begin, end, n_gaps in zip(stays[:-1], stays[1:], gaps_s, strict=True):
        first, last = np.interp([begin, end], beta_i, lambda_i)
        inner = np.interp(np.linspace(first, last, n_gaps + 1)[1:-1], lambda_i, beta_i)
        if (np.diff([begin, *_tidy(inner), end]) <= 0).any():  # Lambda is flat there
            inner = np.linspace(begin, end, n_gaps + 1)[1:-1]
        betas += [*_tidy(inner), end]
    return np.array(betas)


def measured_barrier(spread: Spread, rejection_k: FloatArray) -> FloatArray:
    """Return Lambda from the first rung to each, float64 [K], from a run's rejected swaps.

    Of a pair that hardly swaps the rejection says too little: then what its spread says counts.
    """
    by_spread_k = np.diff(barrier(spread))
    return np.concatenate([[0.0], np.cumsum(np.fmax(rejection_k, by_spread_k))])


def _tidy(beta_k: FloatArray) -> list[float]:
    """Return betas with three significant digits, since a person reads them."""
    return [float(f"{beta:.3g}") for beta in beta_k]


def nice_below(value: float) -> float:
    """Return the largest of 1, 2, 2.5 or 5 times a power of ten that is not above a value."""
    power = 10.0 ** np.floor(np.log10(value))
    factor = max(f for f in (1.0, 2.0, 2.5, 5.0) if f * power <= value * (1 + 1e-12))
    return float(f"{factor * power:.12g}")


@dataclass(frozen=True)
class BinRange:
    """What [bins] says."""

    lower: float
    upper: float
    width: float

    @property
    def n_bins(self) -> int:
        """The number of bins."""
        return round((self.upper - self.lower) / self.width)


def bins(
    spread: Spread, largest_beta: float, floor: float = -np.inf, ceiling: float = np.inf
) -> BinRange:
    """Return bins that hold all outputs of the pilot with room.

    Room is a tenth of the range and two standard deviations at that end of the ladder, since a run
    sees rarer inputs than the pilot. No output is below `floor` or above `ceiling`.
    """
    seen = spread.highest - spread.lowest
    seen = seen if seen > 0 else max(abs(spread.highest), 1.0)
    below = spread.lowest - (ROOM_OF_RANGE * seen + 2 * spread.sd_i[-1])
    above = spread.highest + (ROOM_OF_RANGE * seen + 2 * spread.sd_i[0])
    below, above = max(below, floor), min(above, ceiling)
    limit = WIDTH_TIMES_BETA / largest_beta if largest_beta > 0 else np.inf
    width = nice_below(min(limit, (above - below) / LEAST_BINS))
    spacing = float(np.spacing(np.float32(max(abs(below), abs(above)))))
    finest = max(2 * spacing, (above - below) / MOST_BINS)
    if width < finest:  # a nice width is at most 2.5 times below what it is asked for
        width = nice_below(2.5 * finest)
    # Ends on a coarser grid, which a person can read; it is a whole number of widths.
    n = max(1, 10 ** int(np.floor(np.log10((above - below) / width))) // 10)
    step = n * width
    lower, upper = np.floor(below / step) * step, np.ceil(above / step) * step
    if below == floor:
        lower, upper = floor, floor + np.ceil((above - floor) / step) * step
    elif above == ceiling:
        lower, upper = ceiling - np.ceil((ceiling - below) / step) * step, ceiling
    return BinRange(float(f"{lower:.12g}"), float(f"{upper:.12g}"), width)


def off_lattice(found: BinRange, z_n: FloatArray) -> BinRange:
    """Return bins whose edges lie between outputs that are multiples of a unit, such as z_n [n]."""
    unit = float(f"{unit_of(z_n):.4g}")
    place = z_n / found.width - found.lower / found.width
    if not unit or np.abs(place - np.round(place)).min() > 1e-3:
        return found
    shift = 0.5 * min(unit, found.width)
    lower, upper = found.lower - shift, found.upper + found.width - shift
    return BinRange(float(f"{lower:.12g}"), float(f"{upper:.12g}"), found.width)


@dataclass(frozen=True)
class Rehearsal:
    """What a short run of the chosen ladder has shown.

    Attributes
    ----------
    error : typical standard error of log g (see `typical_error`); infinite where it is not known
    moves : counted moves of a walker
    tau : longest autocorrelation time of z, in moves; NaN where it is not known
    seconds : that a move of all walkers of all rungs takes on one process, exchanges included
    trip : exchanges that a walker's round trip takes at best; NaN where it is not known
    """

    error: float
    moves: int
    tau: float
    seconds: float
    trip: float = np.nan

    def least_moves(self, steps: int) -> float:
        """Return the counted moves of a walker that a verdict needs; 0 where they are not known."""
        needed = np.array([CORRELATION_TIMES * self.tau, TRIPS * self.trip * steps])
        return float(np.nan_to_num(needed, nan=0.0, posinf=0.0).max())


def trip_time(rejection_k: FloatArray) -> float:
    """Return the exchanges of a walker's round trip over an ideal ladder of these rejections.

    A lane makes 1 / (2 + 2 sum r / (1 - r)) of them an exchange (Syed et al., J. R. Stat. Soc. B
    84, 321 (2022)), by any of its K walkers. NaN where a pair never swapped.
    """
    if not rejection_k.size or not (rejection_k < 1.0).all():
        return np.nan
    return float((len(rejection_k) + 1) * 2.0 * (1.0 + (rejection_k / (1.0 - rejection_k)).sum()))


@dataclass(frozen=True)
class Length:
    """How long a run is."""

    rounds: int
    burn_in: int
    exchanges: int
    steps: int

    @property
    def moves(self) -> int:
        """Moves of a walker, burn-in included."""
        return (self.rounds + self.burn_in) * self.exchanges * self.steps


def typical_error(error_b: FloatArray, count_b: NDArray[np.int64]) -> float:
    """Return the median standard error of log g over the bins that hold 99% of all counts.

    The outermost bins with half a percent of the counts on either side are left out. Infinite where
    there are no counts.
    """
    total = int(count_b.sum())
    if total == 0:
        return np.inf
    share_b = np.cumsum(count_b) / total
    inside_b = (share_b >= 0.005) & (np.concatenate([[0.0], share_b[:-1]]) <= 0.995)
    return float(np.median(error_b[inside_b & (count_b > 0)]))


def length_for_errors(aim: float, seen: Rehearsal, steps: int) -> Length:
    """Return a length after which errors of log g are typically `aim`, as 1 / sqrt(moves) says.

    It lasts at least 60 of the longest autocorrelation times, so that errors can be checked, and
    three of a walker's round trips.
    """
    moves = seen.moves * (seen.error / aim) ** 2 if np.isfinite(seen.error) else 4.0 * seen.moves
    moves = max(moves, seen.least_moves(steps))
    return _cut(moves, seen.seconds, steps, ROUNDS)


def length_for_time(seconds: float, seen: Rehearsal, steps: int) -> Length:
    """Return a length, burn-in included, that takes so many seconds on one process."""
    moves = seconds / seen.seconds / (1 + 1 / EQUILIBRATION)
    return _cut(moves, seen.seconds, steps, FEWEST_ROUNDS)


def hours_to_judge(length: Length, seen: Rehearsal) -> float | None:
    """Return the hours of one process, estimated, after which convergence can be judged.

    None where the length is enough, and where the pilot does not know what is.
    """
    moves = seen.least_moves(length.steps)
    if length.rounds * length.exchanges * length.steps >= moves:
        return None
    return float(moves * seen.seconds * (1 + 1 / EQUILIBRATION) / 3600)


def _cut(moves: float, seconds_per_move: float, steps: int, fewest: int) -> Length:
    """Cut counted moves into rounds: 64, or more where a round would be longer than a minute.

    `fewest` is where rounds may not be fewer, however few moves there are.
    """
    longest = max(1, int(LONGEST_ROUND / (seconds_per_move * steps)))
    exchanges = max(LEAST_EXCHANGES, int(np.ceil(moves / (ROUNDS * steps))))
    exchanges = max(1, min(exchanges, longest))
    rounds = min(max(fewest, int(np.ceil(moves / (exchanges * steps)))), MAX_ROUNDS)
    return Length(rounds, rounds // EQUILIBRATION, exchanges, steps)
