"""Exchange of configurations between neighbouring rungs, with a checksum that none was lost."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from omniinput_hpc import rng
from omniinput_hpc.parallel.comm import World
from omniinput_hpc.parallel.messages import Message, packed
from omniinput_hpc.runfile.layout import Geometry, layout
from omniinput_hpc.tempering import ladder
from omniinput_hpc.tempering.ensembles import N_PARAMETERS, Ensemble, from_array, to_array

if TYPE_CHECKING:
    from omniinput_hpc.kernels.parts.tilt import SecondDirection
    from omniinput_hpc.sampling.rung import Rung

_GOLDEN = 0x9E3779B97F4A7C15
_MIX = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)


class LostWalker(Exception):
    """The walkers after an exchange are not a permutation of those before it: a defect."""


def configuration_of(geometry: Geometry) -> np.dtype[Any]:
    """Return the type of one walker with all that travels with it, as the run file stores it."""
    fields = layout(geometry)
    names = ("x", "z", "walker", "direction", *["heading"] * geometry.headed)
    stored = [(name, fields[f"state/{name}"]) for name in names]
    return np.dtype([(name, field.dtype, field.shape[3:]) for name, field in stored])


class Exchanger:
    """Swaps slots between neighbouring rungs; counts swaps and round trips since `begin_round`.

    Attributes
    ----------
    attempted_k, accepted_k : int64 [K - 1], swaps of pairs (k, k + 1) whose rung k is held here
    trips : int64 [W * K], round trips by walker; filled on ranks that hold rung 0
    imbalance_w : uint64 [W], see `check`; 0 for lanes that this rank does not hold
    """

    def __init__(
        self,
        geometry: Geometry,
        edges: NDArray[np.float64],
        seed: int,
        world: World,
        grid: ladder.Grid,
        second: SecondDirection | None = None,
    ) -> None:
        self._edges, self._seed, self._world, self._grid = edges, seed, world, grid
        self._second = second
        width, blocks = geometry.n_walkers // grid.n_blocks, grid.blocks(world.rank)
        self._lanes = slice(blocks.start * width, blocks.stop * width)
        self._n_table = geometry.n_bins + 2 if geometry.flat else 0
        k, w = geometry.n_rungs, geometry.n_walkers
        self._n_rungs = k
        self._headed = geometry.headed
        self.configuration = configuration_of(geometry)
        self.attempted_k = np.zeros(k - 1, dtype=np.int64)
        self.accepted_k = np.zeros(k - 1, dtype=np.int64)
        self.trips = np.zeros(w * k, dtype=np.int64)
        self.imbalance_w = np.zeros(w, dtype=np.uint64)
        random = rng.generator(seed, "conservation")
        width = self.configuration.itemsize
        self._weights = random.integers(2**63, size=width, dtype=np.uint64) * 2 + 1

    def begin_round(self) -> None:
        """Zero the counts of the previous round."""
        for counts in (self.attempted_k, self.accepted_k, self.trips, self.imbalance_w):
            counts[:] = 0

    def swap(self, rungs: Sequence[Rung], exchange: int) -> None:
        """Swap the pairs of this exchange; `exchange` counts from the run's first exchange.

        The blocks of a rung that this rank holds are adjacent in `rungs`, and swap together.
        """
        blocks: dict[int, list[Rung]] = {}
        for rung in rungs:
            blocks.setdefault(rung.k, []).append(rung)
        held = {k: np.concatenate([*map(self.pack, parts)]) for k, parts in blocks.items()}
        ensembles: dict[int, Ensemble] = {rung.k: rung.ensemble.on_host() for rung in rungs}
        pairs = ladder.pairs_of(range(rungs[0].k, rungs[-1].k + 1), self._n_rungs, exchange)
        before_w = self._checksum(held, exchange)
        near = self._fetch_neighbours(held, ensembles, pairs)
        for k in pairs:
            self._swap_pair(k, held, near, ensembles, exchange)
        self.imbalance_w += self._checksum(held, exchange) - before_w
        for k, parts in blocks.items():
            ends = np.cumsum([len(rung.walker_w) for rung in parts])
            for rung, lanes in zip(parts, np.split(held[k], ends[:-1]), strict=True):
                self.unpack(lanes, rung)
                self._follow(rung)

    def check(self, imbalance_w: NDArray[np.uint64]) -> None:
        """Check a round's exchanges, given the sum of `imbalance_w` over all ranks.

        In each lane the sum over rungs of a hash of each whole configuration (x, z, identity and
        direction together) must not change in an exchange. Raises a LostWalker if it did: a walker
        was lost, duplicated or mixed with another.
        """
        if imbalance_w.any():
            lanes = np.flatnonzero(imbalance_w)[:10].tolist()
            raise LostWalker(
                f"exchanges lost or mixed walkers in lanes {lanes}; the round is not committed"
            )

    def pack(self, rung: Rung) -> NDArray[Any]:
        """Return a rung's configurations, structured [W]."""
        held = np.empty(len(rung.walker_w), dtype=self.configuration)
        held["x"], held["z"] = rung.walkers.configurations()
        held["walker"], held["direction"] = rung.walker_w, rung.direction_w
        if self._headed:
            held["heading"] = rung.heading_w
        return held

    def unpack(self, held: NDArray[Any], rung: Rung) -> None:
        """Give a rung its configurations; caches are recomputed even if nothing swapped."""
        rung.walker_w, rung.direction_w = held["walker"].copy(), held["direction"].copy()
        if self._headed:
            rung.heading_w = held["heading"].copy()
        rung.walkers.place(held["x"], held["z"])

    def _fetch_neighbours(
        self, held: Mapping[int, NDArray[Any]], ensembles: dict[int, Ensemble], pairs: Iterable[int]
    ) -> dict[int, NDArray[Any]]:
        """Trade whole rungs with neighbouring ranks; return theirs and add their ensembles."""
        outgoing: dict[int, tuple[int, NDArray[np.uint8]]] = {}
        for k in pairs:
            for mine, other in ((k, k + 1), (k + 1, k)):
                if mine in held and other not in held:
                    holder = self._grid.owner(other, self._world.rank)
                    numbers = to_array(ensembles[mine], self._n_table)
                    # The neighbour needs this rung's ensemble to make the same decision.
                    outgoing[other] = (holder, packed([held[mine], numbers]))
        near, n_lanes = {}, self._lanes.stop - self._lanes.start
        for k, data in self._world.swap(outgoing).items():
            message = Message(data)
            near[k] = message.take((n_lanes,), self.configuration)
            numbers = message.take((N_PARAMETERS + self._n_table,), np.float64)
            ensembles[k] = from_array(numbers, self._edges)
        return near

    def _swap_pair(
        self,
        k: int,
        held: dict[int, NDArray[Any]],
        near: Mapping[int, NDArray[Any]],
        ensembles: Mapping[int, Ensemble],
        exchange: int,
    ) -> None:
        """Swap one pair of rungs; both ranks that hold the pair make the same decision."""
        lower = held[k] if k in held else near[k]
        upper = held[k + 1] if k + 1 in held else near[k + 1]
        random = rng.generator(self._seed, "exchange", k, exchange)
        u_w = random.random(len(self.imbalance_w))[self._lanes]  # drawn for the lanes of all ranks
        more = 0.0 if self._second is None else self._second.log_swap(k, lower["x"], upper["x"])
        z_w = lower["z"], upper["z"]
        swap_w = ladder.accept_swaps(ensembles[k], ensembles[k + 1], *z_w, u_w, more)
        if k in held:
            held[k] = np.where(swap_w, upper, lower)
            self.attempted_k[k] += swap_w.size
            self.accepted_k[k] += np.count_nonzero(swap_w)
        if k + 1 in held:
            held[k + 1] = np.where(swap_w, lower, upper)

    def _follow(self, rung: Rung) -> None:
        if self._n_rungs > 1 and rung.k in (0, self._n_rungs - 1):
            rung.direction_w = ladder.count_round_trips(
                rung.direction_w, rung.walker_w, rung.k == 0, self.trips
            )

    def _checksum(self, held: Mapping[int, NDArray[Any]], exchange: int) -> NDArray[np.uint64]:
        """Return the sum over rungs of a 64-bit hash of each configuration, uint64 [W], mod 2^64.

        Lanes that other ranks hold are 0.
        """
        total_w = np.zeros_like(self.imbalance_w)
        mine_w = total_w[self._lanes]
        salt = np.uint64((exchange * _GOLDEN) % 2**64)
        for configurations in held.values():
            bytes_wb = np.ascontiguousarray(configurations).view(np.uint8).reshape(len(mine_w), -1)
            h = bytes_wb.astype(np.uint64) @ self._weights + salt
            for shift, factor in zip((30, 27), _MIX, strict=True):  # splitmix64's finalizer
                h = (h ^ (h >> np.uint64(shift))) * np.uint64(factor)
            mine_w += h ^ (h >> np.uint64(31))
        return total_w
