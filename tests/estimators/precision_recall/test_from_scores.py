"""Curves from annotators' scores: by hand, weights, ranges, annotators, and coverage."""

from dataclasses import replace

import numpy as np
import pytest
from score_worlds import N_LEVELS, QUANTITIES, World
from score_worlds import coverage as coverage_of
from scored_model import FINE, WIDE, a_density, exact, exact_aupr, scored_inputs

from omniinput_hpc.estimators import EstimateError
from omniinput_hpc.estimators.density.wide_bins import coarsen
from omniinput_hpc.estimators.precision_recall.curves import trace
from omniinput_hpc.estimators.precision_recall.from_scores import (
    Scored,
    bin_scores,
    draw_r,
    scored_curve,
)

NAN = np.nan


def scored_by_hand(score_ai, bin_i, weight_i=None, lane_i=None):
    n = len(bin_i)
    return Scored(
        edges=np.arange(max(bin_i) + 2.0),
        bin_i=np.array(bin_i),
        lane_i=np.arange(n) if lane_i is None else np.array(lane_i),
        weight_i=np.ones(n) if weight_i is None else np.array(weight_i, float),
        score_ai=np.array(score_ai, float),
        annotators=[f"a{i}" for i in range(len(score_ai))],
    )


def test_means_by_hand():
    got = bin_scores(
        scored_by_hand([[1.0, 0.0, 0.5, NAN], [0.0, 0.0, NAN, NAN]], [0, 0, 1, 1], [3, 1, 7, 7])
    )
    np.testing.assert_allclose(got.r_b, [0.375, 0.5])
    np.testing.assert_array_equal(got.inputs_b, [2, 1])
    np.testing.assert_array_equal(got.lanes_b, [2, 1])
    # on the two shared inputs: +0.5 and -0.5 with weight 3/4, nothing with 1/4
    np.testing.assert_allclose(got.annotators.effect_ab, [[0.375, 0.0], [-0.375, 0.0]])
    # two annotators: half the difference of 0.75 between their means; one alone: sqrt(2) as much
    np.testing.assert_allclose(got.annotator_error_b, [0.375, 0.375 * np.sqrt(2)])


def drawn_r(scores, rng):
    """Return draws of single bins [4000, B]."""
    return draw_r(scores, rng, 4000)[0].with_extra_mb


def test_sampling_error_of_right_or_wrong_scores():
    rng = np.random.default_rng(1)
    score = (rng.random(4000) < 0.3).astype(float)
    got = bin_scores(scored_by_hand([score], np.repeat([0, 1], [400, 3600])))
    r_b = got.r_b
    np.testing.assert_allclose(
        got.sampling_error_b, np.sqrt(r_b * (1 - r_b) / [400, 3600]), rtol=0.1
    )
    drawn = drawn_r(got, rng)
    np.testing.assert_allclose(drawn.mean(axis=0), r_b, atol=0.003)
    np.testing.assert_allclose(drawn.std(axis=0), got.sampling_error_b, rtol=0.1)


def test_forty_equal_scores_are_no_certainty():
    got = bin_scores(scored_by_hand([np.zeros(40)], np.zeros(40, int)))
    assert got.r_b[0] == 0.0
    high = np.quantile(drawn_r(got, np.random.default_rng(1)), 0.975)
    assert 0.03 < high < 0.09  # exact (Clopper and Pearson): 0.088; Jeffreys: 0.061


def test_finely_graded_scores_have_smaller_errors():
    rng = np.random.default_rng(2)
    fine = bin_scores(scored_by_hand([0.5 + 0.1 * rng.normal(size=200)], np.zeros(200, int)))
    drawn = drawn_r(fine, rng)
    assert drawn.std() == pytest.approx(0.1 / np.sqrt(200), rel=0.25)


@pytest.mark.parametrize("per_bin", [1, 2])
def test_intervals_of_r_from_one_or_two_graded_scores_hold_the_truth(per_bin):
    """A single score has no spread. If this counts as agreement, 54 and 87 % hold it."""
    rng, held = np.random.default_rng(7), []
    bin_i = np.repeat(np.arange(40), per_bin)
    for _ in range(20):
        got = bin_scores(scored_by_hand([rng.beta(2.0, 3.0, len(bin_i))], bin_i))
        low_b, high_b = np.quantile(drawn_r(got, rng), [0.025, 0.975], axis=0)
        held.append(np.mean((low_b <= 0.4) & (high_b >= 0.4)))
    sigma = np.std(held) / np.sqrt(len(held))
    assert np.mean(held) > 0.95 - 3 * sigma and np.mean(high_b - low_b) < 1.0
    assert got.worth_b.max() == 1.0 or per_bin == 2


def test_inputs_of_one_lane_that_are_alike_widen_the_errors():
    rng = np.random.default_rng(3)
    lane_i = np.repeat(np.arange(40), 10)
    alike = np.repeat((rng.random(40) < 0.5).astype(float), 10)
    bins = np.tile(np.arange(4), 100)
    got = bin_scores(scored_by_hand([alike], bins, lane_i=lane_i))
    assert got.design_effect == pytest.approx(2.5, rel=0.4)  # 2 or 3 inputs a lane and bin
    mixed = bin_scores(scored_by_hand([rng.permutation(alike)], bins, lane_i=lane_i))
    assert mixed.design_effect < 1.4


def test_annotators_shift_all_bins_together():
    rng = np.random.default_rng(4)
    base = rng.random((1, 300)) * 0.6 + 0.2
    got = bin_scores(
        scored_by_hand(base + np.array([[-0.2], [0.0], [0.2]]), np.tile([0, 1, 2], 100))
    )
    np.testing.assert_allclose(got.annotator_error_b, 0.2 / np.sqrt(3))
    drawn = drawn_r(got, rng)
    assert (np.corrcoef(drawn.T) > 0.8).all()
    np.testing.assert_allclose(drawn.std(axis=0), 0.2 / np.sqrt(3), rtol=0.1)


@pytest.mark.parametrize("law", ["by-weight", "uniform"])
def test_both_laws_give_the_truth_and_weighting_twice_is_noticed(law):
    rng = np.random.default_rng(5)
    edges = FINE[3:24:5]  # five levels: strong weights inside a bin
    scored, z_i = scored_inputs(rng, per_bin=1500, beta=6.0, law=law, edges=edges, with_z=True)
    got, truth = bin_scores(scored), exact(edges).r_b
    assert (np.abs(got.r_b - truth) < 4 * got.sampling_error_b).all()
    # weighted twice, or not at all
    wrong_i = np.exp(-6.0 * z_i) if law == "by-weight" else np.ones(len(z_i))
    wrong = bin_scores(replace(scored, weight_i=wrong_i))
    error_b = np.minimum(got.sampling_error_b, wrong.sampling_error_b)
    assert (np.abs(wrong.r_b - truth) > 5 * error_b).any()


def test_the_range_ends_with_well_scored_bins_and_thin_ones_inside_are_marked():
    rng = np.random.default_rng(6)
    density = a_density(2)
    scored = scored_inputs(rng, per_bin=40)
    keep = np.ones(len(scored.bin_i), dtype=bool)
    keep[np.flatnonzero(scored.bin_i == 0)[29:]] = False  # an end with 29 inputs
    keep[np.flatnonzero(scored.bin_i == 3)[3:]] = False  # inside: three
    keep[scored.bin_i == 4] = False  # inside: none
    lane_i = np.where(scored.bin_i == 5, scored.lane_i % 7, scored.lane_i)  # seven lanes
    got = scored_curve(density, replace(scored, lane_i=lane_i).part(keep))
    np.testing.assert_array_equal(got.used_b, [False, True, True, False, False, False])
    got = scored_curve(density, scored.part(keep))
    np.testing.assert_array_equal(got.used_b, [False, True, True, True, True, True])
    np.testing.assert_array_equal(got.curve.thin_b, [False, False, False, True, True, False])
    np.testing.assert_array_equal(got.curve.interpolated_b, [False] * 4 + [True, False])
    r_b, z_b = got.curve.r_b, got.density.z_b
    assert r_b[4] == pytest.approx(np.interp(z_b[4], z_b[[3, 5]], r_b[[3, 5]]))
    with pytest.raises(EstimateError, match="no bin has scores of 30 distinct inputs from 8 lanes"):
        scored_curve(density, scored_inputs(rng, per_bin=29))
    assert scored_curve(density, scored_inputs(rng, per_bin=29), fewest_inputs=29)


def test_sides():
    rng = np.random.default_rng(7)
    density, scored = a_density(3), scored_inputs(rng, per_bin=60)
    low, high = (scored_curve(density, scored, side).curve for side in ("low", "high"))
    np.testing.assert_array_equal(low.threshold_t, WIDE[1:])
    np.testing.assert_array_equal(high.threshold_t, WIDE[:-1][::-1])
    assert low.precision_t[-1] == pytest.approx(high.precision_t[-1])
    assert low.log_recall_t[-1] == pytest.approx(high.log_recall_t[-1])


def test_density_error_alone_and_unknown():
    rng = np.random.default_rng(8)
    got = scored_curve(a_density(4), scored_inputs(rng, per_bin=40))
    assert 0.0 < got.density_share < 0.5  # 40 scores a bin are the larger part
    lonely = scored_curve(a_density(4, walkers=1, moves=80), scored_inputs(rng, per_bin=40))
    assert (lonely.curve.aupr_low, lonely.curve.aupr_high) == (0.0, 1.0)
    assert np.isposinf(lonely.curve.aupr_error)


def coverage(n_runs, seed=1000, **options):
    """Return the share of 95% intervals that hold the truth, and names."""
    truth = exact()
    names = ["r of bin 1", "r of bin 4", "precision", "log recall", "log wrong", "AUPR"]
    held, narrow = np.zeros((n_runs, len(names)), dtype=bool), np.zeros(n_runs, dtype=bool)
    right = trace(truth.log_g_b, truth.r_b, "low")
    for i in range(n_runs):
        rng = np.random.default_rng(seed + i)
        got = scored_curve(a_density(seed + i), scored_inputs(rng, **options), seed=i)
        curve = got.curve
        ends_b = curve.r_low_b, curve.r_high_b
        assert got.used_b.all()
        for n, b in enumerate((1, 4)):
            held[i, n] = ends_b[0][b] <= truth.r_b[b] <= ends_b[1][b]
        for n, name in enumerate(("precision_t", "log_recall_t", "log_wrong_t"), 2):
            low, high = getattr(curve.bands.low, name)[2], getattr(curve.bands.high, name)[2]
            held[i, n] = low <= getattr(right, name)[2] <= high
        ends = (float(curve.log_recall_t[0]), float(curve.log_recall_t[-1]))
        held[i, 5] = curve.aupr_low <= exact_aupr(ends) <= curve.aupr_high
        narrow[i] = abs(curve.aupr - exact_aupr(ends)) <= 0.5 * curve.aupr_error
    return dict(zip(names, held.mean(axis=0), strict=True)), narrow.mean()


@pytest.mark.slow
@pytest.mark.parametrize(
    "options", [{"per_bin": 40}, {"per_bin": 40, "law": "uniform", "beta": 1.0}]
)
@pytest.mark.parametrize("n_runs", [30, pytest.param(60, marks=pytest.mark.release)])
def test_coverage_of_the_95_percent_bands(options, n_runs):
    """Independent densities and scores: the share of bands that hold the truth."""
    share, narrow = coverage(n_runs, **options)
    sigma = np.sqrt(0.95 * 0.05 / n_runs)
    for name, got in share.items():
        assert abs(got - 0.95) < 3.5 * sigma, f"{name}: {got:.3f}"
    assert narrow < 0.7  # the test can fail: half a standard error does not cover 95%


@pytest.mark.slow
@pytest.mark.parametrize("r", [0.02, 0.99])
def test_coverage_where_nearly_nothing_or_nearly_everything_is_right(r):
    """A short form of tests/benchmarks/score_coverage.py; the wrong law must fail it."""
    world = World(np.full(N_LEVELS, r))
    wrong, now, _, binomial = coverage_of(world, n_runs=40, seed=3, n_densities=4)
    assert (now > 0.89).all(), dict(zip(QUANTITIES, now, strict=True))
    too_wide = now[:3] > np.maximum(0.98, binomial[:3]) + 0.015  # many values in each run
    assert not too_wide.any(), dict(zip(QUANTITIES, now, strict=True))
    assert wrong[3] < 0.8 and wrong[1] < 0.87  # half a right and half a wrong score in every bin


@pytest.mark.parametrize("per_bin", [30, 40, 50])
def test_nothing_wrong_is_exactly_one_and_recognized(per_bin):
    """Adding 1 / n n times gives less than 1 for n = 30 and 50."""
    got = bin_scores(scored_by_hand([np.ones(per_bin)], np.zeros(per_bin, int)))
    assert got.r_b[0] == 1.0
    weights = np.random.default_rng(per_bin).random(per_bin)
    got = bin_scores(scored_by_hand([np.ones(per_bin)], np.zeros(per_bin, int), weights))
    assert got.r_b[0] == 1.0
    scored = scored_inputs(np.random.default_rng(9), per_bin=per_bin)
    always = replace(scored, score_ai=np.ones((1, len(scored.bin_i))))
    curve = scored_curve(a_density(5), always).curve
    assert np.isneginf(curve.trace.log_wrong_t).all() and (curve.precision_t == 1.0).all()
    assert curve.aupr_low < 1 - 3 / len(scored.bin_i) * 0.98 and curve.aupr_high == 1.0


def test_one_bin_with_nothing_right_has_the_rule_of_threes_bound():
    """A curve of one bin has no range of recall: its AUPR is its precision."""
    rng = np.random.default_rng(9)
    scored = scored_inputs(rng, per_bin=40)
    scored = scored.part(scored.bin_i == 2)
    for right in (0, 1):
        score_ai = np.full((1, len(scored.bin_i)), float(right))
        curve = scored_curve(a_density(5), replace(scored, score_ai=score_ai)).curve
        assert np.isnan(curve.aupr) and np.isfinite(curve.aupr_error)
        ends = sorted(abs(right - end) for end in (curve.aupr_low, curve.aupr_high))
        assert ends[0] == 0.0 and 3 / 40 * 0.9 < ends[1] < 0.12


def test_a_draw_with_right_inputs_in_one_bin_does_not_undo_all_others():
    rng = np.random.default_rng(10)
    scored = scored_inputs(rng, per_bin=40)
    some = np.isin(scored.bin_i, [0, 6]) & (scored.score_ai[0] > 0)
    # one annotator says right to a few, the other to none: moves of r that reach 0 in most bins
    right_i = np.where(some, 0.3, 0.02)
    got = scored_curve(
        a_density(5), replace(scored, score_ai=np.stack([right_i, 0.1 * right_i]),
                              annotators=["ana", "ben"]),
    )  # fmt: skip
    r_mb = drawn_r(got.scores, rng)
    assert ((r_mb[:, got.used_b] > 0).sum(axis=1) < 2).any()  # such draws there are
    assert 0.0 < got.curve.aupr_error < 0.2 and got.curve.aupr_high < 0.5


def test_nothing_right_or_nothing_wrong_gives_one_sided_bounds():
    rng = np.random.default_rng(9)
    density, scored = a_density(5), scored_inputs(rng, per_bin=40)
    n = len(scored.bin_i)
    never = scored_curve(density, replace(scored, score_ai=np.zeros((1, n)))).curve
    assert np.isnan(never.aupr) and never.aupr_low == 0.0
    assert 3 / n * 0.98 < never.aupr_high < 0.05
    assert (never.bands.low.precision_t == 0).all() and np.isneginf(
        never.bands.low.log_recall_t
    ).all()
    # one score of the bin that weighs most counts 40 of its share
    share = np.exp(density_shares(density)).max()
    assert never.bands.high.precision_t[-1] == pytest.approx(3 / 40 * share, rel=0.15)
    always = scored_curve(density, replace(scored, score_ai=np.ones((1, n)))).curve
    assert always.aupr == always.aupr_high == 1.0
    assert 0.95 < always.aupr_low < 1 - 3 / n * 0.98
    assert (always.bands.high.precision_t == 1).all() and (always.bands.low.precision_t < 1).all()
    np.testing.assert_allclose(always.r_low_b, 0.05 ** (1 / 40), atol=0.01)


def density_shares(density):
    """Return ln of the wide bins' shares of all inputs."""
    log_g_b = coarsen(density, WIDE).log_g_b
    return log_g_b - np.logaddexp.reduce(log_g_b)
