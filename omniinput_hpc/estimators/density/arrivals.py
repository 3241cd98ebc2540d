"""Count independent arrivals of walkers at each output.

A walker forgets its past when its input is drawn afresh: at an exact anchor, at the hot end of a
ladder or, on a flat histogram, among the outputs that most inputs have. All that it records between
two such visits is one arrival, however long it stays. The density of a bin with few arrivals is
known to a factor at best, however many moves were counted and however well the lanes agree.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from omniinput_hpc.estimators import BoolArray, FloatArray, IntArray
from omniinput_hpc.estimators.density.observations import Observations
from omniinput_hpc.estimators.errors.convergence import Check
from omniinput_hpc.estimators.run_data import RunData
from omniinput_hpc.histogram import bin_of

RENEWED = "moves by walkers that were not renewed"
MIN_ARRIVALS = 10.0
"""A bin with fewer has at most this effective count: it gets a bound and no interval."""
MANY_EACH = 3.0
"""Mean samples per arrival above which hardly any arrival can have gone unrecorded."""
MAX_OLD = 0.5
"""Largest share of a rung's samples from walkers not renewed since counting began."""
MAX_SAMPLES = 4_000_000
"""Recorded samples to follow, about. Of longer runs some lanes are followed, which tells less of
bins that hardly any lane visits."""
MIN_LANES = 2
"""Lanes to follow at least; if even they recorded more samples, their first rounds are."""
LOOKS = 16 * 2 ** np.arange(20)
"""Numbers of rounds after which to check whether all bins have enough arrivals."""


def from_arrivals(
    runs: Sequence[RunData], observed: Observations, log_g_b: FloatArray
) -> tuple[FloatArray, list[Check]]:
    """Return the effective counts [B], limited by arrivals in bins with few of them, and checks."""
    effective_b, checks = observed.effective_b, []
    if all(run.ancestral for run in runs):
        return effective_b, []  # every independent draw is an arrival
    arrivals_b = np.zeros(len(effective_b))
    for run, part in zip(runs, observed.parts, strict=True):
        if run.ancestral:
            arrivals_b += part.effective_b
            checks.append(Check(RENEWED, threshold=MAX_OLD))
            continue
        found = follow(run, observed.edges, log_g_b, effective_b >= MIN_ARRIVALS)
        arrivals_b += found.arrivals_b
        checks.append(_brought_anew(run, found.old_k))
    few_b = arrivals_b < MIN_ARRIVALS
    return np.where(few_b, np.minimum(effective_b, arrivals_b), effective_b), checks


def _brought_anew(run: RunData, old_k: FloatArray) -> Check:
    """Check that every rung is filled by walkers that were renewed, not by the run's start."""
    if np.isnan(old_k).all():
        return Check(RENEWED, threshold=MAX_OLD)
    worst = int(np.nanargmax(old_k))
    share = float(old_k[worst])
    check = Check(RENEWED, share, MAX_OLD)
    if share <= MAX_OLD:
        return check
    hot, label_k = np.flatnonzero(renewing_rungs(run)), run.weights.label_k
    where = label_k[hot[0]] if hot.size else "the most common outputs"
    return check.failed(
        f"the start of the run still matters: at {label_k[worst]}, {share:.0%} of the counts come "
        f"from walkers that have not been at {where} yet",
        f"raise run.rounds to about {int(np.ceil(3.0 * run.rounds * share))}, or sampler.steps",
    )


@dataclass(frozen=True)
class Followed:
    """The result of `follow`.

    Attributes
    ----------
    arrivals_b : float64 [B], effective arrivals; inf if too few samples were recorded to tell
    old_k : float64 [K], share of each rung's samples from walkers that had not been renewed since
        counting began; NaN if unknown
    """

    arrivals_b: FloatArray
    old_k: FloatArray


def renewing_rungs(run: RunData) -> BoolArray:
    """Return the canonical rungs on which walkers forget their past, bool [K].

    These are beta = 0 and a language model's own beta; without either, the smallest |beta|.
    """
    beta_k = np.where(run.weights.kappa_k == 0.0, run.beta_k, np.nan)
    exact_k = run.weights.uniform_k | (beta_k == run.model_beta)
    if exact_k.any() or not np.isfinite(beta_k).any():
        return np.asarray(exact_k)
    return np.asarray(np.arange(len(beta_k)) == np.nanargmin(np.abs(beta_k)))


def follow(run: RunData, edges: FloatArray, log_g_b: FloatArray, asked_b: BoolArray) -> Followed:
    """Follow the walkers of a run from each recorded sample to the next.

    A bin with n_a samples from arrival a has (sum n_a)^2 / sum n_a^2 effective arrivals. Walkers
    stay in their lane, so some lanes tell how often those of all lanes were renewed. A walker may
    visit the hot end between two recorded samples. If there are more exchanges than recorded
    samples, it is assumed to do so at each exchange.

    Parameters
    ----------
    edges : float64 [B + 1]
    log_g_b : float64 [B], shows which outputs most inputs have, for flat histograms
    asked_b : bool [B], bins that matter: once they have enough arrivals, the rest is extrapolated
    """
    n_bins, n_rungs, n_walkers = len(edges) - 1, len(run.beta_k), len(run.round_trips_v)
    renews_k, common_b = renewing_rungs(run), _common(log_g_b)
    flat_k, epoch_v = np.isnan(run.beta_k), np.zeros(n_walkers, dtype=np.int64)
    arrivals, old_rk = _Arrivals(n_bins), []
    if n_rungs > 1 and not run.swaps_k2[:, 0].any():  # isolated rungs
        return Followed(np.full(n_bins, np.inf), np.full(n_rungs, np.nan))
    per_lane = n_rungs * run.samples_per_round // run.walkers  # a round
    n_lanes = MAX_SAMPLES // (per_lane * run.rounds)
    n_lanes = min(run.walkers, max(MIN_LANES, n_lanes))
    n_rounds = min(run.rounds, max(1, MAX_SAMPLES // (per_lane * n_lanes)))
    followed_s = np.arange(run.samples_per_round) % run.walkers < n_lanes
    for round_ in range(n_rounds):
        bin_ks = bin_of(run.z_of(round_)[:, followed_s], edges)
        walker_ks = run.source.samples_walker(round_)[:, followed_s]
        inside_ks = (bin_ks >= 0) & (bin_ks < n_bins)
        common_ks = inside_ks & common_b[np.clip(bin_ks, 0, n_bins - 1)]
        renewed_ks = renews_k[:, None] | (flat_k[:, None] & common_ks)
        epoch_ks = _epochs(walker_ks, renewed_ks, epoch_v, n_lanes)
        old_rk.append((epoch_ks == 0).mean(axis=1))
        arrivals.add(((epoch_ks * n_walkers + walker_ks) * n_bins + bin_ks)[inside_ks])
        if (
            round_ + 1 in LOOKS
            and (_old(old_rk, run.rounds) < MAX_OLD).all()
            and (arrivals.effective_b() >= MIN_ARRIVALS)[asked_b].all()
            and arrivals.seen_b[asked_b].all()
        ):
            break
    often = (run.config.exchanges or 1) * run.walkers / run.samples_per_round
    old_k = _old(old_rk, run.rounds) if often <= 1.0 else np.full(n_rungs, np.nan)
    scale = max(1.0, often) * run.rounds / len(old_rk) * run.walkers / n_lanes
    return Followed(scale * arrivals.effective_b(), old_k)


def _old(old_rk: list[FloatArray], rounds: int) -> FloatArray:
    """Return the share of samples not renewed [K]; unread rounds are taken to be like the last."""
    return np.asarray((np.sum(old_rk, axis=0) + (rounds - len(old_rk)) * old_rk[-1]) / rounds)


class _Arrivals:
    """Count samples by arrival and bin: the remainder of a key modulo B is its bin.

    `seen_b`, bool [B], are the bins with samples at the last `effective_b`.
    """

    def __init__(self, n_bins: int) -> None:
        self._n_bins = n_bins
        self._keys: list[IntArray] = [np.zeros(0, dtype=np.int64)]
        self._n_a: FloatArray = np.zeros(0)
        self.seen_b: BoolArray = np.zeros(n_bins, dtype=np.bool_)

    def add(self, key_i: IntArray) -> None:
        """Add a sample for each key."""
        self._keys.append(key_i)

    def effective_b(self) -> FloatArray:
        """Return (sum n)^2 / sum n^2 over a bin's arrivals [B]; inf if they have few samples."""
        key_a, place = np.unique(np.concatenate(self._keys), return_inverse=True)
        n_i: FloatArray = np.ones(len(place))
        n_i[: len(self._n_a)] = self._n_a
        self._keys = [key_a]
        self._n_a = np.asarray(np.bincount(place, n_i, len(key_a)), dtype=np.float64)
        bin_a: IntArray = key_a % self._n_bins
        sums_b = np.bincount(bin_a, self._n_a, self._n_bins)
        squares_b = np.bincount(bin_a, self._n_a**2, self._n_bins)
        few_b = sums_b < MANY_EACH * np.bincount(bin_a, minlength=self._n_bins)
        self.seen_b = sums_b > 0
        few_b |= ~self.seen_b
        return np.where(few_b, np.inf, sums_b**2 / np.maximum(squares_b, 1.0))


def _common(log_g_b: FloatArray) -> BoolArray:
    """Return the bins that hold the middle half of all inputs in the order of z, bool [B]."""
    g_b = np.exp(log_g_b - log_g_b.max())
    below_b = np.cumsum(g_b) / g_b.sum()
    return np.asarray((below_b >= 0.25) & (below_b - g_b / g_b.sum() <= 0.75))


def _epochs(
    walker_ks: NDArray[np.int32], renewed_ks: BoolArray, epoch_v: NDArray[np.int64], walkers: int
) -> NDArray[np.int64]:
    """Return how often each sample's walker had been renewed by then, int64 [K, S].

    epoch_v : int64 [V], renewals per walker so far; updated in place
    """
    epoch_ks = np.empty(walker_ks.shape, dtype=np.int64)
    for begin in range(0, walker_ks.shape[1], walkers):  # all walkers at one time
        now = slice(begin, begin + walkers)
        epoch_v[walker_ks[:, now][renewed_ks[:, now]]] += 1
        epoch_ks[:, now] = epoch_v[walker_ks[:, now]]
    return epoch_ks
