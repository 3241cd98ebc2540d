"""Writing only the changed parts of a large slab.

Histograms of groups of lanes may take many megabytes per rung, but a round changes only the few
bins that its walkers visited. Two slabs are written in turn, so each is compared with its content
two rounds earlier, page by page, by 64-bit hashes of the pages. Checksums still cover the whole
slab.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import xxhash
from numpy.typing import NDArray

from omniinput_hpc.parallel.messages import Message
from omniinput_hpc.runfile.fields import Field, shape_of

SPARSE_FROM_BYTES = 1 << 20
"""From this size of a rank's slab, only its changed parts are written."""
PAGE = 512
"""Values that are written together if one of them changed: 4 KiB of 64-bit values."""

Where = tuple[slice | int, ...]
Runs = NDArray[np.int64]
"""Runs of changed values, int64 [n, 3]: row of the slab, first column, end column (exclusive).

A row runs along the last axis; the row number is the flat index over the other axes."""


def is_sparse(field: Field, where: Where) -> bool:
    """Return whether only the changed parts of a slab are written."""
    n_bytes = math.prod(shape_of(field, where)) * np.dtype(field.dtype).itemsize
    return field.per == "counted parity" and n_bytes >= SPARSE_FROM_BYTES


class LastWritten:
    """What this rank last wrote to the two slabs of each large dataset: a hash of each page."""

    def __init__(self) -> None:
        self._pages: dict[tuple[str, int], NDArray[np.uint64]] = {}

    def changed(self, name: str, round_: int, values: NDArray[np.generic]) -> Runs:
        """Return the runs that differ from the values written to this slab two rounds earlier.

        All rows count as changed if this process has not written the slab yet. The values are
        recorded as written now, because the run ends if writing fails.
        """
        before, rows = self._pages.get((name, round_ % 2)), values.reshape(-1, values.shape[-1])
        after = self._pages[name, round_ % 2] = _hashes(rows)
        if before is None:
            return _whole_rows(*rows.shape)
        return _changed_runs(before, after, rows.shape[1])


def _hashes(rows: NDArray[np.generic]) -> NDArray[np.uint64]:
    """Return a hash of each page of an array [rows, columns], uint64 [rows, pages]."""
    data = np.ascontiguousarray(rows).data.cast("B")
    n_rows, n_columns = rows.shape
    begins = range(0, n_columns, PAGE)
    found = [
        xxhash.xxh3_64_intdigest(data[first + rows.itemsize * begin : first + rows.itemsize * end])
        for first in range(0, len(data), rows.itemsize * n_columns)
        for begin, end in ((begin, min(begin + PAGE, n_columns)) for begin in begins)
    ]
    return np.array(found, dtype=np.uint64).reshape(n_rows, len(begins))


def _whole_rows(n_rows: int, n_columns: int) -> Runs:
    begin, end = np.zeros(n_rows, np.int64), np.full(n_rows, n_columns)
    return np.stack([np.arange(n_rows), begin, end], axis=1)


def _changed_runs(before: NDArray[np.uint64], after: NDArray[np.uint64], n_columns: int) -> Runs:
    """Return the pages whose hashes, [rows, pages], differ; adjacent pages are merged."""
    edge = np.diff((before != after).astype(np.int8), axis=1, prepend=0, append=0)
    row, first = np.nonzero(edge == 1)  # in row order, so that begins and ends match
    _, last = np.nonzero(edge == -1)
    return np.stack([row, first * PAGE, np.minimum(last * PAGE, n_columns)], axis=1)


def parts(
    field: Field, where: Where, values: NDArray[np.generic], runs: Runs
) -> list[tuple[Where, NDArray[np.generic]]]:
    """Return the changed values of a slab, each with its place in the dataset."""
    rows = values.reshape(-1, values.shape[-1])
    data = [rows[row, begin:end] for row, begin, end in runs]
    return list(zip(places(field, where, runs), data, strict=True))


def places(field: Field, where: Where, runs: Runs) -> list[Where]:
    """Return the place in the dataset of each run of a slab."""
    entry, held = where[0], where[1]
    assert isinstance(held, slice)
    others = shape_of(field, where)[:-1]
    indices = np.stack(np.unravel_index(runs[:, 0], others), axis=1)
    indices[:, 0] += held.start
    return [
        (entry, *map(int, index), slice(int(begin), int(end)))
        for index, (_, begin, end) in zip(indices, runs, strict=True)
    ]


def to_send(values: NDArray[np.generic], runs: Runs) -> list[NDArray[Any]]:
    """Return the arrays of a message on a slab's changes: number of runs, runs, changed values."""
    rows = values.reshape(-1, values.shape[-1])
    return [np.array([len(runs)]), runs, *(rows[row, begin:end] for row, begin, end in runs)]


def received(
    field: Field, where: Where, message: Message
) -> list[tuple[Where, NDArray[np.generic]]]:
    """Return the places and values of a slab's changes, the next arrays of a message."""
    (n_runs,) = message.take((1,), np.int64)
    runs = message.take((int(n_runs), 3), np.int64)
    data = [message.take((int(end - begin),), field.dtype) for _, begin, end in runs]
    return list(zip(places(field, where, runs), data, strict=True))
