"""Whether r(z) is seen to rise the wrong way: on exact and sampled curves, and on noise."""

import numpy as np
import pytest
from lattice import BETA_K, LEVEL_EDGES, MODEL, first_is_zero, independent_run

from omniinput_hpc.estimators.density.density import density_of_run
from omniinput_hpc.estimators.precision_recall.curves import accumulate, area
from omniinput_hpc.estimators.precision_recall.direction import wrong_way
from omniinput_hpc.estimators.precision_recall.from_rule import rule_curve, sum_scores


@pytest.fixture(scope="module")
def sampled():
    run = independent_run(MODEL, BETA_K, LEVEL_EDGES, walkers=16, seed=2)
    return run, density_of_run(run)


def curve_of(sampled, rule, side):
    run, density = sampled
    return rule_curve(density, sum_scores(run, density, rule), side, whole=True)


def test_the_wrong_side_is_seen_and_the_right_one_is_not(sampled):
    """First value 0 has energy 0: right inputs are those of low z."""
    log_g_b = sampled[1].log_g_b
    assert wrong_way(curve_of(sampled, first_is_zero, "low"), log_g_b) is None
    found = wrong_way(curve_of(sampled, first_is_zero, "high"), log_g_b)
    assert found.other == "low" and found.far > found.near + 0.3
    right_b, g_b = (MODEL.bin_sums(LEVEL_EDGES, v()) for v in (MODEL.right_l, MODEL.count_l))
    seen = g_b > 0
    exact = area(*accumulate(np.log(g_b[seen]), right_b[seen] / g_b[seen], "low"))
    assert found.aupr == pytest.approx(exact, abs=0.05)


@pytest.mark.parametrize("side", ["low", "high"])
def test_scores_that_know_nothing_of_z_rise_no_way(sampled, side):
    """A rule of bits unlike the outputs: r is 1/2 everywhere, up to noise."""

    def coin(x):
        return (x * np.arange(3, 3 + x.shape[1])).sum(axis=1) % 7 % 2 * 1.0

    assert wrong_way(curve_of(sampled, coin, side), sampled[1].log_g_b) is None


def test_a_curve_without_a_right_input_rises_no_way(sampled):
    curve = curve_of(sampled, lambda x: np.zeros(len(x)), "low")
    assert wrong_way(curve, sampled[1].log_g_b) is None
