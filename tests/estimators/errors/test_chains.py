"""R-hat and autocorrelation times: known answers, arviz-stats, and streamed as of whole series."""

import numpy as np
import pytest
from arviz_stats.base import array_stats
from autoregressive_chains import autoregressive

from omniinput_hpc.estimators.errors import chains
from omniinput_hpc.estimators.errors.chains import (
    MAX_RHAT,
    autocorrelation_time,
    chain_diagnostics,
    inefficiency,
    lanes_disagree,
    rank_normalized_rhat,
    rhat_limit,
)


class Series:
    """Recorded outputs z [T, W] of each rung, cut in rounds."""

    def __init__(self, z_ktw, rounds):
        n_rungs, length, self.walkers = z_ktw.shape
        self.rounds, self.beta_k = rounds, np.zeros(n_rungs)
        self.samples_per_round = length // rounds * self.walkers if rounds else self.walkers
        shape = (n_rungs, rounds, self.samples_per_round)
        self.z_rks = z_ktw.astype(np.float32).reshape(shape).swapaxes(0, 1)

    def z(self, rounds=slice(None), rungs=slice(None)):
        return self.z_rks[rounds, rungs]


def test_diagnostics_read_time_major_samples():
    """Lane = index % walkers: two stuck lanes must not be mixed with the others."""
    rng = np.random.default_rng(5)
    z_tw = rng.standard_normal((200, 4)) + np.array([0.0, 0.0, 3.0, 3.0])
    rhat_k, tau_k, _ = chain_diagnostics(Series(z_tw[None], 10))
    assert rhat_k[0] == rank_normalized_rhat(z_tw.astype(np.float32)) and rhat_k[0] > 1.5
    assert tau_k[0] > 2.0  # rounds: stays apart for the whole run
    free = Series(rng.standard_normal((1, 200, 4)), 10)
    assert chain_diagnostics(free)[1][0] == pytest.approx(0.5 / 20, rel=0.2)
    nothing = chain_diagnostics(Series(np.zeros((3, 0, 4)), 0))
    assert np.isnan(nothing).all() and nothing[0].shape == (3,)


@pytest.mark.parametrize("shape", [(8, 2), (41, 6), (400, 16)])
@pytest.mark.parametrize("kind", ["normal", "heavy tails", "lattice", "scales differ"])
def test_rhat_is_arviz_stats(shape, kind):
    rng = np.random.default_rng(6)
    z_tw = {
        "normal": lambda: rng.standard_normal(shape),
        "heavy tails": lambda: rng.standard_cauchy(shape),
        "lattice": lambda: rng.integers(0, 4, shape) * 0.25,
        "scales differ": lambda: rng.standard_normal(shape) * np.linspace(1, 3, shape[1]),
    }[kind]()
    expected = array_stats.rhat(z_tw.T, chain_axis=0, draw_axis=1)
    assert rank_normalized_rhat(z_tw) == pytest.approx(expected, rel=1e-9)


def test_rhat_accepts_good_chains_and_sees_lanes_that_differ():
    rng = np.random.default_rng(4)
    assert rank_normalized_rhat(autoregressive(2000, 16, 0.9, rng)) < 1.02
    means = np.zeros(16)
    means[:2] = 1.5  # two lanes of sixteen stay in another state
    assert rank_normalized_rhat(autoregressive(2000, 16, 0.9, rng, means)) > 1.05
    drifting = autoregressive(2000, 16, 0.5, rng) + np.linspace(0, 2, 2000)[:, None]
    assert rank_normalized_rhat(drifting) > 1.05  # all lanes alike, but their halves differ
    spread = autoregressive(2000, 16, 0.5, rng) * np.where(np.arange(16) < 8, 1.0, 3.0)
    assert rank_normalized_rhat(spread) > 1.05  # equal means, which the classical R-hat accepts
    assert rank_normalized_rhat(np.tile([0.0, 1.0], (10, 1))) == np.inf
    assert np.isnan(rank_normalized_rhat(np.ones((3, 3))))
    many = rhat_limit(4, 1000)
    assert lanes_disagree(np.array([many, many + 1e-9, np.inf, np.nan]), 1000).tolist() == [
        0,
        1,
        1,
        0,
    ]


def test_rounding_of_a_constant_is_no_difference_between_lanes():
    last_bit = np.nextafter(np.float32(2.3), np.float32(3))
    z_tw = np.where(np.arange(8) < 4, np.float32(2.3), last_bit) * np.ones((50, 1), np.float32)
    assert rank_normalized_rhat(z_tw) == 1.0 and rank_normalized_rhat(np.zeros((10, 3))) == 1.0


@pytest.mark.parametrize("rho", [0.0, 0.5, 0.9])
def test_autocorrelation_time_of_an_autoregressive_process(rho):
    x = autoregressive(4000, 8, rho, np.random.default_rng(3))
    exact = 0.5 * (1 + rho) / (1 - rho)
    sigma = exact * np.sqrt(2 * (2 * 5 * exact + 1) / x.size)  # Sokal's, window 5 tau
    assert abs(autocorrelation_time(x) - exact) < 4 * sigma + 0.02 * exact


def test_autocorrelation_time_of_degenerate_chains():
    assert np.isnan(autocorrelation_time(np.zeros((7, 2))))
    assert autocorrelation_time(np.full((50, 2), 2.3)) == 0.5
    stuck = np.tile([0.0, 1.0], (50, 1))
    assert autocorrelation_time(stuck) > 20  # never forgotten


@pytest.mark.parametrize("length", [41, 200])
def test_in_pieces_they_are_those_of_the_whole_series(monkeypatch, length):
    """Odd lengths, several passes over the rungs, several rounds a read: the same numbers."""
    rng = np.random.default_rng(length)
    z_ktw = np.stack([autoregressive(length, 6, rho, rng, 100.0) for rho in (0.0, 0.6, 0.9)])
    z_ktw[2, :, 0] += 2.0
    whole = [(rank_normalized_rhat(z), autocorrelation_time(z)) for z in z_ktw.astype(np.float32)]
    rounds = {41: 41, 200: 20}[length]
    for budget in (1, 20_000, 1 << 27):
        monkeypatch.setattr(chains, "MAX_BYTES", budget)
        rhat_k, tau_k, _ = chain_diagnostics(Series(z_ktw, rounds))
        np.testing.assert_allclose(rhat_k, [r for r, _ in whole], rtol=1e-12)
        np.testing.assert_allclose(tau_k, [t * rounds / length for _, t in whole], rtol=1e-4)


@pytest.mark.parametrize("rho", [0.0, 0.9, 0.99])
def test_means_over_neighbours_have_the_same_time(monkeypatch, rho):
    """Averaging 16 values or so keeps the time within 4 sigmas (Sokal's) of the exact one."""
    z_tw = autoregressive(16_000, 8, rho, np.random.default_rng(3))
    exact = 0.5 * (1 + rho) / (1 - rho)
    monkeypatch.setattr(chains, "MAX_KEPT", 1000)
    rhat_k, tau_k, _ = chain_diagnostics(Series(z_tw[None], 100))
    coarse = max(exact, 8.0)  # the window is five times this at least
    sigma = exact * np.sqrt(2 * (2 * 5 * coarse + 1) / z_tw.size)
    assert abs(tau_k[0] * 160 - exact) < 4 * sigma + 0.02 * exact
    stride = 16_000 * 8 // 20_000  # R-hat is that of the thinned series
    thinned = z_tw.astype(np.float32)[::stride]
    assert rhat_k[0] == pytest.approx(rank_normalized_rhat(thinned), rel=1e-9)


def test_constants_and_short_series():
    stuck = np.tile([0.0, 1.0], (1, 50, 1))
    rhat_k, tau_k, _ = chain_diagnostics(
        Series(np.concatenate([np.full((1, 50, 2), 2.3), stuck]), 5)
    )
    assert rhat_k[0] == 1.0 and rhat_k[1] == np.inf
    assert tau_k[0] == 0.05 and tau_k[1] > 2.0
    rhat_k, tau_k, _ = chain_diagnostics(Series(np.zeros((1, 3, 2)), 3))
    assert np.isnan([rhat_k[0], tau_k[0]]).all()


def test_inefficiency_of_an_autoregressive_process_weighs_rungs():
    """The variance of the mean of T values is g / T: g = (1 + rho) / (1 - rho)."""
    g_k = inefficiency(np.array([0.5, 9.5]) / 30.0, 30.0)
    np.testing.assert_allclose(g_k, [1.0, 19.0])


def test_the_largest_of_many_rhats_is_over_its_limit_in_one_of_a_hundred():
    """Half lanes of n independent values have R-hat^2 - 1 of about 1 / n: n = 10 is the limit."""
    n = 11
    rng = np.random.default_rng(3)
    z_rkcn = rng.normal(size=(400, 10, 32, n))  # 400 runs of 10 rungs, each value for a long time
    between_rk = z_rkcn.mean(axis=3).var(axis=2, ddof=1)
    rhat_nk = np.sqrt(1.0 + between_rk / z_rkcn.var(axis=3).mean(axis=2))
    alarms = np.mean([lanes_disagree(rhat_k, 16).any() for rhat_k in rhat_nk])
    assert alarms <= 0.03
    assert np.mean((rhat_nk > MAX_RHAT).any(axis=1)) > 0.2  # by one limit for any number
    assert rhat_limit(1, 10**6) == pytest.approx(MAX_RHAT, abs=1e-3)
    assert rhat_limit(10, 4) > rhat_limit(10, 64) > rhat_limit(1, 64)


def test_a_drift_of_all_lanes_alike_is_seen():
    """The lanes agree, and their means are not those of the run's end."""
    rng = np.random.default_rng(5)
    z_ktw = rng.normal(size=(2, 400, 16))
    z_ktw[1] -= np.linspace(0.0, 0.3, 400)[:, None]
    rhat_k, _, drift_k = chain_diagnostics(Series(z_ktw, 20))
    assert abs(drift_k[0]) < 4.0 and drift_k[1] < -6.0 and (rhat_k < MAX_RHAT).all()
    constant = chain_diagnostics(Series(np.full((1, 400, 16), 2.5), 20))
    assert constant[2][0] == 0.0
