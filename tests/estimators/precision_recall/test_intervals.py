"""The law of intervals: nothing clipped, ends by hand, and how often a rule's hold the truth."""

from dataclasses import replace

import numpy as np
import pytest
from rule_worlds import ALLOWED, QUANTITIES, coverage, worlds

from omniinput_hpc.estimators.precision_recall.curves import JointDraws, trace
from omniinput_hpc.estimators.precision_recall.intervals import (
    DrawsOfR,
    added_recall,
    areas_of,
    aupr_interval,
    bands_of_draws,
)
from omniinput_hpc.estimators.precision_recall.mid_p import rule_of_three

LOG_G_B, R_B = np.log([10.0, 100.0, 1000.0]), np.array([0.9, 0.5, 0.1])


def test_bands_are_those_of_the_draws_and_widest_where_nothing_is_known():
    rng = np.random.default_rng(5)
    log_g_mb = LOG_G_B + 0.1 * rng.normal(size=(500, 3))
    r_mb = np.clip(R_B + 0.1 * rng.normal(size=(500, 3)) - 0.4, 0, 1)  # far from the curve
    curve, draws = trace(LOG_G_B, R_B, "low"), trace(log_g_mb, r_mb, "low")
    got = bands_of_draws(draws)
    low, high = np.quantile(draws.precision_t, [0.025, 0.975], axis=0, method="nearest")
    np.testing.assert_array_equal(got.low.precision_t, low)
    np.testing.assert_array_equal(got.high.precision_t, high)
    assert (high < curve.precision_t).all()  # an interval is not stretched to hold its estimate
    unknown = bands_of_draws(trace(np.full_like(log_g_mb, np.nan), r_mb, "low"))
    assert (unknown.low.precision_t == 0).all() and (unknown.high.precision_t == 1).all()
    assert (
        np.isneginf(unknown.low.log_wrong_t).all() and np.isposinf(unknown.high.log_wrong_t).all()
    )


def test_an_aupr_is_not_clipped_to_its_estimate():
    values = trace(LOG_G_B, R_B, "low")
    r_mb = np.random.default_rng(6).uniform(0.2, 0.3, size=(400, 3))
    draws = JointDraws(trace(np.tile(LOG_G_B, (400, 1)), r_mb, "low"), None, 0.1)
    ends = (float(values.log_recall_t[0]), float(values.log_recall_t[-1]))
    found, one_sided = aupr_interval(values, draws, ends, continued=True)
    assert found.high < found.value and one_sided == 0
    area_m, best_m = areas_of(draws, ends, True)
    assert best_m is area_m
    np.testing.assert_allclose([found.low, found.high], np.quantile(area_m, [0.025, 0.975]))


def test_areas_of_draws_over_an_asked_range_are_over_all_of_it():
    """By hand: precision 0.5 from ln recall 1 to 2; a draw that ends there goes on to 4."""
    t_mt = np.tile([1.0, 2.0], (2, 1))
    draws = trace(np.zeros((2, 2)), np.full((2, 2), 0.5), "low")
    draws = replace(draws, precision_t=np.array([[0.5, 0.5], [0.0, 1.0]]), log_recall_t=t_mt)
    joint = JointDraws(draws, None, 0.0)
    np.testing.assert_allclose(areas_of(joint, (0.0, 4.0), True)[0], [0.5, 2.5 / 4])
    np.testing.assert_allclose(areas_of(joint, (0.0, 4.0), False)[0], [0.5, 0.5])


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_scores_of_one_kind_give_one_bound(value):
    log_g_b = np.log([10.0, 100.0])
    values = trace(log_g_b, np.full(2, value), "low")
    near = np.abs(value - np.full((300, 2), 1e-4))
    ends = (np.nan, np.nan) if value == 0.0 else tuple(values.log_recall_t)
    draws = JointDraws(trace(np.tile(log_g_b, (300, 1)), near, "low"), None, 0.02)
    found, one_sided = aupr_interval(values, draws, ends, continued=False)
    if value == 0.0:
        assert (found.low, found.high, one_sided) == (0.0, 0.02, 1)
    else:
        assert (found.low, found.high, one_sided) == (0.98, 1.0, -1)


def test_the_best_that_scores_allow_is_by_side():
    right_b, count_b = np.array([0.0, 5, 3, 0]), np.array([4.0, 5, 6, 9])
    r = DrawsOfR(None, np.full((2, 4), 0.5), right_b, count_b)
    for side, best_b in (("low", [0.5, 1.0, 0.5, 0.0]), ("high", [0.0, 1.0, 0.5, 0.5])):
        joint_mb, own_mb = r.at_best(side)
        np.testing.assert_allclose(joint_mb, [best_b, best_b])
        assert (own_mb[:, [0, 1, 3]] == joint_mb[:, [0, 1, 3]]).all()
        assert (own_mb[:, 2] != 0.5).all()  # three right scores of six, by themselves
    joint_mb, own_mb = replace(r, right_b=np.array([1.0, 1, 1, 1])).at_best("low")
    np.testing.assert_array_equal(joint_mb, r.joint_mb)
    assert ((own_mb > 0.0) & (own_mb < 1.0)).all()


def test_added_recall_by_hand():
    """Bins of 10, 90 and 900 right inputs: ln 10 each, and as much for the first."""
    log_g_b, many_b = np.log([20.0, 180.0, 1800.0]), np.full(3, 1e9)
    np.testing.assert_allclose(added_recall(log_g_b, np.full(3, 0.5), many_b), np.log(10.0))
    assert rule_of_three(100) == pytest.approx(0.03, rel=0.02)


@pytest.mark.slow
@pytest.mark.parametrize("n_runs", [30, pytest.param(60, marks=pytest.mark.release)])
@pytest.mark.parametrize(
    ("name", "wrong"), [("r 0.02, short", 1), ("half all right", 0), ("r 0.2, kept", None)]
)
def test_intervals_by_a_rule_hold_the_truth_and_by_the_old_laws_they_do_not(name, wrong, n_runs):
    """A short form of `tests/benchmarks/score_coverage.py --rule`: within 3 sigmas.

    The jackknife (0) has no errors where all is right, symmetric draws (1) are biased.
    """
    share, old, _ = coverage(worlds()[name], n_runs, n_densities=20)
    sigma = np.sqrt(ALLOWED[0] * (1.0 - ALLOWED[0]) / n_runs)
    assert (share >= ALLOWED[0] - 3 * sigma).all(), dict(zip(QUANTITIES, share, strict=True))
    if wrong is not None:
        assert old[wrong] < ALLOWED[0] - 3 * sigma, old
