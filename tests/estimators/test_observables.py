"""Averages and joint densities against a space that is enumerated."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
import scipy.stats
from lattice import BETA_K, LEVEL_EDGES, MODEL, independent_run

from omniinput_hpc.estimators import EstimateError
from omniinput_hpc.estimators.density.density import density_of_run
from omniinput_hpc.estimators.density.wide_bins import in_bins, in_width
from omniinput_hpc.estimators.errors.convergence import Check
from omniinput_hpc.estimators.errors.jackknife import jackknife_error
from omniinput_hpc.estimators.observables import (
    averages,
    joint_density,
    means_or_shares,
    observe,
    share_ends,
    share_where,
    shares_of_cells,
)

X_ID = np.array(list(itertools.product(range(4), repeat=MODEL.n_sites)), dtype=np.uint8)
Z_I = MODEL.z(X_ID).astype(float)
Y_EDGES = np.arange(MODEL.n_sites + 2) - 0.5
WIDTH, N_RUNS, MOST = 1.0, 24, 10**6


def ones(x):
    """Return y: how many sites have value 1; it is not a function of z."""
    return (x == 1).sum(axis=1).astype(float)


Y_I = ones(X_ID)


def value(part):
    return ones(part.x_id)


def exact(edges, y_edges):
    return np.histogram2d(Z_I, Y_I, [edges, y_edges])[0]


@pytest.fixture(scope="module")
def many():
    """Return (density in bins of four levels, what was observed) of many runs."""
    found = []
    for seed in range(N_RUNS):
        run = independent_run(MODEL, BETA_K, LEVEL_EDGES, walkers=16, seed=seed).record()
        density = in_width(density_of_run(run), WIDTH)
        found.append((density, observe(run, density, value, MOST)))
    return found


def test_means_and_their_intervals(many):
    edges = many[0][0].edges
    count_b = np.histogram(Z_I, edges)[0]
    true_b = np.histogram(Z_I, edges, weights=Y_I)[0] / np.maximum(count_b, 1)
    inside, wide = [], []
    for _, seen in many:
        a = averages(seen)
        known_b = np.isfinite(a.low_b)
        assert known_b.sum() >= 5 and (a.edges == edges).all()
        inside += list(((a.low_b <= true_b) & (true_b <= a.high_b))[known_b & (count_b > 8)])
        wide.append(a.whole.low <= Y_I.mean() <= a.whole.high)
    assert 0.92 < np.mean(inside) < 0.985
    assert np.mean(wide) >= 0.82  # of 24: three sigmas
    assert averages(many[0][1]).whole.error < 0.05


def test_ends_of_shares():
    """With exact numbers: lanes count from one chosen sample on, and not beyond independence."""
    p, error = np.array([0.3, 0.3, 1e-100, 0.0, 1.0]), np.array([0.05, 1e-9, 1e-100, 0.0, 0.0])
    ends = share_ends(p, error, np.array(1000.0), np.array(20.0), 16)
    n = 0.3 * 0.7 / 0.05**2 * (1.959964 / 2.131450) ** 2
    for (low, high), p_, n_ in zip(ends, p, (n, 1000.0, 20.0, 20.0, 20.0), strict=True):
        exact = scipy.stats.binomtest(round(p_ * 20), 20).proportion_ci() if n_ == 20.0 else None
        k = p_ * n_
        wanted = exact or scipy.stats.beta.ppf([0.025, 0.975], [k, k + 1], [n_ - k + 1, n_ - k])
        assert (low, high) == pytest.approx(tuple(wanted), abs=1e-6)


def test_shares_have_intervals_inside_0_and_1(many):
    """The normal law's leave it, and have no width where every sample is alike."""
    edges = many[0][0].edges
    count_b = np.histogram(Z_I, edges)[0]
    true_b = np.histogram(Z_I, edges, weights=(Y_I > 0).astype(float))[0] / np.maximum(count_b, 1)
    inside, beyond, wide = [], 0, []
    for _, seen in many:
        seen = replace(seen, y_i=(seen.y_i > 0).astype(float))
        a, normal = means_or_shares(seen), averages(seen)
        filled_b = a.count_b > 0
        assert (a.low_b[filled_b] >= 0).all() and (a.high_b[filled_b] <= 1).all()
        assert (a.high_b - a.low_b)[filled_b].min() > 0
        beyond += ((normal.high_b > 1) | (normal.low_b < 0) | (normal.error_b == 0)).sum()
        inside += list(((a.low_b <= true_b) & (true_b <= a.high_b))[filled_b])
        wide.append(a.whole.low <= (Y_I > 0).mean() <= a.whole.high)
    assert beyond > 10 and np.mean(inside) > 0.93 and np.mean(wide) >= 0.82
    graded = many[0][1]
    np.testing.assert_array_equal(means_or_shares(graded).low_b, averages(graded).low_b)


def test_all_samples_of_a_narrow_range_are_used():
    run = independent_run(MODEL, BETA_K, LEVEL_EDGES, walkers=16, seed=1).record()
    density = density_of_run(run)
    narrow = in_bins(density, density.edges[20:25])
    z = np.concatenate([run.z_of(r).ravel() for r in range(run.rounds)])
    n = ((z >= narrow.edges[0]) & (z < narrow.edges[-1])).sum()
    assert 200 < n < len(z) / 3
    assert len(observe(run, narrow, value, int(n)).y_i) == n


def test_few_samples_give_no_interval():
    run = independent_run(MODEL, BETA_K, LEVEL_EDGES, walkers=8, moves=1, rounds=5, seed=1).record()
    density = density_of_run(run)
    seen = observe(run, in_bins(density, density.edges[:2]), value, MOST)
    assert 0 < len(seen.y_i) < 10
    whole = averages(seen).whole
    assert np.isfinite(whole.value) and np.isnan([whole.low, whole.high]).all()


def test_a_mean_of_few_samples_has_no_interval_but_a_share_has(many):
    """Rare inputs far from the others may be missing; a share's interval allows for them."""
    seen = many[0][1]
    part = slice(None, None, len(seen.y_i) // 500)
    few = replace(
        seen, bin_i=seen.bin_i[part], group_i=seen.group_i[part], log_w_i=seen.log_w_i[part],
        y_i=np.where(seen.y_i[part] == 4.0, 500.0, 0.0), correlated_b=np.ones(seen.shape[1]),
    )  # fmt: skip
    a = averages(few)
    unknown_b = (a.count_b >= 10) & (a.count_b < 50)
    many_b = a.count_b > 80
    assert unknown_b.any() and many_b.any()
    assert np.isnan(a.low_b[unknown_b]).all() and np.isfinite(a.low_b[many_b]).all()
    assert np.isfinite(a.whole.low)  # each is a small part of it
    share = means_or_shares(replace(few, y_i=few.y_i / 500.0))
    assert np.isfinite(share.low_b[unknown_b]).all()


def test_a_bin_without_samples_counts_as_unknown(many):
    """Here it holds more of the inputs than any other, as the hottest bin does without beta = 0."""
    density, seen = many[0]
    keep = seen.bin_i != np.argmax(density.log_g_b)
    parts = (x_i[keep] for x_i in (seen.bin_i, seen.group_i, seen.y_i, seen.log_w_i))
    lost = type(seen)(density, *parts, seen.correlated_b)
    share, p_lost = share_where(lost, lost.y_i > 1.0), np.exp(density.log_g_b.max() - np.log(4**8))
    assert 0.1 < p_lost < share.high - share.low
    assert share.low <= (Y_I > 1.0).mean() <= share.high
    for one, known in ((seen, True), (lost, False)):
        whole, joint = averages(one).whole, joint_density(one, Y_EDGES)
        ends = (whole.low, whole.high, *joint.share_c.low, *joint.share_c.high)
        assert (np.isfinite(ends) == known).all()
        assert np.isfinite(joint.error_c).any() == known


def test_there_are_no_errors_below_the_floor(many):
    density, seen = many[0]
    floor = replace(density, floor=density.edges[1])
    cold, share_i = replace(seen, density=floor), (seen.y_i > 0).astype(float)
    for function, y_i in ((averages, seen.y_i), (means_or_shares, share_i)):
        a, warm = function(replace(cold, y_i=y_i)), function(replace(seen, y_i=y_i))
        assert np.isnan([a.low_b[:1], a.high_b[:1]]).all() and np.isinf(a.error_b[:1]).all()
        assert np.isfinite(warm.low_b[:1]).any()
        np.testing.assert_array_equal(a.low_b[1:], warm.low_b[1:])
        assert np.isfinite(a.whole.low)  # few inputs are there
    joint, warm = joint_density(cold, Y_EDGES), joint_density(seen, Y_EDGES)
    assert np.isinf(joint.error_bc[:1]).all() and np.isfinite(warm.error_bc[:1]).any()
    every = joint_density(replace(seen, density=replace(density, floor=9.0)), Y_EDGES)
    assert np.isnan(every.upper_bc).all() and np.isfinite(warm.upper_bc).any()
    np.testing.assert_array_equal(joint.error_bc[1:], warm.error_bc[1:])
    np.testing.assert_array_equal(joint.error_c, warm.error_c)
    by_z = [joint_density(replace(s, y_i=s.bin_i - 0.0), Y_EDGES) for s in (cold, seen)]
    assert np.isinf(by_z[0].error_c[:1]).all() and np.isfinite(by_z[1].error_c[:1]).all()
    assert np.isnan(by_z[0].share_c.low[:1]).all() and np.isfinite(by_z[0].share_c.low[1:5]).all()


def test_a_run_that_has_not_converged_has_no_upper_bounds(many):
    density, seen = many[0]
    failed = Check("one").failed("it has not")
    stuck = replace(density, verdict=replace(density.verdict, checks=(failed,)))
    assert not stuck.verdict.converged
    joint = joint_density(replace(seen, density=stuck), Y_EDGES)
    assert np.isnan(joint.upper_bc).all() and np.isfinite(joint.error_bc).any()


def test_quantiles_are_those_of_the_inputs(many):
    edges = many[0][0].edges
    for b in (1, 4):
        mine = (edges[b] <= Z_I) & (edges[b + 1] > Z_I)
        true = np.quantile(Y_I[mine], [0.1, 0.5, 0.9], method="inverted_cdf")
        found = np.median([averages(seen).quantile_qb[:, b] for _, seen in many], axis=0)
        assert np.abs(found - true).max() <= 0.5


def joint_scores(many):
    """Return z-scores of the cells of 20 inputs or more with a known error."""
    true_bc = exact(many[0][0].edges, Y_EDGES)
    scores = []
    for _, seen in many:
        found = joint_density(seen, Y_EDGES)
        use = np.isfinite(found.error_bc) & (true_bc >= 20)
        off = found.log_g_bc[use] - np.log(true_bc[use])
        scores.append(off / found.error_bc[use])
    return np.concatenate(scores)


def test_the_joint_density(many):
    scores = joint_scores(many)
    assert len(scores) > 25 * N_RUNS
    assert 0.8 < np.sqrt(np.mean(scores**2)) < 1.25
    assert np.mean(np.abs(scores) > 3) < 0.02


def test_upper_bounds_hold(many):
    true_bc, held, unknown = exact(many[0][0].edges, Y_EDGES), [], 0
    for _, seen in many:
        found = joint_density(seen, Y_EDGES)
        use = np.isfinite(found.upper_bc)
        held += (found.upper_bc[use] >= np.log(np.maximum(true_bc[use], 1e-9))).tolist()
        unknown += (np.isinf(found.error_bc) & (found.count_bc > 0) & ~use).sum()
    assert len(held) > 5 * N_RUNS and unknown == 0
    assert np.mean(held) > 0.93


@pytest.mark.slow
def test_intervals_of_y_alone_hold_if_most_of_its_inputs_were_hardly_sampled():
    """Six zeros are met at low z and beta = 6, but most such inputs lie at higher z."""

    def zeros(x):
        return (np.sort(x, axis=1)[:, :6] == 0).all(axis=1).astype(float)

    true, held, off = zeros(X_ID).mean(), [], []
    for seed in range(40):
        run = independent_run(MODEL, BETA_K, LEVEL_EDGES, walkers=16, moves=4, seed=seed).record()
        density = in_width(density_of_run(run), WIDTH)
        seen = observe(run, density, lambda part: zeros(part.x_id), MOST)
        joint = joint_density(seen, np.array([-0.5, 0.5, 1.5]))
        held.append(joint.share_c.low[1] <= true <= joint.share_c.high[1])
        if np.isfinite(joint.error_c[1]):
            off.append((joint.log_g_c[1] - np.log(true * len(X_ID))) / joint.error_c[1])
    assert np.mean(held) >= 0.95  # 0.9 by the normal law of lanes
    assert 20 < len(off) < 40 and np.sqrt(np.mean(np.square(off))) < 1.5


def test_its_sums_are_the_densities_of_z_and_of_y(many):
    density, seen = many[0]
    found = joint_density(seen, Y_EDGES)
    used = density.count_b > 0
    total_b = np.logaddexp.reduce(found.log_g_bc, axis=1)
    np.testing.assert_allclose(total_b[used], density.log_g_b[used], rtol=1e-12)
    assert found.count_bc.sum() == len(seen.y_i)
    true_c = np.log(np.histogram(Y_I, Y_EDGES)[0])
    known = np.isfinite(found.error_c)
    assert known.sum() >= 6
    assert (np.abs(found.log_g_c - true_c)[known] < 4.5 * found.error_c[known]).all()


def test_weights_that_are_all_equal_fail(many):
    """Pooled over rungs without weights, the inputs of a wide bin do not count alike."""
    wrong = []
    for density, seen in many:
        alike = type(seen)(
            density, seen.bin_i, seen.group_i, seen.y_i, np.zeros_like(seen.w_i), seen.correlated_b
        )
        wrong.append((density, alike))
    assert np.sqrt(np.mean(joint_scores(wrong) ** 2)) > 1.5


def test_the_last_cell_includes_its_end_and_others_are_left_out(many):
    seen = many[0][1]
    found = joint_density(seen, np.array([0.0, 1.0, 2.0]))
    assert found.count_bc.sum() == (seen.y_i <= 2.0).sum()


def test_no_samples_inside_the_bins():
    run = independent_run(MODEL, BETA_K, LEVEL_EDGES)
    density = density_of_run(run.record())
    run.z_rks[:] = 1e6
    with pytest.raises(EstimateError, match="no recorded samples with z from"):
        observe(run.record(), density, value, MOST)


def test_shares_have_errors_of_their_own():
    """A factor that all cells share changes no share; two shares err by the same amount."""
    random = np.random.default_rng(1)
    common_j, own_jc = random.normal(size=(16, 1)), 0.01 * random.normal(size=(16, 2))
    log_g_c, lanes = np.log(np.array([0.995, 0.005])), np.ones(16, dtype=np.int64)
    found = shares_of_cells(log_g_c, log_g_c + common_j + own_jc, lanes)
    np.testing.assert_allclose(found.value, [0.995, 0.005])
    assert found.error[0] == pytest.approx(found.error[1]) and found.error[0] < 0.001
    assert found.high[0] <= 1.0 and found.low[1] >= 0.0
    assert jackknife_error(log_g_c, log_g_c + common_j + own_jc, lanes)[0] > 1.0  # of the number
