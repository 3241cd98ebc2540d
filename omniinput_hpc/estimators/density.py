"""The density of a run: log number of inputs per bin, its errors, and whether to believe them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from omniinput_hpc.estimators import EstimateError
from omniinput_hpc.estimators.reweight import canonical_log_weights, mean_outputs, solve
from omniinput_hpc.estimators.uncertainty import (
    WELL_FILLED,
    Verdict,
    chain_diagnostics,
    choose_blocks,
    jackknife_error,
    judge,
)
from omniinput_hpc.recorders import lane_groups

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


class RunData(Protocol):
    """What the estimators read of a run; `omniinput_hpc.run_reader.open_run` gives one."""

    @property
    def path(self) -> Any: ...  # noqa: D102
    @property
    def n_values(self) -> int: ...  # noqa: D102
    @property
    def n_sites(self) -> int: ...  # noqa: D102
    @property
    def rounds(self) -> int: ...  # noqa: D102
    @property
    def rounds_planned(self) -> int: ...  # noqa: D102
    @property
    def fingerprint(self) -> str: ...  # noqa: D102
    @property
    def walkers(self) -> int: ...  # noqa: D102
    @property
    def beta_k(self) -> FloatArray: ...  # noqa: D102
    @property
    def edges(self) -> FloatArray: ...  # noqa: D102
    def counts_kb(self) -> IntArray: ...  # noqa: D102
    def counts_nkb(self, n_blocks: int) -> IntArray: ...  # noqa: D102
    def outside_k2(self) -> IntArray: ...  # noqa: D102
    def lane_counts_kgb(self) -> IntArray: ...  # noqa: D102
    def z_sum_kb(self) -> FloatArray: ...  # noqa: D102
    def samples(self) -> Any: ...  # noqa: D102
    def samples_z(self) -> NDArray[np.float32]: ...  # noqa: D102


@dataclass(frozen=True)
class Density:
    """The density of states of a run and its jackknife replicates.

    Attributes
    ----------
    edges : float64 [B + 1]
    beta_k : float64 [K]
    z_b : float64 [B], mean output per bin; NaN where count_b is 0
    count_b : int64 [B], over all rungs
    outside_k2 : int64 [K, 2], moves below and above the bins
    n_k : int64 [K], counts inside the bins
    f_k : float64 [K], free energies that go with log_g_b
    log_g_b : float64 [B], natural log of the number of inputs per bin; -inf without counts
    log_g_error_b : float64 [B], standard error over lane groups; inf if only one group saw the bin
    block_error_b : float64 [B], the same over blocks of rounds; inf if not known
    log_g_jb : float64 [G, B], without lane group j; NaN where that could not be solved
    lanes_g : int64 [G], lanes per group
    absolute : whether sum(g) is the number of inputs inside the bins; else sum(g) = 1
    share_inside : share of the beta = 0 rung's moves inside the bins (NaN without such a rung)
    log_inputs : log of the number of inputs of the whole space
    verdict : Verdict
    """

    edges: FloatArray
    beta_k: FloatArray
    z_b: FloatArray
    count_b: IntArray
    outside_k2: IntArray
    n_k: IntArray
    f_k: FloatArray
    log_g_b: FloatArray
    log_g_error_b: FloatArray
    block_error_b: FloatArray
    log_g_jb: FloatArray
    lanes_g: IntArray
    absolute: bool
    share_inside: float
    log_inputs: float
    verdict: Verdict = field(repr=False)


def beta_labels(beta_k: FloatArray) -> list[str]:
    """Name the rungs for messages."""
    return [f"beta = {beta:.6g}" for beta in beta_k]


@dataclass(frozen=True)
class _Problem:
    """What all replicates share."""

    log_w_kb: FloatArray
    label_k: Sequence[str]
    uniform_k: NDArray[np.bool_]
    log_inputs: float
    absolute: bool

    def solve(
        self, counts_kb: IntArray, total_k: FloatArray, f_k: FloatArray | None = None
    ) -> tuple[FloatArray, FloatArray]:
        """Return normalized log_g_b and f_k.

        A rung with beta = 0 is uniform over the space: the n_values^D inputs times the share of
        its moves inside the bins (counts_kb over total_k) lie inside the bins.
        """
        solution = solve(counts_kb, self.log_w_kb, f_k=f_k, label_k=self.label_k)
        shift = -float(logsumexp(solution.log_g_b))
        if self.absolute:
            inside = counts_kb[self.uniform_k].sum()
            with np.errstate(divide="ignore"):
                shift += self.log_inputs + np.log(inside / total_k[self.uniform_k].sum())
        return solution.log_g_b + shift, solution.f_k - shift


def density_of_run(run: RunData) -> Density:
    """Estimate the density of a run from its committed rounds.

    Parameters
    ----------
    run : RunData

    Returns
    -------
    Density

    Raises
    ------
    EstimateError
        No committed round, no counts inside the bins, rungs that share no bin, no convergence.
    """
    if run.rounds == 0:
        raise EstimateError(f"{run.path} holds no committed round yet: there is nothing to analyse")
    beta_k, edges = run.beta_k, run.edges
    if not np.isfinite(beta_k).all():
        raise EstimateError(f"{run.path} has flat-histogram rungs, which cannot be reweighted yet")
    counts_kb, outside_k2 = run.counts_kb(), run.outside_k2()
    lane_counts_kgb = run.lane_counts_kgb()
    if not np.array_equal(lane_counts_kgb.sum(axis=1), counts_kb):
        raise EstimateError(f"{run.path} is damaged: its lanes do not add up to its histogram")
    n_groups = lane_counts_kgb.shape[1]
    lanes_g = np.bincount(lane_groups(run.walkers), minlength=n_groups)
    count_b = counts_kb.sum(axis=0)
    if not count_b.any():
        raise EstimateError(
            f"{run.path}: every move of every rung fell outside the bins "
            f"({edges[0]:g} to {edges[-1]:g}); widen [bins]"
        )

    z_b = mean_outputs(counts_kb, run.z_sum_kb(), edges)
    total_k = (counts_kb.sum(axis=1) + outside_k2.sum(axis=1)).astype(np.float64)
    uniform_k = beta_k == 0.0
    problem = _Problem(
        canonical_log_weights(beta_k, z_b),
        beta_labels(beta_k),
        uniform_k,
        run.n_sites * float(np.log(run.n_values)),
        absolute=bool(counts_kb[uniform_k].any()),
    )
    log_g_b, f_k = problem.solve(counts_kb, total_k)
    log_g_jb = _replicates(problem, lane_counts_kgb.swapaxes(0, 1), total_k, lanes_g, f_k)

    reasons = _what_is_missing(log_g_jb, counts_kb, problem.label_k)
    rhat_k, tau_k = chain_diagnostics(run.samples_z(), run.walkers)
    n_blocks = choose_blocks(run.rounds, tau_k)
    block_error_b, filled_b = np.full(len(count_b), np.inf), np.zeros(len(count_b), dtype=bool)
    if n_blocks:
        counts_nkb = run.counts_nkb(n_blocks)
        used_k = total_k * (run.rounds // n_blocks * n_blocks / run.rounds)
        one_n = np.ones(n_blocks, dtype=np.int64)
        blocks_b, _ = problem.solve(counts_nkb.sum(axis=0), used_k, f_k)
        block_error_b = jackknife_error(
            blocks_b, _replicates(problem, counts_nkb, used_k, one_n, f_k), one_n
        )
        filled_b = (
            np.minimum(counts_nkb.sum(axis=1).min(axis=0), lane_counts_kgb.sum(axis=0).min(axis=0))
            >= WELL_FILLED
        )
    log_g_error_b = jackknife_error(log_g_b, log_g_jb, lanes_g)
    return Density(
        edges=edges,
        beta_k=beta_k,
        z_b=z_b,
        count_b=count_b,
        outside_k2=outside_k2,
        n_k=counts_kb.sum(axis=1),
        f_k=f_k,
        log_g_b=log_g_b,
        log_g_error_b=log_g_error_b,
        block_error_b=block_error_b,
        log_g_jb=log_g_jb,
        lanes_g=lanes_g,
        absolute=problem.absolute,
        share_inside=float(counts_kb[uniform_k].sum() / total_k[uniform_k].sum())
        if uniform_k.any()
        else np.nan,
        log_inputs=problem.log_inputs,
        verdict=judge(
            log_g_error_b,
            block_error_b,
            filled_b,
            n_blocks,
            rhat_k,
            tau_k,
            problem.label_k,
            reasons,
        ),
    )


def _what_is_missing(
    log_g_jb: FloatArray, counts_kb: IntArray, label_k: Sequence[str]
) -> list[str]:
    """Return why errors or rungs are missing, as sentences for the verdict."""
    reasons = []
    if len(log_g_jb) < 2:
        reasons.append("the run has one lane only (walkers = 1), so errors are not known")
    elif not np.isfinite(log_g_jb).any(axis=1).all():
        reasons.append(
            "errors are not known: without one of the groups of lanes the rungs are not joined"
        )
    empty = [label for label, n in zip(label_k, counts_kb.sum(axis=1), strict=True) if n == 0]
    if empty:
        reasons.append(f"every move fell outside the bins at {', '.join(empty)}")
    return reasons


def _replicates(
    problem: _Problem,
    counts_jkb: IntArray,
    total_k: FloatArray,
    size_j: IntArray,
    f_k: FloatArray,
) -> FloatArray:
    """Return log_g_jb [J, B], each without part j of the counts.

    Every move of a lane (or a round) is counted inside or outside the bins, so part j holds
    size_j / sum(size_j) of a rung's total. Where the rest cannot be solved (its rungs share no
    bin), the row is NaN: the errors are then not known.
    """
    all_kb = counts_jkb.sum(axis=0)
    log_g_jb = np.full((len(counts_jkb), all_kb.shape[1]), np.nan)
    for j in range(len(counts_jkb) if len(counts_jkb) > 1 else 0):
        rest_k = total_k * (1.0 - size_j[j] / size_j.sum())
        try:
            log_g_jb[j] = problem.solve(all_kb - counts_jkb[j], rest_k, f_k)[0]
        except EstimateError:
            continue  # stays NaN: jackknife_error turns it into an infinite error
    return log_g_jb
