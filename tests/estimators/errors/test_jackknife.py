"""The jackknife over groups of lanes: its errors, and draws that carry them jointly."""

import numpy as np
import pytest
from scipy import stats
from scipy.special import logsumexp

from omniinput_hpc.estimators.errors.jackknife import (
    draw_log_g,
    draw_together,
    jackknife_deviations,
    jackknife_error,
    t_quantile,
    welch_degrees,
)


def without_each(values, size_j, function=np.mean):
    owner = np.repeat(np.arange(len(size_j)), size_j)
    return np.array([function(values[owner != j], axis=0) for j in range(len(size_j))])


def test_jackknife_of_a_mean_is_the_textbook_error():
    x = np.random.default_rng(1).standard_normal((24, 5))
    size_j = np.ones(24, dtype=int)
    replicates = x.mean(axis=0), without_each(x, size_j), size_j
    np.testing.assert_allclose(jackknife_error(*replicates), stats.sem(x, axis=0), rtol=1e-12)
    deviation_j = jackknife_deviations(*replicates)
    covariance = np.cov(x, rowvar=False) / 24
    np.testing.assert_allclose(deviation_j.T @ deviation_j, covariance, atol=1e-12)


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


@pytest.mark.parametrize("sizes", [np.ones(8, int), np.array([1, 2, 2, 1, 3, 2, 1, 2])])
def test_draws_have_the_jackknifes_covariance(sizes):
    rng = np.random.default_rng(3)
    theta_jb = np.array([5.0, -2.0, 900.0]) + rng.normal(size=(8, 3))
    theta_jb[:, 1] = -theta_jb[:, 0]
    theta_b = theta_jb.mean(axis=0)
    drawn = draw_together(theta_b, theta_jb, sizes, rng, 40_000)
    error_b = jackknife_error(theta_b, theta_jb, sizes)
    # Student's t with 7 degrees of freedom: variance 7 / 5; kurtosis makes 2% of noise
    np.testing.assert_allclose(drawn.std(axis=0), error_b * np.sqrt(7 / 5), rtol=0.05)
    np.testing.assert_allclose(drawn[:, 0] - theta_b[0], -(drawn[:, 1] - theta_b[1]))


def test_draws_of_log_g_keep_a_sum_that_is_known():
    """All replicates have the same sum of g; their spread is large, so that curvature shows."""
    rng = np.random.default_rng(7)
    log_g_jb = rng.normal(scale=0.02, size=(16, 12)) + np.linspace(0.0, 2.0, 12)
    log_g_jb += 9.0 - logsumexp(log_g_jb, axis=1, keepdims=True)
    log_g_b = log_g_jb.mean(axis=0)
    log_g_b += 9.0 - logsumexp(log_g_b)
    ones = np.ones(16, int)
    drawn = draw_log_g(log_g_b, log_g_jb, ones, rng, 4000)
    np.testing.assert_allclose(logsumexp(drawn, axis=1), 9.0, rtol=1e-12)
    error_b = jackknife_error(log_g_b, log_g_jb, ones)
    np.testing.assert_allclose(drawn.std(axis=0), error_b * np.sqrt(15 / 13), rtol=0.1)
    wrong = draw_together(log_g_b, log_g_jb, ones, rng, 4000)
    assert (logsumexp(wrong, axis=1) > 9.0).mean() > 0.95
    log_g_jb += rng.normal(scale=0.05, size=(16, 1))  # now the sum has an error
    total_j = logsumexp(log_g_jb, axis=1)
    drawn = draw_log_g(log_g_b, log_g_jb, ones, rng, 4000)
    expected = jackknife_error(logsumexp(log_g_b), total_j, ones) * np.sqrt(15 / 13)
    assert logsumexp(drawn, axis=1).std() == pytest.approx(float(expected), rel=0.1)


def test_draws_where_the_jackknife_does_not_know():
    rng = np.random.default_rng(4)
    theta_b, theta_jb = np.array([1.0, -np.inf, 3.0]), np.ones((4, 3))
    theta_jb[:, 1], theta_jb[:, 2], theta_jb[2, 2] = -np.inf, 3.0, -np.inf
    drawn = draw_together(theta_b, theta_jb, np.ones(4, int), rng)
    assert (drawn[:, 0] == 1.0).all() and np.isneginf(drawn[:, 1]).all()
    assert 0.5 < drawn[:, 2].std() < 2.5
    theta_jb[0] = np.nan
    assert np.isnan(draw_together(theta_b, theta_jb, np.ones(4, int), rng)).all()
    assert np.isnan(draw_together(theta_b, theta_jb[1:2], np.ones(1, int), rng)).all()


def test_draws_of_bins_that_one_group_alone_saw_are_not_known():
    log_g_jb = np.array([[-np.inf, -np.inf], [1.0, 2.0]])
    with np.errstate(all="raise"):  # without a warning
        drawn = draw_log_g(log_g_jb[1], log_g_jb, np.ones(2, int), np.random.default_rng(1))
    assert np.isnan(drawn).all()


def test_welch_degrees_are_those_of_scipy():
    rng = np.random.default_rng(6)
    a, b = rng.normal(size=8), 3.0 * rng.normal(size=5)
    variance_a, variance_b = a.var(ddof=1) / 8, b.var(ddof=1) / 5
    expected = stats.ttest_ind(a, b, equal_var=False).df
    assert welch_degrees(variance_a, 7, variance_b, 4) == pytest.approx(expected)
    assert welch_degrees(variance_a, 7, np.float64(0.0), 4) == pytest.approx(7)
    found = welch_degrees(np.array([0.0, np.inf, np.nan]), 7, np.zeros(3), 4)
    np.testing.assert_array_equal(found, [np.inf, 1.0, 1.0])
