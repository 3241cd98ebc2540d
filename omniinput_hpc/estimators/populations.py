"""Estimate Z of every rung, and distributions of the draws, from annealed populations.

A draw x_i of rung k carries ln q_i, where q_i = exp(-beta_k z_i) / w_i (`tempering.annealing`):
over the draws of one population, means of f(x_i) / q_i are unbiased estimates of the sum of f over
all inputs. Draws of one population depend on each other, but populations are independent: they are
the units of every error. Each rung has its own estimate of the number of inputs in a bin. These
estimates are averaged with weights that add up to 1 in every bin (Veach & Guibas, SIGGRAPH 95, 419
(1995)),

    a_k(z) = nu_k exp(-beta_k z) / Z_k  over  sum_j nu_j exp(-beta_j z) / Z_j,

where Z_k is the mean over all n populations, and nu_k is the share of n that their weights w are
worth, (sum w)^2 / (n sum w^2) (Kish, Survey Sampling (1965), section 11.7). So a rung with a poorly
known Z counts for little at outputs that other rungs have sampled too. This has the form of
independent draws, with q_ij = q_i a_j(z_i) / a_k(z_i) instead of their distributions q_j(x_i). The
errors of Z_k and nu_k matter only to second order, because the weights always add up to 1.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import scipy

from omniinput_hpc.estimators import EstimateError, FloatArray, IntArray
from omniinput_hpc.estimators.run_data import RunData

MIN_POPULATIONS = 30.0
"""Equal populations that a rung's weights must be worth before its errors are trusted."""


def is_annealed(run: RunData) -> bool:
    """Return whether a run's draws come in populations."""
    return run.config.annealed


def populations_of_samples(run: RunData) -> IntArray:
    """Return the population within its round of each sample of a rung, int64 [S].

    It is the same on every rung.
    """
    group_s, exchanges = run.group_s, run.config.exchanges
    if exchanges is None:
        raise EstimateError(f"{run.path}: its input file does not state sampler.exchanges")
    part_s = np.arange(run.samples_per_round) * exchanges // run.samples_per_round
    return np.asarray(part_s * (group_s.max() + 1) + group_s)


@dataclass(frozen=True)
class Constants:
    """Z of every rung, estimated from n independent populations.

    Attributes
    ----------
    log_z_nk : float64 [n, K], ln of each population's estimate of the sum of exp(-beta_k z)
    z_nk : float64 [n, K], its mean output on that rung
    """

    log_z_nk: FloatArray
    z_nk: FloatArray

    @property
    def log_z_k(self) -> FloatArray:
        """Ln of the mean over populations [K], which is unbiased."""
        return np.asarray(
            scipy.special.logsumexp(self.log_z_nk, axis=0) - np.log(len(self.log_z_nk))
        )

    @property
    def worth_k(self) -> FloatArray:
        """Number of equal populations that the weights are worth [K]."""
        log_square_k = scipy.special.logsumexp(2.0 * self.log_z_nk, axis=0)
        return np.asarray(
            np.exp(2.0 * scipy.special.logsumexp(self.log_z_nk, axis=0) - log_square_k)
        )

    @property
    def error_k(self) -> FloatArray:
        """Standard error of log_z_k [K]; infinite for one population."""
        n = len(self.log_z_nk)
        if n < 2:
            return np.full(self.log_z_nk.shape[1], np.inf)
        return np.asarray(np.sqrt(np.maximum(n / self.worth_k - 1.0, 0.0) / (n - 1)))

    @property
    def mean_z_k(self) -> FloatArray:
        """Mean output of each rung [K]."""
        w_nk = np.exp(self.log_z_nk - self.log_z_nk.max(axis=0))
        return np.asarray((w_nk * self.z_nk).sum(axis=0) / w_nk.sum(axis=0))


def constants_of(run: RunData) -> Constants:
    """Return Z and mean outputs from the populations of an annealed run.

    Raises an EstimateError if there are none.
    """
    population_s, parts = populations_of_samples(run), []
    size_n = np.bincount(population_s)
    log_q = run.source.samples_log_q()
    if log_q is None or run.rounds == 0:
        raise EstimateError(f"{run.path} holds no populations of an annealed run")
    for round_, log_q_ks1 in enumerate(log_q):
        z_ks = run.z_of(round_)
        log_w_ks = -run.beta_k[:, None] * z_ks - log_q_ks1[:, :, 0]
        top_k = log_w_ks.max(axis=1)
        w_ks = np.exp(log_w_ks - top_k[:, None])
        sums = [
            np.stack([np.bincount(population_s, row, len(size_n)) for row in rows], axis=1)
            for rows in (w_ks, w_ks * z_ks)
        ]
        with np.errstate(divide="ignore", invalid="ignore"):
            log_z_nk = np.log(sums[0] / size_n[:, None]) + top_k
            parts.append((log_z_nk, np.nan_to_num(sums[1] / sums[0])))
    log_z, z = zip(*parts, strict=True)
    return Constants(np.concatenate(log_z), np.concatenate(z))


def log_q_of(run: RunData) -> Iterator[FloatArray] | None:
    """Yield log q_j(x), float64 [K, S, K], of each round's draws; None for chains.

    For an annealed run, these are the log q_ij of the module's docstring.
    """
    log_q = run.source.samples_log_q()
    if log_q is None or not is_annealed(run) or run.rounds == 0:
        return log_q
    return _as_distributions(run, log_q)


def _as_distributions(run: RunData, log_q: Iterator[FloatArray]) -> Iterator[FloatArray]:
    found = constants_of(run)
    share_k = np.log(found.worth_k) - found.log_z_k
    for round_, log_q_ks1 in enumerate(log_q):
        log_a_ksj = share_k - run.beta_k * run.z_of(round_)[:, :, None]
        own_ks = np.stack([log_a_sj[:, k] for k, log_a_sj in enumerate(log_a_ksj)])
        yield log_q_ks1 + log_a_ksj - own_ks[:, :, None]


def floor_of(run: RunData) -> tuple[float, str]:
    """Return the output below which an annealed run cannot be trusted, and why.

    This floor is the mean output of the warmest rung whose populations are worth fewer than 30
    equal ones; -inf and "" if there is none.
    """
    found = constants_of(run)
    few_k = np.flatnonzero(found.worth_k < MIN_POPULATIONS)
    if not few_k.size:
        return -np.inf, ""
    k, floor = int(few_k[0]), float(found.mean_z_k[few_k[0]])
    return floor, (
        f"not known below z = {floor:.3g}: at beta = {run.beta_k[k]:.4g} the weights of "
        f"{len(found.log_z_nk):,} populations are worth {found.worth_k[k]:.2g} equal weights, but "
        f"{MIN_POPULATIONS:.0f} are needed; raise run.rounds or sampler.walkers, or add betas in "
        "between; no errors are given there, and curves leave these outputs out"
    )
