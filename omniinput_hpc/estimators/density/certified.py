"""Bounds on the number of inputs with outputs below Z, valid for any number of draws.

Of a run under a law of inputs they bound the probability, by the draws of the law at beta = 0: how
many of n have z < Z is binomial (Clopper & Pearson, Biometrika 26, 404 (1934)). What follows is
for ancestral runs.

An ancestral run's draws x are independent, with known probabilities q_k(x) on every rung k. A group
consists of one draw from each of the K rungs. Let q be the mean of the q_k, and let y be the mean
of 1{z < Z} / q(x) over a group. The y of different groups are independent and identically
distributed, with mean N(z < Z). Probabilities are bounded below,

    q_k(x) >= V^-f exp(-b_k m z) V^(-m max(0, 1 - b_k))        (b_k >= 0)

because a row of probabilities to the power b sums to at most 1 for b >= 1 and to at most V^(1 - b)
below (f sites are uniform, m are predicted). So y lies between 0 and M, which is K divided by the
sum over k of that bound at z = Z.

Consider independent numbers y_j in [0, 1] with mean mu. A gambler who bets a share s on each y_j
being above mu owns prod_j (1 + s (y_j - mu)), which is 1 on average, so the probability of owning
20 or more is at most 5% (Markov). The interval holds every mean for which the average of these
products over several shares stays below that limit (Waudby-Smith & Ramdas, J. R. Stat. Soc. B 86, 1
(2024)). This needs neither chains nor large numbers. The lower bound needs only y >= 0. The upper
one is wide if M is large: between b = 0 and 1, where the sums of rows are far below V^(1 - b).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy

from omniinput_hpc.estimators import EstimateError, FloatArray, IntArray
from omniinput_hpc.estimators.density.density import Density
from omniinput_hpc.estimators.errors.jackknife import LEVEL
from omniinput_hpc.estimators.populations import is_annealed
from omniinput_hpc.estimators.run_data import RunData

MAX_THRESHOLDS = 250
ROUNDING = 1e-3
"""Relative increase of the bound M, because probabilities are summed in float32."""
_BISECTIONS = 50
_MOST = 0.99  # largest share of the gambler's wealth that one draw may lose
_CHUNK = 1 << 22  # numbers in memory at once


@dataclass(frozen=True)
class KnownBelow:
    """All outputs up to some Z, from a census.

    Attributes
    ----------
    complete_below : all inputs with z up to this are known
    z_i : float64 [n], their outputs
    """

    complete_below: float
    z_i: FloatArray


@dataclass(frozen=True)
class Certified:
    """Numbers of inputs with z < Z, or probabilities under a law, for thresholds Z.

    Attributes
    ----------
    z_t : float64 [T], the thresholds
    log_n_t : float64 [T], ln of the estimate from the draws; -inf if none is below the threshold
    low_t, high_t : float64 [T], ln of the bounds; they hold pointwise in Z, each pair with 95%
    exact_t : bool [T], known from a census
    n_groups : J, groups of draws; under a law the number of draws
    apart : largest amount by which z was below the loss computed from log q (rounding)
    """

    z_t: FloatArray
    log_n_t: FloatArray
    low_t: FloatArray
    high_t: FloatArray
    exact_t: np.ndarray
    n_groups: int
    apart: float


def counts_all_below(density: Density) -> bool:
    """Return whether a density counts all inputs with z < Z, as the bounds do.

    Its bins hold none of those whose outputs lie below them.
    """
    return density.absolute and not density.outside_k2[:, 0].any()


def certify(
    run: RunData,
    n_predicted: int,
    known: KnownBelow | None = None,
    z_t: FloatArray | None = None,
) -> Certified:
    """Return bounds on the number of inputs with outputs below some thresholds.

    Parameters
    ----------
    run : an ancestral run, or one under a law
    n_predicted : m, sites whose values are predicted; not used under a law
    known : all outputs up to some Z, from a census; these are counted exactly
    z_t : float64 [T], ascending thresholds (default: upper ends of the run's bins)

    Raises
    ------
    EstimateError
        Not an ancestral run, fewer than two groups of draws, no rung with beta >= 0, or draws less
        likely than the model's probabilities allow.
    """
    if run.config.measure == "probability":
        return _of_law(run, _thresholds(run.edges) if z_t is None else z_t)
    log_q_jkk, z_jk = _groups_of_draws(run)
    if len(z_jk) < 2:
        raise EstimateError(f"{run.path}: one draw per beta gives no bounds; raise run.rounds")
    b_k = run.beta_k / n_predicted
    n_free = run.n_sites - n_predicted
    log_v_jk = np.log(log_q_jkk.shape[2]) - scipy.special.logsumexp(log_q_jkk, axis=2)
    apart = _apart(log_q_jkk, z_jk, b_k, n_predicted, n_free * np.log(run.n_values))
    z_t = _thresholds(run.edges) if z_t is None else z_t
    log_most_t = _log_most(z_t + apart, b_k, n_predicted, n_free, np.log(run.n_values))
    log_own = _log_most(z_jk + apart, b_k, n_predicted, n_free, np.log(run.n_values))
    if (log_v_jk > log_own).any():
        raise EstimateError(
            f"{run.path}: some draws are less likely than the model allows if its probabilities "
            "add up to at most 1: no bounds can be given"
        )
    below = -np.inf if known is None else known.complete_below
    counted_jk = z_jk > below
    z_known_i = np.zeros(0) if known is None else np.sort(known.z_i[known.z_i <= below])
    log_known_t = _log(np.searchsorted(z_known_i, z_t).astype(float))
    log_n_t, low_t, high_t = (np.full(len(z_t), -np.inf) for _ in range(3))
    per_chunk = max(1, _CHUNK // max(z_jk.size, 1))
    for start in range(0, len(z_t), per_chunk):
        part = slice(start, start + per_chunk)
        inside_tjk = (z_jk < z_t[part, None, None]) & counted_jk
        log_y_tjk = np.where(inside_tjk, log_v_jk - log_most_t[part, None, None], -np.inf)
        y_tj = np.exp(log_y_tjk).mean(axis=2)
        low, high = mean_bounds(y_tj, 1.0 - LEVEL)
        for found_t, value_t in ((log_n_t, y_tj.mean(axis=1)), (low_t, low), (high_t, high)):
            found_t[part] = np.logaddexp(_log(value_t) + log_most_t[part], log_known_t[part])
    exact_t = z_t <= below
    for found_t in (log_n_t, low_t, high_t):
        found_t[exact_t] = log_known_t[exact_t]
    return Certified(
        z_t, log_n_t, np.minimum(low_t, run.log_measure), np.minimum(high_t, run.log_measure),
        exact_t, len(z_jk), apart,
    )  # fmt: skip


def _of_law(run: RunData, z_t: FloatArray) -> Certified:
    """Return bounds on probabilities under a law of inputs."""
    z = draws_at_zero(run)
    if not z.size:
        raise EstimateError(
            f"{run.path}: no recorded sample is surely a draw of the law: let ladder.betas hold 0 "
            "and sampler.steps be a multiple of samples.every, and leave out ladder.anchors"
        )
    n, n_t = z.size, np.searchsorted(z, z_t)
    low_t, high_t = share_bounds(n_t, n)
    exact_t = np.zeros(len(z_t), dtype=np.bool_)
    return Certified(z_t, _log(n_t / n), _log(low_t), _log(high_t), exact_t, n, 0.0)


def draws_at_zero(run: RunData) -> FloatArray:
    """Return z of the recorded samples that are surely drawn at beta = 0, ascending, float64 [n].

    They are independent: uniform inputs, or draws of the law.
    """
    zero = np.flatnonzero((run.beta_k == 0.0) & (run.weights.kappa_k == 0.0))
    drawn = run.config.drawn_samples
    if not zero.size or not drawn.size:
        return np.zeros(0)
    z_rks = np.concatenate([run.z(rungs=slice(k, k + 1)) for k in zero], axis=1)
    z = z_rks.reshape(*z_rks.shape[:2], -1, run.walkers)[:, :, drawn]
    return np.sort(z.astype(np.float64), axis=None)


def share_bounds(n_t: IntArray, n: int) -> tuple[FloatArray, FloatArray]:
    """Return the ends of the 95 % intervals of shares of which n_t of n draws were seen [T]."""
    half = 0.5 * (1.0 - LEVEL)
    low_t = np.where(n_t > 0, scipy.special.betaincinv(np.maximum(n_t, 1), n - n_t + 1, half), 0.0)
    high_t = np.where(
        n_t < n, scipy.special.betaincinv(n_t + 1, np.maximum(n - n_t, 1), 1.0 - half), 1.0
    )
    return low_t, high_t


def mean_bounds(y_tj: FloatArray, alpha: float) -> tuple[FloatArray, FloatArray]:
    """Return lower and upper bounds [T] of the mean of independent numbers in [0, 1], y [T, J].

    Both hold together with a probability of at least 1 - alpha, whatever the distribution. The
    first tenth of the numbers sets the scale of the bets for the lower bound.
    """
    n = y_tj.shape[1]
    tenth = -(-n // 10)
    scale_t = y_tj[:, :tenth].mean(axis=1)
    scale_t = np.where(scale_t > 0, scale_t, 1.0 / n)
    rest_tj = y_tj[:, tenth:] / scale_t[:, None]
    low_t = scale_t * _refuted(rest_tj, _shares(0), alpha / 2.0)
    # no rescaling here: a number may be 1, and a larger stake could lose everything
    high_t = 1.0 - _refuted(1.0 - y_tj, _shares(np.log2(n) / 2.0), alpha / 2.0)
    return low_t, high_t


def _shares(more: float) -> FloatArray:
    """Return the shares to bet, in powers of two, so that one is near the best."""
    return np.asarray(2.0 ** np.arange(-8.0 - np.ceil(more / 2.0), 1.0))


def _refuted(y_tj: FloatArray, share_s: FloatArray, alpha: float) -> FloatArray:
    """Return the largest rejected mean [T], by bisection: wealth decreases with the mean."""
    refuted_t, open_t = np.zeros(len(y_tj)), y_tj.max(axis=1)
    for _ in range(_BISECTIONS):
        # first on a log scale, since means may be tiny
        middle_t = np.where(refuted_t > 0, np.sqrt(refuted_t * open_t), open_t * 1e-3)
        near = refuted_t > 0.1 * open_t
        middle_t = np.where(near, 0.5 * (refuted_t + open_t), middle_t)
        refuted = _log_owned(y_tj, middle_t, share_s) >= -np.log(alpha)
        refuted_t = np.where(refuted, middle_t, refuted_t)
        open_t = np.where(refuted, open_t, middle_t)
    return refuted_t


def _log_owned(y_tj: FloatArray, mean_t: FloatArray, share_s: FloatArray) -> FloatArray:
    """Return ln of the wealth [T] of a gambler who has spread it evenly over several shares."""
    log_owned_st = np.empty((len(share_s), len(mean_t)))
    for s, share in enumerate(share_s):
        stake_t = np.minimum(share, _MOST / np.maximum(mean_t, 1e-300))
        log_owned_st[s] = np.log1p(stake_t[:, None] * (y_tj - mean_t[:, None])).sum(axis=1)
    return np.asarray(scipy.special.logsumexp(log_owned_st, axis=0) - np.log(len(share_s)))


def _groups_of_draws(run: RunData) -> tuple[FloatArray, FloatArray]:
    """Return log q [J, K, K] and z [J, K] of all draws; a group has one draw per rung."""
    log_q = run.source.samples_log_q()
    if log_q is None or is_annealed(run):
        raise EstimateError(
            f'{run.path}: only independent draws can be certified (sampler.method = "ancestral")'
        )
    log_q_jkk = np.concatenate([np.swapaxes(of_round, 0, 1) for of_round in log_q])
    z_rks = run.z().astype(np.float64)
    return log_q_jkk, np.swapaxes(z_rks, 1, 2).reshape(-1, z_rks.shape[1])


def _apart(
    log_q_jkk: FloatArray, z_jk: FloatArray, b_k: FloatArray, m: int, log_free: float
) -> float:
    """Return the largest amount by which z lies below the loss -(log q + log_free) / m at b = 1.

    Only rounding causes it: if rows sum to less than 1, z lies above that loss.
    """
    one = np.flatnonzero(np.isclose(b_k, 1.0))
    if not one.size:
        return 0.0
    loss_jk = -(log_q_jkk[:, :, one[0]] + log_free) / m
    return float(np.maximum(loss_jk - z_jk, 0.0).max())


def _log_most(
    z: FloatArray, b_k: FloatArray, n_predicted: int, n_free: int, log_values: float
) -> FloatArray:
    """Return ln of the largest 1 / q of inputs with outputs below z, in the shape of z."""
    usable_k = b_k >= 0.0
    if not usable_k.any():
        raise EstimateError("no rung has beta >= 0: the draws' probabilities have no lower bound")
    least = -n_free * log_values - n_predicted * log_values * np.maximum(0.0, 1.0 - b_k)
    log_least = least - n_predicted * np.multiply.outer(z, b_k)
    log_sum = scipy.special.logsumexp(np.where(usable_k, log_least, -np.inf), axis=-1)
    return np.asarray(np.log(len(b_k)) - log_sum + np.log1p(ROUNDING))


def _thresholds(edges: FloatArray) -> FloatArray:
    """Return the upper ends of at most MAX_THRESHOLDS evenly spaced bins."""
    every = -(-(len(edges) - 1) // MAX_THRESHOLDS)
    return edges[::-1][: len(edges) - 1 : every][::-1].copy()


def _log(value: FloatArray) -> FloatArray:
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(value))


def predicted_sites(run: RunData) -> int:
    """Return m, the number of predicted sites of a model; EstimateError if it is unknown."""
    if run.config.measure == "probability":
        return 0  # not used
    predicted_from = run.config.predicted_from
    if predicted_from is not None:
        return run.n_sites - predicted_from
    found = [m for m in (run.n_sites, run.n_sites - 1) if np.isclose(run.beta_k, m).any()]
    if len(found) != 1:
        raise EstimateError(
            f"{run.path}: the model's number of predicted sites is not known; include it in "
            "ladder.betas"
        )
    return found[0]
