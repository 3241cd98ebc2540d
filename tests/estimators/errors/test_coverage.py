"""The short form of tests/benchmarks/interval_coverage.py, which runs 400 and more.

Of 40 runs, 95% intervals cover 38 +- 1.4: at least 34 (3 sigmas), and on average over the seven
quantities, which are not independent, at least 36.5 and not all. Of 120 runs (before a release)
they cover 114 +- 2.4: at least 107 and 110. Half the errors must fail.
"""

import numpy as np
import pytest
from lattice import canonical_log_weights
from run_tools import loaded
from scipy.special import logsumexp

from omniinput_hpc.estimators.density.observations import observe

FEWEST = {40: (34, 36.5), 120: (107, 110)}
"""By the number of runs: how many each interval must cover, and all on average."""


@pytest.fixture(scope="module")
def coverage():
    return loaded("tests/benchmarks/interval_coverage.py")


def is_right(covered, n):
    of_each, on_average = FEWEST[n]
    return bool((covered >= of_each / n).all() and on_average / n <= covered.mean() < 0.995)


@pytest.mark.slow
@pytest.mark.parametrize("n", [40, pytest.param(120, marks=pytest.mark.release)])
def test_intervals_cover_in_95_percent_of_the_runs(coverage, capsys, monkeypatch, n):
    runs = [coverage.estimates(coverage.synthetic_run(seed)) for seed in range(5000, 5000 + n)]
    monkeypatch.setattr(coverage, "estimates", lambda row: row)
    result = coverage.campaign(runs)
    assert is_right(result["covered"], n), result["covered"]
    assert result["converged"] > 0.9
    assert (np.abs(result["bias"]) < 4 * result["spread"] / np.sqrt(n) + 0.02).all()
    coverage.print_table("synthetic", result, 1.0)
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) == 9 and printed[-1].startswith("AUPR")
    halved = [(t, t - (t - low) / 2, t + (high - t) / 2, d) for t, low, high, d in runs]
    assert not is_right(coverage.campaign(halved)["covered"], n)


def test_the_runs_are_correlated_as_they_say(coverage):
    """Their own inefficiency is (1 + rho) / (1 - rho) in moves, to 20%: errors must see it."""
    run = coverage.synthetic_run(1, rounds=64)
    density = coverage.density_of_run(run)
    g_k = 2 * density.verdict.tau_k * 20
    np.testing.assert_allclose(g_k, (1 + coverage.RHO_K) / (1 - coverage.RHO_K), rtol=0.2)


def test_correlated_rungs_weigh_less(coverage):
    """The equations hold with 1 / inefficiency as weights, and not with equal ones."""
    run = coverage.synthetic_run(2, rounds=64)
    density, weight_k = coverage.density_of_run(run), observe([run]).weight_k
    np.testing.assert_allclose(weight_k, (1 - coverage.RHO_K) / (1 + coverage.RHO_K), rtol=0.25)
    filled = density.count_b > 0

    def log_g(weight_k):
        n_kb = run.counts_kb[:, filled] * weight_k[:, None]
        log_w_kb = canonical_log_weights(run.beta_k, density.z_b[filled])
        log_nf_k = np.log(n_kb.sum(axis=1)) + density.f_k
        return np.log(n_kb.sum(axis=0)) - logsumexp(log_nf_k[:, None] + log_w_kb, axis=0)

    np.testing.assert_allclose(log_g(weight_k), density.log_g_b[filled], atol=1e-9)
    assert np.abs(log_g(np.ones(5)) - density.log_g_b[filled]).max() > 0.02
