"""The density of a run: log number of inputs per bin, its errors, and the verdict on them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import scipy

from omniinput_hpc.estimators import BoolArray, FloatArray
from omniinput_hpc.estimators.density.known_ratio import Ends
from omniinput_hpc.estimators.density.observations import Observed
from omniinput_hpc.estimators.density.outside import NOT_KNOWN, Outside
from omniinput_hpc.estimators.errors.convergence import Check, Verdict
from omniinput_hpc.estimators.errors.jackknife import jackknife_error, t_quantile

MIN_EFFECTIVE_COUNT = 50.0  # effective; a bin with fewer has an upper bound, no interval
LOG_WHOLE = float(np.log(0.99))
"""ln of the share of all inputs from which on it counts as all."""


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
    def whole(self) -> str:
        """What the bins with counts hold, in words: all inputs, or those that the run could see."""
        if self.absolute and scipy.special.logsumexp(self.log_g_b) > self.log_measure + LOG_WHOLE:
            return self.words.whole
        seen = "in visited bins" if np.isnan(self.share_inside) else "inside the bins"
        return f"the {self.words.things} {seen}"

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
        return np.asarray(scipy.special.logsumexp(log_nf_k[:, None] + log_w_ki[some], axis=0))


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
    by_count = np.log(scipy.special.gammaincinv(n + 1.0, 0.95) / n)
    factor = t_quantile(n_groups, 0.9) if n_groups > 1 else 0.0
    by_lanes = factor * np.where(known, error_b[few], 0.0)
    upper_b[few] = log_g_b[few] + np.maximum(by_count, by_lanes)
    return upper_b
