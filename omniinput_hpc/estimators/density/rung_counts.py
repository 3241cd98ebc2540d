"""Check each rung's counts in each bin against those of all other rungs.

The rungs of a ladder count the same inputs with different weights. How the counts of a bin are
shared among the rungs therefore depends only on the weights and normalizers, not on the density. A
rung with far more or far fewer counts than its share contradicts the others: for example, the
hottest rung may visit a part of the space that colder ones miss, at outputs that all visit.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy

from omniinput_hpc.estimators import FloatArray, IntArray
from omniinput_hpc.estimators.density.result import Density
from omniinput_hpc.estimators.density.rung_weights import RungWeights
from omniinput_hpc.estimators.errors.chains import dispersion
from omniinput_hpc.estimators.errors.convergence import Check
from omniinput_hpc.estimators.errors.jackknife import jackknife_error

FALSE_ALARMS = 0.005
"""Probability that rungs that agree fail by chance, over all rungs and ranges."""
FORGIVEN = 4.0
"""Standard errors of a normalizer by which an expected count is moved towards the observed one."""
MIN_COUNT = 10.0
"""Neighbouring bins are merged up to this effective count."""
SHARES = 10.0 ** -np.arange(1.0, 9.0)
"""For each limit, the bins in which a rung's expected share is smaller are also tested together."""


def rungs_agree(
    counts_kgb: IntArray, lanes_g: IntArray, weights: RungWeights, density: Density
) -> Check:
    """Check that each rung's counts agree with those of all others.

    Parameters
    ----------
    counts_kgb : int64 [K, G, B], of a run's groups of lanes
    lanes_g : int64 [G], lanes of each of these groups
    weights : of the rungs
    density : of the run, or of several runs that are joined
    """
    name, n_k = "counts of one rung and of the rest", counts_kgb.sum(axis=(1, 2))
    rungs = np.flatnonzero(n_k > 0)
    if len(rungs) < 2 or len(lanes_g) < 2:
        return Check(name, np.nan, FALSE_ALARMS, at_least=True)
    log_p_kb, error_k = _log_shares(weights.mean_in_bins(density.inside)[rungs], density)
    log_np_kb = log_p_kb + np.log(n_k[rungs])[:, None]
    all_gb, n_tests, worst = counts_kgb.sum(axis=0), 0, (1.0, 0, 0.0, 0.0, 0, 0)
    exact_k, both_b, worth_b = weights.uniform_k, all_gb.sum(axis=0), dispersion(all_gb, lanes_g)
    for i, k in enumerate(map(int, rungs)):
        own_gb, rest_gb = counts_kgb[k], all_gb - counts_kgb[k]
        log_rest_b = scipy.special.logsumexp(np.delete(log_np_kb, i, axis=0), axis=0)
        with np.errstate(invalid="ignore"):
            share_b = np.nan_to_num(np.exp(log_np_kb[i] - np.logaddexp(log_np_kb[i], log_rest_b)))
        groups = _groups(both_b, worth_b, share_b)
        if not groups:
            continue
        n_tests += 2 * len(groups)
        own_gn, rest_gn = _sums(own_gb, groups), _sums(rest_gb, groups)
        share_n = _sums(both_b * share_b, groups)
        others_n = _sums(both_b * (1.0 - share_b), groups)
        near_n = _sums(dispersion(rest_gb, lanes_g), groups) / [len(bins) for bins in groups]
        own_worth_n, worth_n = _worth(own_gn, rest_gn, lanes_g, near_n, bool(exact_k[k]))
        seen_n, rest_n = own_gn.sum(axis=0) / own_worth_n, rest_gn.sum(axis=0) / worth_n
        odds_n = share_n / own_worth_n / np.maximum(others_n / worth_n, 1e-300)
        p_n, expected_n = _chance(seen_n, rest_n, odds_n, float(np.exp(FORGIVEN * error_k[i])))
        n = int(np.argmin(p_n))
        if p_n[n] < worst[0]:
            more = own_gb if seen_n[n] > expected_n[n] else rest_gb
            at = groups[n][more[:, groups[n]].any(axis=0)]
            counts = float(seen_n[n]), float(expected_n[n])
            worst = (float(p_n[n]), k, *counts, int(at[0]), int(at[-1]))
    p, k, seen, expected, first, last = worst
    p = min(1.0, p * n_tests)
    check = Check(name, p, FALSE_ALARMS, at_least=True)
    if p >= FALSE_ALARMS:
        return check
    return check.failed(
        f"the rungs contradict each other: {weights.label_k[k]} counted about {seen:.3g} "
        f"independent inputs of rare kinds between z = {density.edges[first]:.4g} and "
        f"{density.edges[last + 1]:.4g}, but all other rungs predict {expected:.2g}; some rungs "
        "hardly reach some inputs with these outputs",
        "raise run.burn_in and run.rounds, and add rungs where swaps are rare",
    )


def _sums(numbers: Any, groups: list[IntArray]) -> Any:
    """Return the sums over groups of bins, [..., n], of numbers [..., B]."""
    return np.stack([numbers[..., bins].sum(axis=-1) for bins in groups], axis=-1)


def _chance(
    seen_n: FloatArray, rest_n: FloatArray, odds_n: FloatArray, forgiven: float
) -> tuple[FloatArray, FloatArray]:
    """Return the probability of a rung's counts given the rest's, and the expected counts, [n].

    Given the total of effective counts, the rung's number is binomial.

    Parameters
    ----------
    seen_n, rest_n : effective counts of the rung and of the rest in some bins
    odds_n : expected count of the rung over that of the rest
    forgiven : factor by which the odds are moved towards the observed ones
    """
    p_n = np.ones(len(seen_n))
    many_n = seen_n > odds_n * forgiven * rest_n
    few_n = ~many_n & (seen_n < odds_n / forgiven * rest_n)
    odds_n = odds_n * np.where(many_n, forgiven, np.where(few_n, 1.0 / forgiven, 1.0))
    seen, rest, odds = seen_n[many_n], rest_n[many_n], odds_n[many_n]
    p_n[many_n] = scipy.special.betainc(np.maximum(seen, 1e-9), rest + 1.0, odds / (1.0 + odds))
    seen, rest, odds = seen_n[few_n], rest_n[few_n], odds_n[few_n]
    p_n[few_n] = scipy.special.betainc(np.maximum(rest, 1e-9), seen + 1.0, 1.0 / (1.0 + odds))
    return p_n, odds_n * rest_n


def _worth(
    own_gn: IntArray, rest_gn: IntArray, lanes_g: IntArray, near_n: FloatArray, exact: bool
) -> tuple[FloatArray, FloatArray]:
    """Return the number of counts per independent count, [n] each, of a rung and of the rest.

    It comes from the spread of the lanes in some bins [G, n], and near them (`near_n`, of the
    rest). A rung that does not draw independently is assumed to be no better than the rest.
    """
    own_n, rest_n = (dispersion(counts_gn, lanes_g, 0) for counts_gn in (own_gn, rest_gn))
    rest_n = np.maximum(rest_n, near_n)
    return (own_n if exact else np.maximum(own_n, rest_n)), rest_n


def _log_shares(log_w_kb: FloatArray, density: Density) -> tuple[FloatArray, FloatArray]:
    """Return log w / Z [K, B], and the jackknife error of log Z [K] up to a common factor of Z."""
    log_z_k = scipy.special.logsumexp(log_w_kb + density.log_g_b, axis=1)
    known_j = ~np.isnan(density.log_g_jb).any(axis=1)
    error_k = np.zeros(len(log_z_k))
    if known_j.sum() > 1:
        log_z_jk = scipy.special.logsumexp(log_w_kb + density.log_g_jb[known_j, None, :], axis=2)
        middle_jk = log_z_jk - log_z_jk.mean(axis=1, keepdims=True)
        error_k = jackknife_error(log_z_k - log_z_k.mean(), middle_jk, density.lanes_g[known_j])
    return log_w_kb - log_z_k[:, None], np.nan_to_num(error_k, posinf=0.0)


def _groups(counts_b: IntArray, worth_b: FloatArray, share_b: FloatArray) -> list[IntArray]:
    """Return the sets of bins to test: merged neighbours, and bins of small expected share."""
    groups, first, held = [], 0, 0.0
    for b, size in enumerate(counts_b / worth_b):
        held += size
        if held >= MIN_COUNT:
            groups.append(np.arange(first, b + 1))
            first, held = b + 1, 0.0
    few = [np.flatnonzero((counts_b > 0) & (share_b < share)) for share in SHARES]
    return groups + [bins for bins in few if bins.size]
