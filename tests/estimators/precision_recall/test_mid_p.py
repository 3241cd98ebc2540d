"""Mid-p draws: the exact binomial's ends, unbiased sums, and where one score weighs most."""

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import binom, gamma

from omniinput_hpc.estimators.precision_recall.curves import trace
from omniinput_hpc.estimators.precision_recall.mid_p import (
    MidPDraws,
    draw_mid_p,
    rule_of_three,
    trace_mid_p,
)

TAILS = [0.025, 0.975]


def mid_p_ends(right, count):
    """Return the ends of the mid-p interval by the binomial distribution itself."""

    def tail(r):  # chance of as many or more, half of the same number
        return binom.sf(right, count, r) + 0.5 * binom.pmf(right, count, r)

    low = 0.0 if right == 0 else brentq(lambda r: tail(r) - 0.025, 0.0, 1.0)
    high = 1.0 if right == count else brentq(lambda r: tail(r) - 0.975, 0.0, 1.0)
    return low, high


@pytest.mark.parametrize("right", [0, 1, 3, 10, 19, 20])
def test_one_bin_has_the_ends_of_the_mid_p_test(right):
    drawn = draw_mid_p(np.array([right]), np.array([20.0]), np.random.default_rng(1), 100_000)
    np.testing.assert_allclose(
        np.quantile(drawn.with_extra_mb, TAILS), mid_p_ends(right, 20), atol=0.004
    )


def test_nothing_right_is_the_rule_of_three():
    assert rule_of_three(100) == pytest.approx(3 / 100, rel=0.02)
    assert mid_p_ends(0, 50)[1] == pytest.approx(rule_of_three(50))
    drawn = draw_mid_p(np.zeros(1), np.array([50.0]), np.random.default_rng(2), 100_000)
    low, high = np.quantile(drawn.with_extra_mb, TAILS)
    assert low == 0.0 and high == pytest.approx(rule_of_three(50), rel=0.03)
    assert (drawn.without_extra_mb == 0.0).all()


def test_a_sum_is_unbiased_and_the_spread_of_its_scores():
    right_b, count_b = np.tile([0.0, 1.0, 0.0, 2.0], 12), np.full(48, 30.0)
    without_extra_mb = draw_mid_p(
        right_b, count_b, np.random.default_rng(3), 8_000
    ).without_extra_mb
    mean_m = without_extra_mb.mean(axis=1)
    assert mean_m.mean() == pytest.approx(36 / 1440, rel=0.01)
    p_b = right_b / count_b
    assert mean_m.std() == pytest.approx(np.sqrt((p_b * (1 - p_b) / 29).sum()) / 48, rel=0.03)


def test_bins_alike_have_the_gamma_interval_of_a_poisson_count():
    """Equal weights, 14 of 720 right: half of one further score, as for one bin of 720."""
    right_b = np.zeros(24)
    right_b[:14] = 1.0
    rng = np.random.default_rng(4)
    drawn = draw_mid_p(right_b, np.full(24, 30.0), rng, 10_000)
    log_g_b = np.zeros(24)
    got = trace_mid_p(log_g_b, np.zeros((10_000, 24)), drawn, "low")
    low, high = np.quantile(got.precision_t[:, -1], TAILS)
    assert low == pytest.approx(gamma.ppf(0.025, 14.3) / 720, rel=0.08)
    assert high == pytest.approx(gamma.ppf(0.975, 14.7) / 720, rel=0.05)
    # wrong: an extra score in every bin
    each_mb = drawn.with_extra_mb
    r = MidPDraws(each_mb, each_mb, drawn.count_b)
    every = trace_mid_p(log_g_b, np.zeros((10_000, 24)), r, "low")
    assert np.quantile(every.precision_t[:, -1], 0.025) > 14 / 720


def test_the_extra_score_lies_in_the_bin_whose_score_weighs_most():
    log_g_b = np.log([1.0, 50.0, 2.0])
    r = MidPDraws(np.ones((1, 3)), np.zeros((1, 3)), np.array([10.0, 10.0, 10.0]))
    got = trace_mid_p(log_g_b, log_g_b[None], r, "low")
    np.testing.assert_allclose(got.precision_t[0], [1.0, 50 / 51, 50 / 53])
    # of a hundred scores one weighs less
    r = MidPDraws(r.with_extra_mb, r.without_extra_mb, np.array([10.0, 1000.0, 10.0]))
    got = trace_mid_p(log_g_b, log_g_b[None], r, "high")
    np.testing.assert_allclose(got.precision_t[0], [1.0, 2 / 52, 2 / 53])


@pytest.mark.parametrize("side", ["low", "high"])
def test_equal_draws_give_the_curve_itself(side):
    rng = np.random.default_rng(5)
    log_g_b, r_b = rng.normal(0, 3, 9), rng.random(9)
    log_g_mb, r_mb = np.tile(log_g_b, (2, 1)), np.tile(r_b, (2, 1))
    got = trace_mid_p(log_g_b, log_g_mb, MidPDraws(r_mb, r_mb, rng.uniform(5, 50, 9)), side)
    for name, value in vars(trace(log_g_b, r_b, side)).items():
        np.testing.assert_allclose(getattr(got, name)[1], value, err_msg=name)


def test_fractions_of_scores_are_drawn_too():
    drawn = draw_mid_p(np.array([0.3, 1.2]), np.array([1.5, 1.2]), np.random.default_rng(6), 2000)
    assert np.isfinite(drawn.with_extra_mb).all() and np.isfinite(drawn.without_extra_mb).all()


@pytest.mark.parametrize("count", [1.0, 1.5, 2.0, 2.5, 4.0])
@pytest.mark.parametrize("r", [0.0, 0.2, 0.9, 1.0])
def test_draws_of_few_scores_have_their_mean(count, r):
    """One or two scores are no fair coin: they are right as often as the scores say."""
    drawn = draw_mid_p(np.array([count * r]), np.array([count]), np.random.default_rng(7), 20_000)
    spread = np.sqrt(r * (1 - r) / max(count - 1, 1))
    assert drawn.without_extra_mb.mean() == pytest.approx(
        r, abs=4 * spread / np.sqrt(20_000) + 1e-9
    )
    assert drawn.without_extra_mb.std() == pytest.approx(spread, rel=0.05, abs=1e-5)
