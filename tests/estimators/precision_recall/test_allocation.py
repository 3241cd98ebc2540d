"""Where to score next: slopes, the greedy allocation against Neyman's, and what it gains."""

from itertools import product

import numpy as np
import pytest
from scored_model import a_density, scored_inputs

from omniinput_hpc.estimators.precision_recall.allocation import _greedy, allocate, aupr_slopes
from omniinput_hpc.estimators.precision_recall.curves import area, curve_range, trace
from omniinput_hpc.estimators.precision_recall.from_scores import scored_curve


def test_slopes_by_finite_differences_of_the_whole_curve():
    log_g_b, r_b = np.log([2.0, 6.0, 8.0, 30.0]), np.array([0.9, 0.5, 0.0, 0.2])
    ends = (0.6, 2.5)
    slope_b = aupr_slopes(log_g_b, r_b, "low", ends)
    for b in range(4):
        moved = r_b.copy()
        moved[b] += 1e-3
        before, after = (trace(log_g_b, r, "low") for r in (r_b, moved))
        rise = area(after.precision_t, after.log_recall_t, *ends)
        rise -= area(before.precision_t, before.log_recall_t, *ends)
        assert slope_b[b] == pytest.approx(rise / 1e-3, rel=0.02, abs=1e-4)


def test_a_slope_is_negative_only_where_precision_is_below_the_aupr():
    """What `next-scores` says of negative ones."""
    rng, n_negative = np.random.default_rng(1), 0
    for _ in range(150):
        n = rng.integers(2, 9)
        log_g_b, r_b = np.cumsum(rng.normal(1.0, 1.5, n)), rng.random(n)
        curve = trace(log_g_b, r_b, "low")
        aupr = area(curve.precision_t, curve.log_recall_t)
        ends = curve_range(curve.precision_t, curve.log_recall_t)
        negative_b = aupr_slopes(log_g_b, r_b, "low", ends) < -1e-3
        assert (curve.precision_t[negative_b] < aupr).all()
        n_negative += negative_b.sum()
    assert n_negative > 10


def test_greedy_allocation_is_neymans():
    c_b = np.array([4.0, 1.0, 0.25, 0.0])
    next_b = _greedy(c_b, np.full(4, 1e-9), np.ones(4), 3500)
    np.testing.assert_allclose(next_b, 1000 * np.sqrt(c_b), atol=2)
    # what is there already counts: the last bin but one has enough
    next_b = _greedy(c_b, np.array([1.0, 1.0, 5000.0, 1.0]), np.ones(4), 3000)
    np.testing.assert_allclose(next_b, [2000, 1000, 0, 0], atol=2)


@pytest.mark.parametrize("seed", range(5))
def test_greedy_allocation_is_the_best_of_all(seed):
    """Against every way to share 12 scores among four bins; all at once, or evenly, is worse."""
    rng = np.random.default_rng(seed)
    c_b, n_b, worth_b = rng.uniform(0.2, 1.0, 4), rng.uniform(1.0, 4.0, 4), rng.uniform(0.5, 1.0, 4)
    every = np.array([x for x in product(range(13), repeat=4) if sum(x) == 12])
    variance = (c_b / (n_b + worth_b * every)).sum(axis=1)
    found = _greedy(c_b, n_b, worth_b, 12)
    assert found.sum() == 12
    best = (c_b / (n_b + worth_b * found)).sum()
    assert best == pytest.approx(variance.min(), rel=1e-12)
    at_once = 12 * (np.arange(4) == np.argmax(c_b / n_b))
    assert (c_b / (n_b + worth_b * at_once)).sum() > best
    assert (c_b / (n_b + worth_b * 3)).sum() > best


@pytest.mark.slow
def test_scores_where_the_table_says_beat_scores_spread_evenly():
    """The AUPR of many repetitions with a second helping of scores, both ways."""
    density = a_density(1, walkers=16, moves=40)
    rng = np.random.default_rng(1)
    first = scored_curve(density, scored_inputs(rng, per_bin=40))
    found = allocate([first], 240)[0]
    assert found.next_b.sum() == 240
    assert found.error_then < found.error_even < found.error_now

    def spread(extra_b):
        auprs = []
        for _ in range(60):
            scored = scored_inputs(rng, per_bin=400)
            place = np.arange(len(scored.bin_i)) - np.searchsorted(scored.bin_i, scored.bin_i)
            part = scored.part(place < 40 + extra_b[scored.bin_i])
            curve = scored_curve(density, part).curve
            ends = (
                float(first.curve.log_recall_t[0]) + 0.2,
                float(first.curve.log_recall_t[-1]) - 0.2,
            )
            auprs.append(area(curve.precision_t, curve.log_recall_t, *ends))
        return np.std(auprs)

    evenly = np.full(len(found.next_b), 240 // len(found.next_b))
    # 60 repetitions: each spread is known to 9%
    assert spread(found.next_b) < 0.9 * spread(evenly)
