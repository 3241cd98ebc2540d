"""The protocol by which estimators read a run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from omniinput_hpc.estimators import EstimateError, FloatArray, IntArray


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
    def every_token(self) -> bool:
        """Whether the model is a decoder whose sites may take all of its tokens."""


class RunData(Protocol):
    """A run's committed rounds; `omniinput_hpc.runfile.reader.open_run` opens a file as one.

    There are K rungs, B bins, W walkers (lanes) and S recorded samples per rung and round.
    """

    @property
    def path(self) -> Any:
        """The run file, for messages."""

    @property
    def config(self) -> Settings:
        """The input file."""

    @property
    def n_values(self) -> int:
        """Values per site."""

    @property
    def n_ids(self) -> int:
        """Values that the model knows, at least `n_values`; recorded inputs hold these ids."""

    @property
    def n_sites(self) -> int:
        """Sites of an input."""

    @property
    def rounds(self) -> int:
        """Committed rounds."""

    @property
    def rounds_per_block(self) -> int:
        """How many rounds share a histogram."""

    @property
    def rounds_planned(self) -> int:
        """Rounds of the complete run."""

    @property
    def fingerprint(self) -> str:
        """Identifies the model; runs of one model share it."""

    @property
    def created(self) -> str:
        """When the run was started (ISO 8601); "" if unknown."""

    @property
    def walkers(self) -> int:
        """W, the walkers per rung."""

    @property
    def samples_per_round(self) -> int:
        """S, a multiple of W."""

    @property
    def beta_k(self) -> FloatArray:
        """Inverse temperatures, float64 [K]; NaN marks a flat-histogram rung."""

    @property
    def edges(self) -> FloatArray:
        """The bins' edges, float64 [B + 1]."""

    @property
    def model_beta(self) -> float:
        """The beta of a language model's own distribution; NaN if there is none."""

    @property
    def rows_normalized(self) -> bool:
        """Whether the rows of the model's conditionals were found to sum to 1."""

    @property
    def cold_starts(self) -> int:
        """Parts of the lanes with different starts on rungs colder than the model itself."""

    def round_trips_v(self) -> IntArray:
        """Return the completed round trips of each walker, int64 [W K]."""

    def swaps_k2(self) -> IntArray:
        """Return attempted and accepted swaps of neighbouring rungs, int64 [K - 1, 2]."""

    def log_weight_kb(self) -> FloatArray:
        """Return frozen log-weights, float64 [K, B]; exact only for flat-histogram rungs."""

    def kappa_k(self) -> FloatArray:
        """Return kappa of each rung's weight -beta z - kappa (z - z0)^2 / 2, float64 [K]."""

    def z0_k(self) -> FloatArray:
        """Return z0 of each rung's weight, float64 [K]."""

    def counts_kb(self) -> IntArray:
        """Return the histogram over all rounds, int64 [K, B]."""

    def counts_nkb(self, n_blocks: int) -> IntArray:
        """Return histograms of equally long blocks of the latest rounds, int64 [n, K, B].

        Rounds that share a histogram are in the same block, or are left out.
        """

    def outside_k2(self) -> IntArray:
        """Return the counts below and above the bins, int64 [K, 2]."""

    def lane_counts_kgb(self) -> IntArray:
        """Return the histogram per group of lanes, int64 [K, G, B]."""

    def z_sum_kb(self) -> FloatArray:
        """Return the sum of z over each bin's counts, float64 [K, B]."""

    def samples(
        self, rounds: Iterable[int] | None = None
    ) -> Iterator[tuple[NDArray[Any], NDArray[np.float32]]]:
        """Yield x [K, S, D] and z [K, S] of each round, or some; sample t W + w is of lane w."""

    def samples_walker(self, round_: int) -> NDArray[np.int32]:
        """Return the walker, out of W K, of each sample of a round, int32 [K, S]."""

    def samples_z(
        self, rounds: slice = slice(None), rungs: slice = slice(None)
    ) -> NDArray[np.float32]:
        """Return the samples' z of some rounds and rungs, float32 [rounds, K, S]."""

    def samples_log_q(self) -> Iterator[FloatArray] | None:
        """Yield log q_j(x) [K, S, J] of each round of an ancestral run; None for chains.

        For an annealed run J = 1, and weights come from `populations.log_q_of`.
        """


def require_rounds(run: RunData, use: str = "analyse") -> None:
    """Raise an EstimateError if no round is committed yet; `use` is a verb for its text."""
    if run.rounds == 0:
        raise EstimateError(f"{run.path} holds no committed round yet: there is nothing to {use}")


def evenly_spaced_rounds(run: RunData, max_samples: int) -> IntArray:
    """Return evenly spaced rounds with about `max_samples` samples at most, int64 [n]."""
    per_round = len(run.beta_k) * run.samples_per_round
    n_rounds = min(run.rounds, max(1, max_samples // per_round))
    return np.unique(np.linspace(0, run.rounds - 1, n_rounds).astype(np.int64))
