"""Halves of the lanes that have met, and those that have not."""

import numpy as np
import pytest

from omniinput_hpc.estimators.equilibration import halves_apart, not_equilibrated_below

Z_B = np.arange(20) * 0.5
BETA_K = np.array([0.0, 10.0, 24.0, 28.0, 32.0])


def counts(means_kg, n=4000, seed=1):
    """Return counts of groups that sample normal outputs around their own means."""
    random = np.random.default_rng(seed)
    out = np.zeros((*means_kg.shape, len(Z_B)), dtype=np.int64)
    for k, g in np.ndindex(*means_kg.shape):
        draws = np.clip(np.rint((means_kg[k, g] + random.normal(size=n)) / 0.5), 0, 19)
        out[k, g] = np.bincount(draws.astype(int), minlength=20)
    return out


def means(gap_of_coldest=0.0, gap_of_next=0.0):
    m = np.repeat(np.array([8.0, 6.0, 5.0, 4.0, 3.0])[:, None], 16, axis=1)
    m[4, 8:] += gap_of_coldest
    m[3, 8:] += gap_of_next
    return m


def test_halves_of_one_law_are_not_apart():
    apart = np.concatenate([halves_apart(counts(means(), seed=s), Z_B) for s in range(20)])
    assert np.percentile(apart, 99) < 5 and 0.3 < np.median(apart) < 1.2


def test_a_cold_ladder_whose_halves_disagree_is_marked_from_there_on():
    both = counts(means(1.5, 1.0))
    assert not_equilibrated_below(both, Z_B, BETA_K, 24.0, 10) == pytest.approx(4.5, abs=0.1)
    one = counts(means(1.5))
    assert not_equilibrated_below(one, Z_B, BETA_K, 24.0, 10) == pytest.approx(3.75, abs=0.1)
    assert not_equilibrated_below(counts(means()), Z_B, BETA_K, 24.0, 10) == -np.inf


def test_without_a_round_trip_no_cold_rung_is_believed():
    assert not_equilibrated_below(counts(means()), Z_B, BETA_K, 24.0, 0) == pytest.approx(
        4, abs=0.1
    )


def test_warm_ladders_are_left_alone():
    disagreeing = counts(means(1.5, 1.0))
    assert not_equilibrated_below(disagreeing, Z_B, BETA_K, 40.0, 0) == -np.inf
