"""The statistics of a round over all ranks, reduced once at its end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np
from numpy.typing import NDArray

from omniinput_hpc.parallel.comm import World
from omniinput_hpc.runfile.layout import Geometry
from omniinput_hpc.tempering.ensembles import parameters_of

if TYPE_CHECKING:
    from omniinput_hpc.sampling.exchange import Exchanger
    from omniinput_hpc.sampling.rung import Rung


@dataclass(frozen=True)
class RoundStats:
    """A round's statistics, the same on all ranks."""

    imbalance_w: NDArray[np.uint64]  # [W], see `Exchanger.check`
    moves_k2: NDArray[np.int64]  # [K, 2], all moves, and those whose output is inside the bins
    swaps_k2: NDArray[np.int64]  # [K - 1, 2], attempted and accepted
    trips_v: NDArray[np.int64]  # [W K], round trips completed by each walker
    moments_k3: NDArray[np.float64]  # [K, 3], number, sum and sum of squares of the outputs
    parameters_k3: NDArray[np.float64]  # [K, 3], beta (NaN if flat), kappa and z0 of the rungs
    extremes: NDArray[np.float64]  # [2], lowest and highest output

    @property
    def swap_rate_p(self) -> NDArray[np.float64]:
        """Share of accepted swaps of each pair that was tried, float64; it may be empty."""
        tried_p2 = self.swaps_k2[self.swaps_k2[:, 0] > 0]
        return np.asarray(tried_p2[:, 1] / tried_p2[:, 0])

    @classmethod
    def reduced(
        cls, world: World, g: Geometry, rungs: Sequence[Rung], exchanger: Exchanger
    ) -> Self:
        """Return the statistics of the round, given those of this rank (all ranks call this)."""
        moves_k2 = np.zeros((g.n_rungs, 2), np.int64)
        moments_bk3 = np.zeros((rungs[0].block.of, g.n_rungs, 3))
        parameters_k3 = np.zeros((g.n_rungs, 3))
        for rung in rungs:
            counts = rung.histogram
            moves_k2[rung.k] += rung.attempted_p.sum(), counts.counts_b.sum()
            moments_bk3[rung.block.number, rung.k] = counts.moments
            if rung.block.number == 0:
                parameters_k3[rung.k] = parameters_of(rung.ensemble)
        swaps_k2 = np.stack([exchanger.attempted_k, exchanger.accepted_k], axis=1)
        imbalance_w, moves_k2, swaps_k2, trips_v = world.sums(
            exchanger.imbalance_w, moves_k2, swaps_k2, exchanger.trips
        )
        # Each number comes from one rank; blocks are added in order: the bits do not depend on
        # ranks.
        moments_bk3, parameters_k3 = world.sums(moments_bk3, parameters_k3)
        minus_and_plus = [rung.histogram.extremes * (-1.0, 1.0) for rung in rungs]
        less_lowest, highest = world.max(np.max(minus_and_plus, axis=0))
        extremes = np.array([-less_lowest, highest])
        moments_k3 = moments_bk3.sum(axis=0)
        return cls(imbalance_w, moves_k2, swaps_k2, trips_v, moments_k3, parameters_k3, extremes)


@dataclass
class Totals:
    """Counts of several rounds over all ranks; arrays as in `RoundStats`."""

    moves_k2: NDArray[np.int64]
    swaps_k2: NDArray[np.int64]
    extremes: NDArray[np.float64]

    @classmethod
    def zeros(cls, n_rungs: int) -> Self:
        """Return empty totals."""
        nothing = np.array([np.inf, -np.inf])
        return cls(np.zeros((n_rungs, 2), np.int64), np.zeros((n_rungs - 1, 2), np.int64), nothing)

    def add(self, stats: RoundStats) -> None:
        """Add the counts of another round."""
        self.moves_k2 += stats.moves_k2
        self.swaps_k2 += stats.swaps_k2
        self.extremes[0] = min(self.extremes[0], stats.extremes[0])
        self.extremes[1] = max(self.extremes[1], stats.extremes[1])


def outside_words(extremes: NDArray[np.float64], ends: tuple[float, float]) -> str:
    """Return the range of all outputs, and the ends of the bins that it exceeds, in words."""
    (lowest, highest), (lower, upper) = extremes, ends
    sides = [f"bins begin at {lower:g}"] if lowest < lower else []
    sides += [f"bins end at {upper:g}"] if highest > upper else []
    return f"z ranged from {lowest:.4g} to {highest:.4g}; {' and '.join(sides)}"
