"""Joint draws of the bins' mean scores r, pooled over neighbouring bins as the data suggest.

theta = arcsin(sqrt(r)) is a random walk along z whose step size is drawn from its own posterior.
With small steps all bins share one r, and Jeffreys' prior (half a right and half a wrong score)
enters once for the whole curve. With the widest steps every bin has its own Jeffreys prior, whose
bias towards 1/2 is the same in all bins and does not average out in an area under the curve. The
data decide between the two. A step size of zero is excluded: a slope of r that the scores just
cannot show would be treated as none, and the interval would miss it. Steps may also be jumps, so
that an edge of r(z) does not loosen the coupling between all other bins.

The posterior is computed on a grid of theta; the grid is the only approximation. The method is
non-Gaussian state-space smoothing (Kitagawa, J. Am. Stat. Assoc. 82, 1032 (1987)): forward
filtering and backward sampling (Fruhwirth-Schnatter, J. Time Ser. Anal. 15, 183 (1994)). A rule may
score millions of samples, so cells are as narrow as the standard error of an r that nearby bins
share.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy

from omniinput_hpc.estimators import FloatArray, IntArray

FEWEST_CELLS, MOST_CELLS = 128, 512
STEP_RANGE = (0.02, 0.64)
"""Standard deviations of a step of theta from bin to bin; theta lies in (0, pi / 2).

The first is the narrowest if scores are few (see `_steps`), the second the widest. All steps are
equally likely a priori."""
JUMP = 0.01  # probability of a jump to anywhere, per step
_RIGHT_ANGLE = 0.5 * np.pi
_FIRM = 30.0  # right and wrong scores from which a bin's own draws may replace the grid's draws


def draw_pooled(
    right_b: FloatArray, count_b: FloatArray, rng: np.random.Generator, n: int
) -> FloatArray:
    """Return draws of r [n, B] for consecutive bins.

    Parameters
    ----------
    right_b, count_b : float64 [B], effective numbers of right scores and of all scores; 0 and 0 if
        a bin has none, and its r comes from its neighbours
    """
    grid = _Grid(_edges(right_b, count_b))
    transition_sgh = _transitions(grid, _steps(count_b))
    filtered_sbg, log_evidence_s = _filter(
        _log_likelihood(right_b, count_b, grid), grid, transition_sgh
    )
    weight_s = np.exp(log_evidence_s - log_evidence_s.max())
    n_s = rng.multinomial(n, weight_s / weight_s.sum())
    state_mb = np.concatenate(
        [_sample_back(filtered_sbg[s], transition_sgh[s], rng, n_s[s]) for s in np.flatnonzero(n_s)]
    )
    # one position within the cells for all bins of a draw, so that equal bins stay equal
    place_m = rng.random((n, 1))
    theta_mb = grid.edges[state_mb] + place_m * grid.width_g[state_mb]
    return _with_own_draws(np.sin(theta_mb) ** 2, right_b, count_b, grid, rng)


@dataclass(frozen=True)
class _Grid:
    """Cells of theta: their edges, float64 [G + 1], from 0 to pi / 2."""

    edges: FloatArray

    @property
    def width_g(self) -> FloatArray:
        return np.diff(self.edges)

    @property
    def middle_g(self) -> FloatArray:
        return 0.5 * (self.edges[:-1] + self.edges[1:])


def _angle(right_b: FloatArray, count_b: FloatArray) -> FloatArray:
    share_b = right_b / np.maximum(count_b, 1e-300)
    return np.arcsin(np.sqrt(np.clip(share_b, 0.0, 1.0)))


def _edges(right_b: FloatArray, count_b: FloatArray) -> FloatArray:
    """Return cell edges [G + 1]: 2 sqrt(n) cells per unit of theta, with n the scores nearby."""
    near_end = np.geomspace(1e-6, 0.1, 400)
    middle = np.linspace(0.1, _RIGHT_ANGLE - 0.1, 800)[1:-1]
    theta_x = np.concatenate([[0.0], near_end, middle, _RIGHT_ANGLE - near_end[::-1]])
    theta_x = np.append(theta_x, _RIGHT_ANGLE)
    scores_x = np.zeros(len(theta_x))
    for theta, n in zip(_angle(right_b, count_b), count_b, strict=True):
        if n > 0:  # a bin's likelihood has width sqrt(1 / 4 n)
            scores_x += n * np.exp(-0.5 * n * (theta_x - theta) ** 2)
    per_unit_x = np.maximum(2.0 * np.sqrt(scores_x), FEWEST_CELLS / _RIGHT_ANGLE)
    middle_x = 0.5 * (per_unit_x[1:] + per_unit_x[:-1])
    upto_x = np.concatenate([[0.0], np.cumsum(middle_x * np.diff(theta_x))])
    n_cells = int(min(np.ceil(upto_x[-1]), MOST_CELLS))
    return np.asarray(np.interp(np.linspace(0.0, upto_x[-1], n_cells + 1), upto_x, theta_x))


def _steps(count_b: FloatArray) -> FloatArray:
    """Return the steps' standard deviations [S], each half the next.

    The narrowest is at most the standard error of a theta that all bins share.
    """
    narrowest, widest = STEP_RANGE
    least = min(narrowest, 0.5 / np.sqrt(max(float(count_b.sum()), 1.0)))
    number = 1 + int(np.ceil(np.log2(widest / least) - 1e-9))
    return np.asarray(widest * 0.5 ** np.arange(number)[::-1], dtype=np.float64)


def _log_likelihood(right_b: FloatArray, count_b: FloatArray, grid: _Grid) -> FloatArray:
    """Return the binomial log-likelihood of every r of the grid, up to a constant [B, G]."""
    theta_g = grid.middle_g
    wrong_b = np.maximum(count_b - right_b, 0.0)
    log_like_bg = np.outer(right_b, 2.0 * np.log(np.sin(theta_g)))
    log_like_bg += np.outer(wrong_b, 2.0 * np.log(np.sin(_RIGHT_ANGLE - theta_g)))
    return np.asarray(log_like_bg - log_like_bg.max(axis=1, keepdims=True))


def _transitions(grid: _Grid, step_s: FloatArray) -> FloatArray:
    """Return the steps' transition matrices [S, G, G]; each row sums to 1.

    Steps are Gaussian from a cell's middle, reflected at both ends of theta.
    """
    found = np.zeros((len(step_s), len(grid.middle_g), len(grid.middle_g)))
    for image in (grid.edges, -grid.edges, np.pi - grid.edges):
        for s, step in enumerate(step_s):
            upto_gh = scipy.special.ndtr((image - grid.middle_g[:, None]) / step)
            found[s] += np.abs(np.diff(upto_gh, axis=1))
    found /= found.sum(axis=2, keepdims=True)
    return np.asarray((1.0 - JUMP) * found + JUMP * grid.width_g / _RIGHT_ANGLE)


def _filter(
    log_like_bg: FloatArray, grid: _Grid, transition_sgh: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return p(theta_b | bins up to b) [S, B, G], and the log evidence of each step [S]."""
    like_bg = np.exp(log_like_bg)
    n_steps, n_cells = transition_sgh.shape[:2]
    filtered_sbg = np.empty((n_steps, *like_bg.shape))
    log_evidence_s = np.zeros(n_steps)
    predicted_sg = np.broadcast_to(grid.width_g / _RIGHT_ANGLE, (n_steps, n_cells))
    for b, like_g in enumerate(like_bg):
        joint_sg = predicted_sg * like_g
        total_s = joint_sg.sum(axis=1)
        log_evidence_s += np.log(total_s)
        filtered_sbg[:, b] = joint_sg / total_s[:, None]
        predicted_sg = np.matmul(filtered_sbg[:, b, None], transition_sgh)[:, 0]
    return filtered_sbg, log_evidence_s


def _sample_back(
    filtered_bg: FloatArray, transition_gh: FloatArray, rng: np.random.Generator, n: int
) -> IntArray:
    """Return draws of the walk's states, int64 [n, B], sampled from the last bin to the first."""
    n_bins, n_grid = filtered_bg.shape
    state_mb = np.empty((n, n_bins), dtype=np.int64)
    state_mb[:, -1] = rng.choice(n_grid, n, p=filtered_bg[-1])
    to_hg = np.ascontiguousarray(transition_gh.T)
    for b in range(n_bins - 2, -1, -1):
        later_u, row_m = np.unique(state_mb[:, b + 1], return_inverse=True)
        upto_ug = np.cumsum(filtered_bg[b] * to_hg[later_u], axis=1)
        upto_ug /= upto_ug[:, -1:]
        # all rows in one ascending array: row u lies between u and u + 1
        upto = (upto_ug + np.arange(len(later_u))[:, None]).ravel()
        found_m = np.searchsorted(upto, row_m + rng.random(n), side="right") - row_m * n_grid
        state_mb[:, b] = np.minimum(found_m, n_grid - 1)
    return state_mb


def _with_own_draws(
    r_mb: FloatArray, right_b: FloatArray, count_b: FloatArray, grid: _Grid,
    rng: np.random.Generator,
) -> FloatArray:  # fmt: skip
    """Replace the draws of bins that determine r to within a cell by the bins' own draws.

    Such bins learn nothing from their neighbours.
    """
    cell_b = np.searchsorted(grid.edges, _angle(right_b, count_b), side="right") - 1
    width_b = grid.width_g[np.clip(cell_b, 0, len(grid.width_g) - 1)]
    wrong_b = count_b - right_b
    own = (np.minimum(right_b, wrong_b) >= _FIRM) & (width_b * np.sqrt(count_b) > 0.5)
    r_mb[:, own] = rng.beta(right_b[own], wrong_b[own], size=(len(r_mb), int(own.sum())))
    return r_mb
