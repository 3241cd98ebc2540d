"""Iterate over a run's recorded samples."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from omniinput_hpc.estimators import BoolArray, FloatArray, IntArray
from omniinput_hpc.estimators.populations import log_q_of
from omniinput_hpc.estimators.run_data import RunData, evenly_spaced_rounds
from omniinput_hpc.histogram import bin_of

FEWEST_ROUNDS = 32
"""Rounds that a few samples are spread over, if there are so many."""
FEWEST_TIMES = 8
"""Times of each rung that a few samples are spread over; of wide rungs, only some lanes each."""
MAX_SAMPLES = 1_000_000
"""Recorded samples to search for different inputs."""


@dataclass(frozen=True)
class RecordedSamples:
    """Recorded samples of one rung in one round.

    Attributes
    ----------
    round_, rung : int
    index_i : int64 [n], a sample's index among the S samples of its rung and round
    lane_i : int64 [n]
    bin_i : int64 [n]
    x_id : [n, D], as recorded (an unsigned integer type)
    z_i : float64 [n]
    log_q_ik : float64 [n, K], log q_k(x_i) on each rung of an ancestral run; None for chains
    """

    round_: int
    rung: int
    index_i: IntArray
    lane_i: IntArray
    bin_i: IntArray
    x_id: NDArray[Any]
    z_i: FloatArray
    log_q_ik: FloatArray | None

    def where(self, keep_i: BoolArray | IntArray) -> RecordedSamples:
        """Return some of the samples, by a mask or by their indices."""
        return replace(
            self,
            index_i=self.index_i[keep_i],
            lane_i=self.lane_i[keep_i],
            bin_i=self.bin_i[keep_i],
            x_id=self.x_id[keep_i],
            z_i=self.z_i[keep_i],
            log_q_ik=None if self.log_q_ik is None else self.log_q_ik[keep_i],
        )


class AlikeDraws:
    """Counts how many weighted draws of a run depend on each other so much that they tell as one.

    How uneven the weights are has no part in it: the users of the samples see that themselves. But
    the effective counts of draws contain it, so they are compared with Kish's number of the weights
    in the run's own bins.
    """

    def __init__(self, run: RunData, edges: FloatArray) -> None:
        self._fine, self._n_bins = run.edges, len(edges) - 1
        self._bin_f = bin_of((run.edges[1:] + run.edges[:-1]) / 2.0, edges)
        self._sums_2f = np.zeros((2, len(run.edges) - 1))

    def add(self, z_i: FloatArray, w_i: FloatArray) -> None:
        """Add draws inside the bins, with weights up to a constant of each bin of the run."""
        bin_i, n_bins = bin_of(z_i, self._fine), len(self._bin_f)
        self._sums_2f += [np.bincount(bin_i, weight_i, n_bins) for weight_i in (w_i, w_i**2)]

    def per_one(self, effective_b: FloatArray) -> FloatArray:
        """Return how many draws count as one [B], 1 or more, from their effective number [B]."""
        first_f, second_f = self._sums_2f
        seen_f = (first_f > 0) & (self._bin_f >= 0) & (self._bin_f < self._n_bins)
        kish_f = first_f[seen_f] ** 2 / second_f[seen_f]
        kish_b = np.bincount(self._bin_f[seen_f], kish_f, self._n_bins)
        return np.asarray(np.maximum(1.0, kish_b / np.maximum(effective_b, 1e-300)))


def bin_within(run: RunData, z_i: FloatArray, edges: FloatArray) -> IntArray:
    """Return the bin of each output, int64 [n], as `bin_of` does, for a part of the run's bins.

    An output at the upper end of the part belongs to the run's next bin, if there is one.
    """
    bin_i = bin_of(z_i, edges)
    if edges[-1] < run.edges[-1]:
        bin_i = np.where(z_i == edges[-1], len(edges) - 1, bin_i)
    return bin_i


def samples_in_bins(
    run: RunData,
    edges: FloatArray,
    most: int | None = None,
    rounds: Iterable[int] | None = None,
) -> Iterator[RecordedSamples]:
    """Yield a run's recorded samples inside some bins, per round and rung.

    `rounds`, ascending, are read one after the other (default: all).

    Rungs without a sample inside the bins are skipped. The edges, float64 [B + 1], may differ from
    those of the run. With `most`, only about so many samples of the run are looked at: of each rung
    as many, evenly spaced in time.
    """
    rounds, stride = range(run.rounds) if rounds is None else rounds, 1
    per_round, times = len(run.beta_k) * run.samples_per_round, run.samples_per_round // run.walkers
    if most is not None and run.rounds:
        spaced = evenly_spaced_rounds(run, max(most, FEWEST_ROUNDS * per_round))
        rounds, stride = spaced.tolist(), max(1, len(spaced) * per_round // most)
        apart = min(stride, max(1, len(spaced) * times // FEWEST_TIMES))
    else:
        apart = 1
    lanes_apart = min(stride // apart, run.walkers)
    time_s, lane_s = np.divmod(np.arange(run.samples_per_round), run.walkers)
    log_q, read = log_q_of(run), 0
    for n, round_ in enumerate(rounds):
        ((x_ksd, z_ks),) = run.source.samples([round_])
        log_q_ksj = next(islice(log_q, round_ - read, None)) if log_q is not None else None
        read = round_ + 1
        for rung, z_s in enumerate(z_ks.astype(np.float64)):
            bin_s = bin_within(run, z_s, edges)
            inside_s = (bin_s >= 0) & (bin_s < len(edges) - 1)
            nth_s, late_s = np.divmod(n * times + time_s + rung, apart)
            inside_s &= (late_s == 0) & ((lane_s + nth_s) % lanes_apart == 0)
            index_i = np.flatnonzero(inside_s)
            if index_i.size:
                yield RecordedSamples(
                    round_=round_,
                    rung=rung,
                    index_i=index_i,
                    lane_i=index_i % run.walkers,
                    bin_i=bin_s[index_i],
                    x_id=x_ksd[rung, index_i],
                    z_i=z_s[index_i],
                    log_q_ik=None if log_q_ksj is None else log_q_ksj[rung, index_i],
                )


def outputs_by_round(run: RunData) -> Iterator[tuple[FloatArray, FloatArray | None]]:
    """Yield the outputs of each round's samples, float64 [n], without their inputs.

    With them comes log q_k(x), float64 [n, K], for an ancestral run; None for chains.
    """
    log_q = log_q_of(run)
    for round_ in range(run.rounds):
        z_i = run.z_of(round_).ravel()
        log_q_ksj = next(log_q) if log_q is not None else None
        yield z_i, None if log_q_ksj is None else log_q_ksj.reshape(len(z_i), -1)


def extreme_inputs(run: RunData, n: int, sign: float) -> tuple[IntArray, FloatArray]:
    """Return the n different recorded inputs of lowest sign * z, int64 [n, D], and z, float64 [n].

    The most extreme comes first; there are fewer if the run recorded fewer. Only rounds that hold a
    more extreme output than those before are read whole.
    """
    found: dict[tuple[int, ...], float] = {}
    worst = np.inf
    for round_ in range(run.rounds):
        y_i = sign * run.z_of(round_).ravel()
        order = np.argsort(y_i, kind="stable")
        if y_i[order[0]] >= worst:
            continue
        ((x_ksd, _),) = run.source.samples([round_])
        x_id = x_ksd.reshape(len(y_i), -1)
        for i in order:
            if y_i[i] >= worst:
                break
            x = tuple(x_id[i].tolist())
            found[x] = min(float(y_i[i]), found.get(x, np.inf))
            if len(found) > n:
                del found[max(found, key=found.__getitem__)]
            if len(found) == n:
                worst = max(found.values())
    best = sorted(found, key=found.__getitem__)
    x_nd = np.array(best, dtype=np.int64).reshape(-1, run.n_sites)
    return x_nd, sign * np.array([found[x] for x in best])


def inputs_of_bins(
    run: RunData, edges: FloatArray, asked_b: BoolArray
) -> dict[int, tuple[NDArray[Any], IntArray]]:
    """Return the recorded samples of some bins: their inputs [n, D] and lanes, int64 [n].

    Only the first million samples of the run are read. The keys are the bins of `asked_b` that have
    samples.
    """
    found: dict[int, list[tuple[NDArray[Any], IntArray]]] = {}
    a_round = run.samples_per_round * len(run.beta_k)
    for part in samples_in_bins(run, edges) if asked_b.any() else ():
        if part.round_ * a_round > MAX_SAMPLES:
            break
        for b in np.unique(part.bin_i[asked_b[part.bin_i]]):
            mine = part.bin_i == b
            found.setdefault(int(b), []).append((part.x_id[mine], part.lane_i[mine]))
    return {
        b: (np.concatenate([x for x, _ in parts]), np.concatenate([lane for _, lane in parts]))
        for b, parts in found.items()
    }
