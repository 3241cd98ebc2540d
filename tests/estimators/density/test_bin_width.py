"""Bins too wide: the spread of outputs inside bins, the correction, and the sentence."""

import numpy as np
import pytest
from lattice import ArrayRun, Lattice, independent_run
from scipy.special import logsumexp

from omniinput_hpc.estimators.density.bin_width import inside_bins, mixture_derivatives, too_wide
from omniinput_hpc.estimators.density.density import density_of_run, log_mean_exp
from omniinput_hpc.estimators.density.rung_weights import InsideBins, RungWeights

MODEL = Lattice(n_sites=8, unit=0.25)
BETA_K = np.array([-2.0, 0.0, 3.0])


def edges_of(levels):
    """Return edges of bins that each hold that many levels."""
    top = len(MODEL.z_l())
    return (np.arange(0, top + levels, levels) - 0.5) * MODEL.unit


def weights_of(beta_k, edges, kappa_k=None):
    zero_k, n_bins = np.zeros(len(beta_k)), len(edges) - 1
    kappa_k = zero_k if kappa_k is None else kappa_k
    return RungWeights(np.asarray(beta_k), kappa_k, zero_k, np.zeros((len(beta_k), n_bins)), edges)


@pytest.mark.parametrize("levels", [1, 2, 5])
def test_the_spread_inside_bins_is_that_of_the_samples(levels):
    run = independent_run(MODEL, BETA_K, edges_of(levels))
    z, n_bins = run.z_rks.astype(float).ravel(), len(run.edges) - 1
    bin_n = np.digitize(z, run.edges) - 1
    groups = [z[bin_n == b] if (bin_n == b).any() else np.zeros(1) for b in range(n_bins)]
    z_b = np.where(np.bincount(bin_n, minlength=n_bins) > 0, [g.mean() for g in groups], np.nan)
    derivatives = mixture_derivatives([weights_of(BETA_K, run.edges)], run.counts_kb, z_b)
    found, bias_b = inside_bins([run], z_b, derivatives)
    np.testing.assert_allclose(found.variance_b, [g.var() for g in groups], atol=1e-12)
    slope_b, curve_b = derivatives
    exact_b = [
        np.log(np.exp(-s * (g - g.mean()) - 0.5 * c * (g - g.mean()) ** 2).mean())
        for g, s, c in zip(groups, slope_b, curve_b, strict=True)
    ]
    square_b = slope_b**2 * found.variance_b
    assert square_b.max() < 1
    left_b = np.abs(exact_b - 0.5 * square_b + 0.5 * curve_b * found.variance_b)
    noise_b = square_b / np.sqrt(2 * np.maximum(np.bincount(bin_n, minlength=n_bins), 1))
    np.testing.assert_allclose(bias_b, np.maximum(left_b, noise_b), atol=1e-12)
    assert levels > 1 or not found.variance_b.any()


def test_the_slope_of_a_mixture():
    edges = edges_of(2)
    z_b = 0.5 * (edges[:-1] + edges[1:])
    counts_kb = np.array([[30, 0], [10, 0]]).repeat(len(z_b) // 2 + 1, axis=1)[:, : len(z_b)]
    both = [weights_of([0.5], edges), weights_of([4.5], edges, np.array([2.0]))]
    slope_b, curve_b = mixture_derivatives(both, counts_kb, z_b)
    some = counts_kb.any(axis=0)
    own_b, other_b = -0.5, -4.5 - 2.0 * z_b
    np.testing.assert_allclose(slope_b, np.where(some, 0.75 * own_b + 0.25 * other_b, 0.0))
    spread_b = 0.1875 * (own_b - other_b) ** 2
    np.testing.assert_allclose(curve_b, np.where(some, spread_b - 0.5, 0.0), atol=1e-12)


def test_flat_rungs_have_no_slope():
    edges = edges_of(2)
    z_b = 0.5 * (edges[:-1] + edges[1:])
    flat = weights_of([np.nan], edges)
    slope_b, curve_b = mixture_derivatives([flat], np.ones((1, len(z_b)), int), z_b)
    assert not slope_b.any() and not curve_b.any()
    inside = InsideBins(z_b, np.full(len(z_b), 0.1), slope_b)
    np.testing.assert_array_equal(flat.mean_in_bins(inside), flat.at_bins(z_b))


@pytest.mark.parametrize("kappa", [0.0, 2.0])
def test_mean_weights_in_bins_are_exact_for_narrow_bins(kappa):
    """The mean over equally many inputs at z = 0.9 to 1.1, whose counts lean to lower z."""
    z, slope = np.linspace(0.9, 1.1, 41), -2.0
    count = np.exp(slope * z) / np.exp(slope * z).sum()
    mean = count @ z
    inside = InsideBins(np.array([mean]), np.array([count @ (z - mean) ** 2]), np.array([slope]))
    weights = weights_of([3.0], np.array([0.9, 1.1]), np.array([kappa]))
    exact = np.log(np.exp(-3.0 * z - 0.5 * kappa * z**2).mean())
    found = weights.mean_in_bins(inside)[0, 0]
    assert found == pytest.approx(exact, abs=3e-4)
    assert abs(weights.at_bins(inside.z_b)[0, 0] - exact) > 4e-3
    assert inside.log_mean_exp(-3.0)[0] == pytest.approx(np.log(np.exp(-3.0 * z).mean()), abs=1e-4)


@pytest.mark.parametrize(("bias", "error", "firm", "told"), [
    (0.5, 0.1, True, True),
    (0.5, 0.6, True, False),  # within its error
    (0.5, np.inf, True, False),
    (0.5, 0.1, False, False),  # too few counts to be looked at
    (0.019, 0.001, True, False),  # less than 0.02 nats
])  # fmt: skip
def test_the_sentence(bias, error, firm, told):
    edges = np.linspace(0.0, 4.0, 5)
    bias_b, error_b = np.array([0.0, bias, 0.0, 0.0]), np.full(4, error)
    check = too_wide(bias_b, error_b, np.full(4, firm), edges)
    assert check.passed is not told
    if told:
        words = "in 1 bins, by up to about 0.5 at z = 1 to 2; a [bins] width of 0.5 would suffice"
        assert words in check.reason


def test_a_mean_of_exp_minus_z_includes_the_spread_inside_bins():
    """Normal outputs in bins of half their standard deviation, whose means alone are off."""
    rng, betas = np.random.default_rng(3), np.array([0.0, 0.5, 1.0, 1.5, 2.0])
    z = rng.normal(10.0 - betas[:, None], 1.0, (64, 5, 640)).astype(np.float32)
    x = rng.integers(0, 4, (*z.shape, 8)).astype(np.uint8)
    run = ArrayRun(x, z, 16, betas, np.arange(0.0, 20.5, 0.5), 4)
    density = density_of_run(run)
    found, total = log_mean_exp(density), run.log_measure
    exact = -10.0 + 0.5
    assert abs(found.value - total - exact) < 3.0 * found.error
    by_means = logsumexp((density.log_g_b - density.z_b)[density.count_b > 0])
    assert abs(by_means - total - exact) > 3.0 * found.error
