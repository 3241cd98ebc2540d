"""Joint draws of the bins' mean scores r, pooled over neighbouring bins as far as the data ask.

theta = arcsin(sqrt(r)) is a random walk along z whose step is drawn from its own posterior. With
small steps all bins share one r, and Jeffreys' half a right and half a wrong score stand for the
whole curve; the widest steps are Jeffreys' prior in every bin by itself, whose bias towards 1/2 is
the same in all bins and does not average out in an area under the curve. Between the two the data
decide. No step at all is not among them: a slope of r that the scores just cannot show would be
taken for none, and the interval miss. Steps may also be jumps, so that an edge of r(z) does not
loosen all other bins.

The posterior is computed on a grid of theta, without approximation but for the grid: non-Gaussian
state-space smoothing (Kitagawa, J. Am. Stat. Assoc. 82, 1032 (1987)), forward filtering and
backward sampling (Fruhwirth-Schnatter, J. Time Ser. Anal. 15, 183 (1994)).
"""

from __future__ import annotations

from functools import cache

import numpy as np
from scipy.fft import dct

from omniinput_hpc.estimators import FloatArray, IntArray

GRIDS = (128, 192, 256, 384, 512)
"""Numbers of points of theta: the first that is no coarser than one r of all bins is known."""
STEPS = (0.02, 0.04, 0.08, 0.16, 0.32, 0.64)
"""Standard deviations of a step of theta from bin to bin; theta lies in (0, pi / 2).

All are alike likely beforehand."""
JUMP = 0.01  # probability of a jump to anywhere, per step


def draw_pooled(
    right_b: FloatArray, count_b: FloatArray, rng: np.random.Generator, n: int
) -> FloatArray:
    """Return draws of r [n, B] of bins that follow one another.

    Parameters
    ----------
    right_b, count_b : float64 [B], right scores and all scores, effective numbers; 0 and 0 where a
        bin has none: its r comes from its neighbours
    rng : random numbers
    n : number of draws
    """
    wanted = np.pi * np.sqrt(count_b.sum())  # cells of one standard error of theta
    n_grid = next((size for size in GRIDS if size >= wanted), GRIDS[-1])
    filtered_sbg, log_evidence_s = _filter(_log_likelihood(right_b, count_b, n_grid))
    weight_s = np.exp(log_evidence_s - log_evidence_s.max())
    n_s = rng.multinomial(n, weight_s / weight_s.sum())
    state_mb = np.concatenate(
        [
            _sample_back(filtered_sbg[s], _transitions(n_grid)[s], rng, n_s[s])
            for s in np.flatnonzero(n_s)
        ]
    )
    # one place in the grid's cells for all bins of a draw: bins that are equal stay equal
    place_m = rng.random((n, 1))
    return np.asarray(np.sin(0.5 * np.pi / n_grid * (state_mb + place_m)) ** 2)


def _log_likelihood(right_b: FloatArray, count_b: FloatArray, n_grid: int) -> FloatArray:
    """Return the binomial log-likelihood of every r of the grid, up to a constant [B, G]."""
    theta_g = 0.5 * np.pi / n_grid * (np.arange(n_grid) + 0.5)
    wrong_b = np.maximum(count_b - right_b, 0.0)
    log_like_bg = np.outer(right_b, 2.0 * np.log(np.sin(theta_g)))
    log_like_bg += np.outer(wrong_b, 2.0 * np.log(np.cos(theta_g)))
    return np.asarray(log_like_bg - log_like_bg.max(axis=1, keepdims=True))


@cache
def _transitions(n_grid: int) -> FloatArray:
    """Return the steps' transition matrices [S, G, G], symmetric, each row of sum 1.

    Gaussian steps, reflected at both ends of theta: the cosine waves are their eigenvectors.
    """
    wave_gj = dct(np.eye(n_grid), norm="ortho", axis=0)
    order_j = np.arange(n_grid)
    decay_sj = np.exp(-2.0 * np.outer(np.square(STEPS), order_j**2))
    found = np.maximum((wave_gj.T * decay_sj[:, None, :]) @ wave_gj, 0.0)
    found /= found.sum(axis=2, keepdims=True)
    return np.asarray((1.0 - JUMP) * found + JUMP / n_grid)


def _filter(log_like_bg: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return p(theta_b | bins up to b) [S, B, G], and the log evidence of each step [S]."""
    like_bg = np.exp(log_like_bg)
    n_grid = like_bg.shape[1]
    transitions = _transitions(n_grid)
    filtered_sbg = np.empty((len(STEPS), *like_bg.shape))
    log_evidence_s = np.zeros(len(STEPS))
    predicted_sg = np.full((len(STEPS), n_grid), 1.0 / n_grid)
    for b, like_g in enumerate(like_bg):
        joint_sg = predicted_sg * like_g
        total_s = joint_sg.sum(axis=1)
        log_evidence_s += np.log(total_s)
        filtered_sbg[:, b] = joint_sg / total_s[:, None]
        predicted_sg = np.einsum("sg,sgh->sh", filtered_sbg[:, b], transitions)
    return filtered_sbg, log_evidence_s


def _sample_back(
    filtered_bg: FloatArray, transition_gh: FloatArray, rng: np.random.Generator, n: int
) -> IntArray:
    """Return draws of the walk's states, int64 [n, B], from the last bin to the first."""
    n_bins, n_grid = filtered_bg.shape
    state_mb = np.empty((n, n_bins), dtype=np.int64)
    state_mb[:, -1] = rng.choice(n_grid, n, p=filtered_bg[-1])
    for b in range(n_bins - 2, -1, -1):
        later_u, row_m = np.unique(state_mb[:, b + 1], return_inverse=True)
        upto_ug = np.cumsum(filtered_bg[b] * transition_gh[later_u], axis=1)
        upto_ug /= upto_ug[:, -1:]
        # all rows in one ascending array: row u lies between u and u + 1
        upto = (upto_ug + np.arange(len(later_u))[:, None]).ravel()
        found_m = np.searchsorted(upto, row_m + rng.random(n), side="right") - row_m * n_grid
        state_mb[:, b] = np.minimum(found_m, n_grid - 1)
    return state_mb
