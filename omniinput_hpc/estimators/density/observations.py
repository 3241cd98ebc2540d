"""From run files to the evidence that the equations take: checks, parts, weights, counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from omniinput_hpc.estimators import EstimateError
from omniinput_hpc.estimators.density.parts import ChainParts, DrawParts, DrawSums, Parts
from omniinput_hpc.estimators.density.rung_weights import RungWeights
from omniinput_hpc.estimators.density.wham import mean_outputs
from omniinput_hpc.estimators.errors.chains import chain_diagnostics, inefficiency
from omniinput_hpc.estimators.errors.convergence import (
    ColdRungs,
    check_cold_rungs,
    number_of_blocks,
)
from omniinput_hpc.estimators.run_data import RunData
from omniinput_hpc.histogram import bin_of, lane_groups

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
NEIGHBOURS = 5  # bins on either side whose dispersions are averaged


@dataclass(frozen=True)
class _Part:
    """One run: what is read of it once."""

    run: RunData
    laws: RungWeights
    draws: bool
    counts_kb: IntArray
    lane_counts_kgb: IntArray
    outside_k2: IntArray
    rhat_k: FloatArray
    tau_k: FloatArray

    @property
    def total_k(self) -> FloatArray:
        total_k = self.counts_kb.sum(axis=1) + self.outside_k2.sum(axis=1)
        return np.asarray(total_k, dtype=np.float64)

    @property
    def label_k(self) -> list[str]:
        """Names of the rows in the equations: a run of independent draws has one."""
        return ["the ancestral draws"] if self.draws else self.laws.label_k


@dataclass(frozen=True)
class Evidence:
    """All that a density is estimated from; rungs of several runs follow one another.

    Rows are those of the equations: a rung each, but one for all rungs of independent draws.

    Attributes
    ----------
    edges : float64 [B + 1]
    beta_k, rhat_k, tau_k : float64 [K], of rungs
    outside_k2, inside_k, n_k : int64 [K, 2], [K], [K], of rungs; n_k as `Density` has it
    rung_label_k, label_k : names of the rungs, and of the rows
    weight_k : float64 [rows], 1 / statistical inefficiency
    lanes, blocks : Parts per run: groups of lanes, blocks of rounds (empty if too few rounds)
    lanes_g : int64 [G], lanes per group
    n_blocks : int
    z_b : float64 [B], mean outputs; count_b : int64 [B]
    effective_b : float64 [B], effective number of independent counts
    fewest_b : int64 [B], the smallest count in any group of lanes and any block
    share_inside : float, of the moves of the rungs with beta = 0; NaN without
    log_inputs : float
    laws : RungWeights of a single run; None of several
    draws : whether a single run's rungs are normalized laws
    cold : whether rungs colder than a language model itself have equilibrated; of the worst run
    """

    edges: FloatArray
    beta_k: FloatArray
    rhat_k: FloatArray
    tau_k: FloatArray
    outside_k2: IntArray
    inside_k: IntArray
    n_k: IntArray
    rung_label_k: list[str]
    label_k: list[str]
    weight_k: FloatArray
    lanes: list[Parts]
    blocks: list[Parts]
    lanes_g: IntArray
    n_blocks: int
    z_b: FloatArray
    count_b: IntArray
    effective_b: FloatArray
    fewest_b: IntArray
    share_inside: float
    log_inputs: float
    laws: RungWeights | None
    draws: bool
    rows_k: IntArray
    cold: ColdRungs

    def rung_f_k(self, f_row: FloatArray) -> FloatArray:
        """Return f of every rung from f of every row: 0 for normalized laws."""
        return np.where(self.rows_k >= 0, f_row[self.rows_k], 0.0)


def gather(runs: Sequence[RunData]) -> Evidence:
    """Read and check runs.

    Raises
    ------
    EstimateError
        No committed round, no counts, damage; runs that do not belong together.
    """
    for run in runs:
        if run.rounds == 0:
            raise EstimateError(
                f"{run.path} holds no committed round yet: there is nothing to analyse"
            )
    _require_alike(runs)
    parts = [_read(run) for run in runs]
    edges = runs[0].edges
    count_kb = np.concatenate([p.counts_kb for p in parts])
    count_b = count_kb.sum(axis=0)
    if not count_b.any():
        raise EstimateError(
            f"{runs[0].path}: every move of every rung fell outside the bins "
            f"({edges[0]:g} to {edges[-1]:g}); widen [bins]"
        )
    z_b = mean_outputs(count_kb, np.concatenate([run.z_sum_kb() for run in runs]), edges)
    log_inputs = runs[0].n_sites * float(np.log(runs[0].n_values))
    n_groups = min(p.lane_counts_kgb.shape[1] for p in parts)
    n_blocks = min(number_of_blocks(p.run.rounds, p.tau_k) for p in parts)
    weight_k = np.concatenate([_weights(p) for p in parts])

    lanes, blocks, effective_b = [], [], np.zeros(len(count_b))
    fewest_b = np.zeros(len(count_b), dtype=np.int64)
    fewest_block_b = np.zeros(len(count_b), dtype=np.int64)
    for part in parts:
        of_lanes, of_blocks, fewest = _cut(part, z_b, n_groups, n_blocks, log_inputs)
        lanes.append(of_lanes)
        if of_blocks is not None:
            blocks.append(of_blocks)
            fewest_block_b += fewest
        fewest_b += _groups(part, n_groups).sum(axis=1).min(axis=0)
        effective_b += _effective(part, of_lanes, n_groups)
    uniform = [(p.counts_kb[k].sum(), p.total_k[k]) for p in parts for k in _uniform(p)]
    row_k, row = [], 0
    for part in parts:
        n_rungs = len(part.laws.beta_k)
        row_k.append(np.full(n_rungs, -1) if part.draws else row + np.arange(n_rungs))
        row += len(part.label_k)
    one = parts[0] if len(parts) == 1 else None
    return Evidence(
        edges=edges,
        beta_k=np.concatenate([p.laws.beta_k for p in parts]),
        rhat_k=np.concatenate([p.rhat_k for p in parts]),
        tau_k=np.concatenate([p.tau_k for p in parts]),
        outside_k2=np.concatenate([p.outside_k2 for p in parts]),
        inside_k=count_kb.sum(axis=1),
        n_k=np.concatenate(
            [p.total_k.astype(np.int64) if p.draws else p.counts_kb.sum(axis=1) for p in parts]
        ),
        rung_label_k=[label for p in parts for label in p.laws.label_k],
        label_k=[label for p in parts for label in p.label_k],
        weight_k=weight_k,
        lanes=lanes,
        blocks=blocks,
        lanes_g=np.sum([_sizes(p, n_groups) for p in parts], axis=0),
        n_blocks=n_blocks,
        z_b=z_b,
        count_b=count_b,
        effective_b=effective_b,
        fewest_b=np.minimum(fewest_b, fewest_block_b) if blocks else 0 * fewest_b,
        share_inside=float(np.divide(*np.sum(uniform, axis=0))) if uniform else np.nan,
        log_inputs=log_inputs,
        laws=one.laws if one else None,
        draws=bool(one and one.draws),
        rows_k=np.concatenate(row_k),
        cold=max((_cold(p, z_b) for p in parts), key=lambda cold: cold.floor),
    )


def _require_alike(runs: Sequence[RunData]) -> None:
    """Refuse runs whose counts cannot be added up."""
    first = runs[0]
    seeds: dict[object, object] = {}
    for run in runs:
        if run.fingerprint != first.fingerprint:
            raise EstimateError(
                f"{run.path} was made with another model than {first.path} ({run.fingerprint}, "
                f"{first.fingerprint}): only runs of one model can be combined"
            )
        space = (run.n_sites, run.n_values)
        if space != (first.n_sites, first.n_values):
            raise EstimateError(f"{run.path} and {first.path} have different spaces of inputs")
        if not np.array_equal(run.edges, first.edges):
            raise EstimateError(
                f"{run.path} has other bins than {first.path}: only runs with the same [bins] can "
                "be combined"
            )
        seed = run.config.get("run", {}).get("seed")
        if seed is not None and seed in seeds:
            raise EstimateError(
                f"{run.path} and {seeds[seed]} have the same [run] seed, so that their random "
                "numbers are not independent: only runs with different seeds can be combined"
            )
        seeds[seed] = run.path


def _read(run: RunData) -> _Part:
    counts_kb, lane_counts_kgb = run.counts_kb(), run.lane_counts_kgb()
    if not np.array_equal(lane_counts_kgb.sum(axis=1), counts_kb):
        raise EstimateError(f"{run.path} is damaged: its lanes do not add up to its histogram")
    if not np.isfinite(run.z_sum_kb()).all():
        raise EstimateError(f"{run.path} is damaged: its sums of z are no numbers")
    laws = RungWeights(run.beta_k, run.kappa_k(), run.z0_k(), run.log_weight_kb(), run.edges)
    draws = run.samples_log_q() is not None
    rhat_k, tau_k = chain_diagnostics(run)
    return _Part(run, laws, draws, counts_kb, lane_counts_kgb, run.outside_k2(), rhat_k, tau_k)


def _cold(part: _Part, z_b: FloatArray) -> ColdRungs:
    if part.draws:
        return ColdRungs()
    run, trips = part.run, int(part.run.round_trips_v().sum())
    return check_cold_rungs(part.lane_counts_kgb, z_b, run.beta_k, run.model_beta, trips)


def _uniform(part: _Part) -> IntArray:
    return np.flatnonzero(part.laws.uniform_k & (not part.draws))


def _weights(part: _Part) -> FloatArray:
    """Return 1 / statistical inefficiency of each row."""
    if part.draws:
        return np.ones(1)
    moves = part.total_k.max() / (part.run.rounds * part.run.walkers)
    return np.asarray(1.0 / inefficiency(part.tau_k, moves))


def _group(part: _Part, n_groups: int) -> IntArray:
    """Return which group of all runs' a group of this run's belongs to [G of the run]."""
    own = part.lane_counts_kgb.shape[1]
    return np.asarray(np.arange(own) * n_groups // own)


def _sizes(part: _Part, n_groups: int) -> IntArray:
    """Return the lanes in each group [G]."""
    group_w = _group(part, n_groups)[lane_groups(part.run.walkers)]
    return np.asarray(np.bincount(group_w, minlength=n_groups))


def _groups(part: _Part, n_groups: int) -> IntArray:
    """Return counts per group of lanes, int64 [G, K, B]."""
    own = part.lane_counts_kgb.swapaxes(0, 1)
    if len(own) == n_groups:
        return np.asarray(own)
    starts = np.unique(_group(part, n_groups), return_index=True)[1]
    return np.asarray(np.add.reduceat(own, starts, axis=0))


def _cut(
    part: _Part, z_b: FloatArray, n_groups: int, n_blocks: int, log_inputs: float
) -> tuple[Parts, Parts | None, IntArray]:
    """Return a run in groups of lanes, in blocks of rounds, and the blocks' smallest counts."""
    run, size_g = part.run, _sizes(part, n_groups)
    one_n = np.ones(n_blocks, dtype=np.int64)
    if part.draws:
        return _sum_draws(part, size_g, n_blocks)
    log_w_kb = part.laws.at_bins(z_b)
    space_f_k = np.where(part.laws.uniform_k, -log_inputs, np.nan)
    lanes = ChainParts(_groups(part, n_groups), part.total_k, size_g, log_w_kb, space_f_k)
    if not n_blocks:
        return lanes, None, np.zeros(len(z_b), dtype=np.int64)
    used_k = part.total_k * (run.rounds // n_blocks * n_blocks / run.rounds)
    counts_nkb = run.counts_nkb(n_blocks)
    blocks = ChainParts(counts_nkb, used_k, one_n, log_w_kb, space_f_k)
    return lanes, blocks, counts_nkb.sum(axis=1).min(axis=0)


def _sum_draws(
    part: _Part, size_g: IntArray, n_blocks: int
) -> tuple[DrawParts, DrawParts | None, IntArray]:
    """Go once through a run's independent draws."""
    run, n_bins = part.run, part.counts_kb.shape[1]
    log_share_k = np.log(part.total_k / part.total_k.sum())
    lane_sums, block_sums = DrawSums(len(size_g), n_bins), DrawSums(max(n_blocks, 1), n_bins)
    group_w = _group(part, len(size_g))[lane_groups(run.walkers)]
    length = run.rounds // n_blocks if n_blocks else 0
    first = run.rounds - length * n_blocks
    seen_b = np.zeros(n_bins, dtype=np.int64)
    block_counts_nb = np.zeros((max(n_blocks, 1), n_bins), dtype=np.int64)
    log_q = run.samples_log_q()
    assert log_q is not None  # `_read` asked
    for round_, log_q_ksj in enumerate(log_q):
        z_ks = run.samples_z(slice(round_, round_ + 1))[0].astype(np.float64)
        group_i = np.broadcast_to(np.resize(group_w, z_ks.shape[1]), z_ks.shape).ravel()
        bin_i = bin_of(z_ks.ravel(), run.edges)
        inside = (bin_i >= 0) & (bin_i < n_bins)
        log_v_i = -logsumexp(log_q_ksj + log_share_k, axis=2).ravel()[inside]
        lane_sums.add(group_i[inside], bin_i[inside], log_v_i)
        counts_b = np.bincount(bin_i[inside], minlength=n_bins)
        seen_b += counts_b
        if n_blocks and round_ >= first:
            block = (round_ - first) // length
            block_sums.add(np.full(len(log_v_i), block), bin_i[inside], log_v_i)
            block_counts_nb[block] += counts_b
    if not np.array_equal(seen_b, part.counts_kb.sum(axis=0)):
        raise EstimateError(
            f"{run.path}: not every draw was recorded as a sample, as the density of an ancestral "
            "run needs"
        )
    draws = float(part.total_k.sum())
    lanes = lane_sums.parts(draws, size_g)
    if not n_blocks:
        return lanes, None, seen_b
    one_n = np.ones(n_blocks, dtype=np.int64)
    blocks = block_sums.parts(draws * length * n_blocks / run.rounds, one_n)
    return lanes, blocks, block_counts_nb.min(axis=0)


def _effective(part: _Part, lanes: Parts, n_groups: int) -> FloatArray:
    """Return a run's effective number of independent counts per bin [B]."""
    if isinstance(lanes, DrawParts):
        return lanes.effective_b()
    counts_b = part.counts_kb.sum(axis=0)
    if n_groups == 1:
        return np.asarray((part.counts_kb * _weights(part)[:, None]).sum(axis=0))
    counts_gb = _groups(part, n_groups).sum(axis=1)
    return np.asarray(counts_b) / dispersion(counts_gb, _sizes(part, n_groups))


def dispersion(counts_gb: IntArray, size_g: IntArray) -> FloatArray:
    """Return the variance of counts between groups of lanes over that of independent counts [B].

    It is Pearson's chi-square of the groups' shares over its degrees of freedom, averaged by
    counts over five bins on either side, and at least 1: bins that were hardly visited take it
    from their neighbours, since by themselves a few correlated counts look like so many visits.
    """
    count_b = counts_gb.sum(axis=0)
    expected_gb = np.outer(size_g / size_g.sum(), count_b)
    with np.errstate(divide="ignore", invalid="ignore"):
        chi_b = ((counts_gb - expected_gb) ** 2 / expected_gb).sum(axis=0) / (len(size_g) - 1)
    weighted = np.where(count_b > 0, chi_b * count_b, 0.0)
    window = np.ones(2 * NEIGHBOURS + 1)
    top, bottom = (
        np.convolve(np.pad(v, NEIGHBOURS), window, mode="valid")
        for v in (weighted, count_b.astype(np.float64))
    )
    return np.asarray(np.maximum(1.0, top / np.maximum(bottom, 1.0)))
