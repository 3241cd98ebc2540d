"""The multi-histogram equations against exact models, brute force and fixed-point iteration."""

import numpy as np
import pytest
from lattice import Lattice, canonical_log_weights
from scipy.optimize import minimize
from scipy.special import logsumexp

from omniinput_hpc.estimators import EstimateError
from omniinput_hpc.estimators.density import newton
from omniinput_hpc.estimators.density.wham import (
    mean_outputs,
    require_connected,
    solve,
)


def canonical_p_kb(log_g_b, log_w_kb):
    log_p = log_g_b + log_w_kb
    return np.exp(log_p - logsumexp(log_p, axis=1, keepdims=True))


@pytest.fixture
def small():
    """Return a random small case: 4 rungs, 30 bins, multinomial counts."""
    rng = np.random.default_rng(5)
    z_b = np.linspace(0.0, 3.0, 30)
    log_g_b = 8.0 * np.sin(z_b)
    log_w_kb = canonical_log_weights(np.array([-2.0, 0.0, 3.0, 7.0]), z_b)
    p_kb = canonical_p_kb(log_g_b, log_w_kb)
    sizes = [400, 100, 900, 5000]
    counts_kb = np.stack([rng.multinomial(n, p) for n, p in zip(sizes, p_kb, strict=True)])
    return counts_kb, log_w_kb, log_g_b


def assert_is_truth(log_g_b, exact_b, tolerance=1e-9):
    seen = np.isfinite(log_g_b)
    assert np.ptp(log_g_b[seen] - exact_b[seen]) < tolerance


def expected_case():
    """Return counts that equal their expectation, on levels spread over hundreds of nats."""
    model = Lattice(n_sites=60, unit=1.0)
    with np.errstate(divide="ignore"):
        exact_b = np.log(model.count_l())
    log_w_kb = canonical_log_weights(np.linspace(-6.0, 6.0, 48), model.z_l())
    size_k = np.geomspace(1e3, 1e7, 48)
    return size_k[:, None] * canonical_p_kb(exact_b, log_w_kb), log_w_kb, exact_b


def test_expected_counts_give_back_the_exact_density_over_hundreds_of_nats():
    counts_kb, log_w_kb, exact_b = expected_case()
    solution = solve(counts_kb, log_w_kb)
    assert np.ptp(exact_b[np.isfinite(exact_b)]) > 75
    assert np.ptp(log_w_kb) > 1000
    assert_is_truth(solution.log_g_b, exact_b)
    exact_f_k = -logsumexp(exact_b + log_w_kb, axis=1)
    np.testing.assert_allclose(solution.f_k, exact_f_k - exact_f_k[0], atol=1e-9)


@pytest.mark.parametrize("shift", [1e6, -3e5])
def test_outputs_of_any_scale(small, shift):
    """f of a rung is then of the size of beta z, and rounding of that hides no step."""
    counts_kb = small[0]
    beta_k, z_b = np.array([-2.0, 0.0, 3.0, 7.0]), np.linspace(0.0, 3.0, 30)
    known_k = np.where(beta_k == 0.0, -5.0, np.nan)
    near, far = (
        solve(counts_kb, canonical_log_weights(beta_k, z), known_f_k=known_k)
        for z in (z_b, z_b + shift)
    )
    np.testing.assert_allclose(far.log_g_b, near.log_g_b, atol=1e-6)
    np.testing.assert_allclose(far.f_k - shift * beta_k, near.f_k, atol=1e-6)


def test_dropping_one_rungs_free_energy_is_noticed():
    counts_kb, log_w_kb, exact_b = expected_case()
    f_k = solve(counts_kb, log_w_kb).f_k.copy()
    f_k[24] = 0.0
    log_n_k = np.log(counts_kb.sum(axis=1))
    with np.errstate(divide="ignore"):
        log_h_b = np.log(counts_kb.sum(axis=0))
    wrong = log_h_b - logsumexp((log_n_k + f_k)[:, None] + log_w_kb, axis=0)
    with pytest.raises(AssertionError):
        assert_is_truth(wrong, exact_b, tolerance=0.1)


def test_agrees_with_a_fixed_point_iteration(small):
    counts_kb, log_w_kb, _ = small
    seen = counts_kb.any(axis=0)
    log_h_b = np.log(counts_kb.sum(axis=0)[seen])
    log_n_k = np.log(counts_kb.sum(axis=1))
    w_kb = log_w_kb[:, seen]
    f_k = np.zeros(len(counts_kb))
    for _ in range(20_000):
        log_g_b = log_h_b - logsumexp((log_n_k + f_k)[:, None] + w_kb, axis=0)
        new_k = -logsumexp(log_g_b + w_kb, axis=1)
        new_k -= new_k[0]
        done = np.abs(new_k - f_k).max() < 1e-14
        f_k = new_k
        if done:
            break
    solution = solve(counts_kb, log_w_kb)
    np.testing.assert_allclose(solution.f_k, f_k, atol=1e-9)
    np.testing.assert_allclose(solution.log_g_b[seen], log_g_b, atol=1e-9)
    assert np.isneginf(solution.log_g_b[~seen]).all()


@pytest.mark.slow
def test_agrees_with_a_brute_force_maximum_of_the_likelihood(small):
    counts_kb, log_w_kb, _ = small
    seen = counts_kb.any(axis=0)

    def minus_log_likelihood(log_g_b):
        log_p_kb = log_g_b + log_w_kb[:, seen]
        log_p_kb = log_p_kb - logsumexp(log_p_kb, axis=1, keepdims=True)
        return -(counts_kb[:, seen] * log_p_kb).sum() / counts_kb.sum()

    best = minimize(minus_log_likelihood, np.zeros(seen.sum()), options={"gtol": 1e-7})
    found = solve(counts_kb, log_w_kb).log_g_b[seen]
    assert minus_log_likelihood(found) <= best.fun + 1e-12
    well = counts_kb.sum(axis=0)[seen] > 20  # elsewhere the likelihood is flat for the optimizer
    difference = (best.x - found)[well]
    assert np.ptp(difference) < 1e-2


def test_a_whole_weight_is_that_many_counts(small):
    counts_kb, log_w_kb, _ = small
    weight_k = np.array([3.0, 1.0, 2.0, 1.0])
    weighted = solve(counts_kb, log_w_kb, weight_k=weight_k)
    repeated = solve(counts_kb * weight_k[:, None].astype(int), log_w_kb)
    plain = solve(counts_kb, log_w_kb)
    np.testing.assert_allclose(weighted.f_k, repeated.f_k, atol=1e-9)
    assert np.abs(weighted.f_k - plain.f_k).max() > 1e-4
    same = solve(counts_kb, log_w_kb, weight_k=np.full(4, 0.25))
    np.testing.assert_allclose(same.f_k, plain.f_k, atol=1e-9)


def test_a_rung_without_counts_is_predicted_by_the_others(small):
    counts_kb, log_w_kb, _ = small
    counts_kb = counts_kb.copy()
    counts_kb[0] = 0
    solution = solve(counts_kb, log_w_kb)
    expected = -logsumexp(solution.log_g_b + log_w_kb[0])
    assert solution.f_k[0] == pytest.approx(expected, abs=1e-12)
    assert solution.f_k[1] == 0.0


def test_ensembles_other_than_canonical_and_weights_of_zero():
    """Flat windows with walls: log-weight 0 inside, -inf outside."""
    rng = np.random.default_rng(3)
    g_b = rng.uniform(1.0, 50.0, 40)
    inside_kb = np.zeros((4, 40), dtype=bool)
    for k in range(4):
        inside_kb[k, 8 * k : 8 * k + 16] = True
    log_w_kb = np.where(inside_kb, 0.0, -np.inf)
    expected = np.where(inside_kb, g_b, 0.0)
    expected *= np.array([1e3, 1e4, 1e5, 1e2])[:, None] / expected.sum(axis=1, keepdims=True)
    assert_is_truth(solve(expected, log_w_kb).log_g_b, np.log(g_b))
    expected[3, 0] = 1.0
    with pytest.raises(EstimateError, match="weight is zero"):
        solve(expected, log_w_kb)


def test_a_gap_is_named(small):
    counts_kb = np.zeros((4, 10), dtype=int)
    counts_kb[0, :3] = counts_kb[1, 2:5] = counts_kb[2, 6:8] = counts_kb[3, 7:] = 5
    labels = ["beta = 0", "beta = 4", "beta = 8", "beta = 16"]
    with pytest.raises(EstimateError, match="between beta = 4 and beta = 8") as caught:
        solve(counts_kb, canonical_log_weights(np.arange(4.0), np.arange(10.0)), label_k=labels)
    assert "beta = 16" not in str(caught.value)
    counts_kb[1, 6] = 1
    require_connected(counts_kb, labels)


def test_no_convergence_is_an_error(small, monkeypatch):
    monkeypatch.setattr(newton, "MAX_ITERATIONS", 1)
    counts_kb, log_w_kb, _ = small
    with pytest.raises(EstimateError, match="did not converge"):
        solve(counts_kb, log_w_kb)
    with pytest.raises(EstimateError, match="no counts"):
        solve(np.zeros((2, 3), int), np.zeros((2, 3)))


@pytest.mark.parametrize("start", [1e-6, 3.0, 200.0, -1500.0])
def test_any_start_reaches_the_same_solution(small, start):
    """Also from where the Newton matrix is singular to rounding."""
    counts_kb, log_w_kb, _ = small
    f_k = start * np.array([1.0, -1.0, 2.0, 0.0])
    found = solve(counts_kb, log_w_kb, f_k=f_k)
    np.testing.assert_allclose(found.f_k, solve(counts_kb, log_w_kb).f_k, atol=1e-9)


def test_many_rungs_and_bins_take_few_steps():
    rng = np.random.default_rng(0)
    z_b = np.linspace(0.0, 12.0, 5000)
    log_g_b = 300.0 * np.sin(z_b / 12.0 * np.pi) ** 0.7
    slopes = np.gradient(log_g_b, z_b)
    log_w_kb = canonical_log_weights(np.linspace(slopes[4500], slopes[400], 64), z_b)
    p_kb = canonical_p_kb(log_g_b, log_w_kb)
    counts_kb = np.stack([rng.multinomial(10**6, p) for p in p_kb])
    solution = solve(counts_kb, log_w_kb)
    assert solution.iterations <= 10
    well = counts_kb.sum(axis=0) > 1000
    assert np.abs(np.diff((solution.log_g_b - log_g_b)[well])).max() < 0.3  # two bins: 6 sigmas


def test_hardly_overlapping_rungs_converge():
    """One shared count in 10^9: rounding alone decides how far the last step can be."""
    counts_kb = np.array([[10**9, 1, 0], [0, 1, 10**9]])
    log_w_kb = canonical_log_weights(np.array([0.0, 20.0]), np.array([2.0, 1.0, 0.0]))
    f_k = solve(counts_kb, log_w_kb).f_k
    assert f_k[1] == pytest.approx(20.0, abs=1e-3)


def test_mean_outputs_stay_inside_their_bins():
    counts_kb = np.array([[2, 0, 1], [1, 0, 0]])
    z_sum_kb = np.array([[0.3, 0.0, 3.0000001], [0.15, 0.0, 0.0]])
    z_b = mean_outputs(counts_kb, z_sum_kb, np.array([0.0, 1.0, 2.0, 3.0]))
    np.testing.assert_allclose(z_b[:2], [0.15, np.nan])
    assert z_b[2] == 3.0


@pytest.mark.parametrize("seed", range(20))
def test_both_equations_hold_to_ten_digits(seed):
    rng = np.random.default_rng(seed)
    counts_kb = rng.poisson(rng.gamma(0.3, 30.0, (5, 25)))
    counts_kb[:, 12] += 1  # joined
    log_w_kb = rng.normal(0.0, 3.0, (5, 25))
    solution = solve(counts_kb, log_w_kb)
    log_n_k = np.log(counts_kb.sum(axis=1))
    mixture_b = logsumexp((log_n_k + solution.f_k)[:, None] + log_w_kb, axis=0)
    with np.errstate(divide="ignore"):
        log_g_b = np.log(counts_kb.sum(axis=0)) - mixture_b
    np.testing.assert_allclose(solution.log_g_b, log_g_b, atol=1e-10)
    np.testing.assert_allclose(solution.f_k, -logsumexp(log_g_b + log_w_kb, axis=1), atol=1e-10)


def test_known_free_energies_stay_and_set_the_scale(small):
    """One known f only moves the constant; with two, expected counts still give the truth."""
    counts_kb, log_w_kb, log_g_b = small
    plain = solve(counts_kb, log_w_kb)
    known_f_k = np.array([np.nan, np.nan, -7.0, np.nan])
    one = solve(counts_kb, log_w_kb, known_f_k=known_f_k)
    assert one.f_k[2] == -7.0
    np.testing.assert_allclose(one.f_k, plain.f_k - plain.f_k[2] - 7.0, atol=1e-9)

    p_kb = canonical_p_kb(log_g_b, log_w_kb)
    expected_kb = p_kb * np.array([400.0, 100.0, 900.0, 5000.0])[:, None]
    exact_f_k = -logsumexp(log_g_b + log_w_kb, axis=1)
    known_f_k = np.where([True, False, True, False], exact_f_k, np.nan)
    two = solve(expected_kb, log_w_kb, known_f_k=known_f_k)
    np.testing.assert_allclose(two.log_g_b, log_g_b, atol=1e-9)
    every = solve(expected_kb, log_w_kb, known_f_k=exact_f_k)
    np.testing.assert_allclose(every.log_g_b, log_g_b, atol=1e-9)
    assert every.iterations == 0
    known_f_k[0] += 1.0
    wrong = solve(expected_kb, log_w_kb, known_f_k=known_f_k)
    assert np.abs(wrong.log_g_b - log_g_b).max() > 0.1


def test_the_equations_with_two_known_free_energies_hold(small):
    counts_kb, log_w_kb, log_g_b = small
    exact_f_k = -logsumexp(log_g_b + log_w_kb, axis=1)
    known_f_k = np.where([True, False, True, False], exact_f_k, np.nan)
    found = solve(counts_kb, log_w_kb, known_f_k=known_f_k)
    n_k = counts_kb.sum(axis=1)
    mixture_b = logsumexp((np.log(n_k) + found.f_k)[:, None] + log_w_kb, axis=0)
    seen = counts_kb.any(axis=0)
    log_g = np.log(counts_kb.sum(axis=0)[seen]) - mixture_b[seen]
    np.testing.assert_allclose(found.log_g_b[seen], log_g, atol=1e-10)
    sums_k = -logsumexp(log_g + log_w_kb[:, seen], axis=1)
    np.testing.assert_allclose(found.f_k[[1, 3]], sums_k[[1, 3]], atol=1e-9)
    np.testing.assert_array_equal(found.f_k[[0, 2]], exact_f_k[[0, 2]])
    assert np.abs(found.f_k - sums_k)[[0, 2]].max() > 1e-4  # known better than the counts say


def test_rungs_of_known_normalizer_need_no_shared_bin():
    counts_kb = np.zeros((2, 4), dtype=int)
    counts_kb[0, :2] = counts_kb[1, 2:] = 5
    log_w_kb = np.where(counts_kb > 0, 0.0, -np.inf)
    with pytest.raises(EstimateError, match="share no bin"):
        solve(counts_kb, log_w_kb, known_f_k=np.array([0.0, np.nan]))
    found = solve(counts_kb, log_w_kb, known_f_k=np.array([0.0, -2.0]))
    np.testing.assert_allclose(found.log_g_b, np.log(0.5) + np.array([0, 0, 2, 2]), atol=1e-12)
