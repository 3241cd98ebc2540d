"""Annotators per bin by hand, and curves from ever more scores that settle on the whole one."""

from dataclasses import replace

import numpy as np
import pytest
from scored_model import WIDE, a_density, exact_aupr, scored_inputs

from omniinput_hpc.estimators import EstimateError
from omniinput_hpc.estimators.precision_recall.annotators import (
    convergence,
    steps_from,
)
from omniinput_hpc.estimators.precision_recall.from_scores import Scored, scored_curve
from omniinput_hpc.results.scores import annotator_columns


def test_columns_by_hand():
    """Bin 0: means 0.75 and 0.25 (weights 3 and 1); bin 1: one annotator; bin 2: no score."""
    nan = np.nan
    scored = Scored(
        edges=np.arange(4.0),
        bin_i=np.array([0, 0, 1, 2]),
        lane_i=np.arange(4),
        weight_i=np.array([3.0, 1.0, 5.0, 1.0]),
        score_ai=np.array([[1.0, 0.0, 0.5, nan], [0.0, 1.0, nan, nan]]),
        annotators=["ana", "ben"],
    )
    table = annotator_columns(scored)
    np.testing.assert_array_equal(table["z_lower"], [0.0, 1.0])
    np.testing.assert_array_equal(table["z_upper"], [1.0, 2.0])
    np.testing.assert_allclose(table["r_ana"], [0.75, 0.5])
    np.testing.assert_allclose(table["r_ben"], [0.25, nan])
    np.testing.assert_array_equal(table["inputs_ana"], [2, 1])
    np.testing.assert_array_equal(table["inputs_ben"], [2, 0])
    np.testing.assert_array_equal(table["annotators"], [2, 1])
    np.testing.assert_allclose(table["mean"], [0.5, 0.5])
    np.testing.assert_allclose(table["deviation"], [np.std([0.75, 0.25], ddof=1), nan])
    np.testing.assert_allclose(table["r"], [0.5, 0.5])


@pytest.fixture(scope="module")
def settled():
    density = a_density(1)
    scored = scored_inputs(np.random.default_rng(3), per_bin=45, noise=0.1)
    return density, scored, convergence(density, scored)


def test_each_step_adds_to_the_one_before_and_the_last_is_the_whole(settled):
    """45 inputs a bin: steps of 10 to 50, of which the last holds all."""
    density, scored, found = settled
    assert list(found) == [10, 20, 30, 40, 50]
    for n, curve in found.items():
        counts = curve.inputs_b[curve.bin_t]
        assert (counts == min(n, 45)).all() and len(counts) == len(WIDE) - 1
    whole = scored_curve(density, scored, "low", 1, 1).curve
    np.testing.assert_allclose(found[50].r_b, whole.r_b)
    assert found[50].aupr == whole.aupr
    some = convergence(density, scored, steps=(10, 45, 60))
    assert list(some) == [10, 45]  # 45 held everything


def test_the_order_is_shuffled_once_and_fixed_by_the_seed(settled):
    density, scored, found = settled
    again, other = convergence(density, scored), convergence(density, scored, seed=5)
    assert [c.aupr for c in again.values()] == [c.aupr for c in found.values()]
    assert other[10].aupr != found[10].aupr
    # inputs whose order in the file goes by their score: the first ten are like the others
    order = np.argsort(scored.score_ai[0], kind="stable")
    keep = {name: getattr(scored, name)[order] for name in ("bin_i", "lane_i", "weight_i")}
    by_score = replace(scored, score_ai=scored.score_ai[:, order], **keep)
    r_10, r_50 = (convergence(density, by_score)[n].r_b for n in (10, 50))
    assert np.abs(r_10 - r_50).mean() < 0.15  # the first ten as they stand: far below
    first = np.concatenate([np.flatnonzero(by_score.bin_i == b)[:10] for b in range(len(WIDE) - 1)])
    mask = np.isin(np.arange(len(order)), first)
    unshuffled = scored_curve(density, by_score.part(mask), "low", 1, 1).curve
    assert np.abs(unshuffled.r_b - r_50).mean() > 0.15


def test_intervals_narrow_around_the_exact_area(settled):
    _, _, found = settled
    widths = [curve.aupr_high - curve.aupr_low for curve in found.values()]
    assert widths[-1] < 0.75 * widths[0]
    last = found[50]
    log_recall = last.log_recall_t[np.isfinite(last.log_recall_t)]
    truth = exact_aupr((log_recall.min(), log_recall.max()))
    assert last.aupr == pytest.approx(truth, abs=4 * last.aupr_error)


def test_bins_of_fewer_than_ten_inputs_have_a_first_step_of_their_own():
    """As --fewest-inputs 6 lets them count for the curve."""
    assert steps_from(6) == (6, 10, 20, 30, 40, 50)
    assert steps_from(10) == steps_from(30) == (10, 20, 30, 40, 50)
    scored = scored_inputs(np.random.default_rng(4), per_bin=7)
    found = convergence(a_density(1), scored, steps=steps_from(6), fewest_lanes=4)
    assert list(found) == [6, 10] and (found[10].inputs_b[found[10].bin_t] == 7).all()


def test_too_few_scores_for_the_first_step(settled):
    density, scored, _ = settled
    with pytest.raises(EstimateError):
        convergence(density, scored, steps=(60, 80))
