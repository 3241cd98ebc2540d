"""A run as estimators read it: its counts, and where its samples are."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from omniinput_hpc.estimators import EstimateError, FloatArray, IntArray
from omniinput_hpc.estimators.density.rung_weights import RungWeights
from omniinput_hpc.histogram import lane_groups

MAX_HELD = 1 << 24
"""Outputs of samples to hold in memory: 64 MiB."""


class Settings(Protocol):
    """What estimators use of a run's input file; `omniinput_hpc.config.Config` has it all."""

    @property
    def seed(self) -> int | None:
        """Of all random numbers; None if unknown."""

    @property
    def exchanges(self) -> int | None:
        """Exchanges per round; None if unknown."""

    @property
    def annealed(self) -> bool:
        """Whether draws come in populations."""

    @property
    def allowed(self) -> str | None:
        """Which of its values a site may take; None for all."""

    @property
    def predicted_from(self) -> int | None:
        """First site that a decoder predicts; None for other kinds of models."""

    @property
    def measure(self) -> str:
        """What the density measures: "count", or "probability" under a law of inputs."""

    @property
    def drawn_samples(self) -> IntArray:
        """Which of a lane's samples of a round are surely drawn directly on the rung beta = 0."""

    @property
    def every_token(self) -> bool:
        """Whether the model is a decoder whose sites may take all of its tokens."""


class Source(Protocol):
    """Where the samples of a run are read from, in parts: all of them may not fit in memory."""

    def samples(
        self, rounds: Iterable[int] | None = None
    ) -> Iterator[tuple[NDArray[Any], NDArray[np.float32]]]:
        """Yield x [K, S, D] and z [K, S] of each round, or some; sample t W + w is of lane w."""

    def samples_z(
        self, rounds: slice = slice(None), rungs: slice = slice(None)
    ) -> NDArray[np.float32]:
        """Return z of some rounds and rungs, float32 [rounds, K, S]."""

    def samples_walker(self, round_: int) -> NDArray[np.int32]:
        """Return the walker, out of W K, of each sample of a round, int32 [K, S]."""

    def samples_log_q(self) -> Iterator[FloatArray] | None:
        """Yield log q_j(x) [K, S, J] of each round of an ancestral run; None for chains.

        For an annealed run J = 1, and weights come from `populations.log_q_of`.
        """


@dataclass(frozen=True, eq=False)
class RunData:
    """The committed rounds of a run; `RunReader.data` returns those of a run file.

    There are K rungs, B bins, W walkers (lanes) and S recorded samples per rung and round.

    Attributes
    ----------
    path : the run file, for messages
    config : the input file
    fingerprint : identifies the model; runs of one model share it
    n_values, n_ids : values per site, and values that the model knows, at least as many; recorded
        inputs hold these ids
    n_sites : sites of an input
    rounds : committed rounds
    rounds_per_block : how many rounds share a histogram
    walkers : W
    samples_per_round : S, a multiple of W
    ancestral : whether samples are draws with weights: independent ones from normalized
        distributions, or those of populations (an annealed run)
    model_beta : beta of a language model's own distribution; NaN if there is none
    rows_normalized : whether the rows of the model's conditionals were found to sum to 1
    cold_starts : parts of the lanes with different starts on rungs colder than the model itself
    weights : of the rungs
    edges : float64 [B + 1]
    counts_kb : int64 [K, B], the histogram over all rounds
    lane_counts_kgb : int64 [K, G, B], the same per group of lanes
    outside_k2 : int64 [K, 2], counts below and above the bins
    z_sum_kb : float64 [K, B], sum of z over the counts of each bin
    swaps_k2 : int64 [K - 1, 2], attempted and accepted swaps of neighbouring rungs
    round_trips_v : int64 [W K], completed round trips of each walker; of more walkers if the run
        is part of a larger one
    histograms : yields the counts, int64 [K, B], of each block of rounds
    source : of the samples
    log_inputs : ln of the number of inputs of a constrained space; NaN without a constraint
    """

    path: Any
    config: Settings
    fingerprint: str
    n_values: int
    n_ids: int
    n_sites: int
    rounds: int
    rounds_per_block: int
    walkers: int
    samples_per_round: int
    ancestral: bool
    model_beta: float
    rows_normalized: bool
    cold_starts: int
    weights: RungWeights
    edges: FloatArray
    counts_kb: IntArray
    lane_counts_kgb: IntArray
    outside_k2: IntArray
    z_sum_kb: FloatArray
    swaps_k2: IntArray
    round_trips_v: IntArray
    histograms: Callable[[], Iterable[IntArray]]
    source: Source
    log_inputs: float = float("nan")

    @property
    def beta_k(self) -> FloatArray:
        """Inverse temperatures, float64 [K]; NaN marks a flat-histogram rung."""
        return self.weights.beta_k

    @property
    def log_measure(self) -> float:
        """Log of the measure of the whole space: of the number of inputs, or 0 under a law."""
        if self.config.measure == "probability":
            return 0.0
        every = self.n_sites * float(np.log(self.n_values))
        return every if np.isnan(self.log_inputs) else self.log_inputs

    @property
    def moves_k(self) -> IntArray:
        """Moves of each rung, inside and outside the bins, int64 [K]."""
        return np.asarray(self.counts_kb.sum(axis=1) + self.outside_k2.sum(axis=1))

    @property
    def group_s(self) -> IntArray:
        """The group of lanes of each sample of a rung and round, int64 [S]."""
        return np.resize(lane_groups(self.walkers), self.samples_per_round)

    @cached_property
    def _held_rks(self) -> NDArray[np.float32] | None:
        n = self.rounds * len(self.beta_k) * self.samples_per_round
        return self.source.samples_z() if n <= MAX_HELD else None

    @property
    def is_part(self) -> bool:
        """Whether walkers also visit rungs that are left out."""
        return len(self.round_trips_v) > self.walkers * len(self.beta_k)

    def first_rungs(self, n: int) -> RunData:
        """Return what the first n rungs sampled."""
        return replace(
            self,
            weights=self.weights.first_rungs(n),
            counts_kb=self.counts_kb[:n],
            lane_counts_kgb=self.lane_counts_kgb[:n],
            outside_k2=self.outside_k2[:n],
            z_sum_kb=self.z_sum_kb[:n],
            swaps_k2=self.swaps_k2[: n - 1],
            histograms=lambda: (counts_kb[:n] for counts_kb in self.histograms()),
            source=_FirstRungs(self.source, n),
        )

    def z(self, rounds: slice = slice(None), rungs: slice = slice(None)) -> NDArray[np.float32]:
        """Return z of the samples of some rounds and rungs, float32 [rounds, K, S].

        Unless they are too many, they are read once for all that ask for them.
        """
        held_rks = self._held_rks
        return self.source.samples_z(rounds, rungs) if held_rks is None else held_rks[rounds, rungs]

    def z_of(self, round_: int) -> FloatArray:
        """Return z of the samples of a round, float64 [K, S]."""
        return np.asarray(self.z(slice(round_, round_ + 1))[0], dtype=np.float64)

    def counts_nkb(self, n_blocks: int) -> IntArray:
        """Return histograms of equally long blocks of the latest rounds, int64 [n, K, B].

        They consist of whole histograms. The oldest ones and an incomplete one may be left out.
        """
        whole = self.rounds // self.rounds_per_block
        length = whole // n_blocks
        first = whole - length * n_blocks
        counts_nkb = np.zeros((n_blocks, *self.counts_kb.shape), dtype=np.int64)
        for number, counts_kb in enumerate(islice(self.histograms(), first, whole)):
            counts_nkb[number // length] += counts_kb
        return counts_nkb


@dataclass(frozen=True)
class _FirstRungs:
    """The samples of some rungs of a run of chains."""

    source: Source
    n: int

    def samples(
        self, rounds: Iterable[int] | None = None
    ) -> Iterator[tuple[NDArray[Any], NDArray[np.float32]]]:
        for x_ksd, z_ks in self.source.samples(rounds):
            yield x_ksd[: self.n], z_ks[: self.n]

    def samples_z(
        self, rounds: slice = slice(None), rungs: slice = slice(None)
    ) -> NDArray[np.float32]:
        some = range(self.n)[rungs]
        return self.source.samples_z(rounds, slice(some.start, some.stop))

    def samples_walker(self, round_: int) -> NDArray[np.int32]:
        return self.source.samples_walker(round_)[: self.n]

    def samples_log_q(self) -> Iterator[FloatArray] | None:
        return None


class Committed(Protocol):
    """A run or its file, as far as `require_rounds` asks."""

    @property
    def path(self) -> Any:
        """The run file."""

    @property
    def rounds(self) -> int:
        """Committed rounds."""


def require_rounds(run: Committed, use: str = "analyse") -> None:
    """Raise an EstimateError if no round is committed yet; `use` is a verb for its text."""
    if run.rounds == 0:
        raise EstimateError(f"{run.path} holds no committed round yet: there is nothing to {use}")


def evenly_spaced_rounds(run: RunData, max_samples: int) -> IntArray:
    """Return evenly spaced rounds with about `max_samples` samples at most, int64 [n]."""
    per_round = len(run.beta_k) * run.samples_per_round
    n_rounds = min(run.rounds, max(1, max_samples // per_round))
    return np.unique(np.linspace(0, run.rounds - 1, n_rounds).astype(np.int64))
