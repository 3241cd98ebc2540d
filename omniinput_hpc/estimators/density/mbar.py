"""MBAR: the multi-histogram equations for the recorded samples, without bins.

With a cell for every sample i (Shirts & Chodera, J. Chem. Phys. 129, 124105 (2008), Eq. 11),

    exp(-f_k) = sum_i w_k(z_i) / sum_l N_l exp(f_l) w_l(z_i),

and any average over inputs, or over a rung's distribution, is a weighted sum over samples (Eq. 9
and 15): sample i represents 1 / sum_l N_l exp(f_l) w_l(z_i) inputs. Samples with equal z share a
cell.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from omniinput_hpc.estimators import BoolArray, EstimateError, FloatArray, IntArray
from omniinput_hpc.estimators.density.newton import minimize
from omniinput_hpc.estimators.density.rung_weights import RungWeights
from omniinput_hpc.estimators.errors.jackknife import jackknife_error
from omniinput_hpc.estimators.run_data import RunData, evenly_spaced_rounds, require_rounds
from omniinput_hpc.histogram import lane_groups

Function = Callable[[FloatArray], FloatArray]
MAX_SAMPLES = 1_000_000  # samples to read; evenly spaced rounds of longer runs


@dataclass(frozen=True)
class Samples:
    """Recorded outputs of a run; equal ones are merged.

    Attributes
    ----------
    z_u : float64 [U], different outputs, ascending
    count_gu : int64 [G, U], samples with that output, per group of lanes
    n_gk : int64 [G, K], samples per rung
    lanes_g : int64 [G]
    weights : RungWeights
    log_measure : float, log of the measure of the whole space
    """

    z_u: FloatArray
    count_gu: IntArray
    n_gk: IntArray
    lanes_g: IntArray
    weights: RungWeights
    log_measure: float


@dataclass(frozen=True)
class Unbinned:
    """The solution of the equations.

    Attributes
    ----------
    f_k : float64 [K]; absolute if a rung is uniform, else f_0 = 0
    log_weight_u : float64 [U], log of the number of inputs that a sample with output z_u represents
    absolute : bool
    """

    f_k: FloatArray
    log_weight_u: FloatArray
    absolute: bool


def read_samples(run: RunData, max_samples: int = MAX_SAMPLES) -> Samples:
    """Read a run's recorded outputs, a few rounds at a time.

    Raises
    ------
    EstimateError
        No committed round; an ancestral or annealed run, whose draws carry weights.
    """
    require_rounds(run)
    if run.ancestral:
        raise EstimateError(
            f"{run.path} is an ancestral or annealed run: its free energies are known, so there is "
            "nothing to solve"
        )
    n_rungs = len(run.beta_k)
    group_s = run.group_s
    n_groups = int(group_s.max()) + 1
    per_round = n_rungs * run.samples_per_round
    rounds = evenly_spaced_rounds(run, max_samples)
    z_u, count_gu = np.zeros(0), np.zeros((n_groups, 0), dtype=np.int64)
    pending: list[NDArray[np.float32]] = []
    for i, round_ in enumerate(rounds):
        pending.append(run.z(slice(round_, round_ + 1))[0])
        if i == len(rounds) - 1 or len(pending) * per_round > max_samples // 8:
            z_n = np.concatenate([z.ravel() for z in pending]).astype(np.float64)
            group_n = np.tile(group_s, n_rungs * len(pending))
            z_u, count_gu = _merge(z_u, count_gu, z_n, group_n)
            pending = []
    n_gk = np.repeat(np.bincount(group_s)[:, None] * len(rounds), n_rungs, axis=1)
    lanes_g = np.bincount(lane_groups(run.walkers))
    return Samples(z_u, count_gu, n_gk, lanes_g, run.weights, run.log_measure)


def _merge(
    z_u: FloatArray, count_gu: IntArray, z_n: FloatArray, group_n: IntArray
) -> tuple[FloatArray, IntArray]:
    """Add samples to the counts of different outputs."""
    z_all, cell = np.unique(np.concatenate([z_u, z_n]), return_inverse=True)
    merged = np.zeros((len(count_gu), len(z_all)), dtype=np.int64)
    merged[:, cell[: len(z_u)]] = count_gu
    np.add.at(merged, (group_n, cell[len(z_u) :]), 1)
    return z_all, merged


def mbar(
    samples: Samples, keep_g: BoolArray | None = None, f_k: FloatArray | None = None
) -> Unbinned:
    """Solve the equations for the samples of some groups of lanes (default: all).

    Raises
    ------
    EstimateError
        No convergence: rungs do not overlap.
    """
    keep = np.ones(len(samples.lanes_g), dtype=bool) if keep_g is None else keep_g
    count_u = samples.count_gu[keep].sum(axis=0)
    used = count_u > 0
    z_n, h_n = samples.z_u[used], count_u[used].astype(np.float64)
    n_k = samples.n_gk[keep].sum(axis=0).astype(np.float64)
    weights = samples.weights
    known = np.where(weights.uniform_k, -samples.log_measure, np.nan)
    absolute = bool(weights.uniform_k.any())
    if not absolute:
        known[0] = 0.0
    # Relative to the weights at the mean output, so that all f_k are near 0 (see `wham`).
    shift_k = _middle(weights, z_n, h_n)
    start = f_k + shift_k if f_k is not None else np.zeros(len(n_k))
    found = minimize(
        lambda a, b: weights.at(z_n[a:b]) - shift_k[:, None], n_k, h_n, start, known + shift_k
    )
    log_weight_u = np.full(len(samples.z_u), -np.inf)
    log_weight_u[used] = -found.log_mix_b
    return Unbinned(found.f_k - shift_k, log_weight_u, absolute)


def _middle(weights: RungWeights, z_n: FloatArray, h_n: FloatArray) -> FloatArray:
    """Return the rungs' log-weights at the samples' mean output [K]; 0 if the weight is 0 there."""
    middle = float(np.average(z_n, weights=h_n))
    log_w_k = weights.at(np.array([middle]))[:, 0]
    return np.where(np.isfinite(log_w_k), log_w_k, 0.0)


def free_energy_errors(samples: Samples, solution: Unbinned) -> FloatArray:
    """Return the standard errors of f_k - f_0 from groups of lanes [K]; inf if unknown."""
    groups = np.arange(len(samples.lanes_g))
    f_jk = np.full((len(groups), len(solution.f_k)), np.nan)
    for j in groups if len(groups) > 1 else []:
        f_jk[j] = mbar(samples, groups != j, solution.f_k).f_k
    f_k = solution.f_k
    return jackknife_error(f_k - f_k[0], f_jk - f_jk[:, :1], samples.lanes_g)
