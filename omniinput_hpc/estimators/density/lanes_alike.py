"""Check whether lanes sample the same inputs at the same outputs.

R-hat of z cannot detect two phases that have the same outputs. So lanes are compared by numbers
computed from x, after subtracting their dependence on z: random projections of one-hot x, and the
values of single sites. In these, a lane that stays in one phase differs from a lane in another.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from omniinput_hpc.estimators import FloatArray, IntArray
from omniinput_hpc.estimators.errors.chains import half_chains, rhat, rhat_limit
from omniinput_hpc.estimators.errors.convergence import Check
from omniinput_hpc.estimators.run_data import RunData, evenly_spaced_rounds
from omniinput_hpc.estimators.samples import FEWEST_ROUNDS
from omniinput_hpc.text import WORDS_OF, shown

MAX_RHAT_OF_X = 1.1
"""Limit of R-hat of such a number: that of ten independent inputs per lane. See `rhat_limit`."""
MAX_VALUES = 8_000_000
"""Sites of recorded samples to read."""
N_PROJECTIONS = 8
MAX_SITES = 64
"""Single sites to compare, evenly spaced."""
N_RANGES = 16
"""Ranges of z with equal numbers of samples, in each of which the mean is subtracted."""
ROUNDING = 1e-9
"""Smaller differences from the mean are rounding: the number is constant."""


def alike_at_equal_z(run: RunData) -> Check:
    """Check whether lanes sample the same inputs at the same outputs."""
    name = "R-hat of inputs at equal z"
    rhat_k, n_numbers = rhat_at_equal_z(run)
    if np.isnan(rhat_k).all():
        return Check(name)
    limit = float(rhat_limit(n_numbers * len(rhat_k), run.walkers, MAX_RHAT_OF_X))
    bad, label_k = np.flatnonzero(rhat_k > limit), run.weights.label_k
    check = Check(name, float(np.nanmax(rhat_k)), limit)
    if not bad.size:
        return check
    more = f" and {len(bad) - 4} more" if len(bad) > 4 else ""
    where = ", ".join(f"{label_k[k]} ({shown(rhat_k[k], '.2f', 'infinite')})" for k in bad[:4])
    return check.failed(
        f"lanes visit different parts of the space with the same outputs (R-hat of inputs at equal "
        f"z over {limit:.3g}) at {where}{more}: the {WORDS_OF[run.config.measure].amount} in each "
        "part is not known",
        "raise run.burn_in and run.rounds, or add rungs where swaps are rare",
    )


def rhat_at_equal_z(run: RunData) -> tuple[FloatArray, int]:
    """Return each rung's largest R-hat, given z, of numbers made of x [K], and how many there are.

    NaN if a lane has fewer than 8 samples.
    """
    n_rungs, n_numbers = len(run.beta_k), 0
    most = max(MAX_VALUES // run.n_sites, 16 * n_rungs * run.walkers)
    rounds = evenly_spaced_rounds(run, max(most, FEWEST_ROUNDS * n_rungs * run.samples_per_round))
    apart = max(1, len(rounds) * n_rungs * run.samples_per_round // most)
    time_s = np.arange(run.samples_per_round) // run.walkers
    times = run.samples_per_round // run.walkers
    nth_i, time_i = np.divmod(np.arange(0, len(rounds) * times, apart), times)
    parts, used = [], np.unique(nth_i)
    for n, (x_ksd, z_ks) in zip(used, run.source.samples(rounds[used]), strict=True):
        keep_s = np.isin(time_s, time_i[nth_i == n])
        parts.append((x_ksd[:, keep_s], z_ks[:, keep_s]))
    rhat_k = np.full(n_rungs, np.nan)
    for k in range(n_rungs if parts else 0):
        x_td = np.concatenate([x_ksd[k] for x_ksd, _ in parts])
        z_t = np.concatenate([z_ks[k] for _, z_ks in parts])
        if len(z_t) < 8 * run.walkers:
            continue
        number_tn = _without_z(_numbers(x_td), _ranges(z_t))
        chains = half_chains(number_tn.reshape(-1, run.walkers, number_tn.shape[1]))
        rhat_k[k] = rhat(chains).max()
        n_numbers = number_tn.shape[1]
    return rhat_k, n_numbers


def _numbers(x_td: NDArray[Any]) -> FloatArray:
    """Return numbers computed from x, [T, N]: each (site, value) contributes a random +1 or -1."""
    n_sites = x_td.shape[1]
    sites = np.unique(np.linspace(0, n_sites - 1, min(n_sites, MAX_SITES)).astype(int))
    single = _signs(x_td[:, sites], 0)
    sums = [_signs(x_td, p).sum(axis=1) for p in range(1, N_PROJECTIONS + 1)]
    return np.concatenate([single, np.stack(sums, axis=1)], axis=1)


def _signs(x_td: NDArray[Any], projection: int) -> FloatArray:
    """Return +1 or -1 for every site and value by a multiplicative hash, float64 [T, D]."""
    site_d = np.arange(x_td.shape[1], dtype=np.uint64) + np.uint64(1)
    with np.errstate(over="ignore"):
        h = x_td.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        h += site_d * np.uint64(0xC2B2AE3D27D4EB4F)
        h += np.uint64(projection * 0x165667B19E3779F9 % 2**64)
        h ^= h >> np.uint64(29)
        h *= np.uint64(0xBF58476D1CE4E5B9)
    return np.asarray((h >> np.uint64(63)).astype(np.float64) * 2.0 - 1.0)


def _ranges(z_t: NDArray[np.float32]) -> IntArray:
    """Return each sample's range of z, int64 [T]; all ranges have equal numbers of samples."""
    inner = np.quantile(z_t, np.linspace(0, 1, N_RANGES + 1)[1:-1])
    return np.asarray(np.searchsorted(np.unique(inner), z_t, side="right"))


def _without_z(number_tn: FloatArray, range_t: IntArray) -> FloatArray:
    """Return the numbers minus their means in each sample's range of z, [T, N]."""
    count = np.bincount(range_t)
    sums = np.stack([np.bincount(range_t, weights=n_t) for n_t in number_tn.T], axis=1)
    rest_tn = number_tn - (sums / np.maximum(count, 1)[:, None])[range_t]
    return np.where(np.abs(rest_tn) < ROUNDING, 0.0, rest_tn)
