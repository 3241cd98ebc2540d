"""Precision and recall of a model over its whole input space, with joint errors.

With g_b inputs in bin b and their mean score r_b, the inputs with output z <= lambda
(OmniInput, Liu et al., TMLR 2025, Eq. 3 and 4) have

    precision(lambda) = sum_{z_b <= lambda} r_b g_b / sum_{z_b <= lambda} g_b,
    log_recall(lambda) = log sum_{z_b <= lambda} r_b g_b,

the log number of right inputs found (recall without its unknown denominator). Models whose high
outputs mean "yes" take z >= lambda instead (``side="high"``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from omniinput_hpc.estimators import EstimateError
from omniinput_hpc.estimators.density import Density, RunData
from omniinput_hpc.estimators.uncertainty import jackknife_error, t_quantile
from omniinput_hpc.recorders import bin_of, lane_groups

FloatArray = NDArray[np.float64]
Side = Literal["low", "high"]
LEVEL = 0.95


@dataclass(frozen=True)
class ScoreSums:
    """Within-bin weighted sums over recorded samples, per group of lanes.

    Attributes
    ----------
    weight_gb : float64 [G, B], sum of w_i
    score_gb : float64 [G, B], sum of w_i r_i
    count_gb : int64 [G, B], samples
    """

    weight_gb: FloatArray
    score_gb: FloatArray
    count_gb: NDArray[np.int64]


@dataclass(frozen=True)
class Curve:
    """A precision-recall curve: a row t per threshold, from the confident end on.

    Bands are 95% intervals (NaN-free: where the error is not known they are [0, 1] and infinite).

    Attributes
    ----------
    threshold_t : float64 [T], the far edge of the last bin that is counted
    bin_t : int64 [T], that bin
    precision_t, precision_low_t, precision_high_t : float64 [T]
    log_recall_t, log_recall_low_t, log_recall_high_t : float64 [T]
    aupr, aupr_error, aupr_low, aupr_high : float
    r_b, r_error_b : float64 [B], mean score per bin (NaN where the density has no counts)
    interpolated_b : bool [B], r_b comes from the neighbours: the bin has no samples
    """

    threshold_t: FloatArray
    bin_t: NDArray[np.int64]
    precision_t: FloatArray
    precision_low_t: FloatArray
    precision_high_t: FloatArray
    log_recall_t: FloatArray
    log_recall_low_t: FloatArray
    log_recall_high_t: FloatArray
    aupr: float
    aupr_error: float
    aupr_low: float
    aupr_high: float
    r_b: FloatArray
    r_error_b: FloatArray
    interpolated_b: NDArray[np.bool_]


def log_sample_weights(
    z_i: FloatArray, beta_k: FloatArray, f_k: FloatArray, n_k: NDArray[np.integer]
) -> FloatArray:
    """Return log w_i = -log sum_k n_k exp(f_k - beta_k z_i) [n].

    The weight that turns samples pooled from all rungs into the uniform law over inputs (Shirts &
    Chodera, J. Chem. Phys. 129, 124105 (2008), Eq. 9). Rungs with n_k = 0 have no part in it.
    """
    part = n_k > 0
    log_n_k = np.log(n_k[part].astype(np.float64))
    return -np.asarray(logsumexp(log_n_k + f_k[part] - np.outer(z_i, beta_k[part]), axis=1))


def sum_scores(
    run: RunData, density: Density, rule: Callable[[NDArray[np.int64]], FloatArray]
) -> ScoreSums:
    """Score every recorded sample inside the bins, a round and a rung at a time.

    Parameters
    ----------
    run : RunData
    density : Density of the same run
    rule : int64 [n, D] to float64 [n]

    Returns
    -------
    ScoreSums
        Weights are relative to those at the bin's mean z, so that nothing over- or underflows.

    Raises
    ------
    EstimateError
        No samples inside the bins.
    """
    n_bins, n_groups = len(density.count_b), len(density.lanes_g)
    ladder = (density.beta_k, density.f_k, density.n_k)
    middle_b = 0.5 * (density.edges[:-1] + density.edges[1:])
    reference_b = log_sample_weights(np.where(density.count_b > 0, density.z_b, middle_b), *ladder)
    group_w = lane_groups(run.walkers)
    size = n_groups * n_bins
    weight, score = np.zeros(size), np.zeros(size)
    count = np.zeros(size, dtype=np.int64)
    for x_ksd, z_ks in run.samples():
        group_s = np.resize(group_w, z_ks.shape[1])  # time-major: lane = index % walkers
        for x_sd, z_s in zip(x_ksd, z_ks.astype(np.float64), strict=True):
            bin_s = bin_of(z_s, density.edges)
            inside = (bin_s >= 0) & (bin_s < n_bins)
            if not inside.any():
                continue
            r_i = rule(x_sd[inside].astype(np.int64))
            w_i = np.exp(log_sample_weights(z_s[inside], *ladder) - reference_b[bin_s[inside]])
            cell_i = group_s[inside] * n_bins + bin_s[inside]
            weight += np.bincount(cell_i, w_i, size)
            score += np.bincount(cell_i, w_i * r_i, size)
            count += np.bincount(cell_i, minlength=size)
    if not count.any():
        raise EstimateError(f"{run.path} has no recorded samples inside the bins")
    shape = (n_groups, n_bins)
    return ScoreSums(weight.reshape(shape), score.reshape(shape), count.reshape(shape))


def mean_scores(
    weight_b: FloatArray, score_b: FloatArray, z_b: FloatArray, wanted_b: NDArray[np.bool_]
) -> FloatArray:
    """Return r_b = sum w r / sum w in the wanted bins, NaN elsewhere [B].

    Wanted bins without samples get the linear interpolation in z between the nearest bins with
    samples, and beyond the last of these its value.
    """
    sampled = wanted_b & (weight_b > 0)
    r_b = np.full(len(z_b), np.nan)
    if sampled.any():
        r_b[sampled] = np.clip(score_b[sampled] / weight_b[sampled], 0.0, 1.0)
        gaps = wanted_b & ~sampled
        r_b[gaps] = np.interp(z_b[gaps], z_b[sampled], r_b[sampled])
    return r_b


def accumulate(log_g_b: FloatArray, r_b: FloatArray, side: Side) -> tuple[FloatArray, FloatArray]:
    """Return precision and log_recall [B'] over bins taken from ``side`` on.

    Parameters
    ----------
    log_g_b, r_b : float64 [B'], bins in ascending z
    side : "low" counts from the lowest bin up, "high" from the highest down

    Returns
    -------
    precision, log_recall : float64 [B']
        In the order of counting; NaN and -inf before the first bin with inputs.
    """
    order = slice(None) if side == "low" else slice(None, None, -1)
    log_g, r = log_g_b[order], r_b[order]
    with np.errstate(divide="ignore", invalid="ignore"):
        log_right_b = np.where(np.isneginf(log_g), -np.inf, log_g + np.log(r))
        log_right = np.logaddexp.accumulate(log_right_b)
        precision = np.exp(log_right - np.logaddexp.accumulate(log_g))
    return np.minimum(precision, 1.0), log_right


def curve_range(precision_t: FloatArray, log_recall_t: FloatArray) -> tuple[float, float]:
    """Return the curve's own ends in log recall (NaN for a curve without a right input)."""
    known = np.isfinite(log_recall_t) & np.isfinite(precision_t)
    if not known.any():
        return np.nan, np.nan
    return float(log_recall_t[known].min()), float(log_recall_t[known].max())


def area(
    precision_t: FloatArray,
    log_recall_t: FloatArray,
    lower: float | None = None,
    upper: float | None = None,
) -> float:
    """Return the AUPR: the area under precision over log recall, divided by the width.

    Parameters
    ----------
    precision_t, log_recall_t : float64 [T], log_recall not descending
    lower, upper : range of log recall (default: the curve's own ends), cut to the curve's own

    Returns
    -------
    float
        Mean precision in [0, 1] (linear between thresholds); NaN where the range has no width.
    """
    known = np.isfinite(log_recall_t) & np.isfinite(precision_t)
    p, x = precision_t[known], log_recall_t[known]
    if not known.any():
        return np.nan
    low = x[0] if lower is None else max(lower, x[0])
    high = x[-1] if upper is None else min(upper, x[-1])
    if not high > low:
        return np.nan
    inner = (x > low) & (x < high)
    first = np.interp(low, x, p)  # of equal log recalls, the last
    last = np.interp(-high, -x[::-1], p[::-1])  # of equal log recalls, the first
    xs = np.concatenate([[low], x[inner], [high]])
    ps = np.concatenate([[first], p[inner], [last]])
    return float(np.trapezoid(ps, xs) / (high - low))


def common_range(a: tuple[float, float], b: tuple[float, float]) -> tuple[float, float]:
    """Return the range of log recall that two curves share; NaN if none."""
    low, high = max(a[0], b[0]), min(a[1], b[1])
    return (low, high) if high > low else (np.nan, np.nan)


def precision_recall(density: Density, sums: ScoreSums, side: Side = "low") -> Curve:
    """Return the curve with 95% bands from the joint jackknife over lane groups.

    For every group of lanes both the density and the mean scores are computed again without it,
    and from them the whole curve. The within-bin weights keep the full run's f_k: their change
    with f_k is of second order in the bin width.

    Parameters
    ----------
    density : Density
    sums : ScoreSums of the same run
    side : "low" or "high"

    Returns
    -------
    Curve
    """
    wanted = density.count_b > 0
    z_b = density.z_b
    bins = np.flatnonzero(wanted)
    r_b = mean_scores(sums.weight_gb.sum(axis=0), sums.score_gb.sum(axis=0), z_b, wanted)
    precision, log_recall = accumulate(density.log_g_b[bins], r_b[bins], side)
    ends = curve_range(precision, log_recall)

    n_groups = len(density.lanes_g)
    r_jb = np.full((n_groups, len(wanted)), np.nan)
    precision_jt, log_recall_jt = np.full((2, n_groups, len(bins)), np.nan)
    aupr_j = np.full(n_groups, np.nan)
    for j in range(n_groups if n_groups > 1 else 0):
        rest = np.arange(n_groups) != j
        weight_b, score_b = sums.weight_gb[rest].sum(axis=0), sums.score_gb[rest].sum(axis=0)
        r_jb[j] = mean_scores(weight_b, score_b, z_b, wanted)
        log_g = density.log_g_jb[j, bins]
        precision_jt[j], log_recall_jt[j] = accumulate(log_g, r_jb[j, bins], side)
        aupr_j[j] = area(precision_jt[j], log_recall_jt[j], *ends)
        r_jb[j, weight_b == 0] = np.nan  # only this group sampled the bin: its error is not known

    sizes, factor = density.lanes_g, t_quantile(n_groups, LEVEL)
    # arcsin(sqrt(p)) spreads evenly and stays finite at 0 and 1, unlike p and its logit
    angle, angle_jt = np.arcsin(np.sqrt(precision)), np.arcsin(np.sqrt(precision_jt))
    half = _half_width(jackknife_error(angle, angle_jt, sizes), factor)
    recall_half = _half_width(jackknife_error(log_recall, log_recall_jt, sizes), factor)
    finite_recall = np.where(np.isneginf(log_recall), 0.0, log_recall)  # its half-width is infinite
    aupr = area(precision, log_recall)
    aupr_error = float(jackknife_error(aupr, aupr_j, sizes))
    aupr_half = float(_half_width(np.asarray(aupr_error), factor))
    edges = density.edges
    order = bins if side == "low" else bins[::-1]
    return Curve(
        threshold_t=edges[order + 1] if side == "low" else edges[order],
        bin_t=order,
        precision_t=precision,
        precision_low_t=np.sin(np.clip(angle - half, 0.0, np.pi / 2)) ** 2,
        precision_high_t=np.sin(np.clip(angle + half, 0.0, np.pi / 2)) ** 2,
        log_recall_t=log_recall,
        log_recall_low_t=finite_recall - recall_half,
        log_recall_high_t=finite_recall + recall_half,
        aupr=aupr,
        aupr_error=aupr_error,
        aupr_low=max(0.0, aupr - aupr_half),
        aupr_high=min(1.0, aupr + aupr_half),
        r_b=r_b,
        r_error_b=jackknife_error(r_b, r_jb, sizes),
        interpolated_b=wanted & (sums.count_gb.sum(axis=0) == 0),
    )


def _half_width(error: FloatArray, factor: float) -> FloatArray:
    """Return factor * error, infinite where either is not known."""
    return np.where(np.isfinite(error) & np.isfinite(factor), error, np.inf) * min(factor, 1e300)
