"""Sum the draws of an ancestral or annealed run into terms of the equations, in one pass."""

from __future__ import annotations

import numpy as np
import scipy

from omniinput_hpc.estimators import EstimateError, FloatArray, IntArray
from omniinput_hpc.estimators.density.terms import DrawSums, DrawTerms, Units
from omniinput_hpc.estimators.populations import is_annealed, log_q_of, populations_of_samples
from omniinput_hpc.estimators.run_data import RunData
from omniinput_hpc.histogram import bin_of


def sum_draws(
    run: RunData, total_k: FloatArray, group_w: IntArray, size_g: IntArray, n_blocks: int
) -> tuple[DrawTerms, DrawTerms | None, IntArray]:
    """Sum a run's draws by groups of lanes and by blocks of rounds, in one pass.

    Parameters
    ----------
    total_k : float64 [K], draws of each rung
    group_w : int64 [W], the density's group of each lane
    size_g : int64 [G], lanes of each group
    n_blocks : number of blocks of rounds; 0 for none: the second result is then None

    The third result is the smallest count of any block [B], or of all rounds without blocks. An
    EstimateError is raised if not every draw was recorded.
    """
    n_bins = len(run.edges) - 1
    log_share_k = np.log(total_k / total_k.sum())
    lane_sums, block_sums = DrawSums(len(size_g), n_bins), DrawSums(max(n_blocks, 1), n_bins)
    length = run.rounds // n_blocks if n_blocks else 0
    first = run.rounds - length * n_blocks
    seen_b = np.zeros(n_bins, dtype=np.int64)
    block_counts_nb = np.zeros((max(n_blocks, 1), n_bins), dtype=np.int64)
    population_s = populations_of_samples(run) if is_annealed(run) else None
    log_q = log_q_of(run)
    assert log_q is not None  # the caller has checked
    for round_, log_q_ksj in enumerate(log_q):
        z_ks = run.z_of(round_)
        group_i = np.broadcast_to(np.resize(group_w, z_ks.shape[1]), z_ks.shape).ravel()
        bin_i = bin_of(z_ks.ravel(), run.edges)
        inside = (bin_i >= 0) & (bin_i < n_bins)
        log_v_i = -scipy.special.logsumexp(log_q_ksj + log_share_k, axis=2).ravel()[inside]
        group_i, bin_i = group_i[inside], bin_i[inside]
        counts_b = np.bincount(bin_i, minlength=n_bins)
        seen_b += counts_b
        if population_s is not None:
            unit_i = np.broadcast_to(population_s, z_ks.shape).ravel()[inside]
            group_i, bin_i, log_v_i = by_unit(unit_i, group_i, bin_i, log_v_i)
        lane_sums.add(group_i, bin_i, log_v_i)
        if n_blocks and round_ >= first:
            block = (round_ - first) // length
            block_sums.add(np.full(len(log_v_i), block), bin_i, log_v_i)
            block_counts_nb[block] += counts_b
    _require_all(run, seen_b)
    units = None
    if population_s is not None:
        units = Units(run.rounds * (int(population_s.max()) + 1), seen_b)
    lanes = lane_sums.terms(float(total_k.sum()), size_g, units)
    if not n_blocks:
        return lanes, None, seen_b
    share = length * n_blocks / run.rounds
    one_n = np.ones(n_blocks, dtype=np.int64)
    part = (
        None
        if units is None
        else Units(units.number * share, np.asarray(share * seen_b, dtype=np.float64))
    )
    blocks = block_sums.terms(float(total_k.sum()) * share, one_n, part)
    return lanes, blocks, block_counts_nb.min(axis=0)


def _require_all(run: RunData, seen_b: IntArray) -> None:
    if not np.array_equal(seen_b, run.counts_kb.sum(axis=0)):
        raise EstimateError(
            f"{run.path}: not every draw was recorded as a sample, as the density of an ancestral "
            "or annealed run needs"
        )


def by_unit(
    unit_i: IntArray, group_i: IntArray, bin_i: IntArray, log_v_i: FloatArray
) -> tuple[IntArray, IntArray, FloatArray]:
    """Add up v of the draws of each unit in each bin: return group, bin and ln of the sum [cells].

    unit_i, group_i, bin_i, log_v_i are [n]; all draws of a unit belong to one group.
    """
    order = np.lexsort((bin_i, unit_i))
    unit_i, group_i, bin_i = (part_i[order] for part_i in (unit_i, group_i, bin_i))
    log_v_i = log_v_i[order]
    begins = np.ones(len(unit_i), dtype=bool)
    begins[1:] = (np.diff(unit_i) != 0) | (np.diff(bin_i) != 0)
    starts = np.flatnonzero(begins)
    if not starts.size:
        return group_i, bin_i, log_v_i
    return group_i[starts], bin_i[starts], np.logaddexp.reduceat(log_v_i, starts)
