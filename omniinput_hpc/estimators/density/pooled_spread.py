"""Unevenness of the weights of independent draws, pooled over neighbouring bins.

A bin of n draws with weights v is worth a = (sum v)^2 / sum v^2 equal draws (Kish, Survey Sampling
(1965), section 11.7). If few draws carry most of the weight, the bin's own draws mislead: a bin
that misses its heavy draws has too low a sum, yet claims a large worth. Its neighbours have such
draws. With mu the trend of v over the bins of a window around bin b, a line or parabola through the
means of log v,

    1 + CV_b^2 = n sum (v / mu)^2 / (sum v / mu)^2

over the window's n draws; a common factor of mu cancels. The sum of the n_b draws of bin b has the
relative variance (1 + CV_b^2) / n_b.
"""

from __future__ import annotations

import numpy as np

from omniinput_hpc.estimators import FloatArray, IntArray

MAX_HALF_WIDTH = 20
MIN_WINDOW_WORTH = 500.0
"""A window widens until its draws are worth this many equal ones, or by 20 bins on either side."""
MIN_PARABOLA_DRAWS = 200
"""With fewer draws the trend is a line: a parabola would follow single draws."""


def unevenness(
    number_b: IntArray, log_first_b: FloatArray, log_second_b: FloatArray, log_sum_b: FloatArray
) -> FloatArray:
    """Return 1 + CV^2 of the draws' weights [B], pooled over neighbouring bins; at least 1.

    Parameters
    ----------
    number_b : int64 [B], draws
    log_first_b, log_second_b : float64 [B], log of sum v and of sum v^2; -inf without draws
    log_sum_b : float64 [B], sum of log v
    """
    n_b = number_b.astype(np.float64)
    half_b = _half_widths(log_first_b, log_second_b)
    power_b3 = _trends(n_b, log_sum_b, half_b)
    draws_b = np.zeros(len(n_b))
    first_b, second_b = np.full((2, len(n_b)), -np.inf)
    for offset in range(-MAX_HALF_WIDTH, MAX_HALF_WIDTH + 1):
        at, to = _neighbours(half_b, offset)
        log_mu = power_b3[at] @ _powers(offset)
        draws_b[at] += n_b[to]
        first_b[at] = np.logaddexp(first_b[at], log_first_b[to] - log_mu)
        second_b[at] = np.logaddexp(second_b[at], log_second_b[to] - 2.0 * log_mu)
    seen = draws_b > 0
    uneven_b = np.ones(len(n_b))
    uneven_b[seen] = np.exp(np.log(draws_b[seen]) + second_b[seen] - 2.0 * first_b[seen])
    return np.maximum(1.0, uneven_b)


def _powers(offset: int) -> FloatArray:
    """Return 1, x and x^2 at a bin's position x in its window, from -1 to 1."""
    return np.asarray(np.power(offset / MAX_HALF_WIDTH, np.arange(3.0)))


def _half_widths(log_first_b: FloatArray, log_second_b: FloatArray) -> IntArray:
    """Return how many bins on either side are pooled with each bin [B]."""
    worth_b = np.zeros(len(log_first_b))
    seen = np.isfinite(log_first_b)
    worth_b[seen] = np.exp(2.0 * log_first_b[seen] - log_second_b[seen])
    upto, place = np.concatenate([[0.0], np.cumsum(worth_b)]), np.arange(len(worth_b))
    half_b = np.full(len(worth_b), MAX_HALF_WIDTH)
    for half in range(MAX_HALF_WIDTH - 1, -1, -1):
        end, begin = np.minimum(place + half + 1, len(worth_b)), np.maximum(place - half, 0)
        half_b[upto[end] - upto[begin] >= MIN_WINDOW_WORTH] = half
    return half_b


def _neighbours(half_b: IntArray, offset: int) -> tuple[IntArray, IntArray]:
    """Return the bins whose windows reach as far as `offset`, and the bins at that offset."""
    at = np.flatnonzero(half_b >= abs(offset))
    at = at[(at + offset >= 0) & (at + offset < len(half_b))]
    return at, at + offset


def _trends(n_b: FloatArray, log_sum_b: FloatArray, half_b: IntArray) -> FloatArray:
    """Return each window's least-squares trend of log v as coefficients of `_powers` [B, 3]."""
    moment_b33, log_b3 = np.zeros((len(n_b), 3, 3)), np.zeros((len(n_b), 3))
    for offset in range(-MAX_HALF_WIDTH, MAX_HALF_WIDTH + 1):
        at, to = _neighbours(half_b, offset)
        powers = _powers(offset)
        moment_b33[at] += n_b[to, None, None] * np.outer(powers, powers)
        log_b3[at] += log_sum_b[to, None] * powers
    few_b = moment_b33[:, 0, 0] < MIN_PARABOLA_DRAWS
    moment_b33[few_b, 2], moment_b33[few_b, :, 2], log_b3[few_b, 2] = 0.0, 0.0, 0.0
    inverse_b33 = np.linalg.pinv(moment_b33, rcond=1e-10, hermitian=True)
    return np.asarray(np.einsum("bij,bj->bi", inverse_b33, log_b3))
