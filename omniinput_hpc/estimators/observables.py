"""Averages of an observable y(x) at each output z, and the joint density of z and y.

Recorded samples are weighted by 1 / sum_k n_k p_k(x), as in `precision_recall.from_rule`: then all
rungs together represent the inputs of a bin, each as often as another. The jackknife leaves out the
same groups of lanes for the density and for y, so that errors hold what both share.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import scipy

from omniinput_hpc.estimators import BoolArray, EstimateError, FloatArray, IntArray
from omniinput_hpc.estimators.density.density import Density
from omniinput_hpc.estimators.density.result import upper_bounds
from omniinput_hpc.estimators.errors.jackknife import TAILS, Interval, jackknife_error, t_quantile
from omniinput_hpc.estimators.run_data import RunData
from omniinput_hpc.estimators.samples import (
    AlikeDraws,
    RecordedSamples,
    outputs_by_round,
    samples_in_bins,
)

Observable = Callable[[RecordedSamples], FloatArray]
"""Returns y of recorded samples, float64 [n]."""
FEWEST_EFFECTIVE, FEWEST_OF_ALL_Z, FEWEST_GROUPS = 50, 100, 4
"""Effective samples below which the error of a bin's mean, or of a cell, is not known; the same for
the density of y alone; and the groups of lanes that must have some. With fewer, a mean may lack
rare inputs whose y is far away."""
FEWEST_OF_A_PART = 10
"""Effective samples from which a cell's error counts in its upper bound, and those from which a bin
is known well enough to be part of a mean over several bins."""
MOST_UNKNOWN = 0.05
QUANTILES = (0.1, 0.5, 0.9)
_NONE = 1e-3  # effective samples of which the lower end is 0


@dataclass(frozen=True)
class Observed:
    """Samples of one run inside the bins of a density, with y.

    Attributes
    ----------
    bin_i, group_i : int64 [n], bin of z and group of lanes
    y_i : float64 [n]
    log_w_i : float64 [n], ln of the weights, up to a constant of each bin
    correlated_b : float64 [B], how many recorded samples count as one, since those of
        a lane depend on each other
    """

    density: Density
    bin_i: IntArray
    group_i: IntArray
    y_i: FloatArray
    log_w_i: FloatArray
    correlated_b: FloatArray

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of groups and bins."""
        return len(self.density.lanes_g), len(self.density.count_b)

    @cached_property
    def w_i(self) -> FloatArray:
        """The weights, relative to the largest of their bin, float64 [n]."""
        largest_b = np.full(self.shape[1], -np.inf)
        np.maximum.at(largest_b, self.bin_i, self.log_w_i)
        return np.asarray(np.exp(self.log_w_i - largest_b[self.bin_i]))

    def sums(self, value_i: FloatArray) -> FloatArray:
        """Return the sum over the samples of each group and bin, float64 [G, B]."""
        n_groups, n_bins = self.shape
        total = np.bincount(self.group_i * n_bins + self.bin_i, value_i, n_groups * n_bins)
        return np.asarray(total.reshape(n_groups, n_bins), dtype=np.float64)

    def effective(self, w_gb: FloatArray, w2_gb: FloatArray, correlated: FloatArray) -> FloatArray:
        """Return effective numbers of samples [...]."""
        with np.errstate(divide="ignore", invalid="ignore"):
            n = w_gb.sum(axis=0) ** 2 / w2_gb.sum(axis=0)
        return np.asarray(np.nan_to_num(n) / correlated)


def is_known(n: FloatArray, w_g: FloatArray, fewest: int = FEWEST_EFFECTIVE) -> BoolArray:
    """Return where n effective samples, of weights w_g in each group, are enough for an error."""
    enough: BoolArray = (n >= fewest) & ((w_g > 0).sum(axis=0) >= FEWEST_GROUPS)
    return enough


def observe(run: RunData, density: Density, observable: Observable, most: int) -> Observed:
    """Return y of about `most` recorded samples inside the bins, evenly spaced in time.

    Raises
    ------
    EstimateError
        There are no samples inside the bins.
    """
    bins, groups, ys, log_ws, zs = [], [], [], [], []
    for part in samples_in_bins(
        run, density.edges, round(most / _share_inside(run, density.edges))
    ):
        ys.append(observable(part))
        bins.append(part.bin_i)
        groups.append(density.parts[0].group_w[part.lane_i])
        log_ws.append(-density.log_mixture(part.z_i, part.log_q_ik, 0))
        zs.append(part.z_i)
    if not bins:
        ends = f"{density.edges[0]:.6g} to {density.edges[-1]:.6g}"
        raise EstimateError(f"{run.path} has no recorded samples with z from {ends}")
    bin_i, group_i = np.concatenate(bins), np.concatenate(groups)
    y_i, log_w_i = np.concatenate(ys), np.concatenate(log_ws)
    n_b = np.bincount(bin_i, minlength=len(density.count_b))
    correlated_b = np.maximum(1.0, n_b / np.maximum(density.effective_b, 1e-300))
    found = Observed(density, bin_i, group_i, y_i, log_w_i, correlated_b)
    if not density.parts[0].ancestral:
        return found
    draws = AlikeDraws(run, density.edges)
    draws.add(np.concatenate(zs), found.w_i)
    return replace(found, correlated_b=draws.per_one(density.effective_b))


def _share_inside(run: RunData, edges: FloatArray) -> float:
    """Return the share of a run's recorded samples between the first and the last edge."""
    inside = total = 0
    for z_i, _ in outputs_by_round(run):
        inside += int(np.count_nonzero((z_i >= edges[0]) & (z_i < edges[-1])))
        total += z_i.size
    return max(inside, 1) / max(total, 1)


@dataclass(frozen=True)
class Averages:
    """The mean of y over the inputs of each bin of z, and over all of them.

    Attributes
    ----------
    mean_b, low_b, high_b : float64 [B], with its 95 % interval; NaN where not known
    error_b : float64 [B], standard error; inf where not known
    quantile_qb : float64 [3, B], `QUANTILES` of y
    count_b : int64 [B], samples
    whole : the mean over all inputs of the bins
    """

    edges: FloatArray
    mean_b: FloatArray
    low_b: FloatArray
    high_b: FloatArray
    error_b: FloatArray
    quantile_qb: FloatArray
    count_b: IntArray
    whole: Interval


def averages(found: Observed) -> Averages:
    """Return the means of y, with errors from the jackknife over groups of lanes."""
    density, w_gb = found.density, found.sums(found.w_i)
    mean_b, mean_jb, by_lanes_b = _means(found)
    n_b = found.effective(w_gb, found.sums(found.w_i**2), found.correlated_b)
    known_b = is_known(n_b, w_gb) & np.isfinite(by_lanes_b)
    part_b = is_known(n_b, w_gb, FEWEST_OF_A_PART) & np.isfinite(by_lanes_b)
    half_b = np.where(known_b, t_quantile(len(density.lanes_g)) * by_lanes_b, np.nan)
    return Averages(
        edges=density.edges,
        mean_b=mean_b,
        low_b=mean_b - half_b,
        high_b=mean_b + half_b,
        error_b=np.where(known_b, by_lanes_b, np.inf),
        quantile_qb=_quantiles(found),
        count_b=np.bincount(found.bin_i, minlength=len(mean_b)),
        whole=_over_bins(density, mean_b, mean_jb, part_b),
    )


def _means(found: Observed) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the mean of y in each bin [B], its replicates [J, B], and its error by the lanes [B].

    The error is inf below the density's floor.
    """
    w_gb, wy_gb = found.sums(found.w_i), found.sums(found.w_i * found.y_i)
    with np.errstate(divide="ignore", invalid="ignore"):
        mean_b = wy_gb.sum(axis=0) / w_gb.sum(axis=0)
        mean_jb = (wy_gb.sum(axis=0) - wy_gb) / (w_gb.sum(axis=0) - w_gb)
    error_b = jackknife_error(mean_b, mean_jb, found.density.lanes_g)
    error_b[_below(found.density)] = np.inf
    return mean_b, mean_jb, error_b


def means_or_shares(found: Observed) -> Averages:
    """Return the means of y; if y is 0 or 1, with the intervals of shares, which stay in [0, 1]."""
    means = averages(found)
    if not np.isin(found.y_i, (0.0, 1.0)).all():
        return means
    w_gb, p_b = found.sums(found.w_i), np.clip(means.mean_b, 0.0, 1.0)
    apart_b = found.effective(w_gb, found.sums(found.w_i**2), np.ones(len(p_b)))
    ends_b2 = share_ends(p_b, _means(found)[2], apart_b, apart_b / found.correlated_b, len(w_gb))
    known_b = (means.count_b > 0) & ~_below(found.density)
    low_b, high_b = np.where(known_b, ends_b2.T, np.nan)
    whole = share_where(found, found.y_i == 1.0)
    return replace(means, mean_b=p_b, low_b=low_b, high_b=high_b, whole=whole)


def shares(seen: Observed) -> FloatArray:
    """Return the share of the inputs of all bins that each sample represents, float64 [n]."""
    w_b, log_g_b = seen.sums(seen.w_i).sum(axis=0), seen.density.log_g_b
    use_b = (w_b > 0) & np.isfinite(log_g_b)
    share_b = np.zeros(len(w_b))
    share_b[use_b] = np.exp(log_g_b[use_b] - scipy.special.logsumexp(log_g_b[use_b])) / w_b[use_b]
    return np.asarray(seen.w_i * share_b[seen.bin_i])


def share_where(seen: Observed, chosen_i: BoolArray) -> Interval:
    """Return the share of the inputs of all bins that are like the chosen samples.

    None or all of the inputs in bins that have no samples, or lie below the density's floor, may be
    like the chosen ones.
    """
    mean_b, mean_jb, _ = _means(replace(seen, y_i=chosen_i.astype(np.float64)))
    whole = _over_bins(seen.density, mean_b, mean_jb, np.isfinite(mean_b))
    p, square_i = np.clip(whole.value, 0.0, 1.0), shares(seen) ** 2
    n_apart, n = 1.0 / square_i.sum(), 1.0 / (square_i * seen.correlated_b[seen.bin_i]).sum()
    low, high = share_ends(p, whole.error, n_apart, n, len(seen.density.lanes_g))
    sampled_b = np.bincount(seen.bin_i, minlength=seen.shape[1]) > 0
    unknown = _unknown_share(seen.density, sampled_b & ~_below(seen.density))
    low, high = max(low - unknown, 0.0), min(high + unknown, 1.0)
    return Interval(p, np.asarray(low), np.asarray(high), whole.error)


def _below(density: Density) -> BoolArray:
    """Return the bins below the density's floor, whose errors are not known, bool [B]."""
    return np.asarray(density.edges[:-1] < density.floor)


def _unknown_share(density: Density, known_b: BoolArray) -> float:
    """Return the share of the inputs of all bins that is not in known ones."""
    share_b = np.exp(density.log_g_b - scipy.special.logsumexp(density.log_g_b))
    return float(share_b[~known_b].sum())


def share_ends(
    p: FloatArray, error: FloatArray, n_apart: FloatArray, n: FloatArray, n_groups: int
) -> FloatArray:
    """Return the 95 % intervals of Clopper and Pearson of shares p, float64 [..., 2].

    The effective number of samples is the one that the error by the lanes gives, less what
    Student's t of their groups adds (Korn and Graubard, Survey Methodology 24, 193 (1998)), but at
    most the number if all samples were independent. Lanes show too little if less than one sample
    is chosen, or not chosen.

    n_apart, n : effective numbers by the weights, if all samples were independent, and as they are
    """
    t = float(t_quantile(n_groups) / scipy.special.ndtri(TAILS[1]))
    with np.errstate(divide="ignore", invalid="ignore"):
        by_lanes = np.minimum(p * (1.0 - p) / (t * error) ** 2, n_apart)
    n = np.where(np.fmin(p, 1.0 - p) * by_lanes >= 1.0, by_lanes, np.fmin(by_lanes, n))
    k = p * n
    low = np.where(k > _NONE, scipy.special.betaincinv(k, n - k + 1.0, TAILS[0]), 0.0)
    high = np.where(k < n, scipy.special.betaincinv(k + 1.0, n - k, TAILS[1]), 1.0)
    return np.stack([low, high], axis=-1)


def _over_bins(
    density: Density, mean_b: FloatArray, mean_jb: FloatArray, known_b: BoolArray
) -> Interval:
    """Return the mean over the inputs of all bins that have samples.

    The interval is NaN if more than `MOST_UNKNOWN` of the inputs of all bins lie in bins whose own
    error is not known, since the jackknife then misses what they contribute.
    """
    use_b = np.isfinite(mean_b) & np.isfinite(density.log_g_b)

    def over(log_g: FloatArray, mean: FloatArray) -> FloatArray:
        g = np.exp(log_g[..., use_b] - log_g[..., use_b].max(axis=-1, keepdims=True))
        mean = np.where(np.isfinite(mean), mean, mean_b)[..., use_b]
        return np.asarray((g * mean).sum(axis=-1) / g.sum(axis=-1))

    value = over(density.log_g_b, mean_b)
    error = jackknife_error(value, over(density.log_g_jb, mean_jb), density.lanes_g)
    half = t_quantile(len(density.lanes_g)) * error
    if _unknown_share(density, known_b) > MOST_UNKNOWN:
        half = np.full_like(half, np.nan)
    return Interval(value, value - half, value + half, error)


def _quantiles(found: Observed) -> FloatArray:
    """Return weighted quantiles of y in each bin, float64 [3, B]; NaN without samples."""
    quantile_qb = np.full((len(QUANTILES), found.shape[1]), np.nan)
    order = np.lexsort((found.y_i, found.bin_i))
    bin_i, y_i, w_i = found.bin_i[order], found.y_i[order], found.w_i[order]
    for b in np.unique(bin_i):
        mine = slice(*np.searchsorted(bin_i, (b, b + 1)))
        up_to = np.cumsum(w_i[mine])
        at = np.searchsorted(up_to, np.array(QUANTILES) * up_to[-1])
        quantile_qb[:, b] = y_i[mine][at]
    return quantile_qb


@dataclass(frozen=True)
class Joint:
    """The joint density of z and y.

    Attributes
    ----------
    z_edges, y_edges : float64 [B + 1], [C + 1]; the last cell of y includes its upper end
    log_g_bc : float64 [B, C], ln of the inputs of a cell; -inf without samples
    error_bc : float64 [B, C], its standard error; inf in cells of too few samples, and below the
        density's floor
    upper_bc : float64 [B, C], its 95 % upper bound in cells of few samples; else NaN
    count_bc : int64 [B, C], samples
    log_g_c, error_c : float64 [C], the density of y alone; the error is inf where not known
    share_c : of all inputs of the bins; its ends are NaN where not known
    """

    z_edges: FloatArray
    y_edges: FloatArray
    log_g_bc: FloatArray
    error_bc: FloatArray
    upper_bc: FloatArray
    count_bc: IntArray
    log_g_c: FloatArray
    error_c: FloatArray
    share_c: Interval


def joint_density(found: Observed, y_edges: FloatArray) -> Joint:
    """Return the joint density: that of z, times the share of each cell of y within a bin of z.

    Samples outside the cells of y count in no cell.
    """
    density, lanes_g = found.density, found.density.lanes_g
    (n_groups, n_bins), n_cells = found.shape, len(y_edges) - 1
    cell_i = np.searchsorted(y_edges, found.y_i, side="right") - 1
    cell_i[found.y_i == y_edges[-1]] = n_cells - 1
    inside = (cell_i >= 0) & (cell_i < n_cells)
    at_i = ((found.group_i * n_bins + found.bin_i) * n_cells + cell_i)[inside]

    def sums(value_i: FloatArray | None) -> FloatArray:
        size, value = n_groups * n_bins * n_cells, None if value_i is None else value_i[inside]
        return np.asarray(np.bincount(at_i, value, size).reshape(n_groups, n_bins, n_cells))

    w_gbc, w_gb = sums(found.w_i), found.sums(found.w_i)[:, :, None]
    with np.errstate(divide="ignore", invalid="ignore"):
        share_bc = w_gbc.sum(axis=0) / w_gb.sum(axis=0)
        share_jbc = (w_gbc.sum(axis=0) - w_gbc) / (w_gb.sum(axis=0) - w_gb)
        log_g_bc = density.log_g_b[:, None] + np.log(share_bc)
        log_g_jbc = density.log_g_jb[:, :, None] + np.log(share_jbc)
    log_g_bc[np.isnan(log_g_bc)] = -np.inf
    n_bc = found.effective(w_gbc, sums(found.w_i**2), found.correlated_b[:, None])
    error_bc = jackknife_error(log_g_bc, log_g_jbc, lanes_g)
    by_lanes_bc = np.where(is_known(n_bc, w_gbc, FEWEST_OF_A_PART), error_bc, np.inf)
    few = log_g_bc.ravel(), by_lanes_bc.ravel(), n_bc.ravel(), len(lanes_g)
    share_i = shares(found)
    share_gc, square_gc = (
        sums(value_i).sum(axis=1)
        for value_i in (share_i, share_i**2 * found.correlated_b[found.bin_i])
    )
    n_c = found.effective(share_gc, square_gc, np.ones(n_cells))
    log_g_c = np.logaddexp.reduce(log_g_bc, axis=0)
    log_g_jc = np.logaddexp.reduce(np.nan_to_num(log_g_jbc, nan=-np.inf, neginf=-np.inf), axis=1)
    joint = Joint(
        z_edges=density.edges,
        y_edges=y_edges,
        log_g_bc=log_g_bc,
        error_bc=np.where(is_known(n_bc, w_gbc), error_bc, np.inf),
        upper_bc=upper_bounds(*few).reshape(log_g_bc.shape),
        count_bc=sums(None).sum(axis=0).astype(np.int64),
        log_g_c=log_g_c,
        error_c=np.where(
            is_known(n_c, share_gc, FEWEST_OF_ALL_Z),
            jackknife_error(log_g_c, log_g_jc, lanes_g),
            np.inf,
        ),
        share_c=_stacked([share_where(found, inside & (cell_i == c)) for c in range(n_cells)]),
    )
    return believed(joint, density, density.verdict.converged)


def _stacked(intervals: Sequence[Interval]) -> Interval:
    """Return intervals as one, of arrays."""
    return Interval(
        *(
            np.array([getattr(one, name) for one in intervals])
            for name in ("value", "low", "high", "error")
        )
    )


def believed(joint: Joint, density: Density, converged: bool) -> Joint:
    """Return a joint density without the errors and bounds that are not to be believed.

    Errors are dropped below the density's floor, and for a y with more than `MOST_UNKNOWN` of its
    inputs there. All errors of a y are dropped if more than this share of all inputs lies in bins
    of few samples. Upper bounds are dropped unless the run has converged.
    """
    below_b, few_b = _below(density), joint.count_bc.sum(axis=1) < FEWEST_EFFECTIVE
    above_c = np.logaddexp.reduce(joint.log_g_bc[~below_b], axis=0)
    unknown_c = above_c < joint.log_g_c + np.log1p(-MOST_UNKNOWN)
    unknown_c |= _unknown_share(density, ~few_b) > MOST_UNKNOWN
    share_c, below_b1 = joint.share_c, below_b[:, None]
    low_c, high_c = (np.where(unknown_c, np.nan, end_c) for end_c in (share_c.low, share_c.high))
    return replace(
        joint,
        error_bc=np.where(below_b1, np.inf, joint.error_bc),
        upper_bc=np.where(below_b1 | (not converged), np.nan, joint.upper_bc),
        error_c=np.where(unknown_c, np.inf, joint.error_c),
        share_c=replace(share_c, low=low_c, high=high_c),
    )


def shares_of_cells(log_g_c: FloatArray, log_g_jc: FloatArray, lanes_g: IntArray) -> Interval:
    """Return each cell's share of all inputs, [C], from ln g and its replicates [J, C]."""

    def share(log_g: FloatArray) -> FloatArray:
        with np.errstate(invalid="ignore"):  # NaN if only one group has samples
            return np.asarray(
                np.exp(log_g - scipy.special.logsumexp(log_g, axis=-1, keepdims=True))
            )

    value = share(log_g_c)
    error = jackknife_error(value, share(log_g_jc), lanes_g)
    half = t_quantile(len(lanes_g)) * error
    return Interval(value, np.maximum(value - half, 0.0), np.minimum(value + half, 1.0), error)
