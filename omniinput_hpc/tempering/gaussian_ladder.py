"""Re-space ladders with Gaussian rungs, which bridge two phases, to equalize rejections.

On a rung with the log-weight -beta z - kappa (z - z0)^2 / 2, the mean m and the variance of z give
the derivatives of S, the log of the density, by steepest descent (Kim, Keyes & Straub, J. Chem.
Phys. 132, 224107 (2010)):

    S'(m) = beta + kappa (m - z0),        1 / var(z) = kappa - S''(m).

Between two phases S'' > 0, and the z of a rung has a single peak if kappa exceeds S''. New rungs
are placed at the wanted means of z: kappa is the larger of 2 S'' there and the present kappa, and
z0 follows from S'.
"""

from __future__ import annotations

import numpy as np
import scipy
from numpy.typing import NDArray

from omniinput_hpc.tempering.ladder import barrier, equal_cuts

STIFFNESS = 2.0
"""The smallest kappa / S''. At 2 the spread of z is sqrt(2) times its spread at S'' = 0."""
MIN_STEP = 1e-6
"""The smallest step between means of neighbours, as a share of the ladder's range of means."""


def respace_gaussian(
    rung_k3: NDArray[np.float64],
    rejection_k: NDArray[np.float64],
    mean_k: NDArray[np.float64],
    std_k: NDArray[np.float64],
    fixed: tuple[float, ...] = (),
) -> NDArray[np.float64]:
    """Return K rungs spaced so that neighbours reject equally often, float64 [K, 3].

    The means of z are moved to equal parts of the cumulative rejection (`ladder.equal_cuts`). Both
    ends stay, and so do canonical rungs whose beta is in `fixed`. New rungs between a canonical and
    a Gaussian rung are Gaussian with a smaller kappa; those between two canonical rungs are
    canonical.

    Parameters
    ----------
    rung_k3 : float64 [K, 3], beta, kappa (0 if canonical) and z0 of each rung, along the ladder
    rejection_k : float64 [K - 1], the share of rejected swaps of each pair
    mean_k, std_k : float64 [K], mean and standard deviation of z on each rung
    fixed : betas of canonical rungs that stay
    """
    if len(rung_k3) < 3 or np.ptp(mean_k) == 0.0:
        return rung_k3.copy()
    beta_k, kappa_k, _ = rung_k3.T
    barrier_k = barrier(rejection_k)
    stays_k = np.isin(beta_k, fixed) & (kappa_k == 0.0)
    cuts = equal_cuts(barrier_k, stays_k, len(beta_k))
    sign = np.sign(mean_k[-1] - mean_k[0]) or 1.0
    # Sorted, since noise may put the means of neighbours in one phase into the wrong order.
    z_k = np.sort(sign * mean_k)
    z_k = np.maximum.accumulate(z_k + MIN_STEP * np.ptp(z_k) * np.arange(len(z_k)))
    slope_k = sign * slopes(rung_k3, mean_k)
    slope_at = scipy.interpolate.PchipInterpolator(z_k, slope_k)
    new_z_k = scipy.interpolate.PchipInterpolator(barrier_k, z_k)(cuts.at_k)
    wanted_k = np.interp(new_z_k, z_k, stiffened(kappa_k, std_k))
    # At most doubled: if two means are nearly equal, the difference of their slopes is noise.
    steep_k = np.minimum(STIFFNESS * slope_at.derivative()(new_z_k), STIFFNESS * wanted_k)
    new_kappa_k = np.maximum(wanted_k, steep_k)
    curved_k = new_kappa_k > 0.0
    new_slope_k, new_mean_k = sign * slope_at(new_z_k), sign * new_z_k
    new_beta_k = np.where(curved_k, np.interp(new_z_k, z_k, beta_k), new_slope_k)
    pull_k = (new_slope_k - new_beta_k) / np.where(curved_k, new_kappa_k, 1.0)
    new_k3 = np.column_stack([new_beta_k, new_kappa_k, np.where(curved_k, new_mean_k - pull_k, 0)])
    return np.where(cuts.kept_k[:, None] >= 0, rung_k3[cuts.kept_k], new_k3)


def slopes(rung_k3: NDArray[np.float64], mean_k: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return S' at the mean z of each rung, float64 [K], from the slope of the rung's weight."""
    beta_k, kappa_k, z0_k = rung_k3.T
    return np.asarray(beta_k + kappa_k * (mean_k - z0_k))


def stiffened(kappa_k: NDArray[np.float64], std_k: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return kappa, float64 [K], raised to `STIFFNESS` S'' on Gaussian rungs where it is smaller.

    Here S'' = kappa - 1 / std^2, so that kappa is less than doubled.
    """
    with np.errstate(divide="ignore"):
        steep_k = STIFFNESS * (kappa_k - 1.0 / std_k**2)
    return np.where(kappa_k > 0.0, np.maximum(kappa_k, steep_k), 0.0)
