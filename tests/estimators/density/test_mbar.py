"""MBAR on recorded samples: against pymbar on the same samples, exact values, and the bins."""

import numpy as np
import pytest
from lattice import ArrayRun, Lattice, ancestral_run, independent_run
from scipy.special import logsumexp

from omniinput_hpc.estimators import EstimateError
from omniinput_hpc.estimators.density.density import density_of_run
from omniinput_hpc.estimators.density.mbar import free_energy_errors, mbar, read_samples
from omniinput_hpc.results.density import mbar_line

MODEL = Lattice()
BETA_K = np.array([-3.0, -1.5, 0.0, 1.5, 3.0])
EDGES = np.arange(-0.01, 7.0, 0.41)  # bins that the levels fill unevenly


def exact_f_k(beta_k):
    return -np.log(np.exp(-np.outer(beta_k, MODEL.z_l())) @ MODEL.count_l())


def continuous_run(seed=1, size=400, walkers=8):
    """Return normally distributed outputs: rung k has mean -beta_k, variance 1."""
    rng = np.random.default_rng(seed)
    beta_k = np.array([-2.0, -1.0, 0.5, 1.5])
    z = (rng.standard_normal((4, 4, size)) - beta_k[:, None]).astype(np.float32)
    x = np.zeros((4, 4, size, 2), np.uint8)
    return ArrayRun(x, z, walkers, beta_k, np.linspace(-7, 7, 71), 4)


def pymbar_f_k(run):
    import pymbar as mbar_module  # here: it takes seconds

    z_n = run.z_rks.swapaxes(0, 1).reshape(-1).astype(float)
    n_k = np.full(len(run.beta_k), run.z_rks[:, 0].size)
    solver = ({"method": "adaptive", "options": {"min_sc_iter": 0, "maximum_iterations": 500}},)
    found = mbar_module.MBAR(
        np.outer(run.beta_k, z_n), n_k, relative_tolerance=1e-13, solver_protocol=solver
    )
    return np.asarray(found.f_k)


@pytest.mark.parametrize("make", [continuous_run, lambda: independent_run(MODEL, BETA_K, EDGES)])
def test_free_energies_are_those_of_pymbar(make):
    run = make()
    f_k = mbar(read_samples(run)).f_k
    np.testing.assert_allclose(f_k - f_k[0], pymbar_f_k(run) - pymbar_f_k(run)[0], atol=1e-6)


def test_a_rungs_sample_too_many_is_not_pymbar():
    run = continuous_run()
    samples = read_samples(run)
    samples.n_gk[:, 1] += 5
    f_k = mbar(samples).f_k
    assert np.abs(f_k - f_k[0] - pymbar_f_k(run) + pymbar_f_k(run)[0]).max() > 1e-4


def test_bins_agree_within_their_errors():
    """Each difference from bins within a sigma (the same samples), from the truth within 4."""
    run = independent_run(MODEL, BETA_K, EDGES, walkers=16, moves=40, seed=2)
    samples, density = read_samples(run), density_of_run(run)
    solution = mbar(samples)
    error_k = free_energy_errors(samples, solution)
    assert error_k[0] == 0.0 and (error_k[1:] > 0).all() and error_k.max() < 0.2
    binned, unbinned = density.f_k - density.f_k[0], solution.f_k - solution.f_k[0]
    assert (np.abs(binned - unbinned)[1:] < error_k[1:]).all()
    exact = exact_f_k(BETA_K)
    assert (np.abs(unbinned - exact + exact[0])[1:] < 4 * error_k[1:]).all()
    assert solution.absolute and solution.f_k[2] == pytest.approx(exact[2])


def average(samples, solution, function, log_weight):
    """Return the mean of function(z) over inputs weighted by exp(log_weight(z))."""
    count_u = samples.count_gu.sum(axis=0)
    used = np.isfinite(solution.log_weight_u) & (count_u > 0)
    z = samples.z_u[used]
    log_p = np.log(count_u[used]) + solution.log_weight_u[used] + log_weight(z)
    return float(np.sum(np.exp(log_p - logsumexp(log_p)) * function(z)))


def test_averages_at_any_beta():
    """Mean z at betas between the rungs, within 4 sigmas of independent draws' error."""
    run = independent_run(MODEL, BETA_K, EDGES, walkers=16, moves=40, seed=3)
    samples = read_samples(run)
    solution = mbar(samples)
    for beta in (-2.0, 0.7, 2.2):
        p_l = MODEL.count_l() * np.exp(-beta * MODEL.z_l())
        mean = np.average(MODEL.z_l(), weights=p_l)
        sigma = np.sqrt(np.average((MODEL.z_l() - mean) ** 2, weights=p_l) / (16 * 40 * 16))
        found = average(samples, solution, lambda z: z, lambda z, b=beta: -b * z)
        assert abs(found - mean) < 4 * sigma
    total = np.sum(samples.count_gu.sum(axis=0) * np.exp(solution.log_weight_u))
    assert total == pytest.approx(MODEL.n_values**MODEL.n_sites)


def test_long_runs_are_thinned_by_whole_rounds():
    run = independent_run(MODEL, BETA_K, EDGES, walkers=16, rounds=32, seed=4)
    per_round = 5 * run.samples_per_round
    samples = read_samples(run, max_samples=8 * per_round)
    assert samples.count_gu.sum() == 8 * per_round == samples.n_gk.sum()
    whole = read_samples(run)
    assert whole.count_gu.sum() == 32 * per_round
    assert np.abs(mbar(samples).f_k - mbar(whole).f_k).max() < 0.2


def test_plain_errors():
    run = independent_run(MODEL, BETA_K, EDGES, rounds=2)
    run.rounds = 0
    with pytest.raises(EstimateError, match="no committed round"):
        read_samples(run)
    with pytest.raises(EstimateError, match="ancestral"):
        read_samples(ancestral_run(MODEL, np.zeros((1, 8)), EDGES, rounds=2))


def test_free_energies_of_the_bins_are_compared_over_all_outputs():
    """A quarter of the coldest rung's outputs lie below the bins; the two agree nevertheless."""
    levels = np.arange(len(MODEL.z_l()) + 1) - 0.5
    run = independent_run(
        MODEL, [0.0, 1.0, 2.0, 3.0], levels[4:] * MODEL.unit, rounds=32, walkers=16
    )
    density = density_of_run(run)
    assert run.outside_k2[-1].sum() > 0.2 * run.moves_k[-1]
    sigmas = float(mbar_line(run, density.f_k).rsplit(" nats, ")[1].split()[0])
    assert sigmas < 2.0
    shifted = float(mbar_line(run, density.f_k + 0.1 * run.beta_k).rsplit(" nats, ")[1].split()[0])
    assert shifted > 10.0
