"""Draws of (log g, r) per bin that carry their joint errors.

A curve is a bent function of r and log g, and r lies in [0, 1]: draws through the whole
computation give bands that stay inside, where a straight-line error would not.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
N_DRAWS = 1000
LEVEL = 0.95


def jackknife_deviations(
    theta: FloatArray, theta_j: FloatArray, size_j: NDArray[np.integer]
) -> FloatArray:
    """Return deviations [J, ...] whose products sum to the delete-one-group covariance.

    Groups of unequal size as in Busing, Meijer & van der Leeden, Stat. Comput. 9, 3 (1999); the
    square root of the sum of squares is `uncertainty.jackknife_error`.
    """
    n_groups = len(theta_j)
    h_j = (size_j.sum() / size_j).reshape((-1,) + (1,) * np.ndim(theta))
    pseudo_j = h_j * theta - (h_j - 1.0) * theta_j
    centre = n_groups * theta - ((1.0 - 1.0 / h_j) * theta_j).sum(axis=0)
    deviations: FloatArray = (pseudo_j - centre) / np.sqrt(n_groups * (h_j - 1.0))
    return deviations


def draw_together(
    theta_b: FloatArray,
    theta_jb: FloatArray,
    size_j: NDArray[np.integer],
    rng: np.random.Generator,
    n: int = N_DRAWS,
) -> FloatArray:
    """Return draws [n, B'] with the covariance of the jackknife over groups of lanes.

    Spread as Student's t with J - 1 degrees of freedom.

    Parameters
    ----------
    theta_b : float64 [B'], log g (-inf stays), or anything else of the whole run
    theta_jb : float64 [J, B'], without group j. Where it is -inf, group j alone saw the bin: the
        standard error is then about 1, what leaving the group out does to g itself.
    size_j : [J], group sizes

    Returns
    -------
    float64 [n, B']
        NaN where a replicate is not known at all, or there are fewer than two groups.
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
