"""Normalization: the papers' example, exact ratios within their errors, wrong variants fail."""

from dataclasses import replace
from itertools import pairwise

import model_pair
import numpy as np
import pytest
from lattice import ArrayRun
from pair_runs import ABSOLUTE, EDGES, RELATIVE, both, draw, log_count
from scipy.special import stdtrit
from scipy.stats import binom

from omniinput_hpc.estimators import EstimateError
from omniinput_hpc.estimators.comparison import normalization as n
from omniinput_hpc.estimators.comparison.input_counts import (
    Pairs,
    count_common,
    in_range,
    log_count_in,
    pairs_of,
)
from omniinput_hpc.estimators.density.density import density_of_run
from omniinput_hpc.estimators.errors.jackknife import (
    Replicates,
    estimate,
    from_first_run,
    from_second_run,
)

LOW, HIGH = 2.25, 3.9  # both cut a bin
N_RUNS = 24


def log_ratio(a, b, pairs_a, pairs_b, shift):
    """Return ln of the ratio of the models' numbers of inputs in the range."""
    n_a, n_b = len(a.lanes_g), len(b.lanes_g)
    own_a = from_first_run(*log_count_in(a, pairs_a, LOW, HIGH), n_b)
    own_b = from_second_run(*log_count_in(b, pairs_b, LOW, HIGH), n_a)
    return own_a - own_b - shift


def shifts(a, b, pairs_a, pairs_b):
    found = {
        "cross-model": count_common(a, b, pairs_a, pairs_b, LOW, HIGH).shift,
        "Bennett": n.bennett_shift(a, b, pairs_a, pairs_b),
    }
    if a.absolute and b.absolute:
        found["absolute"] = n.absolute_shift(a, b)
        found["entire"] = n.entire_shift(a, b)
    return found


@pytest.fixture(scope="module", params=["absolute", "relative"])
def many(request):
    """Return the estimates of many small runs of the pair, by normalization."""
    beta_k = ABSOLUTE if request.param == "absolute" else RELATIVE
    found = {}
    for seed in range(N_RUNS):
        a, pairs_a = both("good", draw("good", beta_k, 2 * seed))
        b, pairs_b = both("worse", draw("worse", beta_k, 2 * seed + 1))
        for name, shift in shifts(a, b, pairs_a, pairs_b).items():
            ratio = log_ratio(a, b, pairs_a, pairs_b, shift)
            found.setdefault(name, []).append(estimate(ratio, a.lanes_g, b.lanes_g))
    return found


@pytest.mark.slow
def test_every_normalization_covers_the_exact_ratio(many):
    """95% intervals hold the truth in a share of the runs that binomial chance allows."""
    truth = log_count("good", LOW, HIGH) - log_count("worse", LOW, HIGH)
    assert set(many) >= {"cross-model", "Bennett"}
    least, most = binom.interval(0.999, N_RUNS, 0.95)
    for name, results in many.items():
        held = sum(bool(r.low <= truth <= r.high) for r in results)
        value = np.array([float(r.value) for r in results])
        error = np.array([float(r.error) for r in results])
        assert least <= held <= most, (name, held)
        assert abs(value.mean() - truth) < 4 * value.std() / np.sqrt(N_RUNS) + 0.002, name
        assert 0.8 < np.sqrt((error**2).mean()) / value.std() < 1.25, name


def test_wrong_counts_miss_the_exact_ratio():
    """Samples of a ladder counted as if they were uniform, and repeated ones counted once."""
    truth = log_count("good", LOW, HIGH) - log_count("worse", LOW, HIGH)
    wrong = {"unweighted": [], "distinct": []}
    for seed in range(12):
        counts = {}
        for which, other in (("good", "worse"), ("worse", "good")):
            run = draw(which, ABSOLUTE, 1000 + 2 * seed + (which == "good"))
            number = model_pair.number(run.x_rksd).ravel()
            for name, some in (("unweighted", number), ("distinct", np.unique(number))):
                own = in_range(model_pair.table(which)[some], LOW, HIGH)
                both_in = own & in_range(model_pair.table(other)[some], LOW, HIGH)
                counts[name, which] = np.log(own.sum()) - np.log(both_in.sum())
        for name, values in wrong.items():
            values.append(counts[name, "good"] - counts[name, "worse"])
    for name, values in wrong.items():
        assert abs(np.mean(values) - truth) > 0.1, name


def test_the_papers_example():
    """500 and 200 inputs in Z, 100 in both; samples of 50 with 10 and 25 in both: 5 and 2."""
    z_1, z_2 = np.full(600, 5.0), np.full(600, 5.0)
    z_1[:500], z_2[:100], z_2[500:] = 3.0, 3.0, 3.0
    in_1 = np.concatenate([np.arange(10), np.arange(100, 140)])
    in_2 = np.concatenate([np.arange(25), np.arange(500, 525)])
    densities, pairs = [], []
    for numbers, own, other in ((in_1, z_1, z_2), (in_2, z_2, z_1)):
        order = np.random.default_rng(1).permutation(numbers)
        x = order.astype(np.uint16)[None, None, :, None]
        z = own[order].astype(np.float32)[None, None]
        run = ArrayRun(x, z, 10, [0.0], np.array([2.0, 4.0, 6.0]), 600)
        densities.append(density_of_run(run))
        seen = other[order].astype(np.float32)[None, None]
        pairs.append(pairs_of(densities[-1], z, seen, 10))
    common = count_common(*densities, *pairs, 2.0, 4.0)
    own = [log_count_in(d, p, 2.0, 4.0)[0] for d, p in zip(densities, pairs, strict=True)]
    assert np.exp(own[0] - common.log_count_a.value) == pytest.approx(5)
    assert np.exp(own[1] - common.log_count_b.value) == pytest.approx(2)
    assert (common.samples_a, common.samples_b) == (10, 25)
    assert np.exp(own[0] - own[1] - common.shift.value) == pytest.approx(500 / 200)


def test_repeated_samples_count_again():
    run = draw("good", ABSOLUTE, 5)
    a, pairs = both("good", run)
    b, other = both("worse", draw("worse", ABSOLUTE, 6))
    doubled = Pairs(*(np.concatenate([v, v]) for v in vars(pairs).values()))
    one = count_common(a, b, pairs, other, LOW, HIGH)
    two = count_common(a, b, doubled, other, LOW, HIGH)
    assert two.samples_a == 2 * one.samples_a
    assert two.shift.value == pytest.approx(float(one.shift.value), abs=1e-12)


def test_bennett_of_two_known_laws():
    """Gaussians: ln(Z_A / Z_B) = ln 2; with swapped laws its negative; a wrong sign fails."""
    rng = np.random.default_rng(3)
    x_a, x_b = 2.0 * rng.normal(size=40_000), 1.0 + rng.normal(size=20_000)

    def d(x):
        return -0.5 * (x / 2.0) ** 2 + 0.5 * (x - 1.0) ** 2

    c = n.bennett_ratio(d(x_a), d(x_b))
    assert c == pytest.approx(np.log(2), abs=0.03)
    assert n.bennett_ratio(-d(x_b), -d(x_a)) == pytest.approx(-c, abs=1e-9)
    assert n.bennett_ratio(d(x_a), d(x_b), start=500.0) == pytest.approx(c, abs=1e-9)
    assert abs(n.bennett_ratio(-d(x_a), -d(x_b)) - np.log(2)) > 0.3
    with pytest.raises(EstimateError, match="no sample of one run"):
        n.bennett_ratio(np.full(3, np.inf), d(x_b))


def test_entire_distribution_is_refused_with_the_share():
    whole = density_of_run(draw("good", ABSOLUTE, 1))
    assert n.why_not_entire(whole) is None
    cut = density_of_run(draw("good", ABSOLUTE, 1, edges=EDGES[EDGES <= 5.0]))
    share = (model_pair.table("good") > 5.0).mean()
    words = n.why_not_entire(cut)
    assert words.endswith("of all inputs lie outside the bins")
    assert float(words.split()[0]) == pytest.approx(share, rel=0.15)
    flat = replace(whole, beta_k=np.full(len(whole.beta_k), np.nan))
    assert "flat-histogram rungs do not show" in n.why_not_entire(flat)
    tail = n.why_not_entire(density_of_run(draw("good", RELATIVE, 1)))
    assert "the high tail was not reached (no beta <= 0)" in tail
    with pytest.raises(EstimateError, match=r"the second run does not cover .* high tail"):
        n.entire_shift(whole, density_of_run(draw("worse", RELATIVE, 1)))
    with pytest.raises(EstimateError, match="the second run has no moves at beta = 0"):
        n.absolute_shift(whole, density_of_run(draw("worse", RELATIVE, 1)))


def test_a_range_without_common_inputs_is_refused():
    a, pairs_a = both("good", draw("good", ABSOLUTE, 1))
    b, pairs_b = both("worse", draw("worse", ABSOLUTE, 2))
    with pytest.raises(EstimateError, match="no counts in the range 9 to 10"):
        log_count_in(a, pairs_a, 9.0, 10.0)
    with pytest.raises(EstimateError, match="no sample that both models put in"):
        count_common(a, b, pairs_a, pairs_b, 1.5, 1.6)


def test_errors_of_two_runs_add_and_shared_ones_cancel():
    rng = np.random.default_rng(4)
    a_j, b_j = rng.normal(size=(8, 2)), rng.normal(size=(16, 2))
    size_a, size_b = np.ones(8, int), np.ones(16, int)
    both_runs = from_first_run(a_j.mean(axis=0), a_j, 16) - from_second_run(
        b_j.mean(axis=0), b_j, 8
    )
    together = estimate(both_runs, size_a, size_b)
    one = estimate(from_first_run(a_j.mean(axis=0), a_j, 16), size_a, size_b)
    two = estimate(from_second_run(b_j.mean(axis=0), b_j, 8), size_a, size_b)
    np.testing.assert_allclose(together.error**2, one.error**2 + two.error**2)
    halves = [(part.high - part.value) / part.error for part in (one, two, together)]
    np.testing.assert_allclose(halves[0], stdtrit(7, 0.975))
    np.testing.assert_allclose(halves[1], stdtrit(15, 0.975))
    assert ((halves[2] < stdtrit(7, 0.975)) & (halves[2] > stdtrit(22, 0.975))).all()
    nothing = estimate(both_runs - both_runs, size_a, size_b)
    assert (nothing.error == 0).all() and not nothing.excludes(0.0).any()
    unknown = estimate(Replicates(np.asarray(1.0), a_j[:, 0], b_j[:, 0] * np.nan), size_a, size_b)
    assert np.isinf(unknown.error) and np.isinf(unknown.high) and not unknown.excludes(0.0)


def test_absolute_densities_are_on_one_scale_by_themselves():
    """The cross-model ratio has the smallest error, but it is not the one to report."""
    a, pairs_a = both("good", draw("good", ABSOLUTE, 1))
    b, pairs_b = both("worse", draw("worse", ABSOLUTE, 2))
    found = n.normalize(a, b, pairs_a, pairs_b, LOW, HIGH)
    assert found.best().name == n.ABSOLUTE
    assert float(found.best().ratio.error) > min(float(row.ratio.error) for row in found.rows)
    errors = n.shifted_errors(a, b, n.absolute_shift(a, b))
    np.testing.assert_allclose(errors, b.log_g_error_b, rtol=1e-12)


def test_errors_on_the_first_scale_are_of_log_g_and_the_shift_together():
    """Nearly all inputs of the relative density lie in one bin, whose own error is too small."""
    some, wide = {"rounds": 4, "moves": 2}, np.array([1.5, 2.0, 3.0, 7.5])
    z = model_pair.table("worse")
    truth = np.log([((z >= low) & (z < high)).sum() for low, high in pairwise(wide)])
    sigmas, own = [], []
    for seed in range(10):
        a, pairs_a = both("good", draw("good", ABSOLUTE, 100 + 2 * seed, **some))
        b, pairs_b = both("worse", draw("worse", RELATIVE, 101 + 2 * seed, **some, edges=wide))
        shift = n.bennett_shift(a, b, pairs_a, pairs_b)
        off_b = b.log_g_b + float(shift.value) - truth
        sigmas.append(off_b / n.shifted_errors(a, b, shift))
        own.append(off_b / b.log_g_error_b)
    right, wrong = (np.sqrt(np.mean(np.square(found), axis=0)) for found in (sigmas, own))
    assert ((right > 0.5) & (right < 1.7)).all()  # 4.5 sigma
    assert wrong[-1] > 3.0
