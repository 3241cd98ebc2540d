"""Precision, recall and AUPR: by hand, against exact models, and their errors' coverage."""

from dataclasses import replace

import numpy as np
import pytest
from lattice import (
    BETA_K,
    LEVEL_EDGES,
    MODEL,
    ancestral_run,
    first_is_zero,
    independent_run,
)
from run_tools import loaded
from scipy.stats import binom

from omniinput_hpc.estimators import EstimateError
from omniinput_hpc.estimators.comparison.to_exact import Exact, compare_curve
from omniinput_hpc.estimators.density.density import density_of_run, density_of_runs
from omniinput_hpc.estimators.density.wide_bins import in_bins
from omniinput_hpc.estimators.precision_recall.curves import (
    accumulate,
    area,
    common_range,
    curve_range,
)
from omniinput_hpc.estimators.precision_recall.from_rule import (
    check_scores,
    mean_scores,
    rule_curve,
    sum_scores,
    sum_scores_of_runs,
)
from omniinput_hpc.histogram import bin_of
from omniinput_hpc.results.curve import thin_lines

WIDE_EDGES = np.arange(-0.01, 6.5, 0.8)  # three or four levels a bin


def exact_values(edges):
    g_b = MODEL.bin_sums(edges, MODEL.count_l())
    with np.errstate(divide="ignore", invalid="ignore"):
        return Exact(np.log(g_b), MODEL.bin_sums(edges, MODEL.right_l()) / g_b)


def curve_of(run, side="low", rule=first_is_zero):
    density = density_of_run(run)
    return density, rule_curve(density, sum_scores(run, density, rule), side, whole=True)


def one_in_61(x):
    """Score about one input in 61 as right, wherever it lies."""
    return ((x.astype(np.int64) @ np.array([1, 5, 7, 11, 17, 19, 23, 29])) % 61 == 7).astype(float)


def exact_precision(rule):
    """Return the exact precision up to each level, over all 4^8 inputs, from the low side."""
    x = np.indices((MODEL.n_values,) * MODEL.n_sites).reshape(MODEL.n_sites, -1).T
    level = bin_of(MODEL.z(x).astype(float), LEVEL_EDGES)
    n = len(LEVEL_EDGES) - 1
    return np.cumsum(np.bincount(level, rule(x), n)) / np.cumsum(np.bincount(level, minlength=n))


@pytest.mark.slow
@pytest.mark.parametrize("value", [0.0, 1.0], ids=["none right", "none wrong"])
def test_precision_where_all_scores_are_equal_is_bounded_in_95_percent(value):
    """The exact precision of rare right (or wrong) inputs is in the band; of no width it is not."""

    def rule(x):
        return np.abs(value - one_in_61(x))

    exact, few_k = exact_precision(rule), np.array([0.0, 1.0, 2.0, 4.0])

    def held(n_runs=40, t=4):
        inside, equal, by_lanes = 0, 0, 0
        for seed in range(n_runs):
            run = independent_run(
                MODEL, few_k, LEVEL_EDGES, walkers=16, moves=2, rounds=1, seed=seed
            )
            _, curve = curve_of(run, rule=rule)
            at = int(np.flatnonzero(curve.bin_t == t)[0])
            low, high = curve.bands.low.precision_t[at], curve.bands.high.precision_t[at]
            if curve.precision_t[at] == value:
                equal += 1
                inside += bool(low <= exact[t] <= high)
                by_lanes += exact[t] == value  # equal replicates: a band of no width
        return inside, equal, by_lanes

    inside, equal, by_lanes = held()
    assert equal > 10 and inside >= binom.ppf(1e-3, equal, 0.95), (inside, equal)
    assert by_lanes == 0


def test_accumulate_by_hand():
    log_g_b, r_b = np.log([2.0, 6.0, 8.0]), np.array([1.0, 0.5, 0.0])
    precision, log_recall = accumulate(log_g_b, r_b, "low")
    np.testing.assert_allclose(precision, [1.0, 5 / 8, 5 / 16])
    np.testing.assert_allclose(log_recall, np.log([2.0, 5.0, 5.0]))
    precision, log_recall = accumulate(log_g_b, r_b, "high")
    np.testing.assert_allclose(precision, [0.0, 3 / 14, 5 / 16])
    np.testing.assert_allclose(log_recall, [-np.inf, np.log(3.0), np.log(5.0)])


def test_accumulate_over_thousands_of_nats():
    log_g_b = np.array([0.0, 2000.0, 5000.0])
    precision, log_recall = accumulate(log_g_b, np.array([1.0, 0.5, 0.25]), "low")
    np.testing.assert_allclose(precision, [1.0, 0.5, 0.25])
    np.testing.assert_allclose(log_recall, log_g_b + np.log([1.0, 0.5, 0.25]))


def test_accumulate_before_the_first_input():
    precision, log_recall = accumulate(
        np.array([-np.inf, 1.0, -np.inf]), np.array([np.nan, 0.5, np.nan]), "low"
    )
    np.testing.assert_allclose(precision, [np.nan, 0.5, 0.5])
    np.testing.assert_allclose(log_recall[1:], 1.0 + np.log(0.5))
    assert np.isneginf(log_recall[0])


def test_area_by_hand():
    precision, log_recall = np.array([1.0, 0.5, 0.5]), np.array([0.0, 1.0, 3.0])
    assert area(precision, log_recall) == pytest.approx((0.75 + 1.0) / 3)
    assert area(precision, log_recall, 0.5, 2.0) == pytest.approx((0.5 * 0.625 + 0.5) / 1.5)
    assert area(precision, log_recall, -5.0, 9.0) == area(precision, log_recall)
    assert area(precision, log_recall + 1000.0) == pytest.approx(1.75 / 3)


def test_area_with_drops_and_degenerate_curves():
    # a vertical drop has no area, at the ends and inside
    precision = np.array([0.9, 0.8, 0.6, 0.4, 0.1])
    log_recall = np.array([0.0, 0.0, 1.0, 1.0 + 1e-15, 1.0 + 1e-15])
    assert area(precision, log_recall) == pytest.approx(0.7)
    tied = area(np.array([0.8, 0.6, 0.2]), np.array([0.0, 1.0, 1.0]))
    assert tied == pytest.approx(0.7)
    start = area(np.array([np.nan, 0.0, 0.5, 0.5]), np.array([-np.inf, -np.inf, 2.0, 3.0]))
    assert start == pytest.approx(0.5)
    assert np.isnan(area(np.array([0.5]), np.array([1.0])))
    assert np.isnan(area(np.array([0.0]), np.array([-np.inf])))


def test_ranges():
    assert curve_range(np.array([0.0, 1.0, 0.5]), np.array([-np.inf, 2.0, 5.0])) == (2.0, 5.0)
    assert common_range((0.0, 3.0), (1.0, 5.0)) == (1.0, 3.0)
    assert np.isnan(common_range((0.0, 1.0), (2.0, 3.0))).all()


def test_mean_scores_fill_gaps_from_their_neighbours():
    weight_b = np.array([0.0, 2.0, 0.0, 4.0, 0.0, 0.0])
    score_b = np.array([0.0, 2.0, 0.0, 1.0, 0.0, 0.0])
    z_b = np.array([0.5, 1.0, 1.5, 3.0, 3.5, np.nan])
    wanted = np.array([True, True, True, True, True, False])
    r_b = mean_scores(weight_b, score_b, z_b, wanted)
    np.testing.assert_allclose(r_b, [1.0, 1.0, 0.8125, 0.25, 0.25, np.nan])
    assert np.isnan(mean_scores(np.zeros(6), score_b, z_b, wanted)).all()


@pytest.mark.parametrize("side", ["low", "high"])
def test_curve_within_its_bands(side):
    run = independent_run(MODEL, BETA_K, LEVEL_EDGES, walkers=16, seed=11)
    density, curve = curve_of(run, side)
    exact = exact_values(LEVEL_EDGES)
    bins = np.flatnonzero(np.isfinite(exact.log_g_b))
    precision, log_recall = accumulate(exact.log_g_b[bins], exact.r_b[bins], side)
    order = bins if side == "low" else bins[::-1]
    shared = np.isin(order, curve.bin_t)
    np.testing.assert_array_equal(order[shared], curve.bin_t)
    edge_t = LEVEL_EDGES[curve.bin_t + 1] if side == "low" else LEVEL_EDGES[curve.bin_t]
    np.testing.assert_array_equal(curve.threshold_t, edge_t)

    # bands of 95% and t(15): 2.13 standard errors; twice that is 4.3
    inside = (curve.bands.low.precision_t <= precision[shared]) & (
        precision[shared] <= curve.bands.high.precision_t
    )
    assert inside.mean() > 0.6 and inside.any()
    width = curve.bands.high.precision_t - curve.bands.low.precision_t + 1e-12
    assert (np.abs(curve.precision_t - precision[shared]) < width).all()
    known = np.isfinite(curve.bands.high.log_recall_t) & np.isfinite(curve.log_recall_t)
    width = curve.bands.high.log_recall_t[known] - curve.bands.low.log_recall_t[known] + 1e-12
    delta_t = curve.log_recall_t[known] - log_recall[shared][known]
    assert (np.abs(delta_t) < width).all()
    truth = compare_curve(density, curve, exact, side)
    assert abs(truth.sampled_common - truth.aupr_common) < 4.3 * curve.aupr_error < 0.2
    accepted = np.cumsum(np.exp(exact.log_g_b[order]))[shared]
    many = accepted >= 999.5  # the numbers that precision_recall.py --exact prints
    assert truth.precision.n == truth.log_recall.n == many.sum() > 10
    delta_p = np.abs(curve.precision_t - precision[shared])[many]
    assert truth.precision.largest == pytest.approx(delta_p.max())
    assert truth.precision.held == pytest.approx(inside[many].mean())
    assert truth.log_recall.largest == pytest.approx(np.abs(delta_t[many[known]]).max())
    assert truth.r.n > 5 and truth.r.held > 0.7 and truth.r.largest < 0.1
    wrong = compare_curve(density, curve, Exact(exact.log_g_b, 0.7 * exact.r_b), side)
    assert wrong.r.held < 0.3 and wrong.precision.held < 0.3
    # many inputs, all wrong, before the first bin that a curve counts: left out of both
    less, more = rule_curve(density, sum_scores(run, density, first_is_zero), side), exact.log_g_b
    assert less.bin_t[0] != curve.bin_t[0]
    far = np.where(np.arange(len(more)) == curve.bin_t[0], 30.0, more)
    by_far = compare_curve(density, less, Exact(far, np.where(far == 30.0, 0.0, exact.r_b)), side)
    same = compare_curve(density, less, exact, side)
    assert same.aupr > 2.0 * by_far.aupr and by_far.aupr_common == same.aupr_common
    assert (truth.all_count, same.all_count, by_far.all_count) == (True, False, False)
    assert "of the inputs that the sampled curve counts" in str(same)
    known_b = np.isfinite(curve.r_error_b) & (curve.r_error_b > 0)
    z_score = (curve.r_b[known_b] - exact.r_b[known_b]) / curve.r_error_b[known_b]
    assert np.abs(z_score).max() < 4.3


def test_pooling_scores_without_weights_is_noticed():
    """Levels in a wide bin: rungs see them in other proportions than the space holds them."""
    run = independent_run(MODEL, BETA_K, WIDE_EDGES, walkers=16, moves=100, seed=12)
    density = density_of_run(run)
    sums = sum_scores(run, density, first_is_zero)
    exact = exact_values(WIDE_EDGES)
    r_b = sums.score_gb.sum(axis=0) / sums.weight_gb.sum(axis=0)
    curve = rule_curve(density, sums, whole=True)
    np.testing.assert_array_equal(r_b, curve.r_b)
    part = slice(0, 7)  # beyond it the rule is never right
    assert np.abs((r_b - exact.r_b)[part] / curve.r_error_b[part]).max() < 4.3
    bin_s = bin_of(run.z_rks.astype(float).ravel(), WIDE_EDGES)
    r_s = first_is_zero(run.x_rksd.reshape(-1, MODEL.n_sites))
    plain_b = np.bincount(bin_s, r_s) / np.bincount(bin_s)
    assert np.abs((plain_b - exact.r_b)[part] / curve.r_error_b[part]).max() > 8


def test_samples_are_credited_to_their_lanes():
    run = independent_run(MODEL, BETA_K, LEVEL_EDGES, walkers=24, seed=13)  # 16 groups of 1 or 2
    density = density_of_run(run)
    sums = sum_scores(run, density, lambda x: np.ones(len(x)))
    np.testing.assert_array_equal(sums.count_gb, run.lane_counts_kgb.sum(axis=0))
    np.testing.assert_allclose(sums.weight_gb, sums.score_gb)
    assert set(density.lanes_g) == {1, 2}


def test_fixed_weights_are_as_good_as_solving_them_again():
    """The replicates' weights keep the full run's f_k: errors change by less than 1%."""
    run = independent_run(MODEL, BETA_K, WIDE_EDGES, walkers=16, seed=14)
    density = density_of_run(run)
    sums = sum_scores(run, density, first_is_zero)
    error_b = rule_curve(density, sums, whole=True).r_error_b
    counts_kgb = run.lane_counts_kgb
    z = run.z_rks.astype(float).swapaxes(0, 1).reshape(len(BETA_K), -1)
    x = run.x_rksd.swapaxes(0, 1).reshape(len(BETA_K), -1, MODEL.n_sites)
    group_s = np.arange(z.shape[1]) % 16
    r_jb = np.empty((16, len(WIDE_EDGES) - 1))
    for j in range(16):
        rest = group_s != j
        n_k = counts_kgb.sum(axis=(1, 2)) - counts_kgb[:, j].sum(axis=1)
        w_kb = density.log_g_jb[j] + density.rung_weights.mean_in_bins(density.inside)
        f_k = -np.logaddexp.reduce(w_kb, axis=1)
        log_w_ik = np.log(n_k) + f_k - np.outer(z[:, rest].ravel(), BETA_K)
        w_i = np.exp(-np.logaddexp.reduce(log_w_ik, axis=1))
        bin_i = bin_of(z[:, rest].ravel(), WIDE_EDGES)
        r_i = first_is_zero(x[:, rest].reshape(-1, MODEL.n_sites))
        r_jb[j] = np.bincount(bin_i, w_i * r_i) / np.bincount(bin_i, w_i)
    again_b = np.sqrt(15 / 16 * ((r_jb - r_jb.mean(axis=0)) ** 2).sum(axis=0))
    np.testing.assert_allclose(error_b, again_b, rtol=0.01)


def test_errors_of_r_in_a_scarce_run():
    """Few draws: some bins are seen by one group alone."""
    beta_k = np.array([-2.0, 0.0, 2.0])
    run = independent_run(MODEL, beta_k, LEVEL_EDGES, walkers=4, rounds=4, moves=15, seed=18)
    _density, curve = curve_of(run)
    groups_b = (run.lane_counts_kgb.sum(axis=0) > 0).sum(axis=0)
    assert (groups_b == 1).sum() >= 1
    assert np.isposinf(curve.r_error_b[groups_b == 1]).all()
    assert np.isfinite(curve.r_error_b[groups_b >= 2]).all()
    assert 0.0 < curve.aupr_low < curve.aupr_high < 1.0 and np.isfinite(curve.aupr_error)


def test_rules_that_are_always_or_never_right():
    run = independent_run(MODEL, BETA_K, LEVEL_EDGES, seed=15)
    density, always = curve_of(run, rule=lambda x: np.ones(len(x)))
    b = always.bin_t
    # all right among n is no certainty: the lower end is the rule of three's
    n_b = np.minimum(density.effective_b, run.lane_counts_kgb.sum(axis=(0, 1)))[b]
    assert (always.r_high_b[b] == 1.0).all() and (always.r_error_b[b] == 0).any()
    some = (n_b > 100) & (always.r_error_b[b] == 0)
    assert some.any()
    np.testing.assert_allclose((1 - always.r_low_b[b][some]) * n_b[some], 3.0, atol=0.5)
    assert always.aupr == pytest.approx(1.0)
    np.testing.assert_allclose(always.precision_t, 1.0)
    assert (always.aupr_high, always.aupr_one_sided) == (1.0, -1)
    assert 1.0 - 3.3 / n_b.min() < always.aupr_low < 1.0 - 3.0 / n_b.sum()
    assert (always.bands.low.precision_t < 1.0).all()
    _, never = curve_of(run, rule=lambda x: np.zeros(len(x)))
    assert np.isnan(never.aupr) and (never.precision_t == 0.0).all()
    assert (never.aupr_low, never.aupr_one_sided) == (0.0, 1) and 0.0 < never.aupr_high < 0.1
    assert (never.r_low_b[b] == 0.0).all() and (never.r_high_b[b] > 0).all()
    assert (
        np.isneginf(never.log_recall_t).all() and not np.isnan(never.bands.high.log_recall_t).any()
    )


@pytest.mark.parametrize("side", ["low", "high"])
def test_the_range_of_a_rules_curve_ends_with_bins_of_enough_inputs_and_lanes(side):
    run = independent_run(MODEL, BETA_K, LEVEL_EDGES, walkers=16, moves=60, seed=20)
    density = density_of_run(run)
    sums = sum_scores(run, density, first_is_zero, 40)
    assert sums.inputs_b[0] == 1 and 40 <= sums.inputs_b[8] < 40 + 960  # one input has z = 0
    fit = np.flatnonzero((sums.inputs_b >= 30) & (sums.lanes_b >= 8))
    curve = rule_curve(density, sums, side)
    expected = np.arange(fit[0], fit[-1] + 1)
    expected = expected[density.count_b[expected] > 0]
    np.testing.assert_array_equal(np.sort(curve.bin_t), expected)
    lines = thin_lines(density, curve)
    assert f"from {LEVEL_EDGES[fit[0]]:g} to {LEVEL_EDGES[fit[-1] + 1]:g};" in lines[0]
    everything = rule_curve(density, sums, side, whole=True)
    assert len(everything.bin_t) > len(curve.bin_t)  # else this test could not fail
    # inside: 29 inputs, or seven lanes, make a bin hollow
    inputs_b, lanes_b = sums.inputs_b.copy(), sums.lanes_b.copy()
    inputs_b[9], lanes_b[11] = 29, 7
    holed = replace(sums, inputs_b=inputs_b, lanes_b=lanes_b)
    curve = rule_curve(density, holed, side)
    np.testing.assert_array_equal(np.flatnonzero(curve.thin_b), [9, 11])
    assert "2 bins have fewer than 30 inputs or 8 lanes" in thin_lines(density, curve)[-1]
    few = rule_curve(density, sums, side, (10**6, 8))
    assert few.thin_b[few.bin_t].all() and len(few.bin_t) == len(everything.bin_t)
    assert "all are drawn hollow" in thin_lines(density, few)[-1]


def test_one_lane_has_the_widest_bands():
    run = independent_run(MODEL, BETA_K, LEVEL_EDGES, walkers=1, moves=100, seed=16)
    _, curve = curve_of(run)
    assert np.isposinf(curve.aupr_error) and (curve.aupr_low, curve.aupr_high) == (0.0, 1.0)
    assert (curve.bands.low.precision_t == 0).all() and (curve.bands.high.precision_t == 1).all()
    assert (
        np.isneginf(curve.bands.low.log_recall_t).all()
        and np.isposinf(curve.bands.high.log_recall_t).all()
    )


def test_bins_without_samples_are_flagged():
    run = independent_run(MODEL, BETA_K, LEVEL_EDGES, seed=17)
    hidden = run.z_rks.copy()
    hidden[np.isclose(hidden, 3.0)] = np.nan
    run.samples = lambda rounds: ((run.x_rksd[r], hidden[r]) for r in rounds)
    _, curve = curve_of(run)
    level = int(3.0 / MODEL.unit)
    assert np.flatnonzero(curve.interpolated_b).tolist() == [level]
    assert curve.r_b[level] == pytest.approx(curve.r_b[[level - 1, level + 1]].mean())
    hidden[:] = np.nan
    with pytest.raises(EstimateError, match="no recorded samples"):
        curve_of(run)


@pytest.mark.slow
@pytest.mark.parametrize("n_runs", [30, pytest.param(150, marks=pytest.mark.release)])
def test_coverage_of_the_95_percent_intervals(n_runs):
    """Independent tiny runs: the share of intervals that hold the truth, within 3.5 sigmas of 95%.

    For log g at five levels, r and log recall at one, and the AUPR. (8 lanes of 60 moves a rung.)
    """
    exact = exact_values(LEVEL_EDGES)
    bins = np.flatnonzero(np.isfinite(exact.log_g_b))
    _, log_recall = accumulate(exact.log_g_b[bins], exact.r_b[bins], "low")
    levels = [4, 8, 11, 15, 20]
    names = [*(f"log g of level {i}" for i in levels), "r of level 8", "log recall", "AUPR"]
    names.append("r of level 8, interval")
    held = np.zeros((n_runs, len(names)), dtype=bool)
    narrow = np.zeros(n_runs, dtype=bool)
    for i in range(n_runs):
        run = independent_run(
            MODEL, BETA_K, LEVEL_EDGES, rounds=6, walkers=8, moves=10, seed=1000 + i
        )
        density, curve = curve_of(run)
        t95 = 2.3646  # Student's t, 7 degrees of freedom
        delta_b = (density.log_g_b - np.where(np.isfinite(exact.log_g_b), exact.log_g_b, 0))[levels]
        error_b = density.log_g_error_b[levels]
        held[i, :5] = np.abs(delta_b) <= t95 * error_b
        held[i, 5] = np.abs(curve.r_b[8] - exact.r_b[8]) <= t95 * curve.r_error_b[8]
        t = np.flatnonzero(curve.bin_t == 8)[0]
        truth = log_recall[bins == 8][0]
        held[i, 6] = curve.bands.low.log_recall_t[t] <= truth <= curve.bands.high.log_recall_t[t]
        both = compare_curve(density, curve, exact, "low")
        error = both.sampled_common - both.aupr_common
        held[i, 7] = abs(error) <= t95 * curve.aupr_error
        held[i, 8] = curve.r_low_b[8] <= exact.r_b[8] <= curve.r_high_b[8]
        narrow[i] = np.abs(delta_b[2]) <= error_b[2]
    share = held.mean(axis=0)
    print(dict(zip(names, share.round(3), strict=True)))
    sigma = np.sqrt(0.95 * 0.05 / n_runs)
    for name, got in zip(names, share, strict=True):
        assert abs(got - 0.95) < 3.5 * sigma, f"{name}: {got:.3f}"
    assert narrow.mean() < 0.85  # the test can fail: one standard error does not cover 95%


def test_one_run_of_several_is_that_run():
    run = independent_run(MODEL, BETA_K, WIDE_EDGES, walkers=16, seed=21)
    density = density_of_run(run)
    one, same = (f(r, density, first_is_zero) for f, r in (
        (sum_scores, run), (sum_scores_of_runs, [run])))  # fmt: skip
    for name, value in vars(one).items():
        np.testing.assert_array_equal(value, getattr(same, name))


def test_joined_runs_count_by_what_their_samples_are_worth():
    """By hand: each run's mean by its own rungs; groups of lanes, inputs and lanes of both."""
    hot = independent_run(MODEL, BETA_K[:4], WIDE_EDGES, walkers=16, seed=22)
    cold = independent_run(MODEL, BETA_K[4:], WIDE_EDGES, walkers=12, rounds=8, seed=23)
    density = density_of_runs([hot, cold])
    sums = sum_scores_of_runs([hot, cold], density, first_is_zero)
    assert len(density.lanes_g) == 12 and set(density.lanes_g) == {2, 3}
    mean_rb, worth_rb = np.zeros((2, 2, len(WIDE_EDGES) - 1))
    for r, (run, rungs) in enumerate([(hot, slice(0, 4)), (cold, slice(4, 7))]):
        z = run.z_rks.astype(float).ravel()
        n_k, f_k = density.n_k[rungs], density.f_k[rungs]
        w_i = 1.0 / (n_k * np.exp(f_k - np.outer(z, run.beta_k))).sum(axis=1)
        bin_i, right_i = bin_of(z, WIDE_EDGES), first_is_zero(run.x_rksd.reshape(len(z), -1))
        total_b = np.bincount(bin_i, w_i, len(mean_rb[r]))
        mean_rb[r] = np.bincount(bin_i, w_i * right_i, len(mean_rb[r])) / np.maximum(total_b, 1e-9)
        effective_b = density.parts[r].effective_b
        worth_rb[r] = np.minimum(np.bincount(bin_i, minlength=len(mean_rb[r])), effective_b)
    expected_b = (worth_rb * mean_rb).sum(axis=0) / worth_rb.sum(axis=0)
    weight_b, score_b = sums.weight_gb.sum(axis=0), sums.score_gb.sum(axis=0)
    np.testing.assert_allclose(score_b / weight_b, expected_b, rtol=1e-9)
    np.testing.assert_allclose(weight_b, worth_rb.sum(axis=0), rtol=1e-9)
    counts = [run.lane_counts_kgb.sum(axis=(0, 1)) for run in (hot, cold)]
    np.testing.assert_array_equal(sums.count_gb.sum(axis=0), counts[0] + counts[1])
    alone = [sum_scores(run, density_of_run(run), first_is_zero) for run in (hot, cold)]
    np.testing.assert_array_equal(sums.lanes_b, alone[0].lanes_b + alone[1].lanes_b)
    assert (sums.inputs_b[0] < alone[0].inputs_b[0] + alone[1].inputs_b[0]).all()  # 17 inputs


def test_a_run_whose_rungs_share_no_bin_may_be_joined():
    """Its gap is filled by the other run: alone, neither has a density of all bins."""
    gap = independent_run(MODEL, [-40.0, 40.0], LEVEL_EDGES, walkers=16, seed=24)
    middle = independent_run(MODEL, BETA_K, LEVEL_EDGES, walkers=16, seed=25)
    with pytest.raises(EstimateError, match="share no bin"):
        density_of_run(gap)
    density = density_of_runs([gap, middle])
    curve = rule_curve(
        density, sum_scores_of_runs([gap, middle], density, first_is_zero), whole=True
    )
    exact = exact_values(LEVEL_EDGES)
    good = curve.r_error_b > 0
    z_score = (curve.r_b - exact.r_b)[good] / curve.r_error_b[good]
    assert good.sum() > 10 and np.abs(z_score).max() < 4.3


@pytest.mark.slow
def test_the_curves_of_joined_runs_are_honest_and_with_wrong_weights_they_are_not():
    """The short form of tests/benchmarks/joined_coverage.py."""
    bench = loaded("tests/benchmarks/joined_coverage.py")
    for kind, (_, _, must_fail) in bench.KINDS.items():
        assert bench.is_honest(kind, bench.campaign(kind, 8), 8), kind
        for name, wrong in (bench.WRONG if must_fail else {}).items():
            assert not bench.is_honest(kind, bench.campaign(kind, 8, wrong=wrong), 8), name


@pytest.mark.parametrize(
    ("scores", "message"),
    [
        (np.ones(4), "expected 3 scores"),
        (np.ones((3, 1)), "expected 3 scores"),
        (1.0, "expected 3 scores"),
        ([0.0, 1.0, 1.5], "in \\[0, 1\\], got 1.5"),
        ([0.0, -1.0, 1.0], "got -1"),
        ([0.0, np.nan, 1.0], "got nan"),
        (["a", "b", "c"], "not numbers"),
        (None, "expected 3 scores|not numbers"),
    ],
)
def test_bad_scores_get_plain_messages(scores, message):
    with pytest.raises(EstimateError, match=message):
        check_scores(scores, 3, "my:rule")
    assert check_scores([True, False, True], 3, "my:rule").dtype == np.float64


@pytest.mark.parametrize("width", [None, WIDE_EDGES])
def test_uneven_weights_of_independent_draws_count_once(width):
    """All are right, so only the number of draws limits r: 3 / n, n as for equal weights."""
    tilt = np.array([[3.0, -3.0, 3.0, -3.0, 2.0, -2.0, 0.0, 0.0]])
    run = ancestral_run(MODEL, tilt, LEVEL_EDGES, rounds=8, walkers=32, moves=20, seed=1).record()
    density = density_of_run(run)
    density = density if width is None else in_bins(density, LEVEL_EDGES[::3])
    sums = sum_scores(run, density, lambda x: np.ones(len(x)))
    curve, weight_b = rule_curve(density, sums, whole=True), sums.weight_gb.sum(axis=0)
    kish_b = weight_b**2 / np.maximum(sums.square_b, 1e-300)
    many = np.flatnonzero((kish_b > 30) & (sums.count_gb.sum(axis=0) > 4 * kish_b))
    assert len(many) >= 3  # their weights are so uneven that four or more tell as one
    least_b = np.minimum(kish_b, density.effective_b)[many]
    assert (curve.worth_b[many] > 0.7 * least_b).all() and (curve.worth_b <= 1.01 * kish_b).all()
    assert (curve.r_low_b[many] > 1.0 - 6.0 / least_b).all()
