"""The unevenness of draws' weights: exact where it is known, and what a bin by itself would say."""

import numpy as np
import pytest

from omniinput_hpc.estimators.density.pooled_spread import unevenness

SIGMA = 1.0  # of log-normal weights: 1 + CV^2 = e


def sums_of(log_v, bin_i, n_bins):
    """Return number, log of sum v and of sum v^2, sum of log v."""
    number_b = np.bincount(bin_i, minlength=n_bins)
    log_first_b, log_second_b = np.full((2, n_bins), -np.inf)
    for b in np.flatnonzero(number_b):
        part = log_v[bin_i == b]
        log_first_b[b] = np.logaddexp.reduce(part)
        log_second_b[b] = np.logaddexp.reduce(2.0 * part)
    return number_b, log_first_b, log_second_b, np.bincount(bin_i, log_v, n_bins)


def draws(n_bins, per_bin, seed=1, slope=0.0, bend=0.0):
    rng = np.random.default_rng(seed)
    bin_i = np.repeat(np.arange(n_bins), per_bin)
    return SIGMA * rng.normal(size=len(bin_i)) + slope * bin_i + bend * bin_i**2, bin_i


@pytest.mark.parametrize("slope, bend", [(0.0, 0.0), (7.0, 0.0), (-3.0, 0.02)])
def test_few_draws_know_it_from_their_neighbours(slope, bend):
    """20 draws a bin: the bins by themselves say 2.0 on average, and anything from 1.2 to 5."""
    sums = sums_of(*draws(80, 20, slope=slope, bend=bend), 80)
    pooled_b = unevenness(*sums)
    own_b = np.exp(np.log(20) + sums[2] - 2.0 * sums[1])
    assert np.abs(pooled_b / np.e - 1.0).max() < 0.5
    assert pooled_b.mean() == pytest.approx(np.e, rel=0.1)
    assert own_b.min() < 1.5 and own_b.mean() < 2.4


def test_a_bin_of_many_draws_speaks_for_itself():
    log_v, bin_i = draws(5, 4000)
    log_v[bin_i == 2] = 3.0
    sums = sums_of(log_v, bin_i, 5)
    np.testing.assert_allclose(unevenness(*sums), 4000 * np.exp(sums[2] - 2.0 * sums[1]))
    assert unevenness(*sums)[2] == pytest.approx(1.0)


def test_a_missing_heavy_draw_is_known_to_the_neighbours():
    log_v, bin_i = draws(41, 20)
    log_v[::20] = 6.0
    log_v[bin_i == 20] = 0.0
    sums = sums_of(log_v, bin_i, 41)
    assert unevenness(*sums)[20] > 5.0
    assert np.exp(np.log(20) + sums[2] - 2.0 * sums[1])[20] == pytest.approx(1.0)


def test_equal_draws_empty_bins_and_no_draws_at_all():
    log_v, bin_i = np.repeat([5.0, -300.0, 900.0], [3, 1, 2]), np.array([0, 0, 0, 4, 7, 7])
    assert unevenness(*sums_of(log_v[:3], bin_i[:3], 9)).tolist() == [1.0] * 9
    assert np.isfinite(unevenness(*sums_of(log_v, bin_i, 9))).all()
    assert unevenness(*sums_of(np.zeros(0), np.zeros(0, int), 3)).tolist() == [1.0] * 3
