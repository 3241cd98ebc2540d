"""Errors of what is computed from two independent runs.

Each run has its own groups of lanes. The quantity is computed again without each group of one run
and then of the other; both variances add, and Student's t has the degrees of freedom of Welch
(Biometrika 34, 28 (1947)) and Satterthwaite (Biometrics Bull. 2, 110 (1946)).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from omniinput_hpc.estimators.errors.jackknife import jackknife_error

FloatArray = NDArray[np.float64]
LEVEL = 0.95


@dataclass(frozen=True)
class Estimate:
    """Numbers with standard errors and 95% intervals; infinite where the error is not known.

    Attributes
    ----------
    value, error, low, high : float64 [...]
    degrees : float64 [...], of freedom of Student's t
    """

    value: FloatArray
    error: FloatArray
    low: FloatArray
    high: FloatArray
    degrees: FloatArray

    def __str__(self) -> str:
        """Return one number with its error and interval."""
        return (
            f"{float(self.value):.4f} +- {float(self.error):.4f} "
            f"({float(self.low):.4f} to {float(self.high):.4f})"
        )

    @property
    def differs(self) -> NDArray[np.bool_]:
        """Whether the interval leaves out 0."""
        return np.asarray((self.low > 0) | (self.high < 0))


@dataclass(frozen=True)
class Replicated:
    """A quantity from both runs, and from them without one group of lanes of either.

    Attributes
    ----------
    value : float64 [...]
    a_j : float64 [G_a, ...], without group j of the first run
    b_j : float64 [G_b, ...], without group j of the second
    """

    value: FloatArray
    a_j: FloatArray
    b_j: FloatArray

    def __sub__(self, other: Replicated) -> Replicated:
        """Return the difference, replicate by replicate, so that what they share cancels."""
        return Replicated(self.value - other.value, self.a_j - other.a_j, self.b_j - other.b_j)


def of_first(value: FloatArray | float, a_j: FloatArray, n_b: int) -> Replicated:
    """Return a quantity of the first run alone; the second has `n_b` groups of lanes."""
    full = np.asarray(value, dtype=np.float64)
    return Replicated(full, np.asarray(a_j), np.broadcast_to(full, (n_b, *full.shape)))


def of_second(value: FloatArray | float, b_j: FloatArray, n_a: int) -> Replicated:
    """Return a quantity of the second run alone; the first has `n_a` groups of lanes."""
    full = np.asarray(value, dtype=np.float64)
    return Replicated(full, np.broadcast_to(full, (n_a, *full.shape)), np.asarray(b_j))


def estimate(
    quantity: Replicated, size_a: NDArray[np.integer], size_b: NDArray[np.integer]
) -> Estimate:
    """Return a quantity with its error.

    Parameters
    ----------
    quantity : Replicated
    size_a, size_b : int64 [G_a], [G_b], lanes per group
    """
    value = np.asarray(quantity.value, dtype=np.float64)
    parts = [
        jackknife_error(value, quantity.a_j, size_a) ** 2,
        jackknife_error(value, quantity.b_j, size_b) ** 2,
    ]
    variance = parts[0] + parts[1]
    with np.errstate(divide="ignore", invalid="ignore"):
        spread = sum(
            part**2 / max(len(size) - 1, 1)
            for part, size in zip(parts, (size_a, size_b), strict=True)
        )
        degrees = np.where(variance > 0, variance**2 / spread, np.inf)
    degrees = np.where(np.isfinite(variance), degrees, 1.0)
    error = np.sqrt(variance)
    factor = stdtrit(np.minimum(degrees, 1e9), 0.5 + 0.5 * LEVEL)
    half = np.where(np.isfinite(error), factor * np.where(np.isfinite(error), error, 0.0), np.inf)
    return Estimate(value, error, value - half, value + half, degrees)
