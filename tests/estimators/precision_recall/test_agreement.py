"""Agreement between annotators: by hand, against the krippendorff package, and its interval."""

import krippendorff
import numpy as np
import pytest

from omniinput_hpc.estimators.precision_recall.agreement import compare_pair, krippendorff_alpha

NAN = np.nan


def noisy(n, sigma, seed, annotators=3, missing=0.2):
    rng = np.random.default_rng(seed)
    truth = rng.random(n)
    score = np.clip(truth + sigma * rng.normal(size=(annotators, n)), 0, 1)
    return np.where(rng.random(score.shape) < missing, NAN, score)


@pytest.mark.parametrize("sigma", [0.02, 0.3, 3.0])
@pytest.mark.parametrize("seed", range(4))
def test_alpha_is_that_of_the_package(sigma, seed):
    score_ai = noisy(40, sigma, seed, annotators=2 + seed)
    expected = krippendorff.alpha(reliability_data=score_ai, level_of_measurement="interval")
    got = krippendorff_alpha(score_ai)
    assert got.alpha == pytest.approx(expected, abs=1e-12)
    assert got.low < got.alpha < got.high


def test_alpha_by_hand():
    # pairs (0, 0), (1, 1), (0, 1): observed (2 * 1) / 6, expected 2 * (3 * 3) / (6 * 5)
    got = krippendorff_alpha(np.array([[0.0, 1.0, 0.0, 0.5], [0.0, 1.0, 1.0, NAN]]))
    assert got.alpha == pytest.approx(1 - (2 / 6) / (18 / 30))
    assert (got.n_items, got.n_scores) == (3, 6)


def test_alpha_where_it_is_not_defined():
    for score_ai in ([[0.5, 0.5], [0.5, 0.5]], [[0.1, NAN], [NAN, 0.3]], [[0.1, 0.2]]):
        got = krippendorff_alpha(np.array(score_ai))
        assert np.isnan([got.alpha, got.low, got.high]).all()


def test_the_interval_covers():
    """150 tables of 60 items: the 95% interval holds the many-item alpha, within 4 sigmas."""
    truth = np.mean([krippendorff_alpha(noisy(4000, 0.3, 900 + i)).alpha for i in range(3)])
    held = []
    for i in range(150):
        got = krippendorff_alpha(noisy(60, 0.3, i), seed=i)
        held.append(got.low <= truth <= got.high)
    assert abs(np.mean(held) - 0.95) < 4 * np.sqrt(0.95 * 0.05 / 150)


def test_pair():
    a = np.array([0.0, 0.2, 0.6, 1.0, NAN])
    got = compare_pair(a, np.array([0.1, 0.3, 0.7, 0.9, 0.4]))
    assert got.n == 4
    assert got.bias == pytest.approx(-0.05)
    assert got.bias_error == pytest.approx(0.05)  # deviations -.05 three times, .15 once
    assert got.distance == pytest.approx(0.1)
    assert got.rank_correlation == pytest.approx(1.0)
    assert np.isnan(compare_pair(a, np.full(5, 0.3)).rank_correlation)
    nothing = compare_pair(a, np.full(5, NAN))
    assert nothing.n == 0 and np.isnan(nothing.bias)
