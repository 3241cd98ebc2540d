"""Exchange of configurations between neighbouring rungs, with a checksum that none was lost."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from omniinput_hpc import rng
from omniinput_hpc.parallel.comm import World
from omniinput_hpc.parallel.messages import Message, packed
from omniinput_hpc.runfile.layout import Geometry, layout
from omniinput_hpc.tempering import ladder
from omniinput_hpc.tempering.ensembles import (
    N_PARAMETERS,
    Ensemble,
    from_array,
    parameters_of,
    stacked,
    to_array,
)

if TYPE_CHECKING:
    from omniinput_hpc.kernels.parts.tilt import SecondDirection
    from omniinput_hpc.sampling.rung import Rung

KEYS_AT_ONCE = 64
"""Exchanges whose random streams get their keys at once."""

_GOLDEN = 0x9E3779B97F4A7C15
_MIX = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)


class LostWalker(Exception):
    """The walkers after an exchange are not a permutation of those before it: a defect."""


class Uniform:
    """The random numbers that decide swaps, drawn for the lanes of all ranks.

    Parameters
    ----------
    held : the rungs of this rank
    n_walkers : W
    lanes : those of this rank
    """

    def __init__(self, seed: int, held: range, n_walkers: int, lanes: slice) -> None:
        self._seed, self._n_walkers, self._lanes = seed, n_walkers, lanes
        self._k = range(max(held.start - 1, 0), held.stop)
        self._streams, self._first = rng.Streams(), -1
        self._keys = np.zeros((0, 0, 2), dtype=np.uint64)

    def of_pair(self, k: int, exchange: int) -> NDArray[np.float64]:
        """Return a number for each lane of the pair (k, k + 1), float64 [L], in [0, 1)."""
        place = exchange % KEYS_AT_ONCE
        if self._first != exchange - place:
            self._first = exchange - place
            exchanges = range(self._first, self._first + KEYS_AT_ONCE)
            indices = np.array([(i, e) for e in exchanges for i in self._k])
            keys = rng.keys(self._seed, "exchange", indices)
            self._keys = keys.reshape(KEYS_AT_ONCE, len(self._k), 2)
        stream = self._streams.at(self._keys[place, k - self._k.start])
        return np.asarray(stream.random(self._n_walkers)[self._lanes])


def configuration_of(geometry: Geometry) -> np.dtype[Any]:
    """Return the type of one walker with all that travels with it, as the run file stores it."""
    fields = layout(geometry)
    names = ("x", "z", "walker", "direction", *["heading"] * geometry.headed)
    stored = [(name, fields[f"state/{name}"]) for name in names]
    return np.dtype([(name, field.dtype, field.shape[3:]) for name, field in stored])


@dataclass
class Slots:
    """What a rank's rungs hold: L lanes of K neighbouring rungs.

    Attributes
    ----------
    first : the first of these rungs
    x, z, walker, direction : int64 [K, L, D]; float32, int32 and int8 [K, L]
    numbers : beta, kappa and z0 of the rungs' ensembles, float64 [3, K, 1]
    """

    first: int
    x: NDArray[np.int64]
    z: NDArray[np.float32]
    walker: NDArray[np.int32]
    direction: NDArray[np.int8]
    numbers: NDArray[np.float64]

    @classmethod
    def of(cls, rungs: Sequence[Rung]) -> Self:
        """Return copies of what the rungs, or the blocks of them, hold."""
        first, n = rungs[0].k, rungs[-1].k - rungs[0].k + 1
        ensembles = {rung.k: rung.ensemble for rung in rungs}
        placed = [rung.walkers.configurations() for rung in rungs]

        def joined(parts: Iterable[NDArray[Any]]) -> NDArray[Any]:
            lanes = np.concatenate([*parts])
            return lanes.reshape(n, -1, *lanes.shape[1:])

        return cls(
            first,
            joined(x for x, _ in placed).astype(np.int64),
            joined(z for _, z in placed),
            joined(rung.walker_w for rung in rungs),
            joined(rung.direction_w for rung in rungs),
            np.array([parameters_of(ensembles[k]) for k in sorted(ensembles)]).T[..., None],
        )

    def give_to(self, rungs: Sequence[Rung]) -> None:
        """Give the rungs, or the blocks of them, copies of what they hold now."""
        width = len(rungs[0].walker_w)
        parts = (part.reshape(-1, width, *part.shape[2:]) for part in self.arrays)
        for rung, x, z, walker_w, direction_w in zip(rungs, *parts, strict=True):
            rung.walker_w, rung.direction_w = walker_w.copy(), direction_w.copy()
            rung.walkers.place(x, z)

    @property
    def arrays(self) -> tuple[NDArray[Any], ...]:
        """All that swaps."""
        return self.x, self.z, self.walker, self.direction

    def pack(self, k: int, configuration: np.dtype[Any]) -> NDArray[Any]:
        """Return the configurations of rung k, structured [L]."""
        held = np.empty(self.z.shape[1], dtype=configuration)
        for name, part in zip(("x", "z", "walker", "direction"), self.arrays, strict=True):
            held[name] = part[k - self.first]
        return held

    def unpack(self, k: int, held: NDArray[Any]) -> None:
        """Give rung k its configurations."""
        for name, part in zip(("x", "z", "walker", "direction"), self.arrays, strict=True):
            part[k - self.first] = held[name]


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
        self._edges, self._world, self._grid = edges, world, grid
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
        self._u = Uniform(seed, grid.rungs(world.rank), w, self._lanes)

    @property
    def has_second_direction(self) -> bool:
        """Whether neighbours differ by more than their ensembles."""
        return self._second is not None

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
        self._swap_held(held, ensembles, pairs, exchange)
        for k, parts in blocks.items():
            ends = np.cumsum([len(rung.walker_w) for rung in parts])
            for rung, lanes in zip(parts, np.split(held[k], ends[:-1]), strict=True):
                self.unpack(lanes, rung)
                self._follow(rung)

    def swap_slots(self, slots: Slots, rungs: Sequence[Rung], exchange: int) -> None:
        """Swap the pairs of this exchange, as `swap` does, where the rank's rungs hold `slots`."""
        first, end = slots.first, slots.first + len(slots.z)
        pairs = ladder.pairs_of(range(first, end), self._n_rungs, exchange)
        inside = [k for k in pairs if k >= first and k + 1 < end]
        if inside:
            self._swap_inside(slots, np.array(inside), exchange)
        with_others = [k for k in pairs if k < first or k + 1 == end]
        if with_others:
            ensembles: dict[int, Ensemble] = {rung.k: rung.ensemble for rung in rungs}
            mine = [k if k >= first else k + 1 for k in with_others]
            held = {k: slots.pack(k, self.configuration) for k in mine}
            self._swap_held(held, ensembles, with_others, exchange)
            for k, lanes in held.items():
                slots.unpack(k, lanes)
        for k in {0, self._n_rungs - 1} & {*range(first, end)} if self._n_rungs > 1 else ():
            slots.direction[k - first] = ladder.count_round_trips(
                slots.direction[k - first], slots.walker[k - first], k == 0, self.trips
            )

    def _swap_held(
        self,
        held: dict[int, NDArray[Any]],
        ensembles: dict[int, Ensemble],
        pairs: Iterable[int],
        exchange: int,
    ) -> None:
        """Swap pairs of rungs, of which `held` has those of this rank, with a checksum."""
        before_w = self._checksum(held, exchange)
        near = self._fetch_neighbours(held, ensembles, pairs)
        for k in pairs:
            self._swap_pair(k, held, near, ensembles, exchange)
        self.imbalance_w += self._checksum(held, exchange) - before_w

    def _swap_inside(self, slots: Slots, k_p: NDArray[np.int64], exchange: int) -> None:
        """Swap the pairs (k, k + 1) of rungs of this rank, all at once."""
        low_p = k_p - slots.first
        lower, upper = (stacked(slots.numbers[:, at]) for at in (low_p, low_p + 1))
        u_pw = np.stack([self._u.of_pair(k, exchange) for k in k_p.tolist()])
        swap_pw = ladder.accept_swaps(lower, upper, slots.z[low_p], slots.z[low_p + 1], u_pw)
        place_kw = np.arange(slots.z.size).reshape(slots.z.shape)
        low, high = place_kw[low_p][swap_pw], place_kw[low_p + 1][swap_pw]
        for part in slots.arrays:
            flat = part.reshape(-1, *part.shape[2:])  # a view
            flat[low], flat[high] = flat[high], flat[low]
        self.attempted_k[k_p] += swap_pw.shape[1]
        self.accepted_k[k_p] += np.count_nonzero(swap_pw, axis=1)

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
        u_w = self._u.of_pair(k, exchange)
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
