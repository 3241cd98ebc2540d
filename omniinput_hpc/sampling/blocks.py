"""Merge the blocks of each rung's lanes into one record per rung for the run file.

Lanes are independent, so each block of lanes is a separate batch with its own random numbers. All
blocks of a rung have the same beta and the same step sizes of the kernel. The counts of a rung are
the sum over its blocks, in the order of the blocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from omniinput_hpc.histogram import groups_of, lane_groups
from omniinput_hpc.parallel.comm import World
from omniinput_hpc.parallel.messages import Message, packed
from omniinput_hpc.runfile.records import Record
from omniinput_hpc.tempering.ladder import Grid

if TYPE_CHECKING:
    from omniinput_hpc.sampling.rung import Rung

SUMS = (
    "histogram/counts", "histogram/outside", "histogram/z_sum", "kernel/attempted",
    "kernel/accepted",
)  # fmt: skip
"""Datasets that are sums over a rung's blocks."""
LANES = ("exchange/walker", "state/x", "state/z", "state/walker", "state/direction")
"""Datasets whose axis after rungs is lanes."""
SAMPLES = ("samples/x", "samples/z", "samples/walker", "samples/log_q")
"""Datasets whose axis after rungs is samples: moves, and lanes within each move."""
GROUPS = "histogram/lane_counts"


def merged(parts: Sequence[Record]) -> Record:
    """Return a rung's record, given the records of all its blocks in order."""
    if len(parts) == 1:
        return parts[0]
    width = len(parts[0]["state/walker"])
    n_walkers = width * len(parts)
    whole: dict[str, Any] = dict(parts[0])
    n_groups, n_bins = lane_groups(n_walkers)[-1] + 1, parts[0][GROUPS].shape[1]
    whole[GROUPS] = np.zeros((n_groups, n_bins), dtype=np.uint64)
    for number, part in enumerate(parts):
        groups = groups_of(range(number * width, (number + 1) * width), n_walkers)
        whole[GROUPS][groups.start : groups.stop] += part[GROUPS]
    for name in SUMS:
        whole[name] = sum(part[name] for part in parts)
    for name in LANES:
        whole[name] = np.concatenate([part[name] for part in parts])
    for name in _of_samples(whole):
        whole[name] = _side_by_side([part[name] for part in parts], width)
    return whole


def _of_samples(record: Record) -> list[str]:
    """Return the datasets of a record whose axis after rungs is samples."""
    return [name for name in record if name in SAMPLES or name.startswith("observables/")]


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

    def records(self, rungs: Sequence[Rung]) -> list[Record]:
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
                others = self._by_rung(self._parts(peer, Message(message), mine[0]))
                found = [a + b for a, b in zip(found, others, strict=True)]
        records = [merged(parts) for parts in found]
        self._keep_sums(rungs, records)
        return records

    def _by_rung(self, records: Sequence[Record]) -> list[list[Record]]:
        """Return the records of a rank's blocks, as one list per rung."""
        share = self._grid.n_blocks // self._grid.n_groups
        return [list(records[i : i + share]) for i in range(0, len(records), share)]

    def _keep_sums(self, rungs: Sequence[Rung], records: Sequence[Record]) -> None:
        if self._grid.n_blocks == 1:
            return
        by_rung = {rung.k: rung for rung in rungs if rung.block.number == 0}
        sums = {k: record["histogram/z_sum"] for k, record in zip(by_rung, records, strict=True)}
        for rung in rungs:
            rung.keep_sums(sums.get(rung.k, rung.histogram.z_sum_b))

    def _gathered(self, mine: Sequence[Record]) -> list[NDArray[np.uint8]]:
        """Return the messages of all peers on the first peer, and an empty list on the others."""
        assert self._peers is not None
        before = self._peers.waited
        gathered = self._peers.gather(packed(to_send(mine)))
        self._world.waited += self._peers.waited - before
        return gathered or []

    def _parts(self, peer: int, message: Message, like: Record) -> list[Record]:
        """Return the records in a peer's message; `like` is the record of any block."""
        grid, found = self._grid, []
        rank, width = self._world.rank + peer * grid.group_size, len(like["state/walker"])
        for _ in grid.rungs(rank):
            for number in grid.blocks(rank):
                lanes = range(number * width, (number + 1) * width)
                n_groups = len(groups_of(lanes, width * grid.n_blocks))
                found.append(received(message, like, n_groups))
        return found


def to_send(records: Sequence[Record]) -> list[NDArray[Any]]:
    """Return the arrays that differ between blocks, in the order in which `received` takes them."""
    return [record[name] for record in records for name in _differing(record)]


def _differing(record: Record) -> list[str]:
    return [*(name for name in (GROUPS, *SUMS, *LANES) if name in record), *_of_samples(record)]


def received(message: Message, like: Record, n_groups: int) -> Record:
    """Return the next record of a message.

    `like` is the record of any block; the block that is read has `n_groups` groups of lanes.
    """
    record = dict(like)
    for name in _differing(like):
        shape = (n_groups, *like[name].shape[1:]) if name == GROUPS else like[name].shape
        record[name] = message.take(shape, like[name].dtype)
    return record
