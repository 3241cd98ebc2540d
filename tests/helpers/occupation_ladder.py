"""Ladders of canonical and Gaussian rungs on the occupation model, by exact sums: no sampling."""

import numpy as np

from omniinput_hpc.tempering import gaussian_ladder
from omniinput_zoo.exact import Occupation

Z, LOG_COUNT = Occupation().log_count()
# At beta = 0.339 both phases weigh the same: z = -300 and z = -4.
_BRIDGE = np.array([[0.339, 0.004, z0] for z0 in np.linspace(-300.0, 0.0, 14)])
LADDER = np.concatenate([_BRIDGE, [[0.2, 0.0, 0.0], [0.0, 0.0, 0.0]]])


def log_weight(rung_3):
    beta, kappa, z0 = rung_3
    return -beta * Z - 0.5 * kappa * (Z - z0) ** 2


def probabilities(rung_3):
    log_p = LOG_COUNT + log_weight(rung_3)
    p = np.exp(log_p - log_p.max())
    return p / p.sum()


def measured(rung_k3):
    """Return the exact share of accepted swaps [K - 1], means and standard deviations of z [K]."""
    p_k = np.array([probabilities(rung) for rung in rung_k3])
    accepted = []
    for k in range(len(rung_k3) - 1):
        apart = log_weight(rung_k3[k]) - log_weight(rung_k3[k + 1])
        swap = np.exp(np.minimum(apart[None, :] - apart[:, None], 0.0))
        accepted.append(p_k[k] @ swap @ p_k[k + 1])
    mean_k = p_k @ Z
    return np.array(accepted), mean_k, np.sqrt(p_k @ Z**2 - mean_k**2)


def tuned(rung_k3, stages=6):
    for _ in range(stages):
        accepted_k, mean_k, std_k = measured(rung_k3)
        rung_k3 = gaussian_ladder.respace_gaussian(rung_k3, 1.0 - accepted_k, mean_k, std_k, (0.0,))
    return rung_k3
