"""People's and judges' scores together: by hand, coverage for good and bad judges, labels saved."""

from dataclasses import replace

import numpy as np
import pytest
from score_worlds import (
    N_LEVELS,
    QUANTITIES,
    World,
    density_of_levels,
    draw_judged,
    judged_coverage,
    uncorrected,
    without_judge,
)

from omniinput_hpc.estimators import EstimateError
from omniinput_hpc.estimators.errors.jackknife import TAILS
from omniinput_hpc.estimators.precision_recall import prediction_powered
from omniinput_hpc.estimators.precision_recall.allocation import allocate
from omniinput_hpc.estimators.precision_recall.from_scores import (
    bin_scores,
    scored_curve,
)
from omniinput_hpc.estimators.precision_recall.prediction_powered import (
    FEWEST_SHARED,
    PRIOR_SCORES,
    aupr_gain,
    powered_scores,
)

FALLING = World(np.linspace(0.95, 0.05, N_LEVELS), n_bins=12, per_bin=(100, 100))
MANY = replace(FALLING, per_bin=(300, 300))


def drawn(judge, world=FALLING, people=(25, 50), seed=1):
    return draw_judged(world, judge, people, np.random.default_rng(seed))


def curve_of(scored, seed=1):
    return scored_curve(density_of_levels(seed), scored, "low", 1, 1)


def test_the_estimate_by_hand():
    """Slopes of all inputs but one, with weights, by loops; then the mean of the residuals."""
    scored = drawn("graded", replace(FALLING, law="uniform", per_bin=(40, 40)), (15, 20))
    got = powered_scores(scored)
    y_i, f_i, v_i = scored.score_ai[0], scored.judge_i, scored.weight_i
    top_b, bottom_b, n_bins = [], [], len(scored.edges) - 1
    parts = []
    for b in range(n_bins):
        every = np.flatnonzero(scored.bin_i == b)
        both, rest = every[~np.isnan(y_i[every])], every[np.isnan(y_i[every])]
        n = v_i[both].sum() ** 2 / (v_i[both] ** 2).sum()
        variance = np.cov(f_i[every], aweights=v_i[every], ddof=0)
        top_b.append(n * np.cov(y_i[both], f_i[both], aweights=v_i[both], ddof=0)[0, 1])
        bottom_b.append(n * variance)
        parts.append((both, rest, n, variance))
    for b, (both, rest, n, variance) in enumerate(parts):
        elsewhere = (sum(top_b) - top_b[b]) / (sum(bottom_b) - bottom_b[b])
        total, share = 0.0, v_i[rest].sum() / (v_i[rest].sum() + v_i[both].sum())
        for i in both:
            others = both[both != i]
            slope = np.cov(y_i[others], f_i[others], aweights=v_i[others], ddof=0)[0, 1]
            slope *= (n - 1) / (n - 2) / variance
            slope = ((n - 1) * slope + PRIOR_SCORES * elsewhere) / (n - 1 + PRIOR_SCORES)
            off = f_i[i] - np.average(f_i[rest], weights=v_i[rest])
            total += v_i[i] * (y_i[i] - slope * share * off)
        if 0.05 < got.r_b[b] < 0.95:  # nearer to the ends it may be cut
            assert got.r_b[b] == pytest.approx(total / v_i[both].sum())


def test_the_slope_without_an_input_by_hand():
    """With equal weights the closed form equals the slope that the others alone give."""
    scored = drawn("graded", people=(9, 9))
    known = ~np.isnan(scored.score_ai[0])
    y_i, f_i, bin_i = scored.score_ai[0][known], scored.judge_i[known], scored.bin_i[known]
    both = prediction_powered._Group(bin_i, np.ones(len(bin_i)), len(scored.edges) - 1)
    slope_i = prediction_powered._lambdas(both, y_i, f_i, np.where(np.arange(12) == 4, 0.1, 0.0))
    mine = np.flatnonzero(bin_i == 4)
    for place, i in enumerate(mine):
        others = np.delete(mine, place)
        covariance = np.cov(y_i[others], f_i[others])[0, 1]
        assert slope_i[i] == pytest.approx(8 * covariance / 0.1 / (8 + PRIOR_SCORES))


def test_if_people_scored_everything_the_judge_changes_nothing():
    scored = drawn("biased", replace(FALLING, per_bin=(40, 40)), (40, 40))
    got, alone = powered_scores(scored), bin_scores(without_judge(scored))
    np.testing.assert_allclose(got.r_b, alone.r_b)
    np.testing.assert_allclose(got.count_b, alone.count_b)
    np.testing.assert_allclose(got.gain_b, 1.0)
    assert got.judged == got.inputs_b.sum() and (got.judge_error_b == 0).all()
    rng = np.random.default_rng(1)
    ours, mid_p = got.draws(rng, 20_000), alone.draws(rng, 20_000)
    for name in ("with_extra_mb", "without_extra_mb"):
        ends = [np.quantile(getattr(one, name), TAILS, axis=0) for one in (ours, mid_p)]
        np.testing.assert_allclose(*ends, atol=0.01)


def test_a_bins_only_residual_does_not_show_its_variance():
    both = prediction_powered._Group(np.array([0]), np.ones(1), 1)
    found_b, coin_b = prediction_powered._variances(np.array([0.5]), both, np.array([0.5]), 3.0)
    np.testing.assert_allclose(found_b, coin_b / 3.0)  # as in the other bins
    assert prediction_powered._worth(both, np.array([0.5])) == 1.0


def test_the_only_input_without_peoples_scores_has_the_judges_spread():
    scored = drawn("graded", replace(FALLING, per_bin=(20, 20)), (19, 19))
    got, fit = powered_scores(scored), prediction_powered._fit(scored)
    moved_b = [np.var(fit.moved_i[scored.bin_i == b], ddof=1) for b in range(len(got.r_b))]
    assert (got.judge_error_b**2 >= moved_b).all() and max(moved_b) > 0


def test_inputs_that_the_judge_left_out_count_with_his_mean():
    scored = drawn("good")
    gaps = scored.judge_i.copy()
    gaps[::7] = np.nan
    got, full = powered_scores(replace(scored, judge_i=gaps)), powered_scores(scored)
    np.testing.assert_array_equal(got.inputs_b, full.inputs_b)
    assert (np.abs(got.r_b - full.r_b) < 4 * full.sampling_error_b).all()
    assert got.sampling_error_b.mean() > full.sampling_error_b.mean()


def test_lanes_that_are_alike_widen_the_errors():
    alike, apart = (
        powered_scores(drawn("good", replace(MANY, alike=share), (150, 150))) for share in (0.8, 0)
    )
    assert alike.design_effect > 3 and apart.design_effect < 1.6
    assert (alike.sampling_error_b > 1.3 * apart.sampling_error_b).mean() > 0.8


def test_too_few_common_inputs_are_refused():
    scored = drawn("good")
    n = np.cumsum(~np.isnan(scored.score_ai[0]))
    few = replace(scored, score_ai=np.where(n < FEWEST_SHARED, scored.score_ai, np.nan))
    with pytest.raises(EstimateError, match="people and judge have scored 9 inputs in common"):
        curve_of(few)
    none = replace(scored, judge_i=np.where(np.isnan(scored.score_ai[0]), scored.judge_i, np.nan))
    with pytest.raises(EstimateError, match="have scored no inputs in common"):
        curve_of(none)


def test_people_who_scored_what_the_judge_liked_are_noticed():
    scored = drawn("graded")
    assert powered_scores(scored).selection_p > 0.01
    liked = scored.judge_i > np.median(scored.judge_i)
    chosen = replace(scored, score_ai=np.where(liked, scored.score_ai, np.nan))
    assert powered_scores(chosen).selection_p < 1e-6


def test_a_judge_who_gives_a_bin_one_score_is_no_reason_for_a_warning():
    """The scores' variance is then 0 but for rounding, which weights of many sizes cause."""
    scored = drawn("graded")
    weights = scored.weight_i * np.random.default_rng(3).lognormal(0.0, 1.0, len(scored.weight_i))
    judge_i = np.where(scored.bin_i < 6, 1.0, scored.judge_i)
    found = powered_scores(replace(scored, judge_i=judge_i, weight_i=weights))
    assert found.selection_p > 0.01 and (np.abs(found.lambda_b) < 3).all()


def test_a_judge_who_tells_nothing_costs_nothing():
    """Also if people give scores between 0 and 1, which vary less than right and wrong do."""
    scored = drawn("useless", people=(4, 20))
    for scale in (1.0, 0.4):
        people = replace(scored, score_ai=0.3 * (scale < 1.0) + scale * scored.score_ai)
        with_judge = powered_scores(replace(people, judge_i=np.full(len(scored.judge_i), 0.3)))
        error_b = bin_scores(people).sampling_error_b
        np.testing.assert_allclose(with_judge.sampling_error_b, error_b, rtol=0.05)


JUDGED = ["perfect", "good", "graded", "useless", "biased", "adversarial",
          "adversarial in every second bin", "blind in every third bin"]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("judge", ["perfect", "useless", "biased", "adversarial"])
def test_coverage_in_few_runs(judge):
    """A short form of the next; r and the curve have many values in each run."""
    share, _ = judged_coverage(FALLING, judge, (25, 50), n_runs=15, seed=11)
    assert (share[:3] > 0.88).all() and share[3] > 0.8, dict(zip(QUANTITIES, share, strict=True))


@pytest.mark.slow
@pytest.mark.release
@pytest.mark.parametrize("judge", JUDGED)
def test_coverage_of_the_95_percent_intervals(judge):
    """92 to 98 %, and 1.5 % for the 200 runs' error."""
    share, _ = judged_coverage(FALLING, judge, (25, 50), n_runs=200, seed=12)
    names = dict(zip(QUANTITIES, share, strict=True))
    assert (share > 0.905).all() and (share < 0.995).all(), names


@pytest.mark.slow
def test_a_judge_without_correction_misses_the_truth():
    for judge in ("biased", "adversarial"):
        share, _ = judged_coverage(FALLING, judge, (25, 50), 6, uncorrected, seed=13)
        assert (share < 0.4).all(), (judge, share)


@pytest.mark.slow
def test_with_lambda_1_an_adversary_widens_the_intervals(monkeypatch):
    """They hold the truth nevertheless: only the width depends on lambda."""
    _, alone = judged_coverage(FALLING, "adversarial", (25, 50), 10, without_judge, seed=14)
    _, tuned = judged_coverage(FALLING, "adversarial", (25, 50), 10, seed=14)
    monkeypatch.setattr(prediction_powered, "_lambdas", lambda both, *_: np.ones(len(both.bin_i)))
    share, fixed = judged_coverage(FALLING, "adversarial", (25, 50), 10, seed=14)
    assert (fixed > 1.2 * alone).all() and (tuned < 0.85 * alone).all()
    assert (share > 0.88).all()


@pytest.mark.slow
def test_with_a_good_judge_half_the_labels_give_the_same_width():
    n_runs, gains = 8, []
    _, judged = judged_coverage(MANY, "good", (40, 40), n_runs, seed=15)
    _, twice = judged_coverage(MANY, "good", (80, 80), n_runs, without_judge, seed=15)
    assert (judged < twice).all(), (judged, twice)
    for seed in range(3):
        result = curve_of(drawn("good", MANY, (40, 40), seed))
        gains.append(aupr_gain(result, result.scores))
    assert min(gains) > 2.0  # what is printed
    useless = curve_of(drawn("useless", MANY, (40, 40)))
    assert aupr_gain(useless, useless.scores) == pytest.approx(1.0, abs=0.1)


def test_further_scores_go_where_the_judge_is_bad():
    useless, perfect = (drawn(judge, MANY, (40, 40)) for judge in ("useless", "perfect"))
    good = useless.bin_i % 2 == 1
    mixed = replace(useless, judge_i=np.where(good, perfect.judge_i, useless.judge_i))
    found, alone = (allocate([curve_of(one)], 200)[0] for one in (mixed, without_judge(useless)))
    np.testing.assert_array_equal(found.bin_b, np.arange(12))
    assert found.next_b[1::2].sum() < 0.4 * alone.next_b[1::2].sum()
    assert found.error_now < 0.9 * alone.error_now
