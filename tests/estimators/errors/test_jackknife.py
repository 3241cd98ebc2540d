"""Jackknife, autocorrelation, R-hat and the verdict."""

import numpy as np
import pytest
from autoregressive import autoregressive
from scipy import stats

from omniinput_hpc.estimators.errors.jackknife import (
    autocorrelation_time,
    choose_blocks,
    jackknife_error,
    judge,
    split_rhat,
    t_quantile,
)


def without_each(values, size_j, function=np.mean):
    owner = np.repeat(np.arange(len(size_j)), size_j)
    return np.array([function(values[owner != j], axis=0) for j in range(len(size_j))])


def test_jackknife_of_a_mean_is_the_textbook_error():
    x = np.random.default_rng(1).standard_normal((24, 5))
    size_j = np.ones(24, dtype=int)
    error = jackknife_error(x.mean(axis=0), without_each(x, size_j), size_j)
    np.testing.assert_allclose(error, stats.sem(x, axis=0), rtol=1e-12)


def test_jackknife_with_unequal_groups_is_right_on_average():
    """The variance's mean over 2,000 repeats: within 4 sigmas of 1 / n; equal weights are not."""
    rng = np.random.default_rng(2)
    size_j = np.array([1, 1, 1, 1, 4, 8])
    x = rng.standard_normal((16, 2000))
    theta, theta_j = x.mean(axis=0), without_each(x, size_j)
    variance = jackknife_error(theta, theta_j, size_j) ** 2
    sigma = variance.std() / np.sqrt(variance.size)
    assert abs(variance.mean() - 1 / 16) < 4 * sigma
    careless = jackknife_error(theta, theta_j) ** 2
    assert abs(careless.mean() - 1 / 16) > 4 * sigma


def test_jackknife_says_when_it_does_not_know():
    theta = np.array([1.0, 2.0, -np.inf, 3.0])
    theta_j = np.array([[1.0, 2.0, -np.inf, 3.0], [1.2, -np.inf, -np.inf, np.nan]])
    error = jackknife_error(theta, theta_j)
    assert np.isfinite(error[0]) and np.isposinf(error[[1, 3]]).all() and np.isnan(error[2])
    assert np.isposinf(jackknife_error(1.0, np.array([1.0])))
    assert t_quantile(1) == np.inf
    assert t_quantile(16) == pytest.approx(2.1314, abs=1e-4)


@pytest.mark.parametrize("rho", [0.0, 0.5, 0.9])
def test_autocorrelation_time_of_an_autoregressive_process(rho):
    x = autoregressive(4000, 8, rho, np.random.default_rng(3))
    exact = 0.5 * (1 + rho) / (1 - rho)
    sigma = exact * np.sqrt(2 * (2 * 5 * exact + 1) / x.size)  # Sokal's, window 5 tau
    assert abs(autocorrelation_time(x) - exact) < 4 * sigma + 0.02 * exact


def test_autocorrelation_time_of_degenerate_chains():
    assert np.isnan(autocorrelation_time(np.zeros((7, 2))))
    assert autocorrelation_time(np.full((50, 2), 2.3)) == 0.5
    stuck = np.tile([0.0, 1.0], (50, 1))
    assert autocorrelation_time(stuck) > 20  # never forgotten


def test_split_rhat_by_hand():
    chains = np.array([[0.0], [2.0], [1.0], [3.0]])  # halves: means 1 and 2, variances 2 and 2
    assert split_rhat(chains) == pytest.approx(np.sqrt(0.5 + 0.5 / 2.0))


def test_split_rhat_accepts_good_chains_and_sees_stuck_lanes():
    rng = np.random.default_rng(4)
    assert split_rhat(autoregressive(2000, 16, 0.9, rng)) < 1.02
    means = np.zeros(16)
    means[:2] = 1.5  # two lanes of sixteen stay in another state
    assert split_rhat(autoregressive(2000, 16, 0.9, rng, means)) > 1.05
    drifting = autoregressive(2000, 16, 0.5, rng) + np.linspace(0, 2, 2000)[:, None]
    assert split_rhat(drifting) > 1.05  # all lanes alike, but their halves differ
    assert split_rhat(np.ones((10, 3))) == 1.0
    assert split_rhat(np.tile([0.0, 1.0], (10, 1))) == np.inf
    assert np.isnan(split_rhat(np.ones((3, 3))))


def test_blocks_are_ten_times_longer_than_the_longest_memory():
    assert choose_blocks(100, np.array([0.1, 0.02])) == 16
    assert choose_blocks(100, np.array([0.1, 1.2])) == 8
    assert choose_blocks(100, np.array([3.0])) == 0
    assert choose_blocks(10, np.array([np.nan])) == 10
    assert choose_blocks(3, np.array([0.01])) == 0


def verdict(lane=1.0, block=1.0, n_blocks=16, rhat=(1.0, 1.01), bins=9):
    error_b = np.r_[np.ones(8), 100.0, np.inf]
    return judge(
        lane * error_b,
        block * error_b,
        np.arange(10) < bins,
        n_blocks,
        np.array(rhat),
        np.array([0.3, 0.5]),
        ["beta = 0", "beta = 4"],
    )


def test_verdict():
    assert verdict().converged and verdict().ratio == 1.0 and verdict().n_bins == 9
    assert verdict(lane=1.49).converged and verdict(block=1.49).converged
    assert verdict(rhat=(1.0, 1.049)).converged and not verdict(rhat=(1.0, 1.051)).converged
    for bad in (verdict(lane=1.51), verdict(block=1.51)):
        assert not bad.converged and "factor" in bad.reasons[0]
    bad = verdict(rhat=(1.0, 1.2))
    assert not bad.converged and "beta = 4 (1.20)" in bad.reasons[0]
    assert "beta = 0" not in bad.reasons[0]
    assert "too few rounds" in verdict(n_blocks=0).reasons[0]
    assert "no bin" in verdict(bins=0).reasons[0]
    assert "1 of 2 rungs" in verdict(rhat=(1.0, np.nan)).reasons[0]
    assert len(verdict(lane=3.0, rhat=(2.0, 2.0)).reasons) == 2
