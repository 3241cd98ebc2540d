"""Standard errors of anything computed from a run: the jackknife over groups of lanes.

Lanes are independent copies of the whole ladder. Leaving out one group of lanes at a time therefore
gives the error of any result, correlations included. The same replicates give random samples of
many quantities with their joint errors, and errors of results from two independent runs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from omniinput_hpc.estimators import BoolArray, FloatArray
from omniinput_hpc.text import interval, shown

N_DRAWS = 1000
LEVEL = 0.95
TAILS = (0.5 * (1.0 - LEVEL), 1.0 - 0.5 * (1.0 - LEVEL))
"""Quantiles at the ends of a 95% interval."""


def _pseudovalues(
    theta: FloatArray, theta_j: FloatArray, size_j: NDArray[Any]
) -> tuple[FloatArray, FloatArray]:
    """Return the pseudovalues' deviations from the jackknife's estimate [J, ...], and h_j - 1.

    h_j = m / m_j if m_j of m lanes are in group j (Busing, Meijer & van der Leeden, Stat. Comput.
    9, 3 (1999)).
    """
    n_groups = len(theta_j)
    h_j = (size_j.sum() / size_j).reshape((-1,) + (1,) * np.ndim(theta))
    pseudo_j = h_j * theta - (h_j - 1.0) * theta_j
    centre = n_groups * theta - ((1.0 - 1.0 / h_j) * theta_j).sum(axis=0)
    return pseudo_j - centre, h_j - 1.0


def jackknife_deviations(
    theta: FloatArray, theta_j: FloatArray, size_j: NDArray[np.integer]
) -> FloatArray:
    """Return deviations [J, ...] whose products sum to the delete-one-group covariance.

    The square root of the sum of their squares is `jackknife_error`.

    Parameters
    ----------
    theta : float64 [...], from all groups
    theta_j : float64 [J, ...], from all groups but j
    size_j : [J], lanes per group
    """
    deviation_j, weight_j = _pseudovalues(theta, theta_j, size_j)
    return np.asarray(deviation_j / np.sqrt(len(theta_j) * weight_j))


def jackknife_error(
    estimate: FloatArray | float, replicate_j: FloatArray, size_j: NDArray[np.integer] | None = None
) -> FloatArray:
    """Return the delete-one-group jackknife's standard error.

    For groups of unequal size this is the weighted form of Busing, Meijer & van der Leeden (1999);
    for equal ones it is sqrt((J - 1) / J sum_j (theta_j - mean)^2).

    Parameters
    ----------
    estimate : [...], from all groups
    replicate_j : [J, ...], from all groups but j
    size_j : [J], group sizes (default: equal)

    Returns
    -------
    float64 [...]; inf where a replicate is not finite or there are fewer than 2 groups; NaN where
    the estimate itself is not finite
    """
    theta = np.asarray(estimate, dtype=np.float64)
    theta_j = np.asarray(replicate_j, dtype=np.float64)
    if len(theta_j) < 2:
        return np.where(np.isfinite(theta), np.inf, np.nan)
    size = np.ones(len(theta_j)) if size_j is None else np.asarray(size_j, dtype=np.float64)
    known = np.isfinite(theta_j).all(axis=0) & np.isfinite(theta)
    deviation_j, weight_j = _pseudovalues(
        np.where(known, theta, 0.0), np.where(known, theta_j, 0.0), size
    )
    variance = (deviation_j**2 / weight_j).mean(axis=0)
    error: FloatArray = np.where(known, np.sqrt(variance), np.inf)
    return np.where(np.isfinite(theta), error, np.nan)


def t_quantile(n_groups: int, level: float = LEVEL) -> float:
    """Return the half-width of an interval in errors (Student's t); inf for one group."""
    return float(scipy.special.stdtrit(n_groups - 1, 0.5 + 0.5 * level)) if n_groups > 1 else np.inf


def draw_together(
    theta_b: FloatArray,
    theta_jb: FloatArray,
    size_j: NDArray[np.integer],
    rng: np.random.Generator,
    n: int = N_DRAWS,
) -> FloatArray:
    """Return samples [n, B'] with the covariance of the jackknife over groups of lanes.

    They follow Student's t with J - 1 degrees of freedom. A curve is a nonlinear function of log g
    and of scores in [0, 1]. Samples passed through the whole computation give bands that stay
    inside its limits, which linearized errors would not.

    Parameters
    ----------
    theta_b : float64 [B'], log g (-inf stays), or any other estimate from the whole run
    theta_jb : float64 [J, B'], without group j. If it is -inf, only group j saw the bin: the
        standard error of log g is then about 1, because g itself drops to 0 without that group.
    size_j : [J], group sizes

    Returns
    -------
    float64 [n, B'], NaN if any replicate is unknown or there are fewer than two groups
    """
    n_groups = len(theta_jb)
    if n_groups < 2 or np.isnan(theta_jb).any():
        return np.full((n, len(theta_b)), np.nan)
    inhabited = np.isfinite(theta_b)
    theta = np.where(inhabited, theta_b, 0.0)
    theta_j = np.where(inhabited, np.where(np.isneginf(theta_jb), theta - 1.0, theta_jb), 0.0)
    deviation_jb = jackknife_deviations(theta, theta_j, size_j)
    scale_m = np.sqrt((n_groups - 1) / rng.chisquare(n_groups - 1, size=(n, 1)))
    moved = theta + scale_m * rng.normal(size=(n, n_groups)) @ deviation_jb
    return np.where(inhabited, moved, -np.inf)


def draw_log_g(
    log_g_b: FloatArray,
    log_g_jb: FloatArray,
    size_j: NDArray[np.integer],
    rng: np.random.Generator,
    n: int = N_DRAWS,
) -> FloatArray:
    """Return samples of log g [n, B], as `draw_together`, whose sums of g have their own error.

    The sum over all bins may be known exactly. The mean of exp(log g_b + noise) is too large,
    so samples of log g alone would all have too large a sum: samples of the shares g_b / sum(g)
    are normalized, and that of the log of the sum is drawn together with them.
    """
    total, total_j = scipy.special.logsumexp(log_g_b), scipy.special.logsumexp(log_g_jb, axis=1)
    theta_b = np.append(log_g_b - total, total)
    with np.errstate(invalid="ignore"):  # one group saw all bins: no shares without it, so NaN
        theta_jb = np.column_stack([log_g_jb - total_j[:, None], total_j])
    drawn = draw_together(theta_b, theta_jb, size_j, rng, n)
    shares = drawn[:, :-1] - scipy.special.logsumexp(drawn[:, :-1], axis=1, keepdims=True)
    return np.asarray(shares + drawn[:, -1:])


@dataclass(frozen=True)
class Interval:
    """Numbers with 95% intervals, which are infinite if the error is unknown.

    Attributes
    ----------
    value, low, high : float64 [...]
    error : float64 [...], standard error
    """

    value: FloatArray
    low: FloatArray
    high: FloatArray
    error: FloatArray

    def __str__(self) -> str:
        """Return one number with its interval."""
        ends = interval(float(self.low), float(self.high), ".6f")
        return f"{shown(float(self.value), '.6f')} ({ends})"

    def excludes(self, number: float) -> BoolArray:
        """Return whether a number lies outside the interval."""
        return np.asarray((self.low > number) | (self.high < number))


@dataclass(frozen=True)
class Replicates:
    """A quantity computed from two runs, and again without one group of lanes of either.

    Attributes
    ----------
    value : float64 [...]
    a_j : float64 [G_a, ...], without group j of the first run
    b_j : float64 [G_b, ...], without group j of the second
    """

    value: FloatArray
    a_j: FloatArray
    b_j: FloatArray

    def __sub__(self, other: Replicates) -> Replicates:
        """Return the difference per replicate, so that shared errors cancel."""
        return Replicates(self.value - other.value, self.a_j - other.a_j, self.b_j - other.b_j)


def from_first_run(value: FloatArray | float, a_j: FloatArray, n_b: int) -> Replicates:
    """Return a quantity of only the first run; the second has `n_b` groups of lanes."""
    full = np.asarray(value, dtype=np.float64)
    return Replicates(full, np.asarray(a_j), np.broadcast_to(full, (n_b, *full.shape)))


def from_second_run(value: FloatArray | float, b_j: FloatArray, n_a: int) -> Replicates:
    """Return a quantity of only the second run; the first has `n_a` groups of lanes."""
    full = np.asarray(value, dtype=np.float64)
    return Replicates(full, np.broadcast_to(full, (n_a, *full.shape)), np.asarray(b_j))


def welch_degrees(
    variance_a: FloatArray, degrees_a: int, variance_b: FloatArray, degrees_b: int
) -> FloatArray:
    """Return the degrees of freedom of Student's t for a difference of two means, float64 [...].

    The formula is that of Welch (Biometrika 34, 28 (1947)) and Satterthwaite (Biometrics Bull. 2,
    110 (1946)), from the variances, float64 [...], of both means and their degrees of freedom. The
    result is inf for zero variance, and 1 for unknown variance.
    """
    variance = variance_a + variance_b
    with np.errstate(divide="ignore", invalid="ignore"):
        spread = variance_a**2 / max(degrees_a, 1) + variance_b**2 / max(degrees_b, 1)
        degrees = np.where(variance > 0, variance**2 / spread, np.inf)
    return np.where(np.isfinite(variance), degrees, 1.0)


def estimate(
    quantity: Replicates, size_a: NDArray[np.integer], size_b: NDArray[np.integer]
) -> Interval:
    """Return a quantity of two runs with its error.

    The variances of both runs add; Student's t has the degrees of freedom of `welch_degrees`.
    size_a and size_b, int64 [G_a] and [G_b], are the lanes per group.
    """
    value = np.asarray(quantity.value, dtype=np.float64)
    variance_a = jackknife_error(value, quantity.a_j, size_a) ** 2
    variance_b = jackknife_error(value, quantity.b_j, size_b) ** 2
    variance = variance_a + variance_b
    degrees = welch_degrees(variance_a, len(size_a) - 1, variance_b, len(size_b) - 1)
    error = np.sqrt(variance)
    factor = scipy.special.stdtrit(np.minimum(degrees, 1e9), 0.5 + 0.5 * LEVEL)
    half = np.where(np.isfinite(error), factor * np.where(np.isfinite(error), error, 0.0), np.inf)
    return Interval(value, value - half, value + half, error)
