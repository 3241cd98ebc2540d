"""A language model's two known constants, as a check of the ladder between them.

At beta = 0 all V^D inputs have the same weight. At beta = m, the number of predicted tokens, the
weight exp(-m z) of an input is the model's own probability. So log Z(0) - log Z(m) = m log V
exactly, and a density that is scaled only to log Z(0) shows whether the ladder in between is right.
If it is, the density is also scaled to log Z(m) = (D - m) log V, so that errors near beta = m no
longer accumulate from beta = 0 (`density`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy

from omniinput_hpc.estimators import BoolArray, FloatArray, IntArray
from omniinput_hpc.estimators.density.rung_weights import InsideBins
from omniinput_hpc.estimators.errors.convergence import LEAST_ERROR, Check
from omniinput_hpc.estimators.errors.jackknife import jackknife_error, t_quantile
from omniinput_hpc.estimators.run_data import RunData

MAX_OUTSIDE = 1e-3
"""Largest share of a rung's moves outside the bins; its log Z is off by as many nats."""
FALSE_ALARMS = 0.001
"""Probability that a correct ladder's ends disagree by chance."""


@dataclass(frozen=True)
class Ends:
    """log Z(0) - log Z(m) of a language model, estimated and exact, in nats.

    Attributes
    ----------
    beta : m
    n_values : V
    value, error : from a density that is scaled only at beta = 0; standard error over the lanes
    exact : m log V
    n_groups : groups of lanes
    """

    beta: float
    n_values: int
    value: float
    error: float
    exact: float
    n_groups: int

    @property
    def agree(self) -> bool:
        """Whether both are equal within errors; false for 1 in 1,000 correct ladders."""
        most = t_quantile(self.n_groups, 1.0 - FALSE_ALARMS) * self.error
        return bool(np.isfinite(most) and abs(self.value - self.exact) <= most)

    @property
    def check(self) -> Check:
        """The check that both agree; it passes if the error is unknown."""
        apart = abs(self.value - self.exact) / self.error if np.isfinite(self.error) else np.nan
        most = t_quantile(self.n_groups, 1.0 - FALSE_ALARMS)
        check = Check("log Z of the ladder's ends, in errors", apart, most)
        if self.agree or not np.isfinite(self.error):
            return check
        return check.failed(
            f"impossible: log Z(0) - log Z({self.beta:g}) = {self.value:.4f} +- {self.error:.4f} "
            f"(standard error), but it is {self.beta:g} ln {self.n_values} = {self.exact:.4f}",
            "raise run.rounds and run.burn_in",
        )


def probabilities_add_up(run: RunData) -> bool:
    """Return whether the probabilities of all inputs with the same unpredicted sites sum to 1.

    They do for a decoder if its sites may take every value of its vocabulary, and for other models
    if their rows were found to sum to 1 at the start of the run. With ``space.allowed`` or another
    constraint they sum to the probability that the model gives to these inputs, which is unknown.
    """
    whole = run.config.allowed is None and run.rows_normalized
    return bool(np.isnan(run.log_inputs)) and (whole or run.config.every_token)


def exact_difference(run: RunData, model_beta: float) -> float:
    """Return m log V, or NaN if the model's probabilities of the inputs do not sum to 1."""
    return model_beta * float(np.log(run.n_values)) if probabilities_add_up(run) else float("nan")


def model_log_z(run: RunData) -> float:
    """Return log Z(m) of a run's language model, (D - m) log V; NaN if it is unknown."""
    apart = exact_difference(run, run.model_beta)
    return run.log_measure - apart


def ends_are_inside(
    beta_k: FloatArray, outside_k2: IntArray, moves_k: IntArray, beta: float
) -> bool:
    """Return whether nearly all moves at beta = 0 and at `beta` lie inside the bins.

    Otherwise sums over the bins are not Z(0) and Z(beta).
    """
    end_k = (beta_k == 0.0) | (beta_k == beta)
    most_k = MAX_OUTSIDE * np.maximum(moves_k, 1)
    return bool((outside_k2.sum(axis=1) <= most_k)[end_k].all())


def rounding(beta: float, z_b: FloatArray) -> float:
    """Return by how much a log Z may be off because outputs are float32, and weights exp(-beta z).

    z_b : float64 [B], mean outputs of bins, NaN without counts
    """
    largest = float(np.abs(z_b[np.isfinite(z_b)]).max(initial=0.0))
    return max(LEAST_ERROR, abs(beta) * largest * float(np.finfo(np.float32).eps))


def log_constants_apart(
    log_g_b: FloatArray,
    log_g_jb: FloatArray,
    inside: InsideBins,
    use_b: BoolArray,
    lanes_g: IntArray,
    beta: float,
    start: float = 0.0,
) -> tuple[float, float]:
    """Return log Z(start) - log Z(beta) of a density, and its standard error over lane groups.

    Z(beta) is the sum over bins of g times the mean of exp(-beta z) over the bin's inputs.

    Parameters
    ----------
    log_g_b, log_g_jb : float64 [B], [G, B], the density and its replicates
    inside : outputs inside the bins
    use_b : bool [B], trusted bins with counts
    lanes_g : int64 [G]

    Returns
    -------
    float, float
        In nats; the error is inf if a replicate is unknown, or if there is only one bin, because
        replicates do not differ in how outputs are spread inside a bin. It is never below the
        rounding of outputs, which are float32.
    """
    bins = np.flatnonzero(use_b)
    start_b, beta_b = (inside.log_mean_exp(-b)[bins] for b in (start, beta))

    def apart(log_g: FloatArray) -> FloatArray:
        some = log_g[..., bins]
        return np.asarray(
            scipy.special.logsumexp(some + start_b, axis=-1)
            - scipy.special.logsumexp(some + beta_b, axis=-1)
        )

    value = apart(log_g_b)
    if len(bins) < 2:
        return float(value), np.inf
    error = float(jackknife_error(value, apart(log_g_jb), lanes_g))
    return float(value), max(error, rounding(beta - start, inside.z_b[bins]))
