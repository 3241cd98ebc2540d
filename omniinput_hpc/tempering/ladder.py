"""The ladder: who swaps with whom, and which swaps are accepted. Pure arithmetic."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from omniinput_hpc.tempering.ensembles import Ensemble

UP_FROM_BOTTOM = 1
DOWN_FROM_TOP = 2
MIN_REJECTION = 1e-3
"""Of a pair that rejected nothing, so that the cumulative rejection stays invertible."""


def placement(n_rungs: int, n_ranks: int, rank: int) -> range:
    """Return the rungs of a rank: an equal share of neighbouring rungs.

    Raises a ValueError where the ranks do not divide the rungs.
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
    """One of the equal blocks that a rung's lanes are cut into; by default all of them.

    Attributes
    ----------
    k : int, the rung
    number : int, from 0 on
    of : int, how many blocks each rung has
    """

    k: int
    number: int = 0
    of: int = 1

    def lanes(self, n_walkers: int) -> range:
        """Return its lanes, of the W of a rung."""
        width = n_walkers // self.of
        return range(self.number * width, (self.number + 1) * width)

    @property
    def key(self) -> tuple[int, ...]:
        """What its random streams are keyed by, behind all else: nothing where it is the rung."""
        return (self.number,) if self.of > 1 else ()


@dataclass(frozen=True)
class Grid:
    """How ranks share K rungs of B blocks each: as groups of ranks that hold a ladder each.

    A group holds an equal share of the blocks, of all rungs; its ranks, gcd(K, ranks) neighbouring
    ones, share the rungs. So a rank holds the same blocks of some neighbouring rungs. With `whole`
    each group is one rank, so that all rungs of its blocks are on it. Raises a ValueError where the
    ranks do not divide K B (with `whole`: B).
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
        """How many ranks share a ladder."""
        return 1 if self.whole else math.gcd(self.n_rungs, self.n_ranks)

    @property
    def n_groups(self) -> int:
        """How many groups of ranks there are: it divides the blocks."""
        return self.n_ranks // self.group_size

    def rungs(self, rank: int) -> range:
        """Return the rungs that a rank holds blocks of."""
        return placement(self.n_rungs, self.group_size, rank % self.group_size)

    def blocks(self, rank: int) -> range:
        """Return the blocks that a rank holds of each of its rungs."""
        return placement(self.n_blocks, self.n_groups, rank // self.group_size)

    def owner(self, rung: int, rank: int) -> int:
        """Return the rank that holds the same blocks as another one, of some rung."""
        return rank - rank % self.group_size + owner(rung, self.n_rungs, self.group_size)

    def written(self, rank: int) -> range:
        """Return the rungs that a rank writes to the run file: the first group has each once."""
        return self.rungs(rank) if rank < self.group_size else range(0)


def pairs(n_rungs: int, exchange: int) -> range:
    """Return the lower rungs k of the pairs (k, k + 1) that swap at an exchange.

    Deterministic even-odd alternation (Syed et al. 2021); `exchange` counts from the run's
    very first one, burn-in included.
    """
    return range(exchange % 2, n_rungs - 1, 2)


def pairs_of(held: range, n_rungs: int, exchange: int) -> range:
    """Return those of `pairs` that involve a rung held here."""
    first = max(held.start - 1, 0)
    return range(first + (first + exchange) % 2, min(held.stop, n_rungs - 1), 2)


def accept_swaps(
    lower: Ensemble,
    upper: Ensemble,
    z_lower_w: NDArray[np.float32],
    z_upper_w: NDArray[np.float32],
    u_w: NDArray[np.float64],
) -> NDArray[np.bool_]:
    """Decide which slots of two neighbouring rungs swap configurations.

    log a = w_l(y) + w_u(x) - w_l(x) - w_u(y) for x in the lower and y in the upper rung, w being
    the ensembles' log-weights (Swendsen & Wang 1986, in the form of Vogel et al. 2013).

    All arrays are [W]; `u_w` is uniform in [0, 1).
    """
    x, y = z_lower_w.astype(np.float64), z_upper_w.astype(np.float64)
    with np.errstate(invalid="ignore"):
        log_a = lower.log_weight(y) + upper.log_weight(x)
        log_a = log_a - lower.log_weight(x) - upper.log_weight(y)
    # Outside both windows log a is inf - inf: NaN, which accepts nothing.
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(u_w) < log_a)


def count_round_trips(
    direction_w: NDArray[np.int8],
    walker_w: NDArray[np.int32],
    at_bottom: bool,
    trips: NDArray[np.int64],
) -> NDArray[np.int8]:
    """Follow walkers in an end rung (a trip: bottom, top, bottom); return new directions, int8 [W].

    Parameters
    ----------
    direction_w : int8 [W], 0 (never at the bottom), UP_FROM_BOTTOM or DOWN_FROM_TOP
    walker_w : int32 [W], the identities of the walkers there
    at_bottom : whether the rung is rung 0; otherwise it is the top one
    trips : int64 [W * K], completed trips per walker, added to in place
    """
    if at_bottom:
        np.add.at(trips, walker_w[direction_w == DOWN_FROM_TOP], 1)
        return np.full_like(direction_w, UP_FROM_BOTTOM)
    return np.where(direction_w == UP_FROM_BOTTOM, DOWN_FROM_TOP, direction_w).astype(np.int8)


def stage_ends(burn_in: int) -> set[int]:
    """Return after which burn-in rounds a tuning stage ends, rounds being -burn_in to -1.

    Stages last 1, 2, 4, ... rounds and end within the first half of burn-in: the second half
    equilibrates the ladder that the last stage left.
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
    """Return as many betas, spaced so that neighbours reject equally often.

    The cumulative rejection Lambda(beta) is interpolated monotonically and cut into equal parts
    (Syed, Bouchard-Cote, Deligiannidis & Doucet 2021, section 5.1). Both ends stay, and so do the
    betas of `fixed` that the ladder holds, see `equal_cuts`.

    `beta_k`, float64 [K], ascends, and so do the betas returned; `rejection_k`, float64 [K - 1], is
    the share of rejected swaps of each pair.
    """
    if len(beta_k) < 3:
        return beta_k.copy()
    from scipy.interpolate import PchipInterpolator  # slow to import, and rarely used

    cuts = equal_cuts(rejection_k, np.isin(beta_k, fixed))
    new_k = np.asarray(PchipInterpolator(cuts.barrier_k, beta_k)(cuts.at_k))
    return np.where(cuts.kept_k >= 0, beta_k[cuts.kept_k], new_k)


@dataclass(frozen=True)
class Cuts:
    """Where as many rungs lie on the cumulative rejection Lambda of K present ones.

    Attributes
    ----------
    barrier_k : float64 [K], Lambda at the present rungs, ascending from 0
    at_k : float64 [K], Lambda at the new ones
    kept_k : int64 [K], which present rung a new one is; -1 where it is none
    """

    barrier_k: NDArray[np.float64]
    at_k: NDArray[np.float64]
    kept_k: NDArray[np.int64]


def equal_cuts(rejection_k: NDArray[np.float64], stays_k: NDArray[np.bool_]) -> Cuts:
    """Cut the cumulative rejection of K > 1 rungs into parts as equal as can be.

    Both ends stay, and so do the rungs of `stays_k`, bool [K]: each stretch between two of them is
    cut into equal parts, the number of its rungs being chosen so that the largest part is smallest.
    """
    barrier_k = np.concatenate([[0.0], np.cumsum(np.maximum(rejection_k, MIN_REJECTION))])
    stays = stays_k.copy()
    stays[[0, -1]] = True
    fixed_k = np.flatnonzero(stays)
    length_s = np.diff(barrier_k[fixed_k])
    gaps_s = np.ones(len(length_s), dtype=np.int64)
    for _ in range(len(stays) - 1 - len(gaps_s)):
        gaps_s[np.argmax(length_s / gaps_s)] += 1
    at, kept = [barrier_k[:1]], [np.zeros(1, dtype=np.int64)]
    for begin, end, n_gaps in zip(fixed_k[:-1], fixed_k[1:], gaps_s, strict=True):
        at.append(np.linspace(barrier_k[begin], barrier_k[end], n_gaps + 1)[1:])
        kept.append(np.append(np.full(n_gaps - 1, -1), end))
    return Cuts(barrier_k, np.concatenate(at), np.concatenate(kept))
