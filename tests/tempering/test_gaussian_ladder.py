"""Gaussian ladders across a first-order transition, by exact sums over a known density."""

import numpy as np
import pytest
from occupation_ladder import LADDER, measured, tuned

from omniinput_hpc.tempering import gaussian_ladder
from omniinput_hpc.tempering.ladder import respace

EQUAL = 0.06
"""How far apart the shares of accepted swaps of a tuned ladder may be."""


@pytest.mark.parametrize("reverse", [False, True])
def test_neighbours_exchange_equally(reverse):
    ladder = LADDER[::-1] if reverse else LADDER
    assert np.ptp(measured(ladder)[0]) > 0.7
    accepted_k, mean_k, _std_k = measured(tuned(ladder))
    assert np.ptp(accepted_k) < EQUAL
    assert (np.diff(mean_k) < 0).all() if reverse else (np.diff(mean_k) > 0).all()


def test_the_ends_and_fixed_rungs_stay():
    above = np.array([[-0.2, 0.0, 0.0]])
    ladder = np.concatenate([LADDER, above])
    found = tuned(ladder)
    np.testing.assert_array_equal(found[[0, -1]], ladder[[0, -1]])
    assert (found == [0.0, 0.0, 0.0]).all(axis=1).any(), "beta = 0 is drawn from directly"
    assert len(found) == len(ladder)
    assert np.ptp(measured(found)[0][:-1]) < EQUAL  # beyond beta = 0 there is one pair alone


def test_kappa_grows_where_z_spreads_over_both_phases():
    _, _, std_k = measured(LADDER)
    assert (LADDER[:, 1] * std_k**2).max() > 2.2
    found = tuned(LADDER)
    spread_k = found[:, 1] * measured(found)[2] ** 2
    assert spread_k.max() < 2.2
    assert found[1:-1, 1].max() > 1.5 * 0.004


def test_moving_betas_alone_is_noticed():
    """What canonical ladders do leaves Gaussian rungs of one beta as they are."""
    accepted_k, _, _ = measured(LADDER)
    wrong = LADDER.copy()
    ascending = np.arange(len(wrong)) * 1e-9 + np.sort(wrong[:, 0])
    wrong[:, 0] = respace(ascending, 1.0 - accepted_k, (0.0,))[::-1]
    assert np.ptp(measured(wrong)[0]) > EQUAL


def test_without_stiffening_z_spreads_over_both_phases(monkeypatch):
    monkeypatch.setattr(gaussian_ladder, "STIFFNESS", 1e-9)
    found = tuned(LADDER)
    assert (found[:, 1] * measured(found)[2] ** 2).max() > 2.2


def test_z0_without_the_slope_is_noticed(monkeypatch):
    """z0 put at the wanted mean, as if S' were beta: wrong outside the transition."""
    monkeypatch.setattr(gaussian_ladder, "slopes", lambda rung_k3, mean_k: rung_k3[:, 0].copy())
    assert np.ptp(measured(tuned(LADDER))[0]) > EQUAL


def test_means_in_the_wrong_order_or_all_equal_do_no_harm():
    accepted_k, mean_k, std_k = measured(LADDER)
    mean_k[3:5] = mean_k[[4, 3]]
    found = gaussian_ladder.respace_gaussian(LADDER, 1 - accepted_k, mean_k, std_k)
    assert np.isfinite(found).all() and (found[:, 1] >= 0).all()
    assert found[:, 1].max() <= 2 * 2 * 0.004
    same = gaussian_ladder.respace_gaussian(LADDER, 1 - accepted_k, 0 * mean_k, std_k)
    np.testing.assert_array_equal(same, LADDER)


def test_without_gaussian_rungs_in_a_stretch_it_stays_canonical():
    ladder = np.concatenate([LADDER, [[-0.1, 0, 0], [-0.15, 0, 0], [-0.6, 0, 0], [-1.0, 0, 0]]])
    found = tuned(ladder, 2)
    zero = int(np.flatnonzero((found == 0.0).all(axis=1))[0])
    assert not found[zero:, 1].any()
    assert (np.diff(found[zero:, 0]) < 0).all()
