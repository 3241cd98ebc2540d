"""One pass over recorded samples: which are in the bins."""

import numpy as np
import pytest
from lattice import Lattice, ancestral_run, independent_run

from omniinput_hpc.estimators.samples import bin_within, samples_in_bins

MODEL = Lattice(n_sites=5, unit=0.25)
BETA_K = np.array([-3.0, 0.0, 3.0])
EDGES = (np.arange(len(MODEL.z_l()) + 1) - 0.5) * MODEL.unit


@pytest.mark.parametrize("edges", [EDGES, EDGES[3:8], EDGES[:3] - 1.0])
def test_every_sample_inside_the_bins_comes_once(edges):
    run = independent_run(MODEL, BETA_K, EDGES, rounds=3)
    seen = 0
    for some in samples_in_bins(run, edges):
        assert len(some.index_i) > 0 and some.log_q_ik is None
        place = some.round_, some.rung, some.index_i
        np.testing.assert_array_equal(some.x_id, run.x_rksd[place])
        np.testing.assert_array_equal(some.z_i, run.z_rks[place])
        np.testing.assert_array_equal(some.lane_i, some.index_i % run.walkers)
        assert (edges[some.bin_i] <= some.z_i).all() and (some.z_i < edges[some.bin_i + 1]).all()
        seen += len(some.index_i)
    assert seen == ((run.z_rks >= edges[0]) & (run.z_rks <= edges[-1])).sum()


@pytest.mark.parametrize("most", [1, 300, 10**9])
def test_few_samples_are_spread_over_rounds_rungs_and_lanes(most):
    run = ancestral_run(MODEL, np.outer([0.0, 2.0], np.ones(5)), EDGES, rounds=9)
    parts = list(samples_in_bins(run, EDGES, most))
    n = sum(len(some.index_i) for some in parts)
    per_lane = np.bincount(np.concatenate([some.lane_i for some in parts]), minlength=run.walkers)
    assert n == run.z_rks.size if most > run.z_rks.size else 0 < n < max(2 * most, 20)
    assert np.ptp(per_lane) <= (0 if most > 1 else 2)
    assert len({some.round_ for some in parts}) == 9
    for some in parts:
        place = some.round_, some.rung, some.index_i
        np.testing.assert_array_equal(some.log_q_ik, run.log_q[place])
        np.testing.assert_array_equal(some.z_i, run.z_rks[place])


def test_a_few_samples_of_a_wide_run_are_of_all_rungs_and_lanes():
    """One round holds more samples than are wanted, and few times of each lane."""
    run = independent_run(MODEL, np.linspace(-3.0, 3.0, 8), EDGES, rounds=40, walkers=64, moves=2)
    parts = list(samples_in_bins(run, EDGES, 500))
    per_rung = np.bincount([s.rung for s in parts for _ in s.index_i], minlength=8)
    assert 250 < per_rung.sum() < 1000 and per_rung.max() < 1.5 * per_rung.min()
    assert len(np.unique(np.concatenate([s.lane_i for s in parts]))) == 64
    assert len({s.round_ for s in parts if s.rung == 7}) >= 8


def test_draws_bring_their_log_probabilities():
    run = ancestral_run(MODEL, np.outer([0.0, 2.0], np.ones(5)), EDGES, rounds=2)
    for some in samples_in_bins(run, EDGES):
        np.testing.assert_array_equal(
            some.log_q_ik, run.log_q[some.round_, some.rung, some.index_i]
        )


def test_some_rounds_bring_the_log_probabilities_of_their_own():
    run = ancestral_run(MODEL, np.outer([0.0, 2.0], np.ones(5)), EDGES, rounds=6)
    parts = list(samples_in_bins(run, EDGES, rounds=iter([1, 4, 5])))
    assert sorted({some.round_ for some in parts}) == [1, 4, 5]
    for some in parts:
        place = some.round_, some.rung, some.index_i
        np.testing.assert_array_equal(some.x_id, run.x_rksd[place])
        np.testing.assert_array_equal(some.log_q_ik, run.log_q[place])


def test_an_output_at_the_end_of_a_range_is_in_the_bin_that_counts_it():
    """Outputs lie on the edges; only the run's last bin is closed."""
    edges = np.append(MODEL.z_l(), MODEL.z_l()[-1] + MODEL.unit)
    run, part = independent_run(MODEL, BETA_K, edges, rounds=3), edges[2:6]
    n_b = np.zeros(3, dtype=int)
    for some in samples_in_bins(run, part):
        n_b += np.bincount(some.bin_i, minlength=3)
    np.testing.assert_array_equal(n_b, run.counts_kb.sum(axis=0)[2:5])
    np.testing.assert_array_equal(bin_within(run, edges[4:7], part), [2, 3, 3])
    closed = edges[:-1]  # here the highest output ends the run's last bin
    run = independent_run(MODEL, BETA_K, closed, rounds=3)
    assert bin_within(run, closed[-1:], closed[3:])[0] == len(closed) - 5
