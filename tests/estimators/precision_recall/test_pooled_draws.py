"""Joint draws of r, pooled over bins: exact limits, an exact posterior, and what pooling is for."""

from itertools import product

import numpy as np
import pytest
from scipy.stats import beta

from omniinput_hpc.estimators.precision_recall import pooled_draws
from omniinput_hpc.estimators.precision_recall.pooled_draws import draw_pooled

LEVELS = [0.025, 0.25, 0.5, 0.75, 0.975]


def draws(right_b, count_b, n=4000, seed=1):
    rng = np.random.default_rng(seed)
    return draw_pooled(np.asarray(right_b, float), np.asarray(count_b, float), rng, n)


def test_a_single_bin_is_jeffreys():
    for right, count in ((0, 40), (1, 40), (20, 40), (400, 4000)):
        got = np.quantile(draws([right], [count], 20000), LEVELS)
        expected = beta.ppf(LEVELS, right + 0.5, count - right + 0.5)
        error = np.sqrt(right * (count - right) + 1.0) / count**1.5
        np.testing.assert_allclose(got, expected, atol=0.15 * error + 5e-4)


def test_bins_that_are_alike_share_half_a_right_and_half_a_wrong_score():
    """24 bins of 30 scores, 14 of 720 right: Jeffreys' in every bin would be at 0.035, not 0.02."""
    right_b = np.zeros(24)
    right_b[[0, 1, 3, 4, 6, 8, 9, 12, 14, 15, 17, 19, 21, 23]] = 1
    mean_m = draws(right_b, np.full(24, 30.0)).mean(axis=1)
    low, high = beta.ppf([0.025, 0.975], 14.5, 706.5)
    assert mean_m.mean() == pytest.approx(14.5 / 721, rel=0.2)
    got = np.quantile(mean_m, [0.025, 0.975])
    np.testing.assert_allclose(got, [low, high], rtol=0.25)
    wrong = (right_b + 0.5).mean() / 31  # the mean by Jeffreys' prior in every bin
    assert (mean_m > wrong).mean() < 0.05


def test_bins_that_differ_stay_apart():
    right_b, count_b = np.array([49.0, 50, 48, 50, 1, 0, 2, 1]), np.full(8, 50.0)
    low_b, high_b = np.quantile(draws(right_b, count_b), [0.025, 0.975], axis=0)
    assert (low_b[:4] > 0.85).all() and (high_b[4:] < 0.15).all()


def test_a_bin_without_scores_takes_its_neighbours_and_is_less_sure():
    right_b, count_b = np.array([5.0, 12, 0, 30, 45]), np.array([50.0, 50, 0, 50, 50])
    drawn = draws(right_b, count_b)
    assert 0.24 < drawn[:, 2].mean() < 0.60
    assert drawn[:, 2].std() > 1.2 * drawn[:, [1, 3]].std(axis=0).max()


def uniform(n_grid):
    return pooled_draws._Grid(np.linspace(0.0, np.pi / 2, n_grid + 1))


def exact_means(right_b, count_b, monkeypatch, n_grid):
    """Return the posterior means of r and of r_1 r_2, summed over all paths and steps."""
    grid = uniform(n_grid)
    monkeypatch.setattr(pooled_draws, "_edges", lambda *_: grid.edges)
    theta = (np.arange(n_grid) + 0.5) * np.pi / 2 / n_grid
    like = np.sin(theta) ** (2 * right_b[:, None]) * np.cos(theta) ** (2 * (count_b - right_b))[
        :, None
    ]  # fmt: skip
    total, mean, both = 0.0, np.zeros(3), 0.0
    cell = np.sin(np.pi / 2 / n_grid * (np.arange(n_grid)[:, None] + np.linspace(0, 1, 2001))) ** 2
    for t in pooled_draws._transitions(grid, pooled_draws._steps(count_b)):
        for a, b, c in product(range(n_grid), repeat=3):
            weight = 1 / n_grid * like[0, a] * t[a, b] * like[1, b] * t[b, c] * like[2, c]
            total += weight
            mean += weight * cell[[a, b, c]].mean(axis=1)
            both += weight * (cell[a] * cell[b]).mean()
    return mean / total, both / total


def test_the_posterior_is_exact(monkeypatch):
    """All paths of three bins on a grid of eight points, by brute force."""
    right_b, count_b = np.array([1.0, 0.0, 4.0]), np.array([5.0, 3.0, 5.0])
    mean_b, both = exact_means(right_b, count_b, monkeypatch, 8)
    drawn = draws(right_b, count_b, 60000)
    error_b = drawn.std(axis=0) / np.sqrt(len(drawn))
    np.testing.assert_array_less(np.abs(drawn.mean(axis=0) - mean_b), 4 * error_b)
    product_m = drawn[:, 0] * drawn[:, 1]
    assert abs(product_m.mean() - both) < 4 * product_m.std() / np.sqrt(len(drawn))
    # wrong: each bin's own marginal, as if bins were independent
    apart = drawn[:, 0].mean() * drawn[:, 1].mean()
    assert abs(apart - both) > 8 * product_m.std() / np.sqrt(len(drawn))


@pytest.mark.parametrize("n_grid", [8, 128])
def test_transitions_keep_the_uniform_law(n_grid):
    transitions = pooled_draws._transitions(uniform(n_grid), pooled_draws._steps(np.ones(1)))
    assert (transitions >= 0).all()
    np.testing.assert_allclose(transitions.sum(axis=2), 1.0)
    np.testing.assert_allclose(transitions.sum(axis=1), 1.0, atol=0.01)
    # reflected: the mean of theta moves away from the nearest end
    theta = (np.arange(n_grid) + 0.5) * np.pi / 2 / n_grid
    assert (transitions[:, 0] @ theta > theta[0]).all() and (
        transitions[:, -1] @ theta < theta[-1]
    ).all()


@pytest.mark.parametrize("r", [2e-5, 0.2, 0.9999])
def test_a_million_scores_are_told_as_finely_as_dozens(r):
    """A rule's samples: bins alike share one r, known to the error of all of them together."""
    count_b = np.full(24, 1e5)
    right_b = np.random.default_rng(7).binomial(100_000, r, 24).astype(float)
    mean_m = draws(right_b, count_b, 2000).mean(axis=1)
    share, n = right_b.sum() / count_b.sum(), count_b.sum()
    error = np.sqrt(r * (1 - r) / n)
    assert abs(mean_m.mean() - share) < 0.4 * error
    assert 0.8 * error < mean_m.std() < 1.3 * error


def test_bins_of_many_scores_that_differ_have_their_own_draws():
    count_b = np.full(60, 1e6)
    right_b = np.round(count_b * np.linspace(0.9, 0.1, 60))
    drawn = draws(right_b, count_b, 500)
    expected_b = np.sqrt(right_b * (count_b - right_b) / count_b**3)
    np.testing.assert_allclose(drawn.std(axis=0), expected_b, rtol=0.25)
    assert (np.abs(drawn.mean(axis=0) - right_b / count_b) < 0.5 * expected_b).all()
