"""Bins too wide: the variance inside bins, the mixture's slope, and the sentence."""

import numpy as np
import pytest
from lattice import Lattice, independent_run

from omniinput_hpc.estimators.density.bin_width import mixture_slope, too_wide, variance_within
from omniinput_hpc.estimators.density.rung_weights import RungWeights

MODEL = Lattice(n_sites=8, unit=0.25)
BETA_K = np.array([-2.0, 0.0, 3.0])


def edges_of(levels):
    """Return edges of bins that each hold that many levels."""
    top = len(MODEL.z_l())
    return (np.arange(0, top + levels, levels) - 0.5) * MODEL.unit


def test_one_level_a_bin_has_no_variance():
    run = independent_run(MODEL, BETA_K, edges_of(1))
    np.testing.assert_allclose(variance_within(run, run.edges), 0.0, atol=1e-12)


@pytest.mark.parametrize("levels", [2, 5])
def test_the_variance_is_that_of_the_samples(levels):
    run = independent_run(MODEL, BETA_K, edges_of(levels))
    z = run.z_rks.astype(float).ravel()
    expected = [
        z[(z >= low) & (z < high)].var() if ((z >= low) & (z < high)).any() else 0.0
        for low, high in zip(run.edges[:-1], run.edges[1:], strict=True)
    ]
    found = variance_within(run, run.edges)
    np.testing.assert_allclose(found, expected, atol=1e-12)
    few = variance_within(run, run.edges, max_samples=run.samples_per_round * 3 * 4)
    assert (few != found).any()  # four rounds of sixteen
    np.testing.assert_allclose(few[:3], found[:3], rtol=0.2, atol=1e-3)


def rung_weights(beta_k, edges):
    zero_k, n_bins = np.zeros(len(beta_k)), len(edges) - 1
    return RungWeights(beta_k, zero_k, zero_k, np.zeros((len(beta_k), n_bins)), edges)


def test_the_slope_of_a_mixture():
    edges = edges_of(2)
    z_b = 0.5 * (edges[:-1] + edges[1:])
    one = mixture_slope(rung_weights(np.array([1.5]), edges), np.array([9]), np.zeros(1), z_b)
    np.testing.assert_allclose(one, -1.5, rtol=1e-6)
    n_k, f_k, beta_k = np.array([100, 300]), np.array([0.2, 1.0]), np.array([0.5, 4.0])
    share_kb = n_k[:, None] * np.exp(f_k[:, None] - np.outer(beta_k, z_b))
    expected = -(beta_k @ share_kb) / share_kb.sum(axis=0)
    found = mixture_slope(rung_weights(beta_k, edges), n_k, f_k, z_b)
    np.testing.assert_allclose(found, expected, rtol=1e-4)
    z_b[3] = np.nan
    assert mixture_slope(rung_weights(beta_k, edges), n_k, f_k, z_b)[3] == 0.0


def test_a_rung_without_counts_has_no_part_in_the_mixture():
    edges = edges_of(2)
    z_b = 0.5 * (edges[:-1] + edges[1:])
    weights = rung_weights(np.array([1.5, 99.0]), edges)
    found = mixture_slope(weights, np.array([9, 0]), np.zeros(2), z_b)
    np.testing.assert_allclose(found, -1.5, rtol=1e-6)


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
        words = "in 1 bins, by about 0.5 at z = 1 to 2; a [bins] width of 0.4 would do"
        assert words in check.reason
