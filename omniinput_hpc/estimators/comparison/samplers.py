"""Do two samplers of one model agree: their densities, and the inputs that they found.

Bins are correlated (all hang on the same free energies), so that the agreement of all bins is not
judged bin by bin but by Hotelling's T^2 over a few groups of bins, with the covariance of the
jackknife of both runs and the degrees of freedom of Krishnamoorthy & Yu, Stat. Probab. Lett. 66,
161 (2004). Only the shape is compared: the groups' contrasts with the last one.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from scipy.special import fdtrc, logsumexp, stdtr

from omniinput_hpc.estimators import EstimateError, FloatArray, IntArray
from omniinput_hpc.estimators.density.density import Density
from omniinput_hpc.estimators.errors.jackknife import jackknife_deviations, welch_degrees
from omniinput_hpc.estimators.run_data import RunData, samples_in_bins
from omniinput_hpc.histogram import bin_of, lane_groups

MAX_BIN_GROUPS = 7
MAX_VALUE_CLASSES = 16
MIN_VALUE_SHARE = 0.02
MIN_P_VALUE = 0.01
"""Below this the samplers are said to disagree."""


@dataclass(frozen=True)
class SamplerComparison:
    """Two densities of one model.

    Attributes
    ----------
    bins : int64 [n], bins that both runs saw, with known errors
    delta_b, error_b : float64 [n], ln g of the first minus the second (laid on each other where
        one of them is relative), and its standard error
    group_g : int64 [m + 1], limits of the groups of bins, in `bins`
    t_squared, p : float, Hotelling's statistic over the groups and its p-value; NaN if not known
    inputs_p : float, p-value of the largest difference between the inputs found; NaN if not known
    inputs_where : str, where that difference lies
    n_features : int, shares of values that were compared
    """

    bins: IntArray
    delta_b: FloatArray
    error_b: FloatArray
    group_g: IntArray
    t_squared: float
    p: float
    inputs_p: float = np.nan
    inputs_where: str = ""
    n_features: int = 0


def compare_samplers(a: Density, b: Density) -> SamplerComparison:
    """Compare two densities of one model, by other samplers or seeds.

    Raises
    ------
    EstimateError
        Their bins differ, or no bin has known errors in both.
    """
    if not np.array_equal(a.edges, b.edges):
        raise EstimateError("the two runs have other [bins]; give both the same")
    error_b = np.hypot(a.log_g_error_b, b.log_g_error_b)
    use = (a.count_b > 0) & (b.count_b > 0) & np.isfinite(error_b) & (error_b > 0)
    bins = np.flatnonzero(use)
    if not bins.size:
        raise EstimateError("the two runs share no bin whose errors are known")
    delta, error = a.log_g_b[bins] - b.log_g_b[bins], error_b[bins]
    if not (a.absolute and b.absolute):
        delta = delta - np.average(delta, weights=1.0 / error**2)
    n_groups = min(MAX_BIN_GROUPS, (min(len(a.lanes_g), len(b.lanes_g)) + 1) // 2, len(bins))
    effective = 1.0 / (1.0 / a.count_b[bins] + 1.0 / b.count_b[bins])
    share = np.cumsum(effective) / effective.sum()
    limits = np.searchsorted(share, np.arange(1, n_groups) / n_groups) + 1
    group_g = np.unique(np.concatenate([[0], limits, [len(bins)]]))
    t_squared, p = _hotelling(a, b, bins, group_g)
    return SamplerComparison(bins, delta, error, group_g, t_squared, p)


def _hotelling(a: Density, b: Density, bins: IntArray, group_g: IntArray) -> tuple[float, float]:
    """Return T^2 of the groups' contrasts, and its p-value: if both distributions are the same."""

    def contrasts(log_g: FloatArray) -> FloatArray:
        part = log_g[..., bins]
        spans = pairwise(group_g)
        sums = np.stack([logsumexp(part[..., i:j], axis=-1) for i, j in spans], axis=-1)
        return np.asarray(sums[..., :-1] - sums[..., -1:])

    m = len(group_g) - 2
    known = all(np.isfinite(contrasts(d.log_g_jb)).all() and len(d.lanes_g) > 1 for d in (a, b))
    if m < 1 or not known:
        return np.nan, np.nan
    covariances = []
    for d in (a, b):
        deviation = jackknife_deviations(contrasts(d.log_g_b), contrasts(d.log_g_jb), d.lanes_g)
        covariances.append(deviation.T @ deviation)
    difference = contrasts(a.log_g_b) - contrasts(b.log_g_b)
    inverse = np.linalg.inv(covariances[0] + covariances[1])
    t_squared = float(difference @ inverse @ difference)
    spread = 0.0
    for d, covariance in zip((a, b), covariances, strict=True):
        part = covariance @ inverse
        spread += (np.trace(part @ part) + np.trace(part) ** 2) / (len(d.lanes_g) - 1)
    degrees = (m + m**2) / spread
    if degrees <= m:
        return t_squared, np.nan
    scaled = t_squared * (degrees - m + 1) / (degrees * m)
    return t_squared, float(fdtrc(m, degrees - m + 1, scaled))


def value_shares(
    run: RunData, density: Density, edges: FloatArray
) -> tuple[FloatArray, FloatArray, IntArray]:
    """Return how often each class of values occurs at each site, by ranges of z and lane groups.

    Samples are weighted to the uniform distribution within their range (see `Density.log_mixture`).
    Values are sorted into at most 16 classes, value mod 16.

    Parameters
    ----------
    run : RunData
    density : Density of it
    edges : float64 [m + 1], ranges of z

    Returns
    -------
    weight_jm : float64 [G, m], without lane group j; row G: of all
    share_jmf : float64 [G + 1, m, D * C], likewise
    size_g : int64 [G], lanes per group
    """
    n_groups, m = len(density.lanes_g), len(edges) - 1
    classes = min(MAX_VALUE_CLASSES, run.n_values)
    n_features = run.n_sites * classes
    weight = np.zeros((n_groups, m))
    total = np.zeros((n_groups, m, n_features))
    group_w = lane_groups(run.walkers)
    range_b = bin_of(0.5 * (density.edges[:-1] + density.edges[1:]), edges)
    # each of n counts in a range stands for g / n inputs, about: so that nothing overflows
    reference_m = np.array(
        [
            logsumexp(density.log_g_b[range_b == r])
            - np.log(max(density.count_b[range_b == r].sum(), 1))
            for r in range(m)
        ]
    )
    site = np.arange(run.n_sites) * classes
    for part in samples_in_bins(run, edges):
        r_i, g_i = part.bin_i, group_w[part.lane_i]
        w_i = np.exp(-density.log_mixture(part.z_i, part.log_q_ik) - reference_m[r_i])
        np.add.at(weight, (g_i, r_i), w_i)
        feature_id = part.x_id.astype(np.int64) % classes + site
        cell = (g_i * m + r_i)[:, None] * n_features + feature_id
        flat = np.bincount(cell.ravel(), np.repeat(w_i, run.n_sites), total.size)
        total += flat.reshape(total.shape)
    keep = np.concatenate([1.0 - np.eye(n_groups), np.ones((1, n_groups))])
    weight_jm = keep @ weight
    with np.errstate(invalid="ignore", divide="ignore"):
        share = np.tensordot(keep, total, axes=1) / weight_jm[:, :, None]
    return weight_jm, share, density.lanes_g


def compare_inputs(
    runs: tuple[RunData, RunData], densities: tuple[Density, Density], found: SamplerComparison
) -> tuple[float, str, int]:
    """Compare the inputs that two samplers found in the groups of bins.

    Every share of a class of values at a site in a group of bins is compared by its own standard
    error; the largest difference is judged by Student's t, times the number of shares (Bonferroni).

    Returns
    -------
    p : float, NaN if not known
    where : str, the share that differs most
    n : int, shares compared
    """
    edges = densities[0].edges
    starts = [edges[found.bins[i]] for i in found.group_g[:-1]]
    limits = np.array([*starts, edges[found.bins[-1] + 1]])
    parts, degrees = [], []
    for run, density in zip(runs, densities, strict=True):
        _, share, size_g = value_shares(run, density, limits)
        parts.append((share[-1], jackknife_deviations(share[-1], share[:-1], size_g)))
        degrees.append(len(size_g) - 1)
    (one, deviation_one), (other, deviation_other) = parts
    variances = [(d**2).sum(axis=0) for d in (deviation_one, deviation_other)]
    variance = variances[0] + variances[1]
    least = np.minimum(one, other)
    use = (least > MIN_VALUE_SHARE) & (least < 1.0) & np.isfinite(variance) & (variance > 0)
    n = int(use.sum())
    if n == 0 or min(degrees) < 1:
        return np.nan, "", n
    t = np.abs(np.where(use, one - other, 0.0)) / np.sqrt(np.where(use, variance, 1.0))
    freedom = np.where(use, welch_degrees(variances[0], degrees[0], variances[1], degrees[1]), 1.0)
    p = np.where(use, 2.0 * stdtr(freedom, -t), 1.0)
    g, feature = np.unravel_index(int(np.argmin(p)), p.shape)
    classes = min(MAX_VALUE_CLASSES, runs[0].n_values)
    kind = "value" if classes == runs[0].n_values else f"values mod {MAX_VALUE_CLASSES} ="
    where = (
        f"{kind} {feature % classes} at site {feature // classes}, z {limits[g]:g} to "
        f"{limits[g + 1]:g}: {one[g, feature]:.3f} and {other[g, feature]:.3f}"
    )
    return min(1.0, float(p[g, feature]) * n), where, n


def describe(found: SamplerComparison, name_a: str, name_b: str) -> list[str]:
    """Return the plain lines that the script prints."""
    z = found.delta_b / found.error_b
    worst = int(np.argmax(np.abs(z)))
    lines = [
        f"{len(z)} bins of both: largest |ln g difference| {np.abs(found.delta_b).max():.4f}, rms "
        f"{np.sqrt(np.mean(z**2)):.3f} standard errors, largest {abs(z[worst]):.2f}",
        f"Hotelling's T^2 over {len(found.group_g) - 1} groups of bins: {found.t_squared:.2f}, "
        f"p = {found.p:.3g}",
    ]
    if found.inputs_where:
        lines.append(
            f"inputs: {found.n_features} shares of values compared; largest difference: "
            f"p = {found.inputs_p:.3g} ({found.inputs_where})"
        )
    p_values = [p for p in (found.p, found.inputs_p) if np.isfinite(p)]
    if not p_values:
        lines.append("The data cannot tell whether the samplers agree: errors are not known.")
    elif min(p_values) < MIN_P_VALUE:
        lines.append(f"{name_a} and {name_b} DISAGREE: one of them has not converged, or is wrong.")
    else:
        lines.append(f"{name_a} and {name_b} agree within their errors.")
    return lines
