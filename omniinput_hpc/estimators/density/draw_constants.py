"""A language model's two known constants, estimated from its ancestral draws without bins.

The number of inputs, Z(0), and the sum of exp(-m z) over them, Z(m), are known. The draws of all
rungs together represent the mixture q of their distributions, so the means of 1 / q and
exp(-m z) / q over draws estimate Z(0) and Z(m). Bins would not do: exp(-m z) varies inside bins of
a width that suits the density.
"""

from __future__ import annotations

import numpy as np
import scipy

from omniinput_hpc.estimators import EstimateError, FloatArray
from omniinput_hpc.estimators.errors.jackknife import jackknife_error
from omniinput_hpc.estimators.populations import is_annealed
from omniinput_hpc.estimators.run_data import RunData
from omniinput_hpc.histogram import lane_groups


def constants_apart(run: RunData, beta: float) -> tuple[float, float, int]:
    """Return log Z(0) - log Z(beta) from a run's independent draws, in nats.

    Returns
    -------
    float, float, int
        The estimate, its standard error (jackknife over groups of lanes; inf for one group), and
        the number of groups.

    Raises
    ------
    EstimateError
        No committed round, or no independent draws.
    """
    log_q = run.source.samples_log_q()
    if log_q is None or is_annealed(run) or run.rounds == 0:
        raise EstimateError(f"{run.path} holds no independent draws of an ancestral run")
    group_w = lane_groups(run.walkers)
    n_groups = int(group_w[-1]) + 1
    group_s = run.group_s
    log_sum_2g = np.full((2, n_groups), -np.inf)
    for round_, log_q_ksj in enumerate(log_q):
        z_ks = run.z_of(round_)
        log_v_ks = np.log(len(run.beta_k)) - scipy.special.logsumexp(log_q_ksj, axis=2)
        for row, weight in enumerate((0.0, beta)):
            log_w_ks = log_v_ks - weight * z_ks
            parts = [scipy.special.logsumexp(log_w_ks[:, group_s == g]) for g in range(n_groups)]
            log_sum_2g[row] = np.logaddexp(log_sum_2g[row], parts)
    value = _apart(log_sum_2g)
    others = [_apart(np.delete(log_sum_2g, g, axis=1)) for g in range(n_groups)]
    error = jackknife_error(value, np.array(others), np.bincount(group_w))
    return value, float(error), n_groups


def _apart(log_sum_2g: FloatArray) -> float:
    of_all, weighted = scipy.special.logsumexp(log_sum_2g, axis=1)
    return float(of_all - weighted)
