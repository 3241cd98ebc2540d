"""Multi-histogram reweighting: one density of states from the histograms of all rungs.

Rung k draws inputs with probability proportional to w_k(z). With n_kb (weighted) counts in bin b
and n_k = sum_b n_kb, the maximum-likelihood number of inputs g_b and free energies f_k obey
(Ferrenberg & Swendsen, Phys. Rev. Lett. 63, 1195 (1989))

    g_b = sum_k n_kb / sum_k n_k exp(f_k) w_kb,      exp(-f_k) = sum_b g_b w_kb.

They are the stationary point of a convex function of f (Shirts & Chodera, J. Chem. Phys. 129,
124105 (2008), appendix C; Zhu & Hummer, J. Comput. Chem. 33, 453 (2012)),

    A(f) = sum_b H_b log(sum_k n_k exp(f_k) w_kb) - sum_k n_k f_k,     H_b = sum_k n_kb,

which is minimized by Newton's method in log space (`newton`).

A known f_k (beta = 0: f = -log n_values^D; inputs drawn from a normalized distribution: f = 0) is
kept: A(f) stays convex in the other f_k, and only their equations are solved. One known f_k only
fixes the common constant, because A(f) does not change if all f_k move together; two or more also
determine the ratios between the other rungs more precisely.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import scipy
from numpy.typing import NDArray

from omniinput_hpc.estimators import BoolArray, EstimateError, FloatArray, IntArray
from omniinput_hpc.estimators.density.newton import minimize


@dataclass(frozen=True)
class Solution:
    """The solution of the equations; without a known f_k, the first rung with counts has f = 0.

    Attributes
    ----------
    f_k : float64 [K], free energies -log sum_b g_b w_kb, also of rungs without counts
    log_g_b : float64 [B], log number of inputs; -inf in bins without counts
    iterations : int, Newton steps taken
    """

    f_k: FloatArray
    log_g_b: FloatArray
    iterations: int


def mean_outputs(
    counts_kb: NDArray[np.integer], z_sum_kb: FloatArray, edges: FloatArray
) -> FloatArray:
    """Return each bin's mean z over all rungs [B]; NaN in bins without counts.

    The mean is clipped to the bin, because rounding in a long sum could move it out.
    """
    count_b = np.asarray(counts_kb).sum(axis=0)
    z_b = np.full(len(count_b), np.nan)
    filled = count_b > 0
    z_b[filled] = np.asarray(z_sum_kb).sum(axis=0)[filled] / count_b[filled]
    return np.asarray(np.clip(z_b, edges[:-1], edges[1:]))


def require_connected(
    counts_kb: NDArray[np.integer] | FloatArray,
    label_k: Sequence[str],
    known_k: BoolArray | None = None,
) -> None:
    """Check that shared bins join all rungs: otherwise the ratio of their densities is unknown.

    Parameters
    ----------
    counts_kb : [K, B]; rungs without counts are ignored
    label_k : names of the rungs for the message
    known_k : bool [K], rungs with a known normalizer, which need no shared bin

    Raises
    ------
    EstimateError
        Names the rungs, neighbours in z, on both sides of each gap.
    """
    seen_kb = np.asarray(counts_kb) > 0
    active = np.flatnonzero(seen_kb.any(axis=1))
    shared = seen_kb[active].astype(np.float32)
    joined = (shared @ shared.T) > 0
    if known_k is not None:
        joined |= np.outer(known_k[active], known_k[active])
    if joined.diagonal(1).all():  # each with the next, as in most runs
        return
    n_parts, part_k = scipy.sparse.csgraph.connected_components(joined, directed=False)
    if n_parts > 1:
        order = _order_in_z(np.asarray(counts_kb)[active])
        gaps = [
            " and ".join(label_k[k] for k in sorted((active[i], active[j])))
            for i, j in pairwise(order)
            if part_k[i] != part_k[j]
        ]
        raise EstimateError(
            f"rungs share no bin, so the ratio of their densities is not known: between "
            f"{'; between '.join(sorted(gaps))}. Add rungs between them, widen the bins, or run "
            "longer"
        )


def solve(
    counts_kb: NDArray[np.integer] | FloatArray,
    log_w_kb: FloatArray,
    *,
    weight_k: FloatArray | None = None,
    f_k: FloatArray | None = None,
    known_f_k: FloatArray | None = None,
    label_k: Sequence[str] | None = None,
    tolerance: float = 1e-10,
) -> Solution:
    """Solve the multi-histogram equations.

    Parameters
    ----------
    counts_kb : [K, B], counts; rungs and bins may be empty
    log_w_kb : float64 [K, B], log-weights: -beta_k z_b for a canonical rung; -inf if impossible
    weight_k : float64 [K], weights of the rungs' counts: 1 / statistical inefficiency (default 1)
    f_k : float64 [K], where to start, e.g. the solution with all groups (optional)
    known_f_k : float64 [K], free energies to keep; NaN if unknown (default: all unknown). If a rung
        has moves outside the bins, pass f + log(all its moves / those inside).
    label_k : names of the rungs for messages (default "rung 0", ...)
    tolerance : largest change of any f_k in the last Newton step, or what rounding permits

    Raises
    ------
    EstimateError
        No counts, rungs that share no bin, or no convergence.
    """
    counts_kb = np.asarray(counts_kb, dtype=np.float64)
    n_rungs = len(counts_kb)
    names = [f"rung {k}" for k in range(n_rungs)] if label_k is None else list(label_k)
    known = np.full(n_rungs, np.nan) if known_f_k is None else np.asarray(known_f_k, np.float64)
    _require_possible(counts_kb, log_w_kb, names)
    require_connected(counts_kb, names, np.isfinite(known))
    rungs, bins = counts_kb.any(axis=1), counts_kb.any(axis=0)

    weights = np.ones(n_rungs) if weight_k is None else np.asarray(weight_k, dtype=np.float64)
    n_kb = counts_kb[np.ix_(rungs, bins)] * weights[rungs, None]
    part_kb = np.asarray(log_w_kb, dtype=np.float64)[np.ix_(rungs, bins)]
    # Relative to the cell with most counts: if z is around 1e6, so are the f_k, and rounding
    # would keep every step above `tolerance`.
    shift_k = part_kb[np.arange(len(part_kb)), n_kb.argmax(axis=1)]
    part_kb = part_kb - shift_k[:, None]
    n_k, h_b, known_k = n_kb.sum(axis=1), n_kb.sum(axis=0), known[rungs] + shift_k
    usable = f_k is not None and bool(np.isfinite(f_k[rungs]).all())
    start = np.array(f_k)[rungs] + shift_k if usable else _first_guess(n_kb, part_kb)
    if not np.isfinite(known_k).any():
        known_k[0] = shift_k[0]
    found = minimize(part_kb, n_k, h_b, start, known_k, tolerance)

    log_g_b = np.full(counts_kb.shape[1], -np.inf)
    log_g_b[bins] = np.log(h_b) - found.log_mix_b
    f_all = -scipy.special.logsumexp(log_g_b[bins] + np.asarray(log_w_kb)[:, bins], axis=1)
    f_all[rungs] = found.f_k - shift_k
    f_all[np.isfinite(known)] = known[np.isfinite(known)]  # to the last bit
    return Solution(f_all, log_g_b, found.iterations)


def _require_possible(counts_kb: FloatArray, log_w_kb: FloatArray, label_k: Sequence[str]) -> None:
    """Refuse histograms without counts, or with counts in bins where a rung's weight is zero."""
    if not counts_kb.any():
        raise EstimateError("no counts inside the bins: there is nothing to reweight")
    impossible_k = (counts_kb.astype(bool) & np.isneginf(log_w_kb)).any(axis=1)
    if impossible_k.any():
        label = label_k[int(np.argmax(impossible_k))]
        raise EstimateError(f"{label} has counts in a bin where its weight is zero")


def _order_in_z(counts_kb: FloatArray) -> IntArray:
    """Return the rungs in the order of their mean bin [K]: a ladder's order, or the reverse."""
    n_k = counts_kb.sum(axis=1)
    return np.argsort(counts_kb @ np.arange(counts_kb.shape[1]) / n_k, kind="stable")


def _first_guess(n_kb: FloatArray, log_w_kb: FloatArray) -> FloatArray:
    """Join neighbours in z by the trapezoidal rule of thermodynamic integration."""
    order = _order_in_z(n_kb)
    p_kb = n_kb[order] / n_kb[order].sum(axis=1, keepdims=True)
    with np.errstate(invalid="ignore"):
        change_kb = np.diff(log_w_kb[order], axis=0)
    change_kb[~np.isfinite(change_kb)] = 0.0
    step_k = -0.5 * ((p_kb[:-1] + p_kb[1:]) * change_kb).sum(axis=1)
    f_k = np.empty(len(order))
    f_k[order] = np.concatenate([[0.0], np.cumsum(step_k)])
    return f_k
