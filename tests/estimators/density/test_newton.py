"""Newton's method on the multi-histogram equations' dual: its minimum, and what it refuses."""

import numpy as np
import pytest
from scipy.optimize import minimize as scipy_minimize
from scipy.special import logsumexp

from omniinput_hpc.estimators import EstimateError
from omniinput_hpc.estimators.density import newton

RANDOM = np.random.default_rng(8)
N_RUNGS, N_BINS = 4, 25
LOG_W_KB = -np.outer([-1.0, 0.0, 1.0, 2.5], np.linspace(0.0, 4.0, N_BINS))
N_K = np.array([500.0, 40.0, 900.0, 3000.0])
H_B = RANDOM.multinomial(int(N_K.sum()), np.ones(N_BINS) / N_BINS) + 1.0
H_B *= N_K.sum() / H_B.sum()
FIRST_KNOWN = np.array([0.0, np.nan, np.nan, np.nan])
START = np.zeros(N_RUNGS)


def dual(f_k):
    """A(f), as the module's docstring defines it."""
    return H_B @ logsumexp((np.log(N_K) + f_k)[:, None] + LOG_W_KB, axis=0) - N_K @ f_k


def test_the_minimum_is_that_of_a_general_optimizer():
    found = newton.minimize(LOG_W_KB, N_K, H_B, START, FIRST_KNOWN)
    other = scipy_minimize(
        lambda f: dual(np.array([0.0, *f])), np.zeros(3), method="Nelder-Mead",
        options={"xatol": 1e-7, "fatol": 1e-12, "maxiter": 20000, "maxfev": 20000},
    )  # fmt: skip
    assert found.f_k[0] == 0.0 and found.iterations < 30
    np.testing.assert_allclose(found.f_k[1:], other.x, atol=1e-4)
    assert dual(found.f_k) <= other.fun + 1e-9


def test_the_gradient_vanishes_and_the_mixture_is_of_the_same_point():
    found = newton.minimize(LOG_W_KB, N_K, H_B, START, FIRST_KNOWN)
    log_p_kb = (np.log(N_K) + found.f_k)[:, None] + LOG_W_KB
    np.testing.assert_allclose(found.log_mix_b, logsumexp(log_p_kb, axis=0), rtol=1e-12)
    np.testing.assert_allclose(np.exp(log_p_kb - found.log_mix_b) @ H_B, N_K, rtol=1e-8)


@pytest.mark.parametrize("start", [0.0, 300.0])
def test_any_start_and_any_known_rung_give_the_same(start):
    expected = newton.minimize(LOG_W_KB, N_K, H_B, START, FIRST_KNOWN).f_k
    far = START + start * RANDOM.normal(size=N_RUNGS)
    for k in range(N_RUNGS):
        known = np.full(N_RUNGS, np.nan)
        known[k] = expected[k]
        found = newton.minimize(LOG_W_KB, N_K, H_B, far, known)
        np.testing.assert_allclose(found.f_k, expected, atol=1e-8)


def test_known_free_energies_stay():
    found = newton.minimize(LOG_W_KB, N_K, H_B, START, np.array([0.3, np.nan, -0.7, np.nan]))
    assert (found.f_k[0], found.f_k[2]) == (0.3, -0.7)
    all_known = np.array([0.1, 0.2, 0.3, 0.4])
    at_once = newton.minimize(LOG_W_KB, N_K, H_B, START, all_known)
    np.testing.assert_array_equal(at_once.f_k, all_known)
    assert at_once.iterations == 0


def test_a_function_of_chunks_gives_the_same(monkeypatch):
    expected = newton.minimize(LOG_W_KB, N_K, H_B, START, FIRST_KNOWN)
    asked = []

    def log_w(begin, end):
        asked.append((begin, end))
        return LOG_W_KB[:, begin:end].copy()

    more = [np.tile(LOG_W_KB, 40), np.tile(H_B, 40)]
    np.testing.assert_allclose(
        newton.minimize(more[0], 40 * N_K, more[1], START, FIRST_KNOWN).f_k, expected.f_k
    )
    monkeypatch.setattr(newton, "CHUNK", 64)
    found = newton.minimize(log_w, N_K, H_B, START, FIRST_KNOWN)
    np.testing.assert_allclose(found.f_k, expected.f_k)
    assert set(asked) == {(0, N_BINS)}  # 64 cells are always taken together


def test_no_convergence_is_an_error(monkeypatch):
    monkeypatch.setattr(newton, "MAX_ITERATIONS", 1)
    with pytest.raises(EstimateError, match=r"did not converge to 1e-10 in 1 steps"):
        newton.minimize(LOG_W_KB, N_K, H_B, START, FIRST_KNOWN)
