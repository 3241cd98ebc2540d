"""Count the inputs that two models put in a range of outputs, from samples that both evaluated.

Samples from a ladder are not uniform over the inputs. Each is weighted by
w = 1 / sum_k N_k exp(f_k - beta_k z), and an input that was recorded twice counts twice.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import NDArray

from omniinput_hpc.estimators import BoolArray, EstimateError, FloatArray, IntArray
from omniinput_hpc.estimators.density.density import Density
from omniinput_hpc.estimators.errors.jackknife import Replicates, from_first_run, from_second_run
from omniinput_hpc.histogram import bin_of, lane_groups

CHUNK_SAMPLES = 1 << 18


@dataclass(frozen=True)
class Pairs:
    """A run's samples inside its bins, with both models' outputs.

    Attributes
    ----------
    own_i, other_i : float64 [n], z by the run's own model and by the other one
    bin_i : int64 [n], bin of own_i
    group_i : int64 [n], lane group
    """

    own_i: FloatArray
    other_i: FloatArray
    bin_i: IntArray
    group_i: IntArray


def pairs_of(
    density: Density, z_rks: NDArray[np.float32], other_rks: NDArray[np.float32], walkers: int
) -> Pairs:
    """Return a run's samples inside its bins.

    z_rks and other_rks, float32 [R, K, S], hold both models' outputs of the same samples, in order
    of time.

    Raises
    ------
    EstimateError
        No sample lies inside the bins, or the density is of an ancestral run or of several runs.
    """
    if density.rung_weights is None or density.ancestral:
        raise EstimateError(
            "samples of an ancestral run or of several runs cannot be normalized across models yet"
        )
    z = z_rks.astype(np.float64).ravel()
    group_s = np.resize(lane_groups(walkers), z_rks.shape[2])
    bins = bin_of(z, density.edges)
    inside = (bins >= 0) & (bins < len(density.edges) - 1)
    if not inside.any():
        raise EstimateError("a run has no recorded samples inside its bins")
    group = np.broadcast_to(group_s, z_rks.shape).ravel()
    other = other_rks.astype(np.float64).ravel()
    return Pairs(z[inside], other[inside], bins[inside], group[inside])


def log_mean_mixture(density: Density, z_i: FloatArray) -> FloatArray:
    """Return ln(M(z) / N) at outputs [n]; -inf outside the bins, where nothing was counted."""
    log_m = np.full(len(z_i), -np.inf)
    bins = bin_of(z_i, density.edges)
    inside = np.flatnonzero((bins >= 0) & (bins < len(density.edges) - 1))
    for begin in range(0, len(inside), CHUNK_SAMPLES):
        some = inside[begin : begin + CHUNK_SAMPLES]
        log_m[some] = density.log_mixture(z_i[some])
    return np.asarray(log_m - np.log(density.n_k.sum()), dtype=np.float64)


def in_range(z: FloatArray, low: float, high: float) -> BoolArray:
    """Return whether outputs lie in Z = [low, high]."""
    return np.asarray((z >= low) & (z <= high), dtype=np.bool_)


def log_count_where(
    density: Density, pairs: Pairs, chosen_i: BoolArray, known_b: FloatArray | None = None
) -> tuple[float, FloatArray]:
    """Return ln of the reweighted number of inputs, counting only the chosen samples.

    It sums, over the bins, the number of inputs times the weighted share of chosen samples.

    Parameters
    ----------
    chosen_i : bool [n]
    known_b : float64 [B], optional; shares that are known without samples, NaN elsewhere

    Returns
    -------
    log_count : float; -inf if no sample is chosen
    log_count_j : float64 [G], without lane group j
    """
    n_bins, n_groups = len(density.count_b), len(density.lanes_g)
    middle_b = 0.5 * (density.edges[:-1] + density.edges[1:])
    reference_b = log_mean_mixture(density, np.where(density.count_b > 0, density.z_b, middle_b))
    weight_i = np.exp(reference_b[pairs.bin_i] - log_mean_mixture(density, pairs.own_i))
    cell_i, size = pairs.group_i * n_bins + pairs.bin_i, n_groups * n_bins
    all_gb = np.bincount(cell_i, weight_i, size).reshape(n_groups, n_bins)
    chosen_gb = np.bincount(cell_i, weight_i * chosen_i, size).reshape(n_groups, n_bins)

    def log_count(log_g_b: FloatArray, all_b: FloatArray, chosen_b: FloatArray) -> float:
        sampled = all_b > 0
        share_b = np.zeros(n_bins)
        share_b[sampled] = np.minimum(chosen_b[sampled] / all_b[sampled], 1.0)
        gaps = np.flatnonzero((density.count_b > 0) & ~sampled)
        if gaps.size:  # counts but no sample: take the share from the neighbouring bins
            share_b[gaps] = np.interp(middle_b[gaps], middle_b[sampled], share_b[sampled])
        if known_b is not None:
            share_b = np.where(np.isnan(known_b), share_b, known_b)
        with np.errstate(divide="ignore"):
            terms = log_g_b + np.log(share_b)
        return float(scipy.special.logsumexp(terms[density.count_b > 0]))

    total_b, sum_b = all_gb.sum(axis=0), chosen_gb.sum(axis=0)
    log_count_j = np.full(n_groups, np.nan)
    for j in range(n_groups if n_groups > 1 else 0):
        log_count_j[j] = log_count(density.log_g_jb[j], total_b - all_gb[j], sum_b - chosen_gb[j])
    # If only one group has chosen samples, the error is unknown.
    alone_j = (sum_b.sum() - chosen_gb.sum(axis=1)) <= 1e-12 * max(sum_b.sum(), 1e-300)
    log_count_j[alone_j & (known_b is None)] = np.nan
    return log_count(density.log_g_b, total_b, sum_b), log_count_j


def log_count_in(
    density: Density, pairs: Pairs, low: float, high: float
) -> tuple[float, FloatArray]:
    """Return ln of the number of inputs with output in Z, also without each lane group.

    If Z covers only part of a bin, the bin counts by the weighted share of its samples in Z.

    Raises
    ------
    EstimateError
        No bin in Z has counts.
    """
    lower, upper = density.edges[:-1], density.edges[1:]
    near = 1e-9 * (upper - lower)
    known_b = np.full(len(lower), np.nan)
    known_b[(lower >= low - near) & (upper <= high + near)] = 1.0
    known_b[(upper <= low + near) | (lower >= high - near)] = 0.0
    count = log_count_where(density, pairs, in_range(pairs.own_i, low, high), known_b)
    if not np.isfinite(count[0]):
        raise EstimateError(f"a model has no counts in the range {low:g} to {high:g}")
    return count


@dataclass(frozen=True)
class Common:
    """The inputs X that both models put in Z, estimated from the samples of both runs.

    Attributes
    ----------
    log_count_a, log_count_b : Replicates, ln |X| by each run
    samples_a, samples_b : int, samples of each run in X, repeated inputs counted each time
    share_a, share_b : float, share of each model's inputs in Z that the other model also puts in Z
    """

    log_count_a: Replicates
    log_count_b: Replicates
    samples_a: int
    samples_b: int
    share_a: float
    share_b: float

    @property
    def shift(self) -> Replicates:
        """The cross-model shift, ln |X|_A - ln |X|_B."""
        return self.log_count_a - self.log_count_b


def count_common(
    a: Density, b: Density, pairs_a: Pairs, pairs_b: Pairs, low: float, high: float
) -> Common:
    """Count X = {x: both outputs in Z} in the units of each run (Liu et al. 2025, Eq. 5 and 6).

    Raises
    ------
    EstimateError
        One of the runs has no sample in X.
    """
    counts, samples = [], []
    for density, pairs, name in ((a, pairs_a, "first"), (b, pairs_b, "second")):
        both = in_range(pairs.own_i, low, high) & in_range(pairs.other_i, low, high)
        samples.append(int(both.sum()))
        if not both.any():
            raise EstimateError(
                f"the {name} run has no sample that both models put in {low:g} to {high:g}; "
                "widen --range or run longer"
            )
        own = log_count_in(density, pairs, low, high)[0]
        counts.append((*log_count_where(density, pairs, both), own))
    n_a, n_b = len(a.lanes_g), len(b.lanes_g)
    (x_a, x_aj, own_a), (x_b, x_bj, own_b) = counts
    return Common(
        from_first_run(x_a, x_aj, n_b),
        from_second_run(x_b, x_bj, n_a),
        samples[0],
        samples[1],
        float(np.exp(x_a - own_a)),
        float(np.exp(x_b - own_b)),
    )
