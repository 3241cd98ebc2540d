"""Read the observations of runs, check them, and split them into weighted parts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from omniinput_hpc.estimators import EstimateError, FloatArray, IntArray
from omniinput_hpc.estimators.density.bin_width import inside_bins, mixture_derivatives
from omniinput_hpc.estimators.density.draws import sum_draws
from omniinput_hpc.estimators.density.known_ratio import model_log_z
from omniinput_hpc.estimators.density.rung_weights import (
    InsideBins,
    RungWeights,
)
from omniinput_hpc.estimators.density.terms import ChainTerms, DrawTerms, Terms
from omniinput_hpc.estimators.density.wham import mean_outputs
from omniinput_hpc.estimators.errors.chains import chain_diagnostics, effective_counts, inefficiency
from omniinput_hpc.estimators.errors.convergence import (
    ColdRungs,
    Mixing,
    check_cold_rungs,
    number_of_blocks,
)
from omniinput_hpc.estimators.populations import floor_of, is_annealed
from omniinput_hpc.estimators.run_data import RunData, require_rounds
from omniinput_hpc.histogram import lane_groups
from omniinput_hpc.text import WORDS_OF, MeasureWords


@dataclass(frozen=True)
class _Read:
    """A run, and how its lanes and successive samples depend on each other.

    Attributes
    ----------
    common_g : int64 [G of the run], the density's group of each of its groups of lanes
    diagnostics : R-hat, tau and drift, float64 [K] each, see `chain_diagnostics`
    """

    run: RunData
    common_g: IntArray
    diagnostics: tuple[FloatArray, FloatArray, FloatArray]

    @property
    def tau_k(self) -> FloatArray:
        """Autocorrelation times in rounds, float64 [K]."""
        return self.diagnostics[1]

    @property
    def total_k(self) -> FloatArray:
        """Moves of each rung, float64 [K]."""
        return self.run.moves_k.astype(np.float64)

    @property
    def label_k(self) -> list[str]:
        """Names of the rows in the equations: all independent draws of a run share one row."""
        if not self.run.ancestral:
            return self.run.weights.label_k
        return ["the annealed draws" if is_annealed(self.run) else "the ancestral draws"]

    @property
    def weight_k(self) -> FloatArray | None:
        """1 / statistical inefficiency of each row; None if the run is too short to know."""
        if self.run.ancestral:
            return np.ones(1)
        if not np.isfinite(self.tau_k).all():
            return None
        moves = self.total_k.max() / (self.run.rounds * self.run.walkers)
        return np.asarray(1.0 / inefficiency(self.tau_k, moves))

    @property
    def apart_k(self) -> FloatArray:
        """Moves between two independent values of z, at least [K]; 1 if not known.

        Moves between two recorded ones that do not depend on each other may be independent, too.
        """
        run = self.run
        if run.ancestral or not np.isfinite(self.tau_k).all():
            return np.ones(len(run.beta_k))
        moves = self.total_k.max() / (run.rounds * run.walkers)
        between = moves * run.walkers / run.samples_per_round
        return np.asarray(np.maximum(1.0, 1.0 + 2.0 * self.tau_k * moves - between))

    @property
    def group_w(self) -> IntArray:
        """The density's group of each lane [W]."""
        return np.asarray(self.common_g[lane_groups(self.run.walkers)])

    @property
    def size_g(self) -> IntArray:
        """Number of lanes in each of the density's groups [G]."""
        return np.bincount(self.group_w)

    @property
    def counts_gkb(self) -> IntArray:
        """Counts in each of the density's groups, int64 [G, K, B]."""
        starts = np.unique(self.common_g, return_index=True)[1]
        return np.add.reduceat(self.run.lane_counts_kgb.swapaxes(0, 1), starts, axis=0)


@dataclass(frozen=True)
class RunPart:
    """One run among those of a density.

    Attributes
    ----------
    rungs : its rungs among those of all runs
    rung_weights : RungWeights
    ancestral : whether its samples are draws with weights: independent ones from normalized
        distributions, or those of populations (an annealed run)
    group_w : int64 [W], the density's group of each of its lanes
    effective_b : float64 [B], effective number of its independent counts
    counts_gb : int64 [G, B], counts of all its rungs in each group of lanes
    counts_kb : int64 [K, B], counts of all lanes
    moves_k : int64 [K], moves, also those outside the bins
    apart_k : float64 [K], moves between two independent values of z, at least
    """

    rungs: slice
    rung_weights: RungWeights
    ancestral: bool
    group_w: IntArray
    effective_b: FloatArray
    counts_gb: IntArray
    counts_kb: IntArray
    moves_k: IntArray
    apart_k: FloatArray


@dataclass(frozen=True)
class Observed:
    """Counts of one or several runs of one model; the rungs of several runs are concatenated.

    Attributes
    ----------
    edges : float64 [B + 1]
    beta_k : float64 [K]; NaN for flat-histogram rungs
    inside : the mean output of each bin's counts (also as z_b) and how they are spread
    count_b : int64 [B], over all rungs
    effective_b : float64 [B], effective number of independent counts
    outside_k2 : int64 [K, 2], moves below and above the bins
    n_k : int64 [K], counts inside the bins; for ancestral runs all draws
    lanes_g : int64 [G], lanes per group
    share_inside : share of the beta = 0 rungs' moves inside the bins (NaN without such a rung)
    log_measure : log of the measure of the whole space
    parts : one RunPart per run, in the order in which the runs were given
    """

    edges: FloatArray
    beta_k: FloatArray
    inside: InsideBins
    count_b: IntArray
    effective_b: FloatArray
    outside_k2: IntArray
    n_k: IntArray
    lanes_g: IntArray
    share_inside: float
    log_measure: float
    parts: tuple[RunPart, ...]

    @property
    def measure(self) -> str:
        """What exp(log_g) is of a bin: "count", or "probability" under a law."""
        return "count" if self.log_measure else "probability"

    @property
    def words(self) -> MeasureWords:
        """The words for this measure."""
        return WORDS_OF[self.measure]

    @property
    def z_b(self) -> FloatArray:
        """Mean output per bin, float64 [B]; NaN where count_b is 0."""
        return self.inside.z_b

    @property
    def rung_weights(self) -> RungWeights | None:
        """RungWeights of a single run; None for several runs."""
        return self.parts[0].rung_weights if len(self.parts) == 1 else None

    @property
    def ancestral(self) -> bool:
        """Whether there is only one run, and its samples are draws with weights."""
        return len(self.parts) == 1 and self.parts[0].ancestral


@dataclass(frozen=True)
class Observations(Observed):
    """All data that a density is estimated from.

    The equations have one row per rung, but only one for all rungs of a run of independent draws.

    Attributes
    ----------
    mixing : of all rungs
    inside_k : int64 [K], counts inside the bins
    mean_z_k : float64 [K], mean output of these; 0 without any
    rung_label_k, label_k : names of the rungs, and of the rows
    rows_k : int64 [K], each rung's row; -1 for rungs of independent draws
    weight_k : float64 [rows], 1 / statistical inefficiency
    lanes, blocks : Terms per run, in groups of lanes and in blocks of rounds (empty if too few)
    n_blocks : int
    fewest_b : int64 [B], smallest count in a group of lanes or block of each run, summed; 0 without
        blocks
    width_bias_b : float64 [B], bias of log g that the bins' width leaves, see `bin_width`
    cold : whether rungs colder than a language model itself have equilibrated, in the worst run
    """

    mixing: Mixing
    inside_k: IntArray
    mean_z_k: FloatArray
    rung_label_k: list[str]
    label_k: list[str]
    rows_k: IntArray
    weight_k: FloatArray
    lanes: list[Terms]
    blocks: list[Terms]
    n_blocks: int
    fewest_b: IntArray
    width_bias_b: FloatArray
    cold: ColdRungs

    def rungs_with_outputs(self) -> list[str]:
        """Return the names of the rungs, each with its mean output."""
        each = zip(self.rung_label_k, self.mean_z_k, strict=True)
        return [f"{label}, mean z {z:.3g}" for label, z in each]

    def rung_f_k(self, f_row: FloatArray) -> FloatArray:
        """Return f of every rung from f of every row; 0 for normalized distributions."""
        return np.where(self.rows_k >= 0, f_row[self.rows_k], 0.0)


def observe(runs: Sequence[RunData]) -> Observations:
    """Read and check runs.

    Raises
    ------
    EstimateError
        No committed round, no counts, damaged data, or runs that cannot be combined.
    """
    _require_alike(runs)
    n_groups = min(run.lane_counts_kgb.shape[1] for run in runs)
    reads = [_read(run, n_groups) for run in runs]
    edges, log_measure = runs[0].edges, runs[0].log_measure
    count_kb = np.concatenate([run.counts_kb for run in runs])
    count_b = count_kb.sum(axis=0)
    if not count_b.any():
        raise EstimateError(
            f"{runs[0].path}: every move of every rung fell outside the bins "
            f"({edges[0]:g} to {edges[-1]:g}); widen [bins]"
        )
    z_b = mean_outputs(count_kb, np.concatenate([run.z_sum_kb for run in runs]), edges)
    inside, width_bias_b = _inside(runs, count_kb, z_b)
    n_blocks = min(number_of_blocks(r.run.rounds, r.tau_k, r.run.rounds_per_block) for r in reads)
    cuts = [_cut(read, inside, n_blocks, log_measure) for read in reads]
    fewest_b, fewest_block_b = np.zeros((2, len(count_b)), np.int64)
    for read, (_, _, fewest) in zip(reads, cuts, strict=True):
        fewest_block_b += fewest
        fewest_b += read.counts_gkb.sum(axis=1).min(axis=0)
    weights = _weights(reads)
    parts = _parts(reads, [lanes for lanes, _, _ in cuts], weights)
    return Observations(
        edges=edges,
        beta_k=np.concatenate([run.beta_k for run in runs]),
        mixing=_mixing(reads, n_groups),
        outside_k2=np.concatenate([run.outside_k2 for run in runs]),
        inside_k=count_kb.sum(axis=1),
        mean_z_k=count_kb @ np.nan_to_num(z_b) / np.maximum(count_kb.sum(axis=1), 1),
        n_k=np.concatenate(
            [run.moves_k if run.ancestral else run.counts_kb.sum(axis=1) for run in runs]
        ),
        rung_label_k=[label for run in runs for label in run.weights.label_k],
        label_k=[label for r in reads for label in r.label_k],
        weight_k=np.concatenate(weights),
        lanes=[lanes for lanes, _, _ in cuts],
        blocks=[blocks for _, blocks, _ in cuts if blocks is not None],
        lanes_g=np.sum([r.size_g for r in reads], axis=0),
        n_blocks=n_blocks,
        inside=inside,
        width_bias_b=width_bias_b,
        count_b=count_b,
        effective_b=np.sum([part.effective_b for part in parts], axis=0),
        fewest_b=np.minimum(fewest_b, fewest_block_b) if n_blocks else 0 * fewest_b,
        share_inside=_share_inside(runs),
        log_measure=log_measure,
        parts=parts,
        rows_k=_rows(reads),
        cold=_coldest([_cold(run, z_b) for run in runs]),
    )


def _mixing(reads: Sequence[_Read], n_groups: int) -> Mixing:
    """Return how lanes and successive samples of all rungs depend on each other."""
    rhat_k, tau_k, drift_k = np.concatenate([read.diagnostics for read in reads], axis=1)
    n_lanes_k = np.concatenate([np.full(len(r.run.beta_k), r.run.walkers) for r in reads])
    independent = all(read.run.ancestral for read in reads)
    return Mixing(rhat_k, tau_k, drift_k, n_lanes_k, n_groups, independent)


def _inside(
    runs: Sequence[RunData], count_kb: IntArray, z_b: FloatArray
) -> tuple[InsideBins, FloatArray]:
    """Return `inside_bins` of all runs; zeros if all are draws, whose weights are exact."""
    if all(run.ancestral for run in runs):
        nothing_b = np.zeros(len(z_b))
        return InsideBins(z_b, nothing_b, nothing_b), nothing_b
    derivatives = mixture_derivatives([run.weights for run in runs], count_kb, z_b)
    return inside_bins(runs, z_b, derivatives)


def _weights(reads: Sequence[_Read]) -> list[FloatArray]:
    """Return 1 / statistical inefficiency of the rows of each run.

    Runs that are too short to know have the mean of the other runs' chains, else 1.
    """
    known = [r.weight_k for r in reads if r.weight_k is not None and not r.run.ancestral]
    mean = float(np.concatenate(known).mean()) if known else 1.0
    return [np.full(len(r.label_k), mean) if r.weight_k is None else r.weight_k for r in reads]


def _parts(
    reads: Sequence[_Read], lanes: Sequence[Terms], weights: Sequence[FloatArray]
) -> tuple[RunPart, ...]:
    """Return the part of each run; `lanes` are the runs' terms in groups of lanes."""
    parts, first = [], 0
    for read, terms, weight_k in zip(reads, lanes, weights, strict=True):
        run, rungs = read.run, slice(first, first + len(read.run.beta_k))
        effective_b = _effective(read, terms, weight_k)
        who = (rungs, run.weights, run.ancestral, read.group_w)
        counts = (read.counts_gkb.sum(axis=1), run.counts_kb, run.moves_k)
        parts.append(RunPart(*who, effective_b, *counts, read.apart_k))
        first = rungs.stop
    return tuple(parts)


def _rows(reads: Sequence[_Read]) -> IntArray:
    """Return each rung's row in the equations [K]; -1 for rungs of independent draws."""
    row_k, row = [], 0
    for read in reads:
        n_rungs = len(read.run.beta_k)
        row_k.append(np.full(n_rungs, -1) if read.run.ancestral else row + np.arange(n_rungs))
        row += len(read.label_k)
    return np.concatenate(row_k)


def _share_inside(runs: Sequence[RunData]) -> float:
    """Return the share of the uniform rungs' moves inside the bins; NaN without such a rung."""
    chains = [run for run in runs if not run.ancestral]
    rungs = [(run, k) for run in chains for k in np.flatnonzero(run.weights.uniform_k)]
    uniform = [(run.counts_kb[k].sum(), run.moves_k[k]) for run, k in rungs]
    return float(np.divide(*np.sum(uniform, axis=0))) if uniform else np.nan


def _require_alike(runs: Sequence[RunData]) -> None:
    """Refuse runs that have no committed round, or whose counts cannot be combined."""
    for run in runs:
        require_rounds(run)
    first = runs[0]
    seeds: dict[object, object] = {}
    for run in runs:
        if run.fingerprint != first.fingerprint:
            models = {one.fingerprint.partition(" law:")[0] for one in (run, first)}
            raise EstimateError(
                f"{run.path} and {first.path} have different "
                f"{'models' if len(models) > 1 else 'laws of inputs, [law]'} ({run.fingerprint}, "
                f"{first.fingerprint}): only runs of one model can be combined"
            )
        if (run.n_sites, run.n_values) != (first.n_sites, first.n_values):
            raise EstimateError(f"{run.path} and {first.path} have different spaces of inputs")
        if not np.array_equal(run.edges, first.edges):
            raise EstimateError(
                f"{run.path} and {first.path} have different bins: only runs with the same [bins] "
                "can be combined (reweight --bins LOWER:UPPER:WIDTH counts their recorded samples "
                "in new bins)"
            )
        seed = run.config.seed
        if seed is not None and seed in seeds:
            raise EstimateError(
                f"{run.path} and {seeds[seed]} have the same [run] seed, so their random "
                "numbers are not independent: only runs with different seeds can be combined"
            )
        seeds[seed] = run.path


def _read(run: RunData, n_groups: int) -> _Read:
    """Check a run's counts and diagnose its chains.

    Lanes of one population of an annealed run depend on each other, but each round has new
    populations: they get the values of independent samples.
    """
    if not np.array_equal(run.lane_counts_kgb.sum(axis=1), run.counts_kb):
        raise EstimateError(f"{run.path} is damaged: its lanes do not add up to its histogram")
    if not np.isfinite(run.z_sum_kb).all():
        raise EstimateError(f"{run.path} is damaged: its sums of z are not finite")
    own, n_rungs = run.lane_counts_kgb.shape[1], len(run.beta_k)
    common_g = np.arange(own) * n_groups // own
    if not is_annealed(run):
        return _Read(run, common_g, chain_diagnostics(run))
    tau = 0.5 * run.walkers / run.samples_per_round
    independent = np.ones(n_rungs), np.full(n_rungs, tau), np.full(n_rungs, np.nan)
    return _Read(run, common_g, independent)


def _coldest(found: Sequence[ColdRungs]) -> ColdRungs:
    """Return the run with the highest floor, with the reasons of those that have no floor."""
    worst = max(found, key=lambda cold: (cold.floor, bool(cold.reason)))
    untested = [one.reason for one in found if one.reason and np.isneginf(one.floor)]
    return replace(worst, reason="; ".join(dict.fromkeys(filter(None, [worst.reason, *untested]))))


def _cold(run: RunData, z_b: FloatArray) -> ColdRungs:
    if is_annealed(run):
        return ColdRungs(*floor_of(run))
    if run.ancestral:
        return ColdRungs()
    parts = (run.model_beta, int(run.round_trips_v.sum()), run.cold_starts)
    return check_cold_rungs(run.lane_counts_kgb, z_b, run.beta_k, *parts)


def _cut(
    read: _Read, inside: InsideBins, n_blocks: int, log_measure: float
) -> tuple[Terms, Terms | None, IntArray]:
    """Return a run's terms by groups of lanes and by blocks, and the blocks' smallest counts."""
    run, total_k = read.run, read.total_k
    if run.ancestral:
        return sum_draws(run, total_k, read.group_w, read.size_g, n_blocks)
    space_f_k = np.where(run.weights.uniform_k, -log_measure, np.nan)
    model_f_k = np.where(run.weights.is_canonical(run.model_beta), -model_log_z(run), np.nan)
    known = (run.weights.mean_in_bins(inside), space_f_k, model_f_k)
    lanes = ChainTerms(read.counts_gkb, total_k, read.size_g, *known)
    if not n_blocks:
        return lanes, None, np.zeros(len(inside.z_b), dtype=np.int64)
    per_block = n_blocks * run.rounds_per_block
    used_k = total_k * (run.rounds // per_block * per_block / run.rounds)
    counts_nkb = run.counts_nkb(n_blocks)
    blocks = ChainTerms(counts_nkb, used_k, np.ones(n_blocks, dtype=np.int64), *known)
    return lanes, blocks, counts_nkb.sum(axis=1).min(axis=0)


def _effective(read: _Read, lanes: Terms, weight_k: FloatArray) -> FloatArray:
    """Return a run's effective number of independent counts per bin [B]."""
    if isinstance(lanes, DrawTerms):
        return lanes.effective_b()
    counts_kb, counts_gb = read.run.counts_kb, read.counts_gkb.sum(axis=1)
    if len(read.size_g) == 1:
        return np.asarray((counts_kb * weight_k[:, None]).sum(axis=0))
    return effective_counts(counts_gb, read.size_g, counts_kb, read.run.moves_k, read.apart_k)
