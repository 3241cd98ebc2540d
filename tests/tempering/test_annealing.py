"""Populations stay properly weighted: over the random number, copies times weights are the weights.

The one number u of a population is put on a fine grid, so that means over it are exact but for
the grid.
"""

import numpy as np
import pytest

from omniinput_hpc.tempering import annealing
from omniinput_hpc.tempering.annealing import MIN_EFFECTIVE_SHARE, carry, systematic

GRID = (np.arange(4000) + 0.5) / 4000
WEIGHTS = [np.array([1.0, 0.0, 5.0, 0.3]), np.array([2.0, 2.0, 2.0]), np.ones(1),
           np.exp(np.random.default_rng(1).normal(size=16))]  # fmt: skip


@pytest.mark.parametrize("w", WEIGHTS)
def test_copies_are_drawn_in_proportion(w):
    copies = np.array([np.bincount(systematic(w, u), minlength=len(w)) for u in GRID])
    wanted = len(w) * w / w.sum()
    assert (copies.sum(axis=1) == len(w)).all()
    assert (copies >= np.floor(wanted - 1e-9)).all() and (copies <= np.ceil(wanted + 1e-9)).all()
    np.testing.assert_allclose(copies.mean(axis=0), wanted, atol=1e-3)


def totals(function):
    """Return the mean over u of what populations stand for after `function`, and what they did.

    Two populations, of 5 and of 3 walkers, one of them uneven; the sums are of w f.
    """
    random = np.random.default_rng(2)
    log_w, z = random.normal(size=8), random.normal(size=8) * [5, 5, 5, 5, 5, 0.1, 0.1, 0.1]
    group, f = np.array([0] * 5 + [1] * 3), random.random((8, 4))
    before = np.stack([(np.exp(log_w - 1.5 * z)[:, None] * f)[group == g].sum(axis=0)
                       for g in (0, 1)])  # fmt: skip
    found = np.zeros_like(before)
    for u in GRID:
        carried = function(log_w, z, 1.5, group, np.array([u, u]))
        assert (group[carried.source_w] == group).all(), "populations do not mix"
        values = np.exp(carried.log_weight_w)[:, None] * f[carried.source_w]
        found += [values[group == g].sum(axis=0) / len(GRID) for g in (0, 1)]
    return found, before


def check(function):
    found, wanted = totals(function)
    np.testing.assert_allclose(found, wanted, rtol=3e-3)


def test_what_populations_stand_for_stays():
    check(carry)


def test_even_weights_stay_as_they_are():
    log_w, z, group = np.zeros(6), np.linspace(0.0, 1.0, 6), np.zeros(6, dtype=int)
    carried = carry(log_w, z, 0.5, group, np.array([0.3]))
    assert carried.source_w.tolist() == list(range(6))
    np.testing.assert_allclose(carried.log_weight_w, -0.5 * z)


def test_uneven_weights_become_equal():
    z, group = np.linspace(0.0, 9.0, 6), np.zeros(6, dtype=int)
    carried = carry(np.zeros(6), z, 5.0, group, np.array([0.3]))
    w = np.exp(-5.0 * z)
    assert w.sum() ** 2 < MIN_EFFECTIVE_SHARE * 6 * (w**2).sum()
    np.testing.assert_allclose(carried.log_weight_w, np.log(w.mean()))
    assert carried.source_w.tolist() == [0] * 6


def keeps_weights(log_weight_w, z_w, gap, group_w, u_g):
    """A wrong variant: walkers are drawn by weight, and keep their weights."""
    carried = carry(log_weight_w, z_w, gap, group_w, u_g)
    own = log_weight_w - gap * z_w
    return annealing.Carried(own[carried.source_w], carried.source_w)


def weighs_by_largest(log_weight_w, z_w, gap, group_w, u_g):
    """Another: the likeliest walker is copied, at the mean weight."""
    carried = carry(log_weight_w, z_w, gap, group_w, u_g)
    best = np.array([np.flatnonzero(group_w == g)[np.argmax((log_weight_w - gap * z_w)
                     [group_w == g])] for g in group_w])  # fmt: skip
    return annealing.Carried(carried.log_weight_w, best)


@pytest.mark.parametrize("function", [keeps_weights, weighs_by_largest])
def test_wrong_variants_fail(function):
    with pytest.raises(AssertionError):
        check(function)
