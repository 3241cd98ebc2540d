"""Populations: constants and densities of annealed runs are exact, and so are their errors.

Populations are the units: a variant that takes draws for independent ones must fail.
"""

import numpy as np
import pytest
from lattice import LEVEL_EDGES, MODEL, independent_run
from populations import BETA_K, annealed_run

from omniinput_hpc.estimators import EstimateError, populations
from omniinput_hpc.estimators.density.certified import certify
from omniinput_hpc.estimators.density.density import density_of_run
from omniinput_hpc.estimators.density.mbar import read_samples
from omniinput_hpc.estimators.errors.jackknife import t_quantile
from omniinput_hpc.results.density import populations_lines

with np.errstate(divide="ignore"):
    EXACT_B = np.log(MODEL.bin_sums(LEVEL_EDGES, MODEL.count_l()))


def test_constants_are_means_over_populations():
    """Z within 3 standard errors, these right within a fifth, over 100 runs."""
    found = [annealed_run(seed, rounds=8) for seed in range(100)]
    log_z_k = found[0][1]
    constants = [populations.constants_of(run) for run, _ in found]
    ratio_rk = np.exp([c.log_z_k - log_z_k for c in constants])
    error_rk = np.array([c.error_k for c in constants])
    spread_k = ratio_rk.std(axis=0, ddof=1)
    assert constants[0].log_z_nk.shape == (8 * 2 * 16, len(BETA_K))
    np.testing.assert_allclose(ratio_rk[:, 0], 1.0, atol=1e-6)
    score_k = (ratio_rk.mean(axis=0) - 1.0)[1:] / (spread_k[1:] / 10)
    assert np.abs(score_k).max() < 3.0
    np.testing.assert_allclose(error_rk.mean(axis=0)[1:], spread_k[1:], rtol=0.2)


def test_what_populations_are_worth():
    run, _ = annealed_run(rounds=64, spread_k=np.array([0.0, 0.4, 0.6, 1.5]))
    found = populations.constants_of(run)
    n = len(found.log_z_nk)
    assert found.worth_k[0] == pytest.approx(n, rel=1e-6)
    np.testing.assert_allclose(found.worth_k[1:3], n * np.exp([-0.16, -0.36]), rtol=0.1)
    assert (np.diff(found.worth_k) < 0).all()
    lines = populations_lines(run)
    assert len(lines) == 4 and lines[0].startswith("beta = 0: ln Z = ")
    assert f"{n:,} populations" in lines[0]


def scores(seeds, **options):
    """Return deviations in errors over bins of 50 effective counts, and coverage of intervals."""
    found = []
    for seed in seeds:
        density = density_of_run(annealed_run(seed, **options)[0])
        assert density.absolute and density.ancestral
        use = (density.effective_b >= 50) & np.isfinite(EXACT_B)
        found.append((density.log_g_b[use] - EXACT_B[use]) / density.log_g_error_b[use])
    every = np.concatenate(found)
    return np.sqrt(np.mean(every**2)), np.mean(np.abs(every) < t_quantile(16)), len(every)


def test_errors_of_the_density_are_right():
    rms, covered, n = scores(range(12))
    assert n > 150
    assert 0.8 < rms < 1.25
    assert 0.92 < covered < 0.99


def test_populations_that_share_what_they_know_fail():
    """The wrong variant: walkers are drawn anew across all lanes, whose errors are then alike."""
    rms, covered, _ = scores(range(12), shared=True)
    assert rms > 1.4 and covered < 0.85


def test_other_runs_have_no_populations():
    run = independent_run(MODEL, BETA_K, LEVEL_EDGES, rounds=2)
    assert populations_lines(run) == [] and not populations.is_annealed(run)
    assert populations.log_q_of(run) is None
    with pytest.raises(EstimateError, match="no populations"):
        run.config = annealed_run(rounds=2)[0].config
        populations.constants_of(run)


def test_weights_of_rungs_add_up_to_one_in_every_bin():
    """1 / (sum over rungs of q_ij / K) is K a_k / q_i: averaged over the rungs, weights of 1."""
    run, _ = annealed_run(rounds=2)
    (log_q_ksj, *_), (own_ks1, *_) = populations.log_q_of(run), run.samples_log_q()
    for k in range(len(BETA_K)):
        np.testing.assert_allclose(log_q_ksj[k, :, k], own_ks1[k, :, 0])
    share = np.exp(log_q_ksj - np.logaddexp.reduce(log_q_ksj, axis=2, keepdims=True))
    z = run.z_rks[0].astype(float)
    same = np.flatnonzero(np.isclose(z[1], z[2][0]))[:1]
    np.testing.assert_allclose(share[1, same[0]], share[2, 0], atol=1e-9)


def test_a_rung_of_few_populations_is_not_believed():
    run, _ = annealed_run(spread_k=np.array([0.0, 0.1, 3.0, 4.0]))
    floor, why = populations.floor_of(run)
    assert np.isfinite(floor) and "at beta = 4 the weights of 512 populations" in why
    density = density_of_run(run)
    assert not density.verdict.converged and density.floor == floor
    assert why in density.verdict.reasons
    below = (density.edges[:-1] < floor) & np.isfinite(density.log_g_b)
    assert np.isinf(density.log_g_error_b[below]).all() and below.any()
    assert populations.floor_of(annealed_run()[0]) == (-np.inf, "")


def test_a_right_run_has_converged():
    density = density_of_run(annealed_run(rounds=64)[0])
    assert density.verdict.converged, density.verdict.reasons


def test_draws_that_depend_on_each_other_have_no_certificate_and_no_mbar():
    run, _ = annealed_run(rounds=2)
    with pytest.raises(EstimateError, match="only independent draws can be certified"):
        certify(run, 8)
    with pytest.raises(EstimateError, match="annealed run"):
        read_samples(run)
