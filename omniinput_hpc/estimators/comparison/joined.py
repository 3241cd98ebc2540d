"""Joined runs: if a ladder and annealed populations disagree, the result has not converged.

If all lanes of a ladder are stuck in the same way, its error bars are small although it is wrong;
the same holds for populations that all missed a phase. The two methods estimate the weight of the
cold inputs independently. So both densities are compared as in `samplers`, and so is ln Z of every
rung of the populations.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import scipy

from omniinput_hpc.estimators import BoolArray, EstimateError
from omniinput_hpc.estimators.comparison.samplers import MIN_P_VALUE, compare_samplers
from omniinput_hpc.estimators.density.density import Density, density_of_runs
from omniinput_hpc.estimators.density.known_ratio import MAX_OUTSIDE, log_constants_apart
from omniinput_hpc.estimators.errors.convergence import Check
from omniinput_hpc.estimators.errors.jackknife import welch_degrees
from omniinput_hpc.estimators.populations import MIN_POPULATIONS, constants_of, is_annealed
from omniinput_hpc.estimators.run_data import RunData


def joined_density(runs: Sequence[RunData]) -> Density:
    """Estimate one density of all runs; its verdict reports if annealed runs contradict the others.

    Raises as `density_of_runs` does.
    """
    density = density_of_runs(runs)
    annealed = [run for run in runs if is_annealed(run)]
    others = [run for run in runs if not is_annealed(run)]
    if not (annealed and others):
        return density
    checks = agreement(annealed, others)
    density = replace(density, verdict=density.verdict.also(*checks))
    if all(check.passed for check in checks):
        return density
    return replace(density, log_g_upper_b=np.full(len(density.log_g_b), np.nan))


def agreement(annealed: Sequence[RunData], others: Sequence[RunData]) -> list[Check]:
    """Test whether annealed runs and other runs of the same model agree within chance.

    Each of the two tests raises a false alarm for 1 of 100 pairs of correct runs.
    """
    other = found = None
    try:
        other = density_of_runs(others)
        found = compare_samplers(density_of_runs(annealed), other)
    except EstimateError:
        pass  # one alone has no density, or they share no bins with known errors
    sentence = ""
    if found is not None and found.p < MIN_P_VALUE:
        sentence = (
            "the annealed populations and the other runs disagree on the density (Hotelling's "
            f"T^2 = {found.t_squared:.1f}, p = {found.p:.2g}): one of them has missed something"
        )
    p = found.p if found is not None else np.nan
    checks = [
        Check("densities of populations and of the rest", p, MIN_P_VALUE, sentence, at_least=True)
    ]
    tests = [test for run in annealed if other for test in _tests_of_constants(run, other)]
    if tests:
        p, words = min(tests)
        p, sentence = min(1.0, p * len(tests)), ""
        if p < MIN_P_VALUE:
            sentence = f"the annealed populations and the other runs disagree: {words}"
        checks.append(
            Check("ln Z of populations and of the rest", p, MIN_P_VALUE, sentence, at_least=True)
        )
    return checks


def _tests_of_constants(run: RunData, other: Density) -> list[tuple[float, str]]:
    """Return the p-value of each ln Z(beta) - ln Z(m) of an annealed run, and a text about it.

    Each is compared with that of another density, for rungs whose Z the populations determine and
    whose draws lie inside the bins: the other density says nothing of outputs outside.
    """
    inside_k = run.outside_k2.sum(axis=1) <= MAX_OUTSIDE * np.maximum(run.moves_k, 1)
    if not inside_k[0]:
        return []
    found, tests = constants_of(run), []
    use_b = (other.count_b > 0) & np.isfinite(other.log_g_b)
    lanes = len(other.lanes_g)
    for k in range(1, len(run.beta_k)):
        if found.worth_k[k] < MIN_POPULATIONS:
            break
        if not inside_k[k]:
            continue
        value, error = _apart(other, use_b, float(run.beta_k[0]), float(run.beta_k[k]))
        own = float(found.log_z_k[k] - found.log_z_k[0])
        own_error = float(found.error_k[k])
        total = float(np.hypot(error, own_error))
        if not (np.isfinite(total) and total > 0):
            continue
        variances = np.array(error**2), np.array(own_error**2)
        worth = int(found.worth_k[k])
        degrees = welch_degrees(variances[0], lanes - 1, variances[1], worth - 1)
        p = 2.0 * float(scipy.special.stdtr(np.minimum(degrees, 1e9), -abs(own - value) / total))
        beta, m = run.beta_k[k], run.beta_k[0]
        tests.append((
            p,
            f"ln Z({beta:.4g}) - ln Z({m:.4g}) is {own:.3f} +- {own_error:.3f} from the "
            f"populations and {value:.3f} +- {error:.3f} from the others (standard errors)",
        ))  # fmt: skip
    return tests


def _apart(density: Density, use_b: BoolArray, m: float, beta: float) -> tuple[float, float]:
    """Return ln Z(beta) - ln Z(m) of a density over its bins, and its standard error."""
    parts = (density.log_g_b, density.log_g_jb, density.inside, use_b, density.lanes_g)
    value, error = log_constants_apart(*parts, beta, start=m)
    return -value, error
