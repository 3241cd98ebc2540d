"""Whether two halves of the lanes that started apart have met.

Language-model rungs colder than the model itself start half from its own sequences, half from
repetitions (`omniinput_hpc.sampling.starts`). Equal rejection between neighbours cannot see a
barrier that nobody crosses; halves that go on to disagree do.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
APART = 5.0
"""How many standard errors apart the halves' means are when they have not met."""


def halves_apart(counts_kgb: NDArray[np.int64], z_b: FloatArray) -> FloatArray:
    """Return how many standard errors the halves' mean outputs are apart, float64 [K].

    The error comes from the spread of the groups of lanes within each half (Welch, Biometrika 34,
    28 (1947)); it is taken to be at least a thousandth of the mean's own scale, so that halves
    without any spread do not differ by rounding. NaN where a half has fewer than 2 groups.

    Parameters
    ----------
    counts_kgb : int64 [K, G, B], per group of lanes; the first G / 2 groups are one half
    z_b : float64 [B], output of each bin; NaN without counts
    """
    n_rungs, n_groups, _ = counts_kgb.shape
    half = n_groups // 2
    if half < 2:
        return np.full(n_rungs, np.nan)
    z = np.where(np.isfinite(z_b), z_b, 0.0)
    number_kg = counts_kgb.sum(axis=2)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean_kg = counts_kgb @ z / number_kg
    one, other = mean_kg[:, :half], mean_kg[:, n_groups - half :]
    variance = (one.var(axis=1, ddof=1) + other.var(axis=1, ddof=1)) / half
    least = 1e-3 * np.abs(mean_kg).max(axis=1)
    error_k = np.sqrt(variance + least**2)
    return np.asarray(np.abs(one.mean(axis=1) - other.mean(axis=1)) / error_k)


@dataclass(frozen=True)
class Cold:
    """What is to be said of the rungs colder than a language model itself.

    Attributes
    ----------
    floor : the output below which they have not equilibrated; -inf if they have
    reason : a sentence, empty if they have
    """

    floor: float = -np.inf
    reason: str = ""


def judge_cold(
    counts_kgb: NDArray[np.int64],
    z_b: FloatArray,
    beta_k: FloatArray,
    model_beta: float,
    trips: int,
) -> Cold:
    """Return from where on a ladder's cold rungs have not equilibrated.

    That is the mean output of the warmest rung above `model_beta` whose halves are apart, or, where
    no walker has made a round trip, of the warmest rung above it.

    Parameters
    ----------
    counts_kgb, z_b : see `halves_apart`
    beta_k : float64 [K], ascending
    model_beta : the model's own beta: rungs above it started from two phases. NaN: there is none
    trips : round trips of all walkers
    """
    cold_k = np.flatnonzero(beta_k > model_beta)
    cold_k = cold_k[counts_kgb[cold_k].any(axis=(1, 2))]
    if cold_k.size == 0 or np.isnan(model_beta):
        return Cold()
    apart_k = cold_k[halves_apart(counts_kgb[cold_k], z_b) > APART]
    if apart_k.size:
        k, why = apart_k[0], "lanes that began as repetitions and as the model's own text differ"
    elif trips == 0:
        k, why = cold_k[0], "no walker has made a round trip of the ladder"
    else:
        return Cold()
    if trips == 0:
        k = cold_k[0]
    counts_b = counts_kgb[k].sum(axis=0)
    floor = float(np.average(np.where(counts_b > 0, z_b, 0.0), weights=counts_b))
    return Cold(
        floor,
        f"not equilibrated below z = {floor:.3g}: {why} from beta = {beta_k[k]:.4g} on; no errors "
        "are given there, and curves leave it out",
    )
