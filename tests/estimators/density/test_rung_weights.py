"""Rungs of other laws than canonical ones, and several runs: one system, the exact density.

z-scores are (estimate - exact) / standard error per bin: each within 4 sigmas, their root mean
square within 0.5 to 1.5 (as in test_density.py).
"""

import dataclasses
from itertools import product

import numpy as np
import pytest
from configs import config_with
from lattice import (
    Lattice,
    ancestral_run,
    canonical,
    first_is_zero,
    independent_run,
    weighted_run,
)

from omniinput_hpc.annotation.drawing import choose, draw_independently
from omniinput_hpc.estimators import EstimateError
from omniinput_hpc.estimators.comparison.to_exact import Exact, compare_density
from omniinput_hpc.estimators.density.density import density_of_run, density_of_runs
from omniinput_hpc.estimators.precision_recall.from_rule import rule_curve, sum_scores

MODEL = Lattice()
EDGES = (np.arange(len(MODEL.z_l()) + 1) - 0.5) * MODEL.unit  # one level per bin
with np.errstate(divide="ignore"):
    EXACT = np.log(MODEL.bin_sums(EDGES, MODEL.count_l()))
HOT, COLD = np.array([-3.0, -1.5]), np.array([1.5, 3.0, 5.0])
CENTRE = np.linspace(0.8, 1.2, MODEL.n_sites)


def score(result, edges=EDGES, relative=False):
    """Return z-scores of bins with a count of 50 or more, and the deviations."""
    exact = EXACT[np.searchsorted(EDGES, edges[:-1])]
    good = np.isfinite(result.log_g_error_b) & (result.effective_b >= 50)
    delta_b = result.log_g_b[good] - exact[good]
    if relative:
        delta_b = delta_b + result.log_measure
    return delta_b / result.log_g_error_b[good], delta_b


def assert_exact(result, **options):
    z_score, _ = score(result, **options)
    assert len(z_score) > 8
    assert np.abs(z_score).max() < 4.0
    assert 0.4 < np.sqrt((z_score**2).mean()) < 1.6


def flat_run(seed=1, walkers=16, **options):
    """Return three flat rungs of overlapping windows, whose weights are near 1 / g."""
    rng = np.random.default_rng(9)
    levels = len(MODEL.z_l())
    log_w_kb = np.full((3, levels), -np.inf)
    for k, (begin, end) in enumerate(((0, 12), (7, 18), (14, levels))):
        guess = np.where(np.isfinite(EXACT), EXACT, 0.0)[begin:end]
        log_w_kb[k, begin:end] = -guess + rng.normal(0.0, 0.3, end - begin) + 40.0 * k
    run = weighted_run(MODEL, log_w_kb, EDGES, seed=seed, walkers=walkers, **options)
    run.beta_k, run.log_w_kb = np.full(3, np.nan), log_w_kb
    return run


def gaussian_run(seed=1, beta_k=None, **options):
    """Return rungs -beta z - kappa (z - z0)^2 / 2; the one of kappa = 0 is canonical."""
    beta_k = np.array([0.0, 0.0, 1.0, 0.5]) if beta_k is None else beta_k
    kappa, z0 = np.array([0.0, 8.0, 4.0, 8.0]), np.array([0.0, 1.0, 3.0, 5.0])
    z_l = MODEL.z_l()
    log_w_kl = -np.outer(beta_k, z_l) - 0.5 * kappa[:, None] * (z_l - z0[:, None]) ** 2
    run = weighted_run(MODEL, log_w_kl, EDGES, seed=seed, **options)
    run.beta_k, run.kappa, run.z0 = beta_k, kappa, z0
    return run


def ancestral(seed=1, edges=EDGES, tilts=(0.0, 1.5, 4.0), **options):
    return ancestral_run(MODEL, np.outer(tilts, CENTRE), edges, seed=seed, **options)


def test_flat_rungs_give_the_relative_density():
    result = density_of_run(flat_run(moves=100))
    assert not result.absolute
    assert_exact(result, relative=True)
    assert "flat rung 0" in result.rung_weights.label_k
    run = flat_run(moves=100)
    run.log_w_kb = run.log_w_kb + np.linspace(0.0, 2.0, run.log_w_kb.shape[1])
    wrong, _ = score(density_of_run(run), relative=True)
    assert np.abs(wrong).max() > 8.0  # weights other than those the run had


def test_gaussian_rungs_and_a_uniform_one_give_the_absolute_density():
    result = density_of_run(gaussian_run(moves=60))
    assert result.absolute
    assert_exact(result)
    run = gaussian_run(moves=60)
    run.z0 = run.z0 + np.array([0.0, 0.25, 0.0, 0.0])
    assert np.abs(score(density_of_run(run))[0]).max() > 8.0


def test_flat_gaussian_and_canonical_rungs_of_several_runs_enter_one_system():
    runs = [
        independent_run(MODEL, np.r_[0.0, COLD], EDGES, walkers=16, seed=1),
        flat_run(seed=2, walkers=32),
        gaussian_run(seed=3, beta_k=np.array([0.5, 0.2, 1.0, 0.5])),
    ]
    result = density_of_runs(runs)
    assert result.absolute and len(result.f_k) == 11 and result.rung_weights is None
    assert_exact(result)
    assert (result.lanes_g == 4).all()
    alone = density_of_run(runs[0])
    both = np.isfinite(alone.log_g_error_b) & (alone.effective_b >= 50)
    assert np.median((result.log_g_error_b / alone.log_g_error_b)[both]) < 0.95


def test_two_runs_of_one_ladder_give_smaller_errors():
    beta_k = np.r_[HOT, 0.0, COLD]
    runs = [independent_run(MODEL, beta_k, EDGES, walkers=16, seed=s) for s in (1, 2)]
    pair = density_of_runs(runs)
    one = density_of_run(runs[0])
    pair_f, one_f = pair.f_k[:6], one.f_k
    assert np.abs(pair_f - one_f).max() < 0.3 and np.abs(pair_f - one_f).max() > 1e-4
    assert_exact(pair)
    ratio = (pair.log_g_error_b / one.log_g_error_b)[pair.effective_b > 500]
    assert 0.5 < np.median(ratio) < 1.0
    total = np.logaddexp.reduce(pair.log_g_b)
    assert total == pytest.approx(pair.log_measure, abs=1e-6)


def test_ancestral_draws_give_the_absolute_density_bin_by_bin():
    run = ancestral(moves=60)
    result = density_of_run(run)
    assert result.absolute and result.ancestral
    z = run.z_rks.astype(float)
    q_i = np.exp(run.log_q).mean(axis=-1)
    by_hand = [np.sum(1 / q_i[z == level]) / q_i.size for level in MODEL.z_l()]
    with np.errstate(divide="ignore"):
        np.testing.assert_allclose(result.log_g_b, np.log(by_hand), atol=1e-9)
    assert_exact(result)
    assert (result.f_k == 0).all() and result.n_k.sum() == q_i.size
    effective = np.array(
        [np.sum(1 / q_i[z == v]) ** 2 / max(np.sum(1 / q_i[z == v] ** 2), 1) for v in MODEL.z_l()]
    )
    seen = result.count_b > 0
    full = effective >= 500  # bins that are worth so many speak for themselves
    np.testing.assert_allclose(result.effective_b[full], effective[full], rtol=1e-6)
    assert full.sum() > 8 and (result.effective_b <= effective * (1 + 1e-9))[seen].all()
    assert (result.effective_b > 0.5 * effective)[seen].all()
    log_mixture = result.log_mixture(z[0, 0], run.log_q[0, 0])
    np.testing.assert_allclose(log_mixture, np.log(q_i[0, 0] * q_i.size), atol=1e-9)
    with pytest.raises(ValueError, match="not known"):
        result.log_mixture(z[0, 0])
    run.log_q = run.log_q.copy()
    run.log_q[..., 1] += 1.0
    assert np.abs(score(density_of_run(run))[0]).max() > 8.0  # normalized otherwise: seen


def test_ancestral_draws_outside_the_bins_count_as_draws():
    edges = EDGES[3:16]
    assert_exact(density_of_run(ancestral(edges=edges, moves=60)), edges=edges)


def test_ancestral_draws_make_a_relative_ladder_absolute():
    """Chains without beta = 0 give the shape, far beyond what draws reach; draws give the scale."""
    chains = independent_run(MODEL, np.r_[HOT, 1.0, COLD], EDGES, walkers=16, moves=60, seed=1)
    draws = ancestral(seed=2, tilts=(2.0, 4.0))
    result = density_of_runs([chains, draws])
    assert result.absolute
    assert_exact(result)
    alone = density_of_run(draws)
    reached, added = np.isfinite(alone.log_g_b), np.isfinite(result.log_g_b)
    assert added.sum() > reached.sum() + 3
    # both equations of evidence.py hold, the draws' f fixed at 0
    log_w_kb = canonical(chains.beta_k, EDGES).mean_in_bins(result.inside)
    sums_k = -np.logaddexp.reduce((result.log_g_b + log_w_kb)[:, added], axis=1)
    np.testing.assert_allclose(result.f_k[:6], sums_k, atol=1e-9)
    assert (result.f_k[6:] == 0).all()
    draws.log_q = draws.log_q + 0.5  # not normalized: everything moves by as much
    moved = density_of_runs([chains, draws]).log_g_b[added]
    np.testing.assert_allclose(moved, result.log_g_b[added] - 0.5, atol=1e-9)


def test_ancestral_draws_and_a_uniform_rung_are_two_known_normalizers():
    chains = independent_run(MODEL, np.r_[HOT, 0.0, COLD], EDGES, walkers=16, seed=3)
    draws = ancestral(seed=4, moves=40)
    result = density_of_runs([chains, draws])
    assert_exact(result)
    better = result.log_g_error_b / density_of_run(chains).log_g_error_b
    assert np.median(better[result.effective_b > 200]) < 1.0


def test_draws_of_many_nats_do_not_overflow():
    """A space of exp(1100) inputs: log q of -2,000 to 0, in one pass."""
    run = ancestral(moves=5)
    plain = density_of_run(run)
    far = ancestral(moves=5)
    far.log_q = far.log_q - 1500.0
    shifted = density_of_run(far)
    np.testing.assert_allclose(shifted.log_g_b - 1500.0, plain.log_g_b, atol=1e-9)


def test_runs_that_do_not_belong_together_are_refused():
    def run(seed=1, **changes):
        made = independent_run(MODEL, np.r_[0.0, COLD], EDGES, rounds=4, seed=seed)
        made.path = f"{seed}.h5"
        for name, value in changes.items():
            setattr(made, name, value)
        return made

    with pytest.raises(EstimateError, match="different models"):
        density_of_runs([run(), run(2, fingerprint="other")])
    with pytest.raises(EstimateError, match="different bins"):
        density_of_runs([run(), run(2, edges=EDGES + 0.01)])
    with pytest.raises(EstimateError, match="different spaces"):
        density_of_runs([run(), run(2, n_sites=9)])
    with pytest.raises(EstimateError, match=r"same \[run\] seed"):
        same = config_with(run={"seed": 4})
        density_of_runs([run(config=same), run(2, config=same)])
    with pytest.raises(EstimateError, match=r"2\.h5 holds no committed round"):
        density_of_runs([run(), run(2, rounds=0)])


def test_draws_that_were_not_all_recorded_are_refused():
    run = ancestral(moves=5)
    run.samples_z = lambda rounds=slice(None), rungs=slice(None): run.z_rks[rounds, rungs, ::2]
    run.log_q = run.log_q[:, :, ::2]
    with pytest.raises(EstimateError, match="not every draw"):
        density_of_run(run)


@pytest.mark.slow
def test_chi_square_per_bin_follows_its_law():
    """32 runs of independent draws: mean within 4 sigmas of 15/13, spread as foretold by half."""
    exact = Exact(EXACT, np.full(len(EXACT), np.nan))
    found = []
    for seed in range(32):
        run = independent_run(MODEL, np.r_[HOT, 0.0, COLD], EDGES, walkers=16, seed=seed, moves=10)
        found.append(compare_density(density_of_run(run), exact, 1))
    chi = np.array([c.chi_square for c in found])
    expected, spread = found[0].expected, np.mean([c.spread for c in found])
    assert expected == pytest.approx(15 / 13)
    assert abs(chi.mean() - expected) < 4 * chi.std() / np.sqrt(len(chi))
    assert 0.5 < chi.std() / spread < 2.0
    assert 3 < np.median([c.n_independent for c in found]) < found[0].n_bins
    density = density_of_run(run)
    shrunk = dataclasses.replace(density, log_g_error_b=density.log_g_error_b / 2)
    wrong = compare_density(shrunk, exact, 1)
    assert wrong.chi_square == pytest.approx(4 * found[-1].chi_square)


def test_scores_of_ancestral_and_of_gaussian_rungs_are_weighted_by_their_own_laws():
    """Mean score in a bin two levels wide, within 4 sigmas; canonical weights are far off."""
    edges = np.append(EDGES[::6], EDGES[-1] + 6)
    g_b, right_b = (MODEL.bin_sums(edges, v) for v in (MODEL.count_l(), MODEL.right_l()))
    draws = ancestral_run(MODEL, np.outer([3.0, 6.0], CENTRE * [3.0, *[1.0] * 7]), edges, moves=60)
    density = density_of_run(draws)
    curve = rule_curve(density, sum_scores(draws, density, first_is_zero), whole=True)
    good = np.isfinite(curve.r_error_b) & (curve.r_error_b > 0) & (density.effective_b > 100)
    z_score = ((curve.r_b - right_b / g_b)[good]) / curve.r_error_b[good]
    assert good.sum() >= 2 and np.abs(z_score).max() < 4.0
    draws.log_q = np.zeros_like(draws.log_q)  # as if all draws were alike
    curve = rule_curve(density, sum_scores(draws, density, first_is_zero), whole=True)
    assert np.abs((curve.r_b - right_b / g_b)[good] / curve.r_error_b[good]).max() > 8.0


def inputs_of(z_rks, rng):
    """Return random inputs of these outputs, all alike, [r, K, S, D]."""
    x = np.array(list(product(range(MODEL.n_values), repeat=MODEL.n_sites)), dtype=np.uint8)
    z = MODEL.z(x)
    x_rksd = np.zeros((*z_rks.shape, MODEL.n_sites), dtype=np.uint8)
    for level in np.unique(z_rks):
        here = z_rks == level
        x_rksd[here] = x[rng.choice(np.flatnonzero(z == level), here.sum())]
    return x_rksd


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["flat", "gaussian", "ancestral"])
def test_inputs_are_chosen_by_the_weights_of_their_own_laws(kind):
    """The mean score of 3,000 draws a bin is the exact one within 0.06."""
    edges = EDGES[:22:6]
    if kind == "ancestral":
        slopes = np.outer([0.0, 3.0], CENTRE * [3.0, *[1.0] * 7])
        run = ancestral_run(MODEL, slopes, EDGES, moves=60)
    else:
        run = {"flat": flat_run, "gaussian": gaussian_run}[kind]()
        run.x_rksd = inputs_of(run.z_rks, np.random.default_rng(1))
    density = density_of_run(run)
    truth = MODEL.bin_sums(edges, MODEL.right_l()) / MODEL.bin_sums(edges, MODEL.count_l())
    (chosen,), _ = choose([run], density, edges, 3000, "by-weight", seed=1)
    bins = np.searchsorted(edges, [item.bin_lower for item in chosen])
    found = [(int(b), item.draws, item.x) for b, item in zip(bins, chosen, strict=True)]
    others = draw_independently(run, density, edges, 3000, seed=1)
    for items in (found, [(item.bin, item.draws, item.values) for item in others]):
        for b in range(3):
            draws = np.array([n for bin_, n, _ in items if bin_ == b])
            right = first_is_zero(np.array([x for bin_, _, x in items if bin_ == b]))
            assert draws.sum() == 3000
            assert abs((draws * right).sum() / 3000 - truth[b]) < 0.06


def test_a_beta_that_is_zero_but_for_rounding_is_uniform():
    """As run files have it that were made before such betas were put on 0."""
    found = canonical(np.linspace(-2.0, 4.3, 64), np.array([0.0, 1.0])).uniform_k
    assert np.flatnonzero(found).tolist() == [20]
    assert not canonical(np.array([1e-3, 4.0]), np.array([0.0, 1.0])).uniform_k.any()
