"""Normalizing two models' densities, so that they can be set beside each other.

A run without beta = 0 knows its density up to a constant factor. Let log g_A and log g_B be known
up to c_A and c_B; a *shift* is an estimate of c_A - c_B: what to add to log g_B to have it on the
scale of log g_A. There are four ways to it:

- cross-model (OmniInput, Liu et al., TMLR 2025, Eq. 5 and 6): X is the set of inputs that both
  models put in Z = [z-, z+]. Its size, by run A in units of exp(c_A) and by run B in units of
  exp(c_B), is one and the same number, so that shift = ln |X|_A - ln |X|_B, and H(z) / |X| can be
  compared. Samples of a ladder are not uniform over the inputs: both H and |X| count each sample
  by w = 1 / sum_k N_k exp(f_k - beta_k z); an input that was met twice counts twice.
- Bennett's acceptance ratio (J. Comput. Phys. 22, 245 (1976), Eq. 12) between the mixtures of
  rungs M(x) = sum_k N_k exp(f_k - beta_k z(x)) of both runs, over all samples of both.
- absolute: with beta = 0 on both ladders c_A = c_B = 0.
- entire distribution (the same paper, section 2.3): the area of each is 1.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logsumexp

from omniinput_hpc.estimators import EstimateError
from omniinput_hpc.estimators.density.density import Density
from omniinput_hpc.estimators.errors.jackknife import Replicated, of_first, of_second
from omniinput_hpc.histogram import bin_of, lane_groups

FloatArray = NDArray[np.float64]
CHUNK = 1 << 18


@dataclass(frozen=True)
class Pairs:
    """A run's samples inside its bins, with both models' outputs.

    Attributes
    ----------
    own_i, other_i : float64 [n], z of the run's model and of the other one
    bin_i : int64 [n], bin of own_i
    group_i : int64 [n], group of lanes
    """

    own_i: FloatArray
    other_i: FloatArray
    bin_i: NDArray[np.int64]
    group_i: NDArray[np.int64]


def pairs_of(
    density: Density, z_rks: NDArray[np.float32], other_rks: NDArray[np.float32], walkers: int
) -> Pairs:
    """Return the samples inside the bins.

    Parameters
    ----------
    density : Density of the run
    z_rks, other_rks : float32 [R, K, S], both models' outputs of the same samples, time-major
    walkers : int

    Raises
    ------
    EstimateError
        No sample lies inside the bins, or the run's rungs are laws of the inputs themselves.
    """
    if density.rung_weights is None or density.ancestral:
        raise EstimateError(
            "an ancestral run's samples, or several runs', cannot be normalized across models yet"
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


def log_mixture(density: Density, z_i: FloatArray) -> FloatArray:
    """Return ln of M(z) / N at outputs [n]; -inf outside the bins, where nothing was counted."""
    log_m = np.full(len(z_i), -np.inf)
    bins = bin_of(z_i, density.edges)
    inside = np.flatnonzero((bins >= 0) & (bins < len(density.edges) - 1))
    for begin in range(0, len(inside), CHUNK):
        some = inside[begin : begin + CHUNK]
        log_m[some] = density.log_mixture(z_i[some])
    return np.asarray(log_m - np.log(density.n_k.sum()), dtype=np.float64)


def _mixture_change(density: Density, j: int) -> Callable[[FloatArray], FloatArray]:
    """Return the function by which ln M changes without lane group j, linear between the bins.

    The free energies of the replicate follow from its density: exp(-f_k) = sum_b g_b w_kb.
    """
    bins = np.flatnonzero(density.count_b)
    z_b, part = density.z_b[bins], density.n_k > 0
    assert density.rung_weights is not None  # see pairs_of
    log_w_kb = density.rung_weights.at_bins(density.z_b)[np.ix_(part, bins)]
    f_k = -logsumexp(density.log_g_jb[j, bins] + log_w_kb, axis=1)
    log_nf_k = np.log(density.n_k[part].astype(np.float64)) + f_k
    change_b = logsumexp(log_nf_k[:, None] + log_w_kb, axis=0) - density.log_mixture(z_b)
    return lambda z: np.asarray(np.interp(z, z_b, change_b))


def in_range(z: FloatArray, low: float, high: float) -> NDArray[np.bool_]:
    """Return whether outputs lie in Z = [low, high]."""
    return np.asarray((z >= low) & (z <= high), dtype=np.bool_)


def log_count_where(
    density: Density, pairs: Pairs, chosen_i: NDArray[np.bool_], known_b: FloatArray | None = None
) -> tuple[float, FloatArray]:
    """Return ln of the reweighted number of inputs that a property of the samples chooses.

    Each bin's number of inputs times the weighted share of its samples that are chosen.

    Parameters
    ----------
    density : Density of the run
    pairs : its samples
    chosen_i : bool [n]
    known_b : float64 [B], optional; shares that are known without samples, else NaN

    Returns
    -------
    log_count : float, -inf where no sample is chosen
    log_count_j : float64 [G], without lane group j
    """
    n_bins, n_groups = len(density.count_b), len(density.lanes_g)
    middle_b = 0.5 * (density.edges[:-1] + density.edges[1:])
    reference_b = log_mixture(density, np.where(density.count_b > 0, density.z_b, middle_b))
    weight_i = np.exp(reference_b[pairs.bin_i] - log_mixture(density, pairs.own_i))
    cell_i, size = pairs.group_i * n_bins + pairs.bin_i, n_groups * n_bins
    all_gb = np.bincount(cell_i, weight_i, size).reshape(n_groups, n_bins)
    chosen_gb = np.bincount(cell_i, weight_i * chosen_i, size).reshape(n_groups, n_bins)

    def log_count(log_g_b: FloatArray, all_b: FloatArray, chosen_b: FloatArray) -> float:
        sampled = all_b > 0
        share_b = np.zeros(n_bins)
        share_b[sampled] = np.minimum(chosen_b[sampled] / all_b[sampled], 1.0)
        gaps = np.flatnonzero((density.count_b > 0) & ~sampled)
        if gaps.size:  # few counts, no sample: as the neighbours
            share_b[gaps] = np.interp(middle_b[gaps], middle_b[sampled], share_b[sampled])
        if known_b is not None:
            share_b = np.where(np.isnan(known_b), share_b, known_b)
        with np.errstate(divide="ignore"):
            terms = log_g_b + np.log(share_b)
        return float(logsumexp(terms[density.count_b > 0]))

    total_b, sum_b = all_gb.sum(axis=0), chosen_gb.sum(axis=0)
    replicates = [
        log_count(density.log_g_jb[j], total_b - all_gb[j], sum_b - chosen_gb[j])
        if n_groups > 1
        else np.nan
        for j in range(n_groups)
    ]
    # Only one group saw any: the error is not known.
    alone_j = (sum_b.sum() - chosen_gb.sum(axis=1)) <= 1e-12 * max(sum_b.sum(), 1e-300)
    log_count_j = np.where(alone_j & (known_b is None), np.nan, np.array(replicates))
    return log_count(density.log_g_b, total_b, sum_b), log_count_j


def log_count_in(
    density: Density, pairs: Pairs, low: float, high: float
) -> tuple[float, FloatArray]:
    """Return ln of the number of inputs with output in Z, and without each lane group.

    Bins that Z cuts count by the weighted share of their samples in Z.

    Raises
    ------
    EstimateError
        No bin with counts lies in Z.
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
    """The inputs that both models put in Z, as the samples of both runs see them.

    Attributes
    ----------
    log_count_a, log_count_b : Replicated, ln |X| by each run
    samples_a, samples_b : int, samples of each run in X, repeated ones counted again
    share_a, share_b : float, share of the model's inputs in Z that the other one has there, too
    """

    log_count_a: Replicated
    log_count_b: Replicated
    samples_a: int
    samples_b: int
    share_a: float
    share_b: float

    @property
    def shift(self) -> Replicated:
        """The cross-model shift, ln |X|_A - ln |X|_B."""
        return self.log_count_a - self.log_count_b


def count_common(
    a: Density, b: Density, pairs_a: Pairs, pairs_b: Pairs, low: float, high: float
) -> Common:
    """Count X = {x: both models' outputs in Z} in either run's units (Eq. 5 and 6).

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
        of_first(x_a, x_aj, n_b),
        of_second(x_b, x_bj, n_a),
        samples[0],
        samples[1],
        float(np.exp(x_a - own_a)),
        float(np.exp(x_b - own_b)),
    )


def bennett_ratio(d_a: FloatArray, d_b: FloatArray, start: float | None = None) -> float:
    """Return ln(Z_A / Z_B) of two unnormalized laws m_A and m_B from samples of both.

    Solves sum_{i in A} 1 / (1 + exp(d_i + L - c)) = sum_{j in B} 1 / (1 + exp(c - L - d_j)) with
    L = ln(n_A / n_B) for c (Bennett 1976, Eq. 12; Shirts et al., Phys. Rev. Lett. 91, 140601).

    Parameters
    ----------
    d_a, d_b : float64 [n_A], [n_B], ln m_A - ln m_B at the samples of each law; +inf in d_a where
        m_B = 0, -inf in d_b where m_A = 0
    start : where to begin

    Raises
    ------
    EstimateError
        The laws do not overlap: no sample of one is possible under the other.
    """
    finite_a, finite_b = d_a[np.isfinite(d_a)], d_b[np.isfinite(d_b)]
    if not (finite_a.size and finite_b.size):
        raise EstimateError("no sample of one run lies inside the bins of the other model")
    offset = np.log(len(d_a) / len(d_b))
    low = min(finite_a.min(), finite_b.min()) + offset - 40.0
    high = max(finite_a.max(), finite_b.max()) + offset + 40.0
    c = start if start is not None else 0.5 * float(np.median(finite_a) + np.median(finite_b))
    for _ in range(200):
        s_a, s_b = expit(c - offset - finite_a), expit(offset + finite_b - c)
        balance = s_a.sum() - s_b.sum()  # grows with c
        low, high = (c, high) if balance < 0 else (low, c)
        slope = (s_a * (1.0 - s_a)).sum() + (s_b * (1.0 - s_b)).sum()
        step = -balance / slope if slope > 0 else np.inf
        inside = low < c + step < high
        following = c + step if inside else 0.5 * (low + high)
        if abs(following - c) < 1e-11 * max(1.0, abs(c)):
            return float(following)
        c = following
    raise EstimateError("Bennett's equation did not converge")


def bennett_shift(a: Density, b: Density, pairs_a: Pairs, pairs_b: Pairs) -> Replicated:
    """Return the shift by Bennett's acceptance ratio over all samples of both runs.

    Raises
    ------
    EstimateError
        See `bennett_ratio`.
    """
    own_a, other_a = log_mixture(a, pairs_a.own_i), log_mixture(b, pairs_a.other_i)
    own_b, other_b = log_mixture(b, pairs_b.own_i), log_mixture(a, pairs_b.other_i)
    d_a, d_b = own_a - other_a, other_b - own_b
    c = bennett_ratio(d_a, d_b)
    # Z_A = exp(-c_A): see log_mixture with f_k of absolute densities, which sum to 1.
    a_j, b_j = np.full(len(a.lanes_g), np.nan), np.full(len(b.lanes_g), np.nan)
    for j in range(len(a_j) if len(a_j) > 1 else 0):
        if np.isfinite(a.log_g_jb[j][a.count_b > 0]).any():
            keep, change = pairs_a.group_i != j, _mixture_change(a, j)
            rest = (d_a + change(pairs_a.own_i))[keep]
            a_j[j] = -bennett_ratio(rest, d_b + change(pairs_b.other_i), c)
    for j in range(len(b_j) if len(b_j) > 1 else 0):
        if np.isfinite(b.log_g_jb[j][b.count_b > 0]).any():
            keep, change = pairs_b.group_i != j, _mixture_change(b, j)
            rest = (d_b - change(pairs_b.own_i))[keep]
            b_j[j] = -bennett_ratio(d_a - change(pairs_a.other_i), rest, c)
    return Replicated(np.asarray(-c), a_j, b_j)


def absolute_shift(a: Density, b: Density) -> Replicated:
    """Return the shift of two absolute densities: 0, without an error of its own.

    Raises
    ------
    EstimateError
        A ladder has no moves at beta = 0 inside the bins.
    """
    for density, name in ((a, "first"), (b, "second")):
        if not density.absolute:
            raise EstimateError(f"the {name} run's ladder has no moves at beta = 0 in its bins")
    return Replicated(np.asarray(0.0), np.zeros(len(a.lanes_g)), np.zeros(len(b.lanes_g)))


def entire_shift(a: Density, b: Density) -> Replicated:
    """Return the shift that makes both areas 1.

    Raises
    ------
    EstimateError
        A run does not cover its model's entire distribution (see `why_not_entire`).
    """
    for density, name in ((a, "first"), (b, "second")):
        reason = why_not_entire(density)
        if reason is not None:
            raise EstimateError(f"the {name} run does not cover the entire distribution: {reason}")
    total_a = of_first(logsumexp(a.log_g_b), logsumexp(a.log_g_jb, axis=1), len(b.lanes_g))
    total_b = of_second(logsumexp(b.log_g_b), logsumexp(b.log_g_jb, axis=1), len(a.lanes_g))
    return total_a - total_b


def why_not_entire(density: Density) -> str | None:
    """Return why a density's area must not be called 1; None where it may.

    Counts outside the bins are inputs that the area lacks. Without beta = 0 between the ladder's
    ends the bulk of the inputs lies beyond what was sampled: log g still rises there.
    """
    outside = int(density.outside_k2.sum())
    if outside:
        uniform_k = density.beta_k == 0.0
        if uniform_k.any() and density.share_inside < 1.0:
            return f"{1.0 - density.share_inside:.3g} of all inputs lie outside the bins"
        share = outside / (outside + int(density.count_b.sum()))
        return f"{share:.3g} of the moves of all rungs fell outside the bins"
    if density.beta_k.min() > 0 or density.beta_k.max() < 0:
        high = density.beta_k.min() > 0
        filled = np.flatnonzero(density.count_b)
        last = filled[-1] if high else filled[0]
        share = float(np.exp(density.log_g_b[last] - logsumexp(density.log_g_b)))
        return (
            f"the {'high' if high else 'low'} tail was not reached (no beta "
            f"{'<=' if high else '>='} 0): its last bin, {density.edges[last]:g} to "
            f"{density.edges[last + 1]:g}, holds {share:.3g} of the area"
        )
    return None
