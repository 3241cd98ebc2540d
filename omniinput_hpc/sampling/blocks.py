"""Merge the blocks of each rung's lanes into one record per rung for the run file.

Lanes are independent, so each block of lanes is a separate batch with its own random numbers. All
blocks of a rung have the same beta and the same step sizes of the kernel. The counts of a rung are
the sum over its blocks, in the order of the blocks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from omniinput_hpc.histogram import groups_of, lane_groups
from omniinput_hpc.parallel.comm import World
from omniinput_hpc.runfile.records import RungRecord
from omniinput_hpc.tempering.ladder import Grid

if TYPE_CHECKING:
    from omniinput_hpc.sampling.rung import Rung

SUMS = ("counts_b", "outside", "attempted_p", "accepted_p")
"""Fields of a `RungRecord` that are sums over a rung's blocks."""
LANES = ("x", "z", "walker_w", "direction_w")
"""Fields of a `RungState` whose first axis is lanes."""
SAMPLES = ("samples_x", "samples_z", "samples_walker", "samples_log_q")
"""Fields of a `RungRecord` whose first axis is samples: moves, and lanes within each move."""
GROUPS, Z_SUMS = "lane_counts_gb", "z_sum_b"
OF_STATE = (GROUPS, Z_SUMS, *LANES)
"""Fields of a `RungState` that differ between blocks."""


def merged(parts: Sequence[RungRecord]) -> RungRecord:
    """Return a rung's record, given the records of all its blocks in order."""
    if len(parts) == 1:
        return parts[0]
    states, width = [part.state for part in parts], len(parts[0].state.walker_w)
    n_walkers = width * len(parts)
    counts_gb = np.zeros(
        (lane_groups(n_walkers)[-1] + 1, states[0].lane_counts_gb.shape[1]), dtype=np.uint64
    )
    for number, state in enumerate(states):
        groups = groups_of(range(number * width, (number + 1) * width), n_walkers)
        counts_gb[groups.start : groups.stop] += state.lane_counts_gb
    z_sum_b = states[0].z_sum_b.copy()
    for state in states[1:]:
        z_sum_b += state.z_sum_b
    of_state: dict[str, Any] = {GROUPS: counts_gb, Z_SUMS: z_sum_b}
    for name in LANES:
        of_state[name] = np.concatenate([getattr(state, name) for state in states])
    fields: dict[str, Any] = {name: sum(getattr(part, name) for part in parts) for name in SUMS}
    for name in SAMPLES:
        columns = [getattr(part, name) for part in parts]
        if columns[0] is not None:
            fields[name] = _side_by_side(columns, width)
    return replace(parts[0], state=replace(states[0], **of_state), **fields)


def _side_by_side(columns: Sequence[NDArray[Any]], width: int) -> NDArray[Any]:
    """Return samples of all lanes, time-major, given the samples of blocks of `width` lanes."""
    by_move = [column.reshape(-1, width, *column.shape[1:]) for column in columns]
    together = np.concatenate(by_move, axis=1)
    return together.reshape(-1, *together.shape[2:])


class Gathering:
    """Gather the records of a rung's blocks on the rank that writes the rung (see `Grid.written`).

    All ranks create it together.
    """

    def __init__(self, world: World, grid: Grid) -> None:
        self._world, self._grid = world, grid
        # The ranks that hold blocks of the same rungs; the first one writes these rungs.
        several = grid.n_groups > 1
        self._peers = world.split(world.rank % grid.group_size) if several else None

    def records(self, rungs: Sequence[Rung]) -> list[RungRecord]:
        """Return a round's records of the rungs that this rank writes (all ranks call this).

        `rungs` are the blocks that it holds. Afterwards the first block of each rung holds the
        rung's sums of z; see `Rung.keep_sums`.
        """
        mine = [rung.record_of_round() for rung in rungs]
        found = self._by_rung(mine)
        if self._peers is not None:
            messages = self._gathered([] if self._peers.rank == 0 else mine)
            found = [] if self._peers.rank else found
            for peer, message in enumerate(messages[1:], start=1):
                others = self._by_rung(self._parts(peer, message, mine[0]))
                found = [a + b for a, b in zip(found, others, strict=True)]
        records = [merged(parts) for parts in found]
        self._keep_sums(rungs, records)
        return records

    def sum(self, values: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the sum over ranks if a rung's blocks are on several ranks, else `values`."""
        return values if self._peers is None else self._world.sum(values)

    def _by_rung(self, records: Sequence[RungRecord]) -> list[list[RungRecord]]:
        """Return the records of a rank's blocks, as one list per rung."""
        share = self._grid.n_blocks // self._grid.n_groups
        return [list(records[i : i + share]) for i in range(0, len(records), share)]

    def _keep_sums(self, rungs: Sequence[Rung], records: Sequence[RungRecord]) -> None:
        if self._grid.n_blocks == 1:
            return
        by_rung = {rung.k: rung for rung in rungs if rung.block.number == 0}
        sums = {k: record.state.z_sum_b for k, record in zip(by_rung, records, strict=True)}
        for rung in rungs:
            rung.keep_sums(sums.get(rung.k, rung.histogram.z_sum_b))

    def _gathered(self, mine: Sequence[RungRecord]) -> list[NDArray[np.uint8]]:
        """Return the messages of all peers on the first peer, and an empty list on the others."""
        assert self._peers is not None
        before = self._peers.waited
        gathered = self._peers.gather(packed(mine))
        self._world.waited += self._peers.waited - before
        return gathered or []

    def _parts(self, peer: int, message: NDArray[np.uint8], like: RungRecord) -> list[RungRecord]:
        """Unpack a peer's message; `like` is the record of any block."""
        grid, found = self._grid, []
        rank, width = self._world.rank + peer * grid.group_size, len(like.state.walker_w)
        for _ in grid.rungs(rank):
            for number in grid.blocks(rank):
                lanes = range(number * width, (number + 1) * width)
                record, size = unpacked(message, like, len(groups_of(lanes, width * grid.n_blocks)))
                message = message[size:]
                found.append(record)
        return found


def packed(records: Sequence[RungRecord]) -> NDArray[np.uint8]:
    """Return the arrays that differ between blocks, concatenated as bytes."""
    arrays = [array for record in records for array in _arrays(record).values()]
    as_bytes = [np.ascontiguousarray(array).reshape(-1).view(np.uint8) for array in arrays]
    return np.concatenate(as_bytes) if as_bytes else np.empty(0, dtype=np.uint8)


def unpacked(message: NDArray[np.uint8], like: RungRecord, n_groups: int) -> tuple[RungRecord, int]:
    """Return the first record of a message that `packed` made, and its number of bytes.

    `like` is the record of any block; the block that is read has `n_groups` groups of lanes.
    """
    arrays: dict[str, Any] = {}
    begin = 0
    for name, array in _arrays(like).items():
        shape = (n_groups, *array.shape[1:]) if name == GROUPS else array.shape
        end = begin + math.prod(shape) * array.itemsize
        arrays[name] = message[begin:end].copy().view(array.dtype).reshape(shape)
        begin = end
    state = replace(like.state, **{name: arrays.pop(name) for name in OF_STATE})
    return replace(like, state=state, **arrays), begin


def _arrays(record: RungRecord) -> dict[str, NDArray[Any]]:
    of_state = {name: getattr(record.state, name) for name in OF_STATE}
    fields = {name: getattr(record, name) for name in (*SUMS, *SAMPLES)}
    return of_state | {name: array for name, array in fields.items() if array is not None}
