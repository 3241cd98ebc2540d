"""Transitions that canonical ladders do not connect, and Gaussian rungs proposed for them."""

import tomllib

import numpy as np
import pytest
from occupation_ladder import LOG_COUNT, Z, measured, tuned

from omniinput_hpc.config.method import Ladder
from omniinput_hpc.tempering import bridge

CANONICAL = np.array([[beta, 0.0, 0.0] for beta in (0.0, 0.2, 0.3, 0.33, 0.35, 0.4)])
EDGES = bridge.coarse_edges(-300.0, 0.0)
MANY = np.full((5, 2), 1000)


def phase(beta, low, high):
    """Return the mean and the standard deviation of z at beta, within one phase."""
    p = np.where((low <= Z) & (high >= Z), np.exp(LOG_COUNT - beta * Z - 100.0), 0.0)
    mean = p @ Z / p.sum()
    return mean, np.sqrt(p @ (Z - mean) ** 2 / p.sum())


def moments():
    """Return means and standard deviations of rungs that are in the phase that is the likelier."""
    of_rungs = [phase(b, -50, 0) if b < 0.339 else phase(b, -300, -150) for b in CANONICAL[:, 0]]
    return np.array(of_rungs).T


def histogram(z, weights):
    return np.histogram(z, EDGES, weights=weights)[0] * 1e4


def test_a_pair_that_never_swaps_is_a_transition():
    swaps_k2 = MANY.copy()
    swaps_k2[3, 1] = 0
    nothing = np.zeros((6, bridge.N_COARSE))
    found = bridge.transitions(CANONICAL, swaps_k2, *moments(), nothing, EDGES)
    assert [(t.below, t.above) for t in found] == [(3, 4)]
    assert found[0].z_high > -10 and found[0].z_low < -270
    swaps_k2[3, 0] = 50  # too few attempts to tell
    assert not bridge.transitions(CANONICAL, swaps_k2, *moments(), nothing, EDGES)


def test_the_proposed_ladder_connects_the_phases():
    """Tuned with exact moments all its neighbours exchange, with one peak on each rung."""
    swaps_k2 = MANY.copy()
    swaps_k2[3, 1] = 0
    nothing = np.zeros((6, bridge.N_COARSE))
    (transition,) = bridge.transitions(CANONICAL, swaps_k2, *moments(), nothing, EDGES)
    ladder = bridge.bridged(CANONICAL, transition)
    accepted_k, _, std_k = measured(tuned(ladder, 8))
    assert accepted_k.min() > 0.25
    assert (tuned(ladder, 8)[:, 1] * std_k**2).max() < 2.5, "one piece on every Gaussian rung"


def test_a_rung_with_two_peaks_is_replaced():
    p = np.exp(LOG_COUNT - 0.339 * Z - (LOG_COUNT - 0.339 * Z).max())
    counts_kc = np.zeros((6, bridge.N_COARSE))
    counts_kc[3] = histogram(Z, p / p.sum())
    ladder = CANONICAL.copy()
    ladder[3, 0] = 0.339
    (found,) = bridge.transitions(ladder, MANY, *moments(), counts_kc, EDGES)
    assert (found.below, found.above) == (3, 3)
    assert found.z_high > -20 and found.z_low < -250
    bridged = bridge.bridged(ladder, found)
    assert (bridged[:, 1] > 0).sum() == len(bridged) - 5
    assert len(bridge.bridged(ladder, found, kept=(0.339,))) == len(bridged) + 1


@pytest.mark.parametrize("spread", [2.0, 40.0])
def test_one_peak_is_no_transition(spread):
    """Also where outputs lie on a lattice."""
    z = np.arange(-300.0, 1.0, 7.0)
    counts_kc = np.tile(histogram(z, np.exp(-0.5 * ((z + 140.0) / spread) ** 2)), (6, 1))
    assert not bridge.transitions(CANONICAL, MANY, *moments(), counts_kc, EDGES)
    assert bridge.two_peaks(np.zeros(bridge.N_COARSE), EDGES) is None


def test_gaussian_and_flat_rungs_are_left_alone():
    ladder = CANONICAL.copy()
    ladder[3, 1], ladder[4, 0] = 0.01, np.nan
    swaps_k2 = MANY.copy()
    swaps_k2[:, 1] = 0
    swaps_k2[:3, 1] = 500
    nothing = np.zeros((6, bridge.N_COARSE))
    assert not bridge.transitions(ladder, swaps_k2, *moments(), nothing, EDGES)


def test_the_lines_are_an_input_files():
    swaps_k2 = MANY.copy()
    swaps_k2[3, 1] = 0
    nothing = np.zeros((6, bridge.N_COARSE))
    (transition,) = bridge.transitions(CANONICAL, swaps_k2, *moments(), nothing, EDGES)
    ladder = bridge.bridged(CANONICAL, transition)
    table = tomllib.loads("\n".join(bridge.lines(ladder)))["ladder"]
    given = Ladder.model_validate(table)
    np.testing.assert_allclose(given.beta_k, ladder[:, 0], rtol=1e-5)
    np.testing.assert_allclose(given.kappa, ladder[:, 1], rtol=1e-5)
    assert given.tune
