"""One pass over draws: sums of populations, and what they are worth."""

import numpy as np
import pytest
from lattice import LEVEL_EDGES, MODEL, ancestral_run
from populations import annealed_run

from omniinput_hpc.estimators import EstimateError
from omniinput_hpc.estimators.density.draws import by_unit, sum_draws
from omniinput_hpc.estimators.density.terms import Units
from omniinput_hpc.histogram import lane_groups

GROUP_W = lane_groups(64)


def summed(run, n_blocks=0):
    total_k = run.counts_kb.sum(axis=1) + run.outside_k2.sum(axis=1)
    return sum_draws(run, total_k.astype(float), GROUP_W, np.full(16, 4), n_blocks)


def test_draws_of_a_population_in_a_bin_become_one_sum():
    unit, group = np.array([3, 0, 3, 0, 3]), np.array([1, 0, 1, 0, 1])
    bins, log_v = np.array([2, 2, 1, 2, 2]), np.log([1.0, 2.0, 4.0, 8.0, 16.0])
    found = by_unit(unit, group, bins, log_v)
    assert found[0].tolist() == [0, 1, 1] and found[1].tolist() == [2, 1, 2]
    np.testing.assert_allclose(np.exp(found[2]), [10.0, 4.0, 17.0])
    nothing = np.zeros(0, dtype=np.int64)
    assert len(by_unit(nothing, nothing, nothing, np.zeros(0))[2]) == 0


def test_populations_are_the_units_of_an_annealed_run():
    lanes, none, seen_b = summed(annealed_run(rounds=4)[0])
    assert none is None and lanes.units.number == 4 * 2 * 16
    assert (lanes.units.draws_b == seen_b).all()
    assert (lanes.number_pb.sum(axis=0) <= lanes.units.number).all()
    assert lanes.draws == 4 * 4 * 256
    total = np.log(lanes.first_pb.sum(axis=0)[:10]) + lanes.log_top_b[:10] - np.log(lanes.draws)
    exact = np.log(MODEL.bin_sums(LEVEL_EDGES, MODEL.count_l())[:10])
    assert np.abs(total - exact).max() < 1.0


def test_blocks_of_rounds_have_their_share_of_the_populations():
    _, blocks, fewest_b = summed(annealed_run(rounds=9)[0], n_blocks=4)
    assert blocks.units.number == pytest.approx(8 * 2 * 16)
    assert blocks.size_p.tolist() == [1] * 4
    assert (fewest_b <= summed(annealed_run(rounds=9)[0])[2]).all()


def test_independent_draws_are_units_themselves():
    run = ancestral_run(MODEL, np.outer([0.0, 2.0], np.ones(8)), LEVEL_EDGES, walkers=64, rounds=2)
    lanes, _, seen_b = summed(run)
    assert lanes.units is None
    assert (lanes.number_pb.sum(axis=0) == seen_b).all()


def test_draws_that_are_missing_are_told():
    run, _ = annealed_run(rounds=2)
    run.counts_rkgb = run.counts_rkgb.copy()
    run.counts_rkgb[0, 0, 0, np.argmax(run.counts_kb[0])] += 1
    with pytest.raises(EstimateError, match="not every draw was recorded"):
        summed(run)


def test_what_sums_are_worth():
    """The inverse relative variance of the mean of U numbers, zeros included; draws at most."""
    random = np.random.default_rng(1)
    s_ub = random.gamma(4.0, size=(1000, 2)) * (random.random((1000, 2)) < [1.0, 0.1])
    equal_b = s_ub.sum(axis=0) ** 2 / (s_ub**2).sum(axis=0)
    worth_b = Units(1000, np.array([10**6, 10**6])).worth(equal_b)
    variance_b = s_ub.var(axis=0) / 1000 / s_ub.mean(axis=0) ** 2
    np.testing.assert_allclose(worth_b, 1.0 / variance_b)
    assert Units(1000, np.array([7, 10**6])).worth(equal_b)[0] == 7
