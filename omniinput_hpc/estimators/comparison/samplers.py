"""Do two samplers of one model agree? Compares their densities and the inputs that they found.

Errors of bins with few counts are unreliable. Neighbouring bins are therefore joined until both
runs have 50 effective counts in each range that is judged. Ranges are correlated because all depend
on the same free energies, so Hotelling's T^2 over a few groups of ranges judges them jointly. It
uses the jackknife covariance of both runs and the degrees of freedom of Krishnamoorthy & Yu, Stat.
Probab. Lett. 66, 161 (2004). The covariance comes from `plain_log_g_jb`: the wider errors, right
for bins with few draws, would hide a disagreement. Only the shape of the densities is compared: the
contrasts between each group and the last one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import scipy

from omniinput_hpc.estimators import EstimateError, FloatArray, IntArray
from omniinput_hpc.estimators.density.density import MIN_EFFECTIVE_COUNT, Density
from omniinput_hpc.estimators.density.wide_bins import join_bins, joined_effective
from omniinput_hpc.estimators.errors.convergence import LEAST_ERROR
from omniinput_hpc.estimators.errors.jackknife import (
    jackknife_deviations,
    jackknife_error,
    welch_degrees,
)
from omniinput_hpc.estimators.run_data import RunData
from omniinput_hpc.estimators.samples import outputs_by_round, samples_in_bins
from omniinput_hpc.histogram import bin_of

MAX_BIN_GROUPS = 7
MAX_VALUE_CLASSES = 16
MIN_VALUE_SHARE = 0.02
MIN_VALUE_COUNT = 10.0
"""Effective counts of a value, and of all others, in each run: Student's t fails with fewer."""
MIN_P_VALUE = 0.01
"""Below this the samplers are reported to disagree."""
NOTHING_SHARED = "the two runs share no bin whose errors are known"


@dataclass(frozen=True)
class SamplerComparison:
    """Comparison of two densities of one model.

    Attributes
    ----------
    first_r, stop_r : int64 [n], ranges of bins: the first bin, and one past the last. Each has at
        least 50 effective counts in both runs and known errors
    delta_r, error_r : float64 [n], ln g of the first minus the second (after `shift`), and its
        standard error
    shift : float, subtracted from the difference if one density is relative; else 0
    chance_r : float64 [n], p-value of each difference separately, by Student's t
    group_g : int64 [m + 1], limits of the groups of ranges
    t_squared, p : float, Hotelling's statistic over the groups and its p-value; NaN if not known
    inputs_p : float, p-value of the largest difference between the inputs found; NaN if not known
    inputs_where : str, that difference
    n_features : int, number of shares of values compared
    """

    first_r: IntArray
    stop_r: IntArray
    delta_r: FloatArray
    error_r: FloatArray
    shift: float
    chance_r: FloatArray
    group_g: IntArray
    t_squared: float
    p: float
    inputs_p: float = np.nan
    inputs_where: str = ""
    n_features: int = 0


def compare_samplers(a: Density, b: Density) -> SamplerComparison:
    """Compare two densities of one model, from different samplers or seeds.

    Raises
    ------
    EstimateError
        Their bins differ, or no range of bins has known errors in both.
    """
    if not np.array_equal(a.edges, b.edges):
        raise EstimateError("the two runs have different [bins]; use the same for both")
    limits = judged_ranges(a, b)
    sums = [(join_bins(d.log_g_b, limits), join_bins(d.plain_log_g_jb, limits)) for d in (a, b)]
    each = [jackknife_error(*s, d.lanes_g) for s, d in zip(sums, (a, b), strict=True)]
    each = [np.maximum(error, LEAST_ERROR) for error in each]
    total = np.hypot(*each)
    use = np.isfinite(total)
    if not use.any():
        raise EstimateError(NOTHING_SHARED)
    first_r, stop_r, error_r = limits[:-1][use], limits[1:][use], total[use]
    delta_r, shift = (sums[0][0] - sums[1][0])[use], 0.0
    if not (a.absolute and b.absolute):
        shift = float(np.average(delta_r, weights=1.0 / error_r**2))
    variances = [e[use] ** 2 for e in each]
    degrees_r = welch_degrees(variances[0], len(a.lanes_g) - 1, variances[1], len(b.lanes_g) - 1)
    chance_r = 2.0 * scipy.special.stdtr(
        np.minimum(degrees_r, 1e9), -np.abs(delta_r - shift) / error_r
    )

    n_groups = min(MAX_BIN_GROUPS, (min(len(a.lanes_g), len(b.lanes_g)) + 1) // 2, len(first_r))
    spans = [slice(i, j) for i, j in zip(first_r, stop_r, strict=True)]
    effective = np.array([joined_effective(d, spans) for d in (a, b)])
    share = np.cumsum(1.0 / (1.0 / np.maximum(effective, 1e-300)).sum(axis=0))
    ends = np.searchsorted(share / share[-1], np.arange(1, n_groups) / n_groups) + 1
    group_g = np.unique(np.concatenate([[0], ends, [len(first_r)]]))
    t_squared, p = _hotelling(a, b, np.append(first_r[group_g[:-1]], stop_r[-1]))
    return SamplerComparison(
        first_r, stop_r, delta_r - shift, error_r, shift, chance_r, group_g, t_squared, p
    )


def judged_ranges(a: Density, b: Density) -> IntArray:
    """Return the limits of the ranges of bins that are judged, int64 [n + 1].

    They lie between the first and the last bin that both runs saw, above both floors. Starting from
    the best-known bin, neighbours are joined outwards until both runs have 50 effective counts.
    Bins left over at either end join the last range there if it then still has 50 effective counts.
    A tail with few inputs passes this test; many inputs that were hardly sampled do not, and they
    are not judged. Runs with fewer than 50 effective counts in total get one range.
    """
    seen_b = (a.count_b > 0) & (b.count_b > 0) & (a.edges[:-1] >= max(a.floor, b.floor))
    both = np.flatnonzero(seen_b)
    if not both.size:
        raise EstimateError(NOTHING_SHARED)
    log_g = np.stack([a.log_g_b, b.log_g_b])
    with np.errstate(divide="ignore", invalid="ignore"):
        log_variance = 2.0 * log_g - np.log(np.stack([a.effective_b, b.effective_b]))
    log_variance[~np.isfinite(log_g)] = -np.inf
    logs = np.stack([log_g, log_variance])  # [2 of sum and variance, 2 runs, B]
    worth = 1.0 / (1.0 / a.effective_b[both] + 1.0 / b.effective_b[both])
    middle, first, stop = int(both[np.argmax(worth)]), int(both[0]), int(both[-1]) + 1
    up = [middle + n for n in _joined(logs[:, :, middle:stop])]
    down = [middle - n for n in _joined(logs[:, :, first:middle][:, :, ::-1])]
    limits = sorted({*down, *up})
    return np.array(limits if len(limits) > 1 else [first, stop])


def _joined(logs: FloatArray) -> list[int]:
    """Return where ranges end, counted from the first bin, 0 included: see `judged_ranges`.

    logs, float64 [2, 2, B], holds ln g and the log of its variance for two runs.
    """

    def enough(sums: FloatArray) -> bool:
        if not np.isfinite(sums[0]).all():
            return False
        return bool((2.0 * sums[0] - sums[1] >= np.log(MIN_EFFECTIVE_COUNT)).all())

    ends, n_bins = [0], logs.shape[2]
    nothing = np.full((2, 2), -np.inf)
    range_, whole = nothing, nothing  # the range being joined, and the last complete one
    for i in range(n_bins):
        range_ = np.logaddexp(range_, logs[:, :, i])
        if enough(range_):
            ends.append(i + 1)
            whole, range_ = range_, nothing
    if len(ends) > 1 and enough(np.logaddexp(whole, range_)):
        ends[-1] = n_bins
    return ends


def _hotelling(a: Density, b: Density, limits: IntArray) -> tuple[float, float]:
    """Return T^2 of the groups' contrasts and its p-value under equal distributions.

    limits, int64 [m + 2], are the bins where the groups begin and the last one ends.
    """

    def contrasts(log_g: FloatArray) -> FloatArray:
        sums = join_bins(log_g, limits)
        return np.asarray(sums[..., :-1] - sums[..., -1:])

    m = len(limits) - 2
    known = all(
        np.isfinite(contrasts(d.plain_log_g_jb)).all() and len(d.lanes_g) > 1 for d in (a, b)
    )
    if m < 1 or not known:
        return np.nan, np.nan
    covariances = []
    for d in (a, b):
        value, value_j = contrasts(d.log_g_b), contrasts(d.plain_log_g_jb)
        deviation = jackknife_deviations(value, value_j, d.lanes_g)
        covariances.append(deviation.T @ deviation + LEAST_ERROR**2 * np.eye(m))
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
    return t_squared, float(scipy.special.fdtrc(m, degrees - m + 1, scaled))


def value_shares(
    runs: Sequence[RunData], density: Density, edges: FloatArray
) -> tuple[FloatArray, FloatArray, IntArray]:
    """Return the frequency of each class of values at each site, by ranges of z and lane groups.

    Samples are weighted to the uniform distribution within their range (see `Density.log_mixture`
    and, for several runs, `run_scales`). Values are grouped into at most 16 classes, value mod 16.

    Parameters
    ----------
    runs : those of the density, in the same order
    edges : float64 [m + 1], ranges of z

    Returns
    -------
    weight_jm : float64 [G + 1, m], without lane group j; row G: of all
    share_jmf : float64 [G + 1, m, D * C], likewise
    size_g : int64 [G], lanes per group
    """
    n_groups, m, first = len(density.lanes_g), len(edges) - 1, runs[0]
    classes = min(MAX_VALUE_CLASSES, first.n_ids)
    n_features = first.n_sites * classes
    weight = np.zeros((n_groups, m))
    total = np.zeros((n_groups, m, n_features))
    range_b = bin_of(0.5 * (density.edges[:-1] + density.edges[1:]), edges)
    # each of n counts in a range represents about g / n inputs; dividing by it prevents overflow
    reference_m = np.array(
        [
            scipy.special.logsumexp(density.log_g_b[range_b == r])
            - np.log(max(density.count_b[range_b == r].sum(), 1))
            for r in range(m)
        ]
    )
    site = np.arange(first.n_sites) * classes
    scale_rb = run_scales(runs, density)
    for number, run in enumerate(runs):
        group_w = density.parts[number].group_w
        for part in samples_in_bins(run, edges):
            r_i, g_i = part.bin_i, group_w[part.lane_i]
            log_w_i = scale_rb[number, bin_of(part.z_i, density.edges)] - reference_m[r_i]
            log_w_i -= density.log_mixture(part.z_i, part.log_q_ik, number)
            w_i = np.exp(log_w_i)
            np.add.at(weight, (g_i, r_i), w_i)
            feature_id = part.x_id.astype(np.int64) % classes + site
            cell = (g_i * m + r_i)[:, None] * n_features + feature_id
            flat = np.bincount(cell.ravel(), np.repeat(w_i, first.n_sites), total.size)
            total += flat.reshape(total.shape)
    keep = np.concatenate([1.0 - np.eye(n_groups), np.ones((1, n_groups))])
    weight_jm = keep @ weight
    with np.errstate(invalid="ignore", divide="ignore"):
        share = np.tensordot(keep, total, axes=1) / weight_jm[:, :, None]
    return weight_jm, share, density.lanes_g


def run_scales(runs: Sequence[RunData], density: Density) -> FloatArray:
    """Return ln of the factor of each run's weights in each bin, [runs, B]; 0 for a single run.

    Of several runs, one may be the only one to have reached a part of a range. In each bin the
    scaled weights of all runs add up to the density's g, in proportion to the number of effective
    samples of each run (see `precision_recall.from_rule.sum_scores_of_runs`).
    """
    n_bins = len(density.log_g_b)
    log_w_rb, worth_rb = np.full((len(runs), n_bins), -np.inf), np.zeros((len(runs), n_bins))
    if len(runs) == 1:
        return np.zeros((1, n_bins))
    for number, run in enumerate(runs):
        count_b = np.zeros(n_bins, dtype=np.int64)
        for z_i, log_q_ik in outputs_by_round(run):
            bin_i = bin_of(z_i, density.edges)
            inside = (bin_i >= 0) & (bin_i < n_bins)
            log_q = None if log_q_ik is None else log_q_ik[inside]
            log_w_i = -density.log_mixture(z_i[inside], log_q, number)
            np.logaddexp.at(log_w_rb[number], bin_i[inside], log_w_i)
            count_b += np.bincount(bin_i[inside], minlength=n_bins)
        worth_rb[number] = np.minimum(count_b, density.parts[number].effective_b)
    with np.errstate(divide="ignore", invalid="ignore"):
        log_share_rb = np.log(worth_rb) - np.log(worth_rb.sum(axis=0))
        return np.where(worth_rb > 0, density.log_g_b + log_share_rb - log_w_rb, -np.inf)


def compare_inputs(
    groups: tuple[Sequence[RunData], Sequence[RunData]],
    densities: tuple[Density, Density],
    found: SamplerComparison,
) -> tuple[float, str, int]:
    """Compare the inputs that two samplers found in the groups of bins.

    `groups` holds the runs of each density: one, or several that are joined.

    The frequency of each class of values at each site in each group of bins is compared. Its
    standard error is the larger of the jackknife's and the binomial one of the effective counts.
    The smallest p-value (Student's t) is multiplied by the number of comparisons (Bonferroni).

    Returns
    -------
    p : float, NaN if not known
    where : str, the largest difference
    n : int, number of comparisons
    """
    edges = densities[0].edges
    bins = np.append(found.first_r[found.group_g[:-1]], found.stop_r[-1])
    limits = edges[bins]
    spans = [slice(i, j) for i, j in pairwise(bins)]
    parts, degrees, counts = [], [], []
    for runs, density in zip(groups, densities, strict=True):
        _, share, size_g = value_shares(runs, density, limits)
        parts.append((share[-1], jackknife_deviations(share[-1], share[:-1], size_g)))
        degrees.append(len(size_g) - 1)
        counts.append(joined_effective(density, spans)[:, None])
    (one, deviation_one), (other, deviation_other) = parts
    mean = (counts[0] * one + counts[1] * other) / (counts[0] + counts[1])
    variances = [
        np.maximum((d**2).sum(axis=0), mean * (1.0 - mean) / n)
        for d, n in zip((deviation_one, deviation_other), counts, strict=True)
    ]
    variance = variances[0] + variances[1]
    rarer = np.minimum(mean, 1.0 - mean)
    use = (rarer > MIN_VALUE_SHARE) & np.isfinite(variance) & (variance > 0)
    use &= rarer * np.minimum(*counts) >= MIN_VALUE_COUNT
    n = int(use.sum())
    if n == 0 or min(degrees) < 1:
        return np.nan, "", n
    t = np.abs(np.where(use, one - other, 0.0)) / np.sqrt(np.where(use, variance, 1.0))
    freedom = np.where(use, welch_degrees(variances[0], degrees[0], variances[1], degrees[1]), 1.0)
    p = np.where(use, 2.0 * scipy.special.stdtr(freedom, -t), 1.0)
    g, feature = np.unravel_index(int(np.argmin(p)), p.shape)
    n_values = groups[0][0].n_ids
    classes = min(MAX_VALUE_CLASSES, n_values)
    kind = "value" if classes == n_values else f"values mod {MAX_VALUE_CLASSES} ="
    where = (
        f"{kind} {feature % classes} at site {feature // classes}, z {limits[g]:g} to "
        f"{limits[g + 1]:g}: {one[g, feature]:.3f} and {other[g, feature]:.3f}"
    )
    return min(1.0, float(p[g, feature]) * n), where, n


def largest_chance(found: SamplerComparison) -> float:
    """Return the probability by chance that one of so many ranges differs as much as the worst.

    This assumes independent ranges; if they are correlated it is less likely (Sidak, J. Am. Stat.
    Assoc. 62, 626 (1967)).
    """
    least = min(float(found.chance_r.min()), 1.0 - 1e-16)
    return float(-np.expm1(len(found.chance_r) * np.log1p(-least)))
