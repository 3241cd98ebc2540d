"""Estimate the density of one or several runs, with its errors and the verdict on them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
import scipy

from omniinput_hpc.estimators import BoolArray, EstimateError, FloatArray
from omniinput_hpc.estimators.density import checks
from omniinput_hpc.estimators.density.arrivals import from_arrivals
from omniinput_hpc.estimators.density.known_ratio import (
    Ends,
    ends_are_inside,
    exact_difference,
    log_constants_apart,
)
from omniinput_hpc.estimators.density.observations import Observations, Observed, observe
from omniinput_hpc.estimators.density.outside import outside_bins
from omniinput_hpc.estimators.density.result import MIN_EFFECTIVE_COUNT as MIN_EFFECTIVE_COUNT
from omniinput_hpc.estimators.density.result import Density as Density
from omniinput_hpc.estimators.density.result import errors_and_bounds
from omniinput_hpc.estimators.density.terms import (
    DrawTerms,
    Terms,
    join_terms,
    not_widened,
    pinned,
)
from omniinput_hpc.estimators.density.wham import solve
from omniinput_hpc.estimators.errors.convergence import WELL_FILLED, check_convergence
from omniinput_hpc.estimators.errors.jackknife import Interval, jackknife_error, t_quantile
from omniinput_hpc.estimators.run_data import RunData

LOG_UNKNOWN_SHARE = np.log(0.01)
"""Ln of the largest share of a sum that bins without errors may hold, if its error is known."""


@dataclass(frozen=True)
class _Problem:
    """The settings that all replicates share."""

    label_k: Sequence[str]
    weight_k: FloatArray
    absolute: bool

    def solve(
        self, terms: Sequence[Terms], keep_p: BoolArray, f_k: FloatArray | None = None
    ) -> tuple[FloatArray, FloatArray]:
        """Return log_g_b and f_k; if log_g_b is not absolute, its exponentials sum to 1."""
        system = join_terms(terms, keep_p)
        if self.absolute and not np.isfinite(system.known_f_k).any():
            raise EstimateError("no rung with a known normalizer has counts inside the bins")
        solution = solve(
            system.counts_kb,
            system.log_w_kb,
            weight_k=self.weight_k,
            f_k=f_k,
            known_f_k=system.known_f_k,
            label_k=self.label_k,
        )
        shift = 0.0 if self.absolute else -float(scipy.special.logsumexp(solution.log_g_b))
        return solution.log_g_b + shift, solution.f_k - shift

    def without_each(self, terms: Sequence[Terms], f_k: FloatArray) -> tuple[FloatArray, str]:
        """Return log_g_jb [J, B], each without part j, and why one could not be solved.

        A row is NaN if the other parts cannot be solved (their rungs share no bin): the errors are
        then unknown. The text is empty if all could be solved.
        """
        why = ""
        size_p = terms[0].size_p
        n_parts, n_bins = len(size_p), join_terms(terms, size_p > 0).counts_kb.shape[1]
        log_g_jb = np.full((n_parts, n_bins), np.nan)
        for j in range(n_parts if n_parts > 1 else 0):
            try:
                log_g_jb[j] = self.solve(terms, np.arange(n_parts) != j, f_k)[0]
            except EstimateError as error:
                why = why or str(error)  # the row stays NaN: jackknife_error makes that inf
        return log_g_jb, why


def density_of_run(run: RunData) -> Density:
    """Estimate the density of a run from its committed rounds: see `density_of_runs`."""
    return density_of_runs([run])


def density_of_runs(runs: Sequence[RunData]) -> Density:
    """Estimate one density from the committed rounds of all runs of one model.

    Each rung's counts are weighted by 1 / its statistical inefficiency. Group j of lanes (block j
    of rounds) combines those of all runs.

    Raises
    ------
    EstimateError
        No committed round, no counts inside the bins, rungs that share no bin, no convergence of
        the solver, or runs with different models, different bins or the same seed.
    """
    observed = observe(runs)
    below_b = observed.edges[:-1] < observed.cold.floor
    solved = _solve(runs, observed, below_b)
    effective_b, brought = from_arrivals(runs, observed, solved.log_g_b)
    observed = replace(observed, effective_b=effective_b)
    log_g_error_b, log_g_upper_b = errors_and_bounds(
        solved.log_g_b, solved.log_g_jb, observed, effective_b, below_b
    )
    block_error_b = _block_errors(solved, observed)
    block_error_b[below_b & np.isfinite(solved.log_g_b)] = np.inf
    firm_b = observed.fewest_b >= WELL_FILLED
    errors = log_g_error_b[firm_b], block_error_b[firm_b]
    names = observed.rungs_with_outputs()
    verdict = check_convergence(*errors, observed.n_blocks, observed.mixing, names)
    density = Density(
        **{one.name: getattr(observed, one.name) for one in fields(Observed)},
        f_k=observed.rung_f_k(solved.f_k),
        log_g_b=solved.log_g_b,
        log_g_error_b=log_g_error_b,
        block_error_b=block_error_b,
        log_g_jb=solved.log_g_jb,
        plain_log_g_jb=solved.plain_log_g_jb,
        absolute=solved.problem.absolute,
        verdict=verdict,
        log_g_upper_b=log_g_upper_b,
        floor=observed.cold.floor,
        outside=outside_bins(runs),
        ends=solved.ends,
        pinned=solved.pinned,
    )
    asked = checks.of_density(runs, observed, density, brought, solved.why)
    verdict = replace(verdict, checks=(*asked, *verdict.checks))
    if not verdict.converged:
        log_g_upper_b = np.full(len(log_g_upper_b), np.nan)
    return replace(density, verdict=verdict, log_g_upper_b=log_g_upper_b)


@dataclass(frozen=True)
class _Solved:
    """The solution of the equations and its replicates; fields as in `Density`."""

    problem: _Problem
    pinned: bool
    ends: Ends | None
    log_g_b: FloatArray
    f_k: FloatArray
    log_g_jb: FloatArray
    plain_log_g_jb: FloatArray
    why: str  # why a replicate could not be solved

    def terms(self, terms: Sequence[Terms]) -> Sequence[Terms]:
        """Return the terms as these equations use them: pinned or not."""
        return pinned(terms) if self.pinned else terms


def _solve(runs: Sequence[RunData], observed: Observations, below_b: BoolArray) -> _Solved:
    """Solve without a language model's own normalizer, and with it unless the two disagree.

    below_b : bool [B], bins that are not trusted, see `Density`
    """
    run = next((run for run in runs if np.isfinite(run.model_beta)), runs[0])
    free, m = _solved(observed, False, None), run.model_beta
    exact = exact_difference(run, m)
    inside = ends_are_inside(observed.beta_k, observed.outside_k2, observed.n_k, m)
    if not (np.isfinite(exact) and inside):
        return free
    ends, at_m = None, bool((observed.beta_k == m).any())
    if free.problem.absolute and (observed.beta_k == 0.0).any():  # else Z(0) was not seen
        use_b = (observed.count_b > 0) & ~below_b
        term_b = free.log_g_b + observed.inside.log_mean_exp(-m)
        thin_b = use_b & (observed.effective_b < MIN_EFFECTIVE_COUNT)
        if at_m or _hold_little(term_b, thin_b, use_b):  # else Z(m) was not seen
            parts = (free.log_g_b, free.log_g_jb, observed.inside, use_b, observed.lanes_g)
            found = log_constants_apart(*parts, m)
            ends = Ends(m, run.n_values, *found, exact, len(observed.lanes_g))
    chains = any(not isinstance(part, DrawTerms) for part in observed.lanes)
    if chains and at_m and (ends is None or ends.agree):
        return _solved(observed, True, ends, free.f_k)
    return replace(free, ends=ends)


def _solved(
    observed: Observations, use_model: bool, ends: Ends | None, start_k: FloatArray | None = None
) -> _Solved:
    """Solve the equations and their replicates, starting from the free energies `start_k`."""
    lanes = pinned(observed.lanes) if use_model else observed.lanes
    everything = np.ones(len(lanes[0].size_p), dtype=bool)
    absolute = bool(np.isfinite(join_terms(lanes, everything).known_f_k).any())
    problem = _Problem(observed.label_k, observed.weight_k, absolute)
    log_g_b, f_k = problem.solve(lanes, everything, start_k)
    log_g_jb, why = problem.without_each(lanes, f_k)
    plain_log_g_jb = log_g_jb
    if any(isinstance(part, DrawTerms) for part in lanes):
        plain_log_g_jb, _ = problem.without_each(not_widened(lanes), f_k)
    return _Solved(problem, use_model, ends, log_g_b, f_k, log_g_jb, plain_log_g_jb, why)


def _block_errors(solved: _Solved, observed: Observations) -> FloatArray:
    """Return the standard errors of log g over blocks of rounds [B]; inf if rounds are too few."""
    if not observed.blocks:
        return np.full(len(observed.count_b), np.inf)
    one_n, blocks = np.ones(observed.n_blocks, dtype=np.int64), solved.terms(observed.blocks)
    try:
        blocks_b, _ = solved.problem.solve(blocks, one_n > 0, solved.f_k)
    except EstimateError:  # the blocks leave out some of the first rounds
        return np.full(len(observed.count_b), np.inf)
    return jackknife_error(blocks_b, solved.problem.without_each(blocks, solved.f_k)[0], one_n)


def log_total(density: Density, low: float, high: float) -> tuple[Interval, float, float]:
    """Return ln of the sum of exp(log_g) over the bins between two outputs, and their ends.

    Raises an EstimateError if no bin with counts lies inside.
    """
    edges, slack = density.edges, 1e-6 * (density.edges[1] - density.edges[0])
    inside_b = (edges[:-1] >= low - slack) & (edges[1:] <= high + slack)
    seen_b = inside_b & (density.count_b > 0) & np.isfinite(density.log_g_b)
    if not seen_b.any():
        raise EstimateError(f"--range {low:g} {high:g}: no whole bin with counts lies inside")
    value = scipy.special.logsumexp(density.log_g_b[seen_b])
    value_j = scipy.special.logsumexp(density.log_g_jb[:, seen_b], axis=1)
    found = _with_interval(density, value, value_j, seen_b, density.log_g_b)
    first, last = np.flatnonzero(inside_b)[[0, -1]]
    return found, float(edges[first]), float(edges[last + 1])


def log_mean_exp(density: Density) -> Interval:
    """Return ln of the mean of exp(-z) over a law of inputs, from an absolute density."""
    seen = density.count_b > 0
    mean_b = density.inside.log_mean_exp(-1.0)
    term_b = density.log_g_b + mean_b
    value = scipy.special.logsumexp(term_b[seen])
    value_j = scipy.special.logsumexp(density.log_g_jb[:, seen] + mean_b[seen], axis=1)
    return _with_interval(density, value, value_j, seen, term_b)


def _with_interval(
    density: Density, value: float, value_j: FloatArray, used_b: BoolArray, term_b: FloatArray
) -> Interval:
    """Return ln of a sum of exp(term_b) with its 95 % interval, from its replicates [G].

    The error is infinite if bins below the density's floor hold over 1 % of the sum.
    """
    error = float(jackknife_error(np.asarray(value), value_j, density.lanes_g))
    if not _hold_little(term_b, used_b & ~density.believed_b, used_b):
        error = np.inf
    half = t_quantile(len(density.lanes_g)) * error if np.isfinite(error) else np.inf
    return Interval(*map(np.asarray, (value, value - half, value + half, error)))


def _hold_little(term_b: FloatArray, some_b: BoolArray, used_b: BoolArray) -> bool:
    """Return whether some of the used bins hold at most 1 % of the sum of exp(term_b), [B]."""
    if not some_b.any():
        return True
    part, whole = (scipy.special.logsumexp(term_b[bins_b]) for bins_b in (some_b, used_b))
    return bool(part - whole <= LOG_UNKNOWN_SHARE)
