"""How often walkers came anew to each output: independent arrivals, not moves.

A walker forgets where it was where inputs are drawn afresh: at an exact anchor, or at the hot end
of a ladder; on a flat histogram, among the outputs that most inputs have. What it records between
two such visits is one arrival, however long it stays. A bin that few arrivals feed is known to a
factor at best, however many moves were counted there, and however well lanes agree.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from omniinput_hpc.estimators import BoolArray, FloatArray, IntArray
from omniinput_hpc.estimators.density.observations import Observations
from omniinput_hpc.estimators.density.rung_weights import weights_of_run
from omniinput_hpc.estimators.errors.convergence import Check
from omniinput_hpc.estimators.run_data import RunData
from omniinput_hpc.histogram import bin_of

MIN_ARRIVALS = 10.0
"""Effective arrivals below which a bin counts for so many, and has a bound and no interval."""
MANY_EACH = 3.0
"""Samples of an arrival, on average, from which on hardly any arrival goes without a sample."""
MAX_OLD = 0.5
"""Share of a rung's samples that may be of walkers which were not renewed since counting began."""
MAX_SAMPLES = 2_000_000
"""Recorded samples that are followed; arrivals of longer runs are scaled up."""
LOOKS = 16 * 2 ** np.arange(20)
"""Rounds after which it is asked whether all bins have arrivals enough."""


def from_arrivals(
    runs: Sequence[RunData], observed: Observations, log_g_b: FloatArray
) -> tuple[FloatArray, list[Check]]:
    """Return effective counts [B], in bins of few arrivals no more than these; and checks."""
    effective_b, checks = observed.effective_b, []
    if any(run.samples_log_q() is not None for run in runs):
        return effective_b, []  # independent draws: each is an arrival
    arrivals_b = np.zeros(len(effective_b))
    for run in runs:
        found = follow(run, observed.edges, log_g_b, effective_b >= MIN_ARRIVALS)
        arrivals_b += found.arrivals_b
        checks.append(_brought_anew(run, found.old_k))
    few_b = arrivals_b < MIN_ARRIVALS
    return np.where(few_b, np.minimum(effective_b, arrivals_b), effective_b), checks


def _brought_anew(run: RunData, old_k: FloatArray) -> Check:
    """Return whether walkers that have been at the hot end, not the start, fill every rung."""
    name = "moves by walkers that were not renewed"
    if np.isnan(old_k).all():
        return Check(name, np.nan, MAX_OLD)
    worst = int(np.nanargmax(old_k))
    share = float(old_k[worst])
    if share <= MAX_OLD:
        return Check(name, share, MAX_OLD)
    weights = weights_of_run(run)
    hot = np.flatnonzero(renewing_rungs(run))
    where = weights.label_k[hot[0]] if hot.size else "the outputs that most inputs have"
    return Check(
        name, share, MAX_OLD,
        f"the start of the run still decides: {share:.0%} of what {weights.label_k[worst]} counted "
        f"is of walkers that had not been at {where} since counting began",
        f"raise run.rounds to about {int(np.ceil(3.0 * run.rounds * share))}, or sampler.steps",
    )  # fmt: skip


@dataclass(frozen=True)
class Followed:
    """What the walkers' ways say.

    Attributes
    ----------
    arrivals_b : float64 [B], effective arrivals; inf where too few were recorded to tell
    old_k : float64 [K], share of each rung's samples that are of walkers which had not been renewed
        since counting began; NaN where that is not known
    """

    arrivals_b: FloatArray
    old_k: FloatArray


def renewing_rungs(run: RunData) -> BoolArray:
    """Return the canonical rungs where walkers forget where they were, bool [K].

    That of beta = 0, that of a language model's own beta, or else the one of the smallest |beta|.
    """
    beta_k = np.where(run.kappa_k() == 0.0, run.beta_k, np.nan)
    exact_k = weights_of_run(run).uniform_k | (beta_k == run.model_beta)
    if exact_k.any() or not np.isfinite(beta_k).any():
        return np.asarray(exact_k)
    return np.asarray(np.arange(len(beta_k)) == np.nanargmin(np.abs(beta_k)))


def follow(run: RunData, edges: FloatArray, log_g_b: FloatArray, asked_b: BoolArray) -> Followed:
    """Follow the walkers of a run from one recorded sample to the next.

    With n_a samples of arrival a in a bin it has (sum n_a)^2 / sum n_a^2 effective ones. A walker
    may come back to the hot end between two recorded samples: where fewer are recorded than
    exchanges are made, it is taken to do so each time.

    Parameters
    ----------
    edges : float64 [B + 1]
    log_g_b : float64 [B], tells flat histograms which outputs most inputs have
    asked_b : bool [B], bins for which it matters: once they have enough, the rest is scaled up
    """
    n_bins, n_rungs, n_walkers = len(edges) - 1, len(run.beta_k), run.walkers * len(run.beta_k)
    renews_k, common_b = renewing_rungs(run), _common(log_g_b)
    flat_k, epoch_v = np.isnan(run.beta_k), np.zeros(n_walkers, dtype=np.int64)
    arrivals, old_rk = _Arrivals(n_bins), []
    if n_rungs > 1 and not run.swaps_k2()[:, 0].any():  # rungs by themselves
        return Followed(np.full(n_bins, np.inf), np.full(n_rungs, np.nan))
    n_rounds = min(run.rounds, max(1, MAX_SAMPLES // (n_rungs * run.samples_per_round)))
    for round_ in range(n_rounds):
        z_ks = run.samples_z(slice(round_, round_ + 1))[0].astype(np.float64)
        bin_ks, walker_ks = bin_of(z_ks, edges), run.samples_walker(round_)
        inside_ks = (bin_ks >= 0) & (bin_ks < n_bins)
        common_ks = inside_ks & common_b[np.clip(bin_ks, 0, n_bins - 1)]
        renewed_ks = renews_k[:, None] | (flat_k[:, None] & common_ks)
        epoch_ks = _epochs(walker_ks, renewed_ks, epoch_v, run.walkers)
        old_rk.append((epoch_ks == 0).mean(axis=1))
        arrivals.add(((epoch_ks * n_walkers + walker_ks) * n_bins + bin_ks)[inside_ks])
        if (
            round_ + 1 in LOOKS
            and (_old(old_rk, run.rounds) < MAX_OLD).all()
            and (arrivals.effective_b() >= MIN_ARRIVALS)[asked_b].all()
        ):
            break
    often = run.config.get("sampler", {}).get("exchanges", 1) * run.walkers / run.samples_per_round
    old_k = _old(old_rk, run.rounds) if often <= 1.0 else np.full(n_rungs, np.nan)
    scale = max(1.0, often) * run.rounds / len(old_rk)
    return Followed(scale * arrivals.effective_b(), old_k)


def _old(old_rk: list[FloatArray], rounds: int) -> FloatArray:
    """Return the share of not renewed samples over all rounds [K]; the last known is the rest's."""
    return np.asarray((np.sum(old_rk, axis=0) + (rounds - len(old_rk)) * old_rk[-1]) / rounds)


class _Arrivals:
    """Counts samples by arrival and bin: keys are numbers whose remainder by B is the bin."""

    def __init__(self, n_bins: int) -> None:
        self._n_bins = n_bins
        self._keys: list[IntArray] = [np.zeros(0, dtype=np.int64)]
        self._n_a: FloatArray = np.zeros(0)

    def add(self, key_i: IntArray) -> None:
        """Add a sample for each key."""
        self._keys.append(key_i)

    def effective_b(self) -> FloatArray:
        """Return (sum n)^2 / sum n^2 over a bin's arrivals [B]; inf where each has few samples."""
        key_a, place = np.unique(np.concatenate(self._keys), return_inverse=True)
        n_i: FloatArray = np.ones(len(place))
        n_i[: len(self._n_a)] = self._n_a
        self._keys = [key_a]
        self._n_a = np.asarray(np.bincount(place, n_i, len(key_a)), dtype=np.float64)
        bin_a: IntArray = key_a % self._n_bins
        sums_b = np.bincount(bin_a, self._n_a, self._n_bins)
        squares_b = np.bincount(bin_a, self._n_a**2, self._n_bins)
        few_b = sums_b < MANY_EACH * np.bincount(bin_a, minlength=self._n_bins)
        few_b |= sums_b == 0
        return np.where(few_b, np.inf, sums_b**2 / np.maximum(squares_b, 1.0))


def _common(log_g_b: FloatArray) -> BoolArray:
    """Return the bins of the middle half of all inputs by their output, bool [B]."""
    g_b = np.exp(log_g_b - log_g_b.max())
    below_b = np.cumsum(g_b) / g_b.sum()
    return np.asarray((below_b >= 0.25) & (below_b - g_b / g_b.sum() <= 0.75))


def _epochs(
    walker_ks: NDArray[np.int32], renewed_ks: BoolArray, epoch_v: NDArray[np.int64], walkers: int
) -> NDArray[np.int64]:
    """Return how often each sample's walker had been renewed by then, int64 [K, S].

    epoch_v : int64 [V], by walker, carried from round to round and changed here
    """
    epoch_ks = np.empty(walker_ks.shape, dtype=np.int64)
    for begin in range(0, walker_ks.shape[1], walkers):  # a time, at which a walker is in one place
        now = slice(begin, begin + walkers)
        epoch_v[walker_ks[:, now][renewed_ks[:, now]]] += 1
        epoch_ks[:, now] = epoch_v[walker_ks[:, now]]
    return epoch_ks
