"""Agreement between annotators: alpha by hand and against the krippendorff package, its interval.

Judges and people: biases come back, errors cover, nobody is compared with themselves.
"""

import krippendorff
import numpy as np
import pytest

from omniinput_hpc.estimators import EstimateError
from omniinput_hpc.estimators.precision_recall.agreement import (
    compare_pair,
    compare_with_people,
    krippendorff_alpha,
)
from omniinput_hpc.estimators.precision_recall.from_scores import Scored
from omniinput_hpc.results.fid import fid_line
from omniinput_hpc.results.scores import people_columns, people_lines

NAN = np.nan
EDGES = np.array([0.0, 1.0, 2.0, 3.0])


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
    assert got.n_items == 3


def test_alpha_where_it_is_not_defined():
    for score_ai in ([[0.5, 0.5], [0.5, 0.5]], [[0.1, NAN], [NAN, 0.3]], [[0.1, 0.2]]):
        got = krippendorff_alpha(np.array(score_ai))
        assert np.isnan([got.alpha, got.low, got.high]).all()


@pytest.mark.slow
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


def scored(score_ai, seed=0):
    rng = np.random.default_rng(seed)
    n = score_ai.shape[1]
    return Scored(
        edges=EDGES,
        bin_i=np.arange(n) % 2,  # the third bin is empty
        lane_i=rng.integers(8, size=n),
        weight_i=rng.integers(1, 4, size=n).astype(float),
        score_ai=score_ai,
        annotators=["ana", "ben", "cai", "judge"][: len(score_ai)],
    )


def people(n, rng, noise=0.1):
    truth = rng.random(n)
    return np.clip(truth + noise * rng.normal(size=(3, n)), 0, 1)


def test_a_shift_and_a_reversal_come_back():
    given = people(80, np.random.default_rng(1))
    for judge, bias, rank in (
        (given.mean(axis=0) + 0.05, 0.05, 1),
        (1 - given.mean(axis=0), None, -1),
    ):
        data = scored(np.vstack([given, judge]))
        found = compare_with_people(data, [None] * 3 + ["rule x"])
        one = found[3]
        assert (one.name, one.judge, one.all_bins.n) == ("judge", "rule x", 80)
        assert abs(one.all_bins.rank_correlation - rank) < 1e-9
        if bias:
            np.testing.assert_allclose(one.bias_b[:2], bias, atol=1e-12)
            np.testing.assert_allclose(one.bias_error_b[:2], 0.0, atol=1e-12)
            assert one.all_bins.alpha.alpha > 0.9
        else:
            assert one.all_bins.alpha.alpha < 0
        assert np.isnan(one.bias_b[2]) and one.pair_b[2].n == 0
        columns = people_columns(data, [None] * 3 + ["rule x"], found)
        assert columns["inputs"].tolist() == [40, 40]
        w, b = data.weight_i, data.bin_i
        for i in range(2):
            mean = np.average(given.mean(axis=0)[b == i], weights=w[b == i])
            assert abs(columns["r_people"][i] - mean) < 1e-12
        assert any("judge (judge: rule x) against people" in line for line in
                   people_lines(data, [None] * 3 + ["rule x"], found))  # fmt: skip


@pytest.mark.slow
def test_a_person_is_compared_with_the_others_only():
    given = np.random.default_rng(2).random((3, 2000))  # people of no agreement at all
    found = compare_with_people(scored(given), [None] * 3)
    assert all(abs(one.all_bins.rank_correlation) < 4 / np.sqrt(2000) for one in found)
    with_self = np.corrcoef(given[0], given.mean(axis=0))[0, 1]  # the wrong way
    assert with_self > 0.5


@pytest.mark.slow
def test_errors_of_the_bias_cover():
    rng, inside = np.random.default_rng(3), 0
    for trial in range(60):
        given = people(60, rng)
        judge = given.mean(axis=0) + rng.normal(0.03, 0.2, size=60)
        one = compare_with_people(scored(np.vstack([given, judge]), trial), [None] * 3 + ["j"])[3]
        inside += int((np.abs(one.bias_b[:2] - 0.03) < 2.05 * one.bias_error_b[:2]).sum())
    assert abs(inside / 120 - 0.95) < 4 * np.sqrt(0.95 * 0.05 / 120)


def test_inputs_that_only_one_side_scored_do_not_count():
    given = people(40, np.random.default_rng(4))
    given[:, :10] = np.nan
    judge = np.where(np.arange(40) < 30, 0.5, np.nan)
    data = scored(np.vstack([given, judge]))
    assert compare_with_people(data, [None] * 3 + ["j"])[3].all_bins.n == 20


@pytest.mark.parametrize(
    ("n", "judges", "words"),
    [
        (1, ["j"], "scores of only one judge"),
        (1, [None], "scores of only one person"),
        (2, [None, "j"], "scored by two annotators"),
        (2, ["j", "j"], "scored by two annotators"),
    ],
)
def test_what_cannot_be_compared(n, judges, words):
    score_ai = np.full((n, 10), np.nan)
    score_ai[0, :5] = 0.5
    score_ai[-1, 5 if n > 1 else 0 :] = 0.5
    with pytest.raises(EstimateError, match=words):
        compare_with_people(scored(score_ai), judges)


def test_judges_alone_are_compared_with_each_other():
    given = people(80, np.random.default_rng(1))
    judges = ["rule x", "rule y", "rule z"]
    data = scored(given)
    found = compare_with_people(data, judges)
    for a, one in enumerate(found):
        others = np.delete(given, a, axis=0).mean(axis=0)
        assert abs(one.all_bins.bias - (given[a] - others).mean()) < 1e-12
    columns = people_columns(data, judges, found)
    w, b = data.weight_i, data.bin_i
    mean = np.average(given.mean(axis=0)[b == 0], weights=w[b == 0])
    assert abs(columns["r_judges"][0] - mean) < 1e-12 and "r_people" not in columns
    lines = people_lines(data, judges, found)
    assert "alpha among 3 judges" in lines[0] and "against the other judges" in lines[1]
    assert "judges' r" in fid_line(np.array([0.9, 0.8, 0.7]), np.array([1.0, 2.0, 3.0]), "judges")


def test_fid_agrees_misleads_or_tells_nothing():
    r = np.array([0.9, 0.88, 0.85, 0.83])  # S0, Table 4: RES-AUG and (Table 5) the MLP's
    four = fid_line(r, np.array([360.23, 362.82, 368.75, 375.58]))
    assert "-1.00, p = 0.083: the data cannot tell" in four  # 2 of the 24 orders
    five = fid_line(np.append(r, 0.8), np.array([360.23, 362.82, 368.75, 375.58, 376.0]))
    assert "-1.00, p = 0.017; they agree here" in five
    mlp = np.array([0.73, 0.67, 0.58, 0.48, 0.18, 0.20, 0.20, 0.216])
    fid = np.array([434.32, 436.60, 432.89, 430.79, 422.01, 419.94, 412.96, 405.20])
    assert "misleads" in fid_line(mlp, fid)
    assert "too few or too alike" in fid_line(np.zeros(4), fid[:4])  # the CNN: r = 0 throughout
    assert "too few or too alike" in fid_line(r[:2], fid[:2])
