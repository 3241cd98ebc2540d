"""Multi-histogram reweighting: one density of states from the histograms of all rungs.

Rung k draws inputs with probability proportional to w_k(z). With n_kb (weighted) counts in bin b
and n_k = sum_b n_kb, the maximum-likelihood number of inputs g_b and free energies f_k obey
(Ferrenberg & Swendsen, Phys. Rev. Lett. 63, 1195 (1989))

    g_b = sum_k n_kb / sum_k n_k exp(f_k) w_kb,      exp(-f_k) = sum_b g_b w_kb.

They are the stationary point of a convex function of f (Shirts & Chodera, J. Chem. Phys. 129,
124105 (2008), appendix C; Zhu & Hummer, J. Comput. Chem. 33, 453 (2012)),

    A(f) = sum_b H_b log(sum_k n_k exp(f_k) w_kb) - sum_k n_k f_k,     H_b = sum_k n_kb,

which is minimized here by Newton's method in log space.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.csgraph import connected_components
from scipy.special import logsumexp

from omniinput_hpc.estimators import EstimateError

FloatArray = NDArray[np.float64]
EPS = float(np.finfo(np.float64).eps)


@dataclass(frozen=True)
class Solution:
    """The solved equations, up to one common constant (the first rung with counts has f = 0).

    Attributes
    ----------
    f_k : float64 [K]
        Free energies -log sum_b g_b w_kb, also of rungs without counts.
    log_g_b : float64 [B]
        Log number of inputs; -inf where no rung has counts.
    iterations : int
        Newton steps taken.
    """

    f_k: FloatArray
    log_g_b: FloatArray
    iterations: int


def canonical_log_weights(beta_k: FloatArray, z_b: FloatArray) -> FloatArray:
    """Return log w_kb = -beta_k z_b [K, B]; bins without a mean z (NaN) get 0."""
    return -np.outer(beta_k, np.where(np.isfinite(z_b), z_b, 0.0))


def mean_outputs(
    counts_kb: NDArray[np.integer], z_sum_kb: FloatArray, edges: FloatArray
) -> FloatArray:
    """Return each bin's mean z over all rungs [B]; NaN where no rung has counts.

    The mean is kept inside the bin: rounding in a long sum must not move it out.
    """
    count_b = np.asarray(counts_kb).sum(axis=0)
    z_b = np.full(len(count_b), np.nan)
    filled = count_b > 0
    z_b[filled] = np.asarray(z_sum_kb).sum(axis=0)[filled] / count_b[filled]
    return np.asarray(np.clip(z_b, edges[:-1], edges[1:]))


def require_connected(counts_kb: NDArray[np.integer] | FloatArray, label_k: Sequence[str]) -> None:
    """Check that the rungs are joined by shared bins: otherwise their ratio is not known.

    Parameters
    ----------
    counts_kb : [K, B], rungs without counts are passed over
    label_k : names of the rungs for the message

    Raises
    ------
    EstimateError
        Naming the neighbouring rungs between which the gap lies.
    """
    seen_kb = np.asarray(counts_kb) > 0
    active = np.flatnonzero(seen_kb.any(axis=1))
    shared = seen_kb[active].astype(np.float64)
    n_parts, part_k = connected_components((shared @ shared.T) > 0, directed=False)
    if n_parts > 1:
        gaps = [
            f"{label_k[i]} and {label_k[j]}"
            for i, j, a, b in zip(active[:-1], active[1:], part_k[:-1], part_k[1:], strict=True)
            if a != b
        ]
        raise EstimateError(
            f"rungs share no bin, so the ratio of their densities is not known: between "
            f"{'; between '.join(gaps)}. Put rungs between them, widen the bins, or run longer"
        )


def solve(
    counts_kb: NDArray[np.integer] | FloatArray,
    log_w_kb: FloatArray,
    *,
    weight_k: FloatArray | None = None,
    f_k: FloatArray | None = None,
    label_k: Sequence[str] | None = None,
    tolerance: float = 1e-10,
    max_iterations: int = 200,
) -> Solution:
    """Solve the multi-histogram equations.

    Parameters
    ----------
    counts_kb : [K, B]
        Counts; rungs and bins without any are allowed.
    log_w_kb : float64 [K, B]
        Log-weight of rung k in bin b, for a canonical rung -beta_k z_b; -inf where it cannot be.
    weight_k : float64 [K], optional
        Weight of a rung's counts: 1 / its statistical inefficiency (default 1).
    f_k : float64 [K], optional
        Where to start, e.g. the solution without one group removed.
    label_k : optional
        Names of the rungs for messages (default "rung 0", ...).
    tolerance : float
        Largest change of any f_k in the last Newton step, or, where rungs hardly overlap, what
        rounding permits.

    Returns
    -------
    Solution

    Raises
    ------
    EstimateError
        No counts, rungs that share no bin, or no convergence.
    """
    counts_kb = np.asarray(counts_kb, dtype=np.float64)
    n_rungs = len(counts_kb)
    names = [f"rung {k}" for k in range(n_rungs)] if label_k is None else list(label_k)
    rungs, bins = counts_kb.any(axis=1), counts_kb.any(axis=0)
    if not bins.any():
        raise EstimateError("no counts inside the bins: there is nothing to reweight")
    if np.any(counts_kb[np.isneginf(log_w_kb)]):
        raise EstimateError("a rung has counts in a bin where its weight is zero")
    require_connected(counts_kb, names)

    weights = np.ones(n_rungs) if weight_k is None else np.asarray(weight_k, dtype=np.float64)
    n_kb = counts_kb[np.ix_(rungs, bins)] * weights[rungs, None]
    part_kb = np.asarray(log_w_kb, dtype=np.float64)[np.ix_(rungs, bins)]
    usable = f_k is not None and bool(np.isfinite(f_k[rungs]).all())
    start = np.array(f_k)[rungs] if usable else _first_guess(n_kb, part_kb)
    f_active, log_mix_b, iterations = _newton(
        n_kb, part_kb, start - start[0], tolerance, max_iterations
    )

    log_g_b = np.full(counts_kb.shape[1], -np.inf)
    log_g_b[bins] = np.log(n_kb.sum(axis=0)) - log_mix_b
    f_all = -logsumexp(log_g_b[bins] + log_w_kb[:, bins], axis=1)
    f_all[rungs] = f_active
    return Solution(f_all, log_g_b, iterations)


def _first_guess(n_kb: FloatArray, log_w_kb: FloatArray) -> FloatArray:
    """Join neighbouring rungs by the trapezoidal rule of thermodynamic integration [K]."""
    p_kb = n_kb / n_kb.sum(axis=1, keepdims=True)
    with np.errstate(invalid="ignore"):
        change_kb = np.diff(log_w_kb, axis=0)
    change_kb[~np.isfinite(change_kb)] = 0.0
    step_k = -0.5 * ((p_kb[:-1] + p_kb[1:]) * change_kb).sum(axis=1)
    return np.concatenate([[0.0], np.cumsum(step_k)])


def _mixture(
    f_k: FloatArray, log_n_k: FloatArray, log_w_kb: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return each bin's shares among the rungs p_kb [K, B] and log sum_k n_k e^f_k w_kb [B]."""
    p_kb = (log_n_k + f_k)[:, None] + log_w_kb
    top_b = p_kb.max(axis=0)
    p_kb -= top_b
    np.exp(p_kb, out=p_kb)
    sum_b = p_kb.sum(axis=0)
    p_kb /= sum_b
    return p_kb, top_b + np.log(sum_b)


def _newton(
    n_kb: FloatArray,
    log_w_kb: FloatArray,
    f_k: FloatArray,
    tolerance: float,
    max_iterations: int,
) -> tuple[FloatArray, FloatArray, int]:
    """Minimize A(f) with f_0 = 0 held; every rung and every bin has counts.

    Where the Newton step is not usable (A flat to rounding, no descent), one self-consistent
    step is taken instead: it never raises A.
    """
    n_k, h_b = n_kb.sum(axis=1), n_kb.sum(axis=0)
    log_n_k, scale = np.log(n_k), 1.0 / np.sqrt(n_k)
    p_kb, log_mix_b = _mixture(f_k, log_n_k, log_w_kb)
    for iteration in range(1, max_iterations + 1):
        if len(f_k) == 1:
            return f_k, log_mix_b, 0
        expected_k = p_kb @ h_b
        gradient = expected_k - n_k
        hessian = (np.diag(expected_k) - (p_kb * h_b) @ p_kb.T) * np.outer(scale, scale)
        curvature, modes = np.linalg.eigh(hessian[1:, 1:])
        accepted = False
        if curvature[0] > 4.0 * len(f_k) * EPS:
            step = np.zeros_like(f_k)
            step[1:] = -scale[1:] * (modes @ (modes.T @ (scale * gradient)[1:] / curvature))
            if np.abs(step).max() <= max(tolerance, 8.0 * EPS / curvature[0]):
                f_k = f_k + step
                return f_k, _mixture(f_k, log_n_k, log_w_kb)[1], iteration
            slack = 64.0 * EPS * (h_b @ np.abs(log_mix_b))
            for size in 0.5 ** np.arange(30):
                trial = f_k + size * step
                p_trial, log_mix_trial = _mixture(trial, log_n_k, log_w_kb)
                change = h_b @ (log_mix_trial - log_mix_b) - size * (n_k @ step)
                if change <= 1e-4 * size * (gradient @ step) + slack:
                    f_k, p_kb, log_mix_b, accepted = trial, p_trial, log_mix_trial, True
                    break
        if not accepted:
            f_k = -logsumexp(np.log(h_b) - log_mix_b + log_w_kb, axis=1)
            f_k = f_k - f_k[0]
            p_kb, log_mix_b = _mixture(f_k, log_n_k, log_w_kb)
    raise EstimateError(
        f"the multi-histogram equations did not converge to {tolerance:g} in {max_iterations} "
        f"steps (residual {np.abs(np.log((p_kb @ h_b) / n_k)).max():.1e})"
    )
