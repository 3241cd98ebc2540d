"""Newton's method for the convex dual of the multi-histogram and MBAR equations.

Both are the same problem. With n_k draws on rung k, H_b draws of all rungs in cell b (a bin, or one
sample: H_b = 1), and log-weights log w_kb of the rungs in that cell, the free energies minimize

    A(f) = sum_b H_b log(sum_k n_k exp(f_k) w_kb) - sum_k n_k f_k

over the unknown f_k (see `wham`). Cells are processed in chunks, so memory is a few numbers per
cell plus K^2.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from omniinput_hpc.estimators import BoolArray, EstimateError, FloatArray

LogWeights = Callable[[int, int], FloatArray]
MAX_ITERATIONS = 200
EPS = float(np.finfo(np.float64).eps)
CHUNK = 1 << 19  # numbers in an array of K x cells: 4 MiB


@dataclass(frozen=True)
class Minimum:
    """The minimum of A(f).

    Attributes
    ----------
    f_k : float64 [K]
    log_mix_b : float64 [B], log sum_k n_k exp(f_k) w_kb
    iterations : int, Newton steps taken
    """

    f_k: FloatArray
    log_mix_b: FloatArray
    iterations: int


@dataclass(frozen=True)
class _Point:
    """log_mix_b, and the parts of the gradient and the Hessian of A(f), at one f."""

    log_mix_b: FloatArray
    expected_k: FloatArray  # sum_b H_b p_kb; p_kb is the share of rung k in cell b
    overlap_kl: FloatArray  # sum_b H_b p_kb p_lb


def minimize(
    log_w: FloatArray | LogWeights,
    n_k: FloatArray,
    h_b: FloatArray,
    f_k: FloatArray,
    known_f_k: FloatArray,
    tolerance: float = 1e-10,
) -> Minimum:
    """Minimize A(f).

    Parameters
    ----------
    log_w : float64 [K, B], or a function of (begin, end) that returns [K, end - begin]
    n_k : float64 [K], all above 0
    h_b : float64 [B], all above 0
    f_k : float64 [K], where to start
    known_f_k : float64 [K], NaN if unknown; at least one must be known
    tolerance : largest change of any f_k in the last step, or what rounding permits

    Raises
    ------
    EstimateError
        No convergence in 200 steps.
    """
    weights = log_w if callable(log_w) else lambda begin, end: log_w[:, begin:end]
    free = np.isnan(known_f_k)
    # a single known f_k only fixes the constant: a step may change it and is then shifted back
    only = int(np.argmin(free)) if (~free).sum() == 1 else None
    f_k = np.where(free, f_k + np.mean((known_f_k - f_k)[~free]), known_f_k)
    log_n_k, scale = np.log(n_k), 1.0 / np.sqrt(n_k[free])
    point = _evaluate(weights, log_n_k + f_k, h_b)
    if not free.any():
        return Minimum(f_k, point.log_mix_b, 0)
    for iteration in range(1, MAX_ITERATIONS + 1):
        gradient = (point.expected_k - n_k)[free]
        hessian = np.diag(point.expected_k[free]) - point.overlap_kl[np.ix_(free, free)]
        curvature, modes = np.linalg.eigh(hessian * np.outer(scale, scale))
        accepted = False
        if curvature[0] > 4.0 * len(f_k) * EPS:
            step = np.zeros_like(f_k)
            step[free] = -scale * (modes @ (modes.T @ (scale * gradient) / curvature))
            if np.abs(step).max() <= max(tolerance, 8.0 * EPS / curvature[0]):
                f_k = f_k + step
                return Minimum(f_k, _evaluate(weights, log_n_k + f_k, h_b).log_mix_b, iteration)
            slope = float(gradient @ step[free])
            found = _line_search(weights, log_n_k + f_k, step, slope, n_k, h_b, point)
            if found is not None:
                f_k, point, accepted = f_k + found[0] * step, found[1], True
        if not accepted:
            change_k = _self_consistent_change(n_k, point, free, only)
            if np.abs(change_k).max() <= 4.0 * EPS:  # the equations hold to the last bit
                return Minimum(f_k, point.log_mix_b, iteration)
            f_k = f_k + change_k
            point = _evaluate(weights, log_n_k + f_k, h_b)
    residual = np.abs(np.log(point.expected_k / n_k))[free].max()
    raise EstimateError(
        f"the multi-histogram equations did not converge to {tolerance:g} in {MAX_ITERATIONS} "
        f"steps (residual {residual:.1e})"
    )


def _self_consistent_change(
    n_k: FloatArray, point: _Point, free: BoolArray, only: int | None
) -> FloatArray:
    """Return a step that never raises A, for regions where A is flat to rounding."""
    change_k = np.log(n_k) - np.log(np.maximum(point.expected_k, np.finfo(float).tiny))
    return np.where(free, change_k, 0.0) if only is None else change_k - change_k[only]


def _line_search(
    log_w: LogWeights,
    log_nf_k: FloatArray,
    step: FloatArray,
    slope: float,
    n_k: FloatArray,
    h_b: FloatArray,
    point: _Point,
) -> tuple[float, _Point] | None:
    """Return the longest of 1, 1/2, 1/4, ... steps that lowers A enough, and the point there."""
    # changes within rounding are accepted; slope is dA / d size at the present point
    slack = 64.0 * EPS * (h_b @ np.abs(point.log_mix_b))
    for size in 0.5 ** np.arange(30):
        new = _evaluate(log_w, log_nf_k + size * step, h_b)
        change = h_b @ (new.log_mix_b - point.log_mix_b) - size * (n_k @ step)
        if change <= 1e-4 * size * slope + slack:
            return size, new
    return None


def _evaluate(log_w: LogWeights, log_nf_k: FloatArray, h_b: FloatArray) -> _Point:
    """Evaluate A's parts in one pass over the cells, at log(n_k) + f_k."""
    n_rungs, n_cells = len(log_nf_k), len(h_b)
    log_mix_b = np.empty(n_cells)
    expected_k, overlap_kl = np.zeros(n_rungs), np.zeros((n_rungs, n_rungs))
    size = max(64, CHUNK // n_rungs)
    for begin in range(0, n_cells, size):
        end = min(begin + size, n_cells)
        p_kb = log_nf_k[:, None] + log_w(begin, end)
        top_b = p_kb.max(axis=0)
        p_kb -= top_b
        np.exp(p_kb, out=p_kb)
        sum_b = p_kb.sum(axis=0)
        log_mix_b[begin:end] = top_b + np.log(sum_b)
        # sqrt(H_b) on both sides makes this the product of one matrix with itself
        root_b = np.sqrt(h_b[begin:end])
        p_kb *= root_b / sum_b
        expected_k += p_kb @ root_b
        overlap_kl += p_kb @ p_kb.T
    return _Point(log_mix_b, expected_k, overlap_kl)
