"""Writing and reading the histograms of blocks of rounds.

A run of many rounds keeps one histogram per `rounds_per_block` rounds. It is written when its block
or the run is complete, so that a kill never leaves a partial histogram. Until then, the counts of
the block are `histogram/lane_counts` (committed every round) minus those of the earlier blocks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from omniinput_hpc.errors import UserError
from omniinput_hpc.runfile import consistency
from omniinput_hpc.runfile.fields import Field, ends_block
from omniinput_hpc.runfile.layout import Geometry
from omniinput_hpc.runfile.records import Record, Slabs

MAX_HISTOGRAMS = 200
"""The most histograms per run file if the input file does not set a number."""
MAX_COUNT = int(np.iinfo(np.uint32).max)
"""The largest count that a bin can hold."""


class CountedRun(Slabs, Protocol):
    """An open run file, as far as this module reads it."""

    @property
    def geometry(self) -> Geometry:
        """The sizes of the datasets."""

    @property
    def rounds(self) -> int:
        """The number of committed rounds."""

    @property
    def moves_per_round(self) -> int | None:
        """Moves per rung and round; None if the file does not state it."""

    def lane_counts_kgb(self) -> NDArray[np.int64]:
        """Return the histogram per group of lanes, int64 [K, G, B]."""

    def report_impossible(
        self, name: str, rounds: range | None, wrong: Iterator[tuple[int, str]]
    ) -> None:
        """Report impossible values in a dataset."""


def rounds_per_block(rounds: int, n_histograms: int | None, counts_per_round: int) -> int:
    """Return how many rounds share a histogram.

    Parameters
    ----------
    rounds : int
    n_histograms : ``[run] histogram_blocks``; None: at most `MAX_HISTOGRAMS`, unless a bin would
        then overflow 32 bits
    counts_per_round : per rung

    Raises
    ------
    UserError
        A bin of the requested histograms could overflow 32 bits.
    """
    fits = max(1, MAX_COUNT // max(counts_per_round, 1))
    if n_histograms is None:
        return min(-(-rounds // MAX_HISTOGRAMS), fits)
    wanted = -(-rounds // min(n_histograms, rounds))
    if wanted > fits:
        raise UserError(
            f"run.histogram_blocks = {n_histograms}: {wanted:,} rounds of {counts_per_round:,} "
            f"counts per rung overflow the 32 bits of a bin; set run.histogram_blocks = "
            f"{-(-rounds // fits)} or more"
        )
    return wanted


class BlockCounts:
    """The counts of the current block, for the rungs that this rank writes.

    field : the dataset of the histograms
    before_kb : int64 [rungs, B], counts of all earlier blocks
    """

    def __init__(self, field: Field, before_kb: NDArray[np.int64]) -> None:
        self._field, self._before_kb = field, before_kb

    def of_round(self, round_: int, rungs: Sequence[Record]) -> NDArray[np.uint32] | None:
        """Return the counts of the block that ends with a round, uint32 [rungs, B], if one does.

        The next block then begins.
        """
        of_blocks = self._field.per == "block" and round_ >= 0 and rungs
        if not of_blocks or not ends_block(self._field, round_):
            return None
        lanes_kgb = np.stack([record["histogram/lane_counts"] for record in rungs])
        total_kb: NDArray[np.int64] = lanes_kgb.sum(axis=1).astype(np.int64)
        counts_kb = total_kb - self._before_kb
        self._before_kb = total_kb
        return counts_kb.astype(np.uint32)


def counts_before(run: CountedRun, rungs: range) -> NDArray[np.int64]:
    """Return the total counts of all complete blocks, int64 [rungs, B]."""
    total_kb = np.zeros((len(rungs), run.geometry.n_bins), dtype=np.int64)
    size = run.geometry.rounds_per_block
    for block in range(run.rounds // size if rungs else 0):
        total_kb += run.slab("histogram/counts", (block + 1) * size - 1, rungs)
    return total_kb


def histograms(run: CountedRun) -> Iterator[tuple[range, NDArray[np.int64]]]:
    """Yield the rounds and the checked counts, int64 [K, B], of each block with a round."""
    g, size = run.geometry, run.geometry.rounds_per_block
    total_kb = np.zeros((g.n_rungs, g.n_bins), dtype=np.int64)
    for begin in range(0, run.rounds, size):
        rounds = range(begin, min(begin + size, run.rounds))
        if len(rounds) == size or run.rounds == g.rounds:
            counts_kb = run.slab("histogram/counts", rounds[-1]).astype(np.int64)
        else:
            counts_kb = run.lane_counts_kgb().sum(axis=1) - total_kb
        if run.moves_per_round is not None:
            outside_k2 = _outside_k2(run, rounds)
            moves = len(rounds) * run.moves_per_round
            wrong = consistency.counted(counts_kb, outside_k2, moves)
            run.report_impossible("histogram/counts", rounds, wrong)
        total_kb += counts_kb
        yield rounds, counts_kb


def _outside_k2(run: CountedRun, rounds: range) -> NDArray[np.int64]:
    outside_k2 = np.zeros((run.geometry.n_rungs, 2), dtype=np.int64)
    for round_ in rounds:
        outside_k2 += run.slab("histogram/outside", round_)
    return outside_k2


def words_of(rounds: range) -> str:
    """Return the rounds of a histogram in words."""
    if len(rounds) == 1:
        return f"round {rounds[0]}"
    return f"rounds {rounds[0]} to {rounds[-1]}"
