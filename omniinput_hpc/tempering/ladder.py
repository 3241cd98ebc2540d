"""The ladder: which rungs swap, which swaps are accepted, and how betas are spaced."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import NDArray

from omniinput_hpc.tempering.ensembles import Ensemble

UP_FROM_BOTTOM = 1
DOWN_FROM_TOP = 2
MIN_REJECTION = 1e-3
"""Assumed for a pair that rejected nothing, to keep the cumulative rejection invertible."""


def placement(n_rungs: int, n_ranks: int, rank: int) -> range:
    """Return the rungs of a rank: an equal share of neighbouring rungs.

    Raises a ValueError if the ranks do not divide the rungs.
    """
    if n_rungs % n_ranks:
        raise ValueError(f"{n_ranks} ranks do not divide {n_rungs} rungs")
    share = n_rungs // n_ranks
    return range(rank * share, (rank + 1) * share)


def owner(rung: int, n_rungs: int, n_ranks: int) -> int:
    """Return the rank that holds a rung."""
    return rung // (n_rungs // n_ranks)


@dataclass(frozen=True)
class Block:
    """One of the equal blocks into which a rung's lanes are split; by default the whole rung.

    Attributes
    ----------
    k : int, the rung
    number : int, the block's index, from 0
    of : int, the number of blocks per rung
    """

    k: int
    number: int = 0
    of: int = 1

    def lanes(self, n_walkers: int) -> range:
        """Return the block's lanes, out of the W lanes of the rung."""
        width = n_walkers // self.of
        return range(self.number * width, (self.number + 1) * width)

    @property
    def index(self) -> int:
        """The block's number among the blocks of all rungs."""
        return self.k * self.of + self.number

    @property
    def key(self) -> tuple[int, ...]:
        """Last part of the key of its random streams; empty for an unsplit rung."""
        return (self.number,) if self.of > 1 else ()


@dataclass(frozen=True)
class Grid:
    """How ranks share K rungs of B blocks each.

    The ranks form equal groups of gcd(K, ranks) neighbouring ranks. A group holds a whole ladder
    for its share of the blocks, and its ranks share the rungs: each rank holds the same blocks of
    some neighbouring rungs. With `whole`, each group is a single rank.

    Raises a ValueError if K B (with `whole`: B) is not a multiple of the number of ranks.
    """

    n_rungs: int
    n_blocks: int
    n_ranks: int
    whole: bool = False

    def __post_init__(self) -> None:
        if (1 if self.whole else self.n_rungs) * self.n_blocks % self.n_ranks:
            raise ValueError(
                f"{self.n_ranks} ranks do not divide {self.n_rungs} rungs of {self.n_blocks} blocks"
            )

    @property
    def group_size(self) -> int:
        """Number of ranks that share a ladder."""
        return 1 if self.whole else math.gcd(self.n_rungs, self.n_ranks)

    @property
    def n_groups(self) -> int:
        """Number of groups of ranks; a divisor of the number of blocks."""
        return self.n_ranks // self.group_size

    def rungs(self, rank: int) -> range:
        """Return the rungs of which a rank holds blocks."""
        return placement(self.n_rungs, self.group_size, rank % self.group_size)

    def blocks(self, rank: int) -> range:
        """Return the blocks that a rank holds in each of its rungs."""
        return placement(self.n_blocks, self.n_groups, rank // self.group_size)

    def owner(self, rung: int, rank: int) -> int:
        """Return the rank that holds `rung` for the same blocks as `rank`."""
        return rank - rank % self.group_size + owner(rung, self.n_rungs, self.group_size)

    def written(self, rank: int) -> range:
        """Return the rungs that a rank writes to the run file: only the first group writes."""
        return self.rungs(rank) if rank < self.group_size else range(0)


def pairs(n_rungs: int, exchange: int) -> range:
    """Return the lower rungs k of the pairs (k, k + 1) that swap at an exchange.

    Deterministic even-odd alternation (Syed et al. 2021). `exchange` counts from the run's first
    exchange, including burn-in.
    """
    return range(exchange % 2, n_rungs - 1, 2)


def pairs_of(held: range, n_rungs: int, exchange: int) -> range:
    """Return those of `pairs` that involve a rung in `held`."""
    first = max(held.start - 1, 0)
    return range(first + (first + exchange) % 2, min(held.stop, n_rungs - 1), 2)


def accept_swaps(
    lower: Ensemble,
    upper: Ensemble,
    z_lower_w: NDArray[np.float32],
    z_upper_w: NDArray[np.float32],
    u_w: NDArray[np.float64],
    log_more_w: NDArray[np.float64] | float = 0.0,
) -> NDArray[np.bool_]:
    """Decide which slots of two neighbouring rungs swap configurations.

    log a = w_l(y) + w_u(x) - w_l(x) - w_u(y) for x in the lower and y in the upper rung, where w
    is an ensemble's log-weight (Swendsen & Wang 1986, in the form of Vogel et al. 2013).

    All arrays are [W]; `u_w` is uniform in [0, 1), and `log_more_w` is what weights that do not
    depend on z alone add to log a.
    """
    x, y = z_lower_w.astype(np.float64), z_upper_w.astype(np.float64)
    with np.errstate(invalid="ignore"):
        log_a = lower.log_weight(y) + upper.log_weight(x)
        log_a = log_a - lower.log_weight(x) - upper.log_weight(y) + log_more_w
    # Outside both windows log a is inf - inf = NaN, and the comparison rejects the swap.
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(u_w) < log_a)


def count_round_trips(
    direction_w: NDArray[np.int8],
    walker_w: NDArray[np.int32],
    at_bottom: bool,
    trips: NDArray[np.int64],
) -> NDArray[np.int8]:
    """Count round trips (bottom, top, bottom) at an end rung; return new directions, int8 [W].

    Parameters
    ----------
    direction_w : int8 [W], 0 (never at the bottom), UP_FROM_BOTTOM or DOWN_FROM_TOP
    walker_w : int32 [W], the identities of the walkers in the rung
    at_bottom : whether the rung is rung 0; otherwise it is the top rung
    trips : int64 [W * K], completed trips per walker, incremented in place
    """
    if at_bottom:
        np.add.at(trips, walker_w[direction_w == DOWN_FROM_TOP], 1)
        return np.full_like(direction_w, UP_FROM_BOTTOM)
    return np.where(direction_w == UP_FROM_BOTTOM, DOWN_FROM_TOP, direction_w).astype(np.int8)


def trip_time(rejection_k: NDArray[np.float64]) -> float:
    """Return the exchanges per round trip of a walker, on an ideal ladder with these rejections.

    The K walkers of a lane together make 1 / (2 + 2 sum r / (1 - r)) round trips per exchange (Syed
    et al., J. R. Stat. Soc. B 84, 321 (2022)). NaN if a pair never swapped.
    """
    if not rejection_k.size or not (rejection_k < 1.0).all():
        return np.nan
    return float((len(rejection_k) + 1) * 2.0 * (1.0 + (rejection_k / (1.0 - rejection_k)).sum()))


def stage_ends(burn_in: int) -> set[int]:
    """Return the burn-in rounds (numbered -burn_in to -1) after which a tuning stage ends.

    Stages last 1, 2, 4, ... rounds and all end within the first half of burn-in. The second half
    equilibrates the tuned ladder.
    """
    ends, done, length = set(), 0, 1
    while done + length <= burn_in // 2:
        done += length
        ends.add(done - burn_in - 1)
        length *= 2
    return ends


def respace(
    beta_k: NDArray[np.float64], rejection_k: NDArray[np.float64], fixed: tuple[float, ...]
) -> NDArray[np.float64]:
    """Return K betas spaced so that all neighbours reject equally often.

    The cumulative rejection Lambda(beta) is interpolated monotonically and cut into equal parts
    (Syed, Bouchard-Cote, Deligiannidis & Doucet 2021, section 5.1). Both ends keep their betas, and
    so do rungs whose beta is in `fixed`; see `equal_cuts`.

    Both the given `beta_k`, float64 [K], and the returned betas ascend. `rejection_k`, float64
    [K - 1], is the share of rejected swaps of each pair.
    """
    if len(beta_k) < 3:
        return beta_k.copy()

    barrier_k = barrier(rejection_k)
    cuts = equal_cuts(barrier_k, np.isin(beta_k, fixed), len(beta_k))
    new_k = np.asarray(scipy.interpolate.PchipInterpolator(barrier_k, beta_k)(cuts.at_k))
    return np.where(cuts.kept_k >= 0, beta_k[cuts.kept_k], new_k)


def barrier(rejection_k: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the cumulative rejection Lambda of K rungs, float64 [K], ascending from 0."""
    return np.concatenate([[0.0], np.cumsum(np.maximum(rejection_k, MIN_REJECTION))])


@dataclass(frozen=True)
class Cuts:
    """The places of K new rungs on the cumulative rejection Lambda of the present rungs.

    Attributes
    ----------
    at_k : float64 [K], Lambda at the new rungs
    kept_k : int64 [K], for each new rung the present rung that it keeps, or -1
    """

    at_k: NDArray[np.float64]
    kept_k: NDArray[np.int64]


def equal_cuts(barrier_i: NDArray[np.float64], stays_i: NDArray[np.bool_], n_rungs: int) -> Cuts:
    """Cut the cumulative rejection, float64 [I], into parts that are as equal as possible.

    The ends and the rungs marked in `stays_i`, bool [I], do not move. Each stretch between two
    such rungs is cut into equal parts. The number of parts per stretch minimizes the largest part.
    """
    stays = stays_i.copy()
    stays[[0, -1]] = True
    fixed_i = np.flatnonzero(stays)
    length_s = np.diff(barrier_i[fixed_i])
    gaps_s = np.ones(len(length_s), dtype=np.int64)
    for _ in range(n_rungs - 1 - len(gaps_s)):
        gaps_s[np.argmax(length_s / gaps_s)] += 1
    at, kept = [barrier_i[:1]], [np.zeros(1, dtype=np.int64)]
    for begin, end, n_gaps in zip(fixed_i[:-1], fixed_i[1:], gaps_s, strict=True):
        at.append(np.linspace(barrier_i[begin], barrier_i[end], n_gaps + 1)[1:])
        kept.append(np.append(np.full(n_gaps - 1, -1), end))
    return Cuts(np.concatenate(at), np.concatenate(kept))
