"""The density of a run: log number of inputs per bin, its errors, and the verdict on them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace

import numpy as np
from scipy.special import gammaincinv, logsumexp

from omniinput_hpc.estimators import BoolArray, EstimateError, FloatArray
from omniinput_hpc.estimators.density import bin_width, checks
from omniinput_hpc.estimators.density.arrivals import from_arrivals
from omniinput_hpc.estimators.density.facts import LogDensity
from omniinput_hpc.estimators.density.known_ratio import (
    Ends,
    ends_are_inside,
    exact_difference,
    log_constants_apart,
)
from omniinput_hpc.estimators.density.observations import Observations, Observed, observe
from omniinput_hpc.estimators.density.outside import NOT_KNOWN, Outside, outside_bins
from omniinput_hpc.estimators.density.terms import (
    DrawTerms,
    Terms,
    join_terms,
    not_widened,
    pinned,
)
from omniinput_hpc.estimators.density.wham import solve
from omniinput_hpc.estimators.errors.convergence import (
    WELL_FILLED,
    Check,
    Mixing,
    Verdict,
    check_convergence,
)
from omniinput_hpc.estimators.errors.jackknife import jackknife_error, t_quantile
from omniinput_hpc.estimators.run_data import RunData

MIN_EFFECTIVE_COUNT = 50.0  # effective; a bin with fewer has an upper bound, no interval


@dataclass(frozen=True)
class Density(Observed):
    """The density of states of one or several runs of one model, and its jackknife replicates.

    Attributes
    ----------
    f_k : float64 [K], free energies that go with log_g_b; 0 for ancestral runs
    log_g_b : float64 [B], natural log of the number of inputs per bin; -inf without counts
    log_g_error_b : float64 [B], standard error over lane groups; inf if only one group saw the bin
    block_error_b : float64 [B], standard error over blocks of rounds; inf if unknown
    log_g_jb : float64 [G, B], without lane group j; NaN if that could not be solved
    plain_log_g_jb : float64 [G, B], the same, but for independent draws without the widening of
        errors in bins of few draws (see `terms`); for ranges of bins with many draws
    absolute : whether sum(g) is the number of inputs inside the bins; else sum(g) = 1
    verdict : Verdict
    log_g_upper_b : float64 [B], 95% upper bound of log_g where effective_b < 50, because no
        interval is meaningful there; NaN elsewhere, and if the run has not converged
    floor : outputs below it come from rungs that have not equilibrated (see `convergence`): their
        errors are unknown, and curves leave them out; -inf if there are none
    outside : the share of all inputs that lies outside the bins
    trusted_below : outputs below it are counted on request although their rungs have not
        equilibrated (see `trusting`); -inf if there are none
    ends : log Z(0) - log Z(m) of a language model, exact, and from a density that does not use the
        exact value; None if either is unknown
    pinned : whether the density uses the exact log Z(m)
    """

    f_k: FloatArray
    log_g_b: FloatArray
    log_g_error_b: FloatArray
    block_error_b: FloatArray
    log_g_jb: FloatArray
    plain_log_g_jb: FloatArray
    absolute: bool
    verdict: Verdict = field(repr=False)
    log_g_upper_b: FloatArray
    floor: float = -np.inf
    outside: Outside = NOT_KNOWN
    trusted_below: float = -np.inf
    ends: Ends | None = None
    pinned: bool = False

    def trusting(self) -> Density:
        """Return the density with all bins trusted, also those below the floor.

        Their errors come from the spread of the lanes, which is too small if all lanes are stuck in
        the same place. The verdict records that this was requested.
        """
        if self.floor == -np.inf:
            return self
        nowhere_b = np.zeros(len(self.log_g_b), dtype=bool)
        error_b, _ = errors_and_bounds(
            self.log_g_b, self.log_g_jb, self, self.effective_b, nowhere_b
        )
        sentence = (
            f"outputs below z = {self.floor:.3g} have not equilibrated, but are counted as "
            "requested"
        )
        verdict = self.verdict.also(Check("outputs trusted as asked for", sentence=sentence))
        return replace(
            self, log_g_error_b=error_b, verdict=verdict, floor=-np.inf, trusted_below=self.floor
        )

    @property
    def believed_b(self) -> BoolArray:
        """Bins with counts at or above the floor, bool [B]."""
        return (self.count_b > 0) & (self.edges[:-1] >= self.floor)

    def log_mixture(
        self, z_i: FloatArray, log_q_ik: FloatArray | None = None, number: int | None = None
    ) -> FloatArray:
        """Return log sum_k n_k p_k(x_i) [n] over one run's rungs; p_k is rung k's distribution.

        With weights exp(-log_mixture), samples pooled from all rungs represent the uniform
        distribution (Shirts & Chodera, J. Chem. Phys. 129, 124105 (2008), Eq. 9). The f_k of the
        rungs are those of this density, from all runs together.

        Parameters
        ----------
        z_i : float64 [n]
        log_q_ik : float64 [n, K], log q_k(x_i), of ancestral runs
        number : index of the samples' run, from 0; required if there are several

        Raises
        ------
        ValueError
            No log_q_ik for samples of an ancestral run, or no number for one of several runs.
        """
        if number is None and len(self.parts) > 1:
            raise ValueError("the weights of samples are not known without their run's number")
        part = self.parts[number or 0]
        if part.ancestral and log_q_ik is None:
            raise ValueError("the distributions of the rungs at these samples are not known")
        n_k, f_k = self.n_k[part.rungs], self.f_k[part.rungs]
        log_w_ki = part.rung_weights.at(z_i) if log_q_ik is None else np.asarray(log_q_ik).T
        some = n_k > 0
        log_nf_k = np.log(n_k[some].astype(np.float64)) + f_k[some]
        return np.asarray(logsumexp(log_nf_k[:, None] + log_w_ki[some], axis=0))


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
        solution = solve(
            system.counts_kb,
            system.log_w_kb,
            weight_k=self.weight_k,
            f_k=f_k,
            known_f_k=system.known_f_k,
            label_k=self.label_k,
        )
        shift = 0.0 if self.absolute else -float(logsumexp(solution.log_g_b))
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
    log_g_b, log_g_jb, absolute = solved.log_g_b, solved.log_g_jb, solved.problem.absolute
    effective_b, brought = from_arrivals(runs, observed, log_g_b)
    observed = replace(observed, effective_b=effective_b)
    log_g_error_b, log_g_upper_b = errors_and_bounds(
        log_g_b, log_g_jb, observed, observed.effective_b, below_b
    )
    block_error_b = _block_errors(solved, observed)
    block_error_b[below_b & np.isfinite(log_g_b)] = np.inf
    outside = outside_bins(runs)
    found = LogDensity(
        observed.edges, log_g_b, log_g_error_b, log_g_upper_b, log_g_jb, observed.lanes_g,
        observed.count_b, observed.log_inputs,
    )  # fmt: skip
    asked = [
        *outside.checks(observed.edges),
        *(checks.of_density(runs, observed, found) if absolute else []),
        *checks.of_chains(runs, observed, found),
        *brought,
        *([solved.ends.check] if solved.ends else []),
        *checks.of_errors(observed, log_g_jb, solved.why),
        *_too_wide(observed, log_g_error_b),
    ]
    verdict = _verdict(runs, observed, log_g_error_b, block_error_b, asked)
    return Density(
        **{one.name: getattr(observed, one.name) for one in fields(Observed)},
        f_k=observed.rung_f_k(solved.f_k),
        log_g_b=log_g_b,
        log_g_error_b=log_g_error_b,
        block_error_b=block_error_b,
        log_g_jb=log_g_jb,
        plain_log_g_jb=solved.plain_log_g_jb,
        absolute=absolute,
        verdict=verdict,
        log_g_upper_b=log_g_upper_b if verdict.converged else np.full(len(log_g_b), np.nan),
        floor=observed.cold.floor,
        outside=outside,
        ends=solved.ends,
        pinned=solved.pinned,
    )


def _verdict(
    runs: Sequence[RunData],
    observed: Observations,
    log_g_error_b: FloatArray,
    block_error_b: FloatArray,
    asked: Sequence[Check],
) -> Verdict:
    """Return the verdict: the checks in `asked`, and whether both errors and the lanes agree."""
    firm_b = observed.fewest_b >= WELL_FILLED
    mixing = Mixing(
        observed.rhat_k, observed.tau_k, observed.drift_k,
        min(run.walkers for run in runs), len(observed.lanes_g),
        all(part.ancestral for part in observed.parts),
    )  # fmt: skip
    names, errors = observed.rungs_with_outputs(), (log_g_error_b[firm_b], block_error_b[firm_b])
    return check_convergence(*errors, observed.n_blocks, mixing, names, asked)


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
    ends = None
    if free.problem.absolute and (observed.beta_k == 0.0).any():  # else Z(0) was not seen
        use_b = (observed.count_b > 0) & ~below_b
        parts = (free.log_g_b, free.log_g_jb, observed.inside, use_b, observed.lanes_g)
        found = log_constants_apart(*parts, m)
        ends = Ends(m, run.n_values, *found, exact, len(observed.lanes_g))
    chains = any(not isinstance(part, DrawTerms) for part in observed.lanes)
    if chains and (ends is None or ends.agree):
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
    blocks_b, _ = solved.problem.solve(blocks, one_n > 0, solved.f_k)
    return jackknife_error(blocks_b, solved.problem.without_each(blocks, solved.f_k)[0], one_n)


def errors_and_bounds(
    log_g_b: FloatArray,
    log_g_jb: FloatArray,
    observed: Observed,
    effective_b: FloatArray,
    below_b: BoolArray,
) -> tuple[FloatArray, FloatArray]:
    """Return the errors over lanes and the upper bounds of log_g, float64 [B] each.

    below_b, bool [B], marks bins below the floor of `Density`: error inf, no bound.
    """
    error_b = jackknife_error(log_g_b, log_g_jb, observed.lanes_g)
    error_b = np.maximum(error_b, least_errors(observed, effective_b))
    error_b[below_b & np.isfinite(log_g_b)] = np.inf
    upper_b = upper_bounds(log_g_b, error_b, effective_b, len(observed.lanes_g))
    upper_b[below_b] = np.nan
    return error_b, upper_b


def least_errors(observed: Observed, effective_b: FloatArray) -> FloatArray:
    """Return lower limits of the errors of log g [B].

    These are 1 / sqrt(effective_b) for independent draws, and 0 for chains, which may determine a
    bin better than its own counts do.
    """
    if not observed.ancestral:
        return np.zeros(len(effective_b))
    return np.asarray(1.0 / np.sqrt(np.maximum(effective_b, 1e-300)))


def upper_bounds(
    log_g_b: FloatArray, error_b: FloatArray, effective_b: FloatArray, n_groups: int
) -> FloatArray:
    """Return 95% upper bounds of log_g [B] in bins of fewer than 50 effective counts; else NaN.

    The bound is the larger of the one-sided bound by Student's t and that of a Poisson count: with
    n counts, the mean lies below gammaincinv(n + 1, 0.95) with 95% confidence (Garwood, Biometrika
    28, 437 (1936)). A bin with an unknown error was seen by one group of lanes: n is at most 1.
    """
    few = (effective_b < MIN_EFFECTIVE_COUNT) & np.isfinite(log_g_b)
    upper_b = np.full(len(log_g_b), np.nan)
    known = np.isfinite(error_b[few])
    n = np.maximum(np.where(known, effective_b[few], np.minimum(effective_b[few], 1.0)), 1e-3)
    by_count = np.log(gammaincinv(n + 1.0, 0.95) / n)
    factor = t_quantile(n_groups, 0.9) if n_groups > 1 else 0.0
    by_lanes = factor * np.where(known, error_b[few], 0.0)
    upper_b[few] = log_g_b[few] + np.maximum(by_count, by_lanes)
    return upper_b


def _too_wide(observed: Observations, log_g_error_b: FloatArray) -> list[Check]:
    """Check the bin width, unless all runs are independent draws."""
    if all(part.ancestral for part in observed.parts):
        return []
    firm_b = observed.effective_b >= MIN_EFFECTIVE_COUNT
    return [bin_width.too_wide(observed.width_bias_b, log_g_error_b, firm_b, observed.edges)]
