"""What a rule's samples are worth: independent ones their number, alike ones of a lane fewer."""

import warnings

import numpy as np
import pytest

from omniinput_hpc.estimators.precision_recall.rule_worth import ScoreSums, worth_of

LOG_G_B = np.log(3.0) * np.arange(40.0)


def worth(score_gmb, weight_gmb=None, inefficiency=1.0):
    """Return the worth of scores [G lanes, samples, B bins]."""
    weight_gmb = np.ones(score_gmb.shape) if weight_gmb is None else weight_gmb
    nothing_b = np.zeros(score_gmb.shape[2], dtype=np.int64)
    sums = ScoreSums(
        weight_gmb.sum(axis=1),
        (weight_gmb * score_gmb).sum(axis=1),
        (weight_gmb > 0).sum(axis=1),
        (weight_gmb**2).sum(axis=(0, 1)),
        (weight_gmb * score_gmb**2).sum(axis=(0, 1)),
        inefficiency * (weight_gmb**2).sum(axis=(0, 1)),
        nothing_b,
        nothing_b,
    )
    return worth_of(sums, LOG_G_B)


def tossed(share, shape=(16, 50, 40), seed=1):
    return (np.random.default_rng(seed).random(shape) < share).astype(float)


@pytest.mark.parametrize("share", [0.02, 0.3, 0.99])
def test_independent_scores_are_worth_their_number(share):
    found = worth(tossed(share))
    assert 0.75 < np.median(found.alone_b) / 800 <= 1.001
    assert np.median(found.summed_b) / 800 > 0.6 and found.curve_b[0] / 800 > 0.4


def test_scores_that_a_lane_keeps_in_a_bin_are_worth_as_many_as_it_draws():
    """Each lane and bin has five scores, ten times each: the whole is worth 80."""
    alike = np.repeat(tossed(0.3, (16, 5, 40)), 10, axis=1)
    found = worth(alike)
    assert np.median(found.alone_b) == pytest.approx(80, rel=0.25)
    assert np.median(found.curve_b) > 0.4 * np.median(found.alone_b)


def test_scores_that_a_lane_keeps_in_all_bins_are_worth_few_in_a_sum():
    """What is right is drawn once for all bins: neighbours add nothing to a sum's precision."""
    kept = np.repeat(tossed(0.3, (16, 50, 1)), 40, axis=2)
    found = worth(kept)
    assert np.median(found.alone_b) > 600
    assert found.curve_b.sum() < 2.0 * 800  # of 40 times 800
    apart = worth(tossed(0.3))
    assert apart.curve_b.sum() > 10 * found.curve_b.sum()
    assert np.median(found.summed_b) < 0.8 * np.median(apart.summed_b)


def test_what_equal_scores_are_worth_the_bins_counts_say():
    """Nothing wrong tells nothing of how alike samples are: the dispersion of counts does."""
    found = worth(np.ones((16, 50, 40)), inefficiency=4.0)
    np.testing.assert_allclose(found.alone_b, 200.0)
    np.testing.assert_allclose(found.curve_b, 200.0)


def test_uneven_weights_and_graded_scores():
    weight = np.random.default_rng(3).exponential(size=(16, 50, 40))  # Kish: half as many
    found = worth(tossed(0.3), weight)
    assert np.median(found.alone_b) == pytest.approx(400, rel=0.25)
    graded = 0.5 + 0.1 * (2.0 * tossed(0.5) - 1.0)  # spread 0.1 in place of 0.5: 25 times as many
    assert np.median(worth(graded).alone_b) == pytest.approx(20_000, rel=0.3)


def test_a_single_graded_sample_is_worth_one():
    """Its own spread of 0 says nothing; two show a spread of half the variance, by one degree."""
    np.testing.assert_allclose(worth(np.full((1, 1, 40), 0.5)).alone_b, 1.0)
    two = np.tile(np.array([0.25, 0.75])[None, :, None], (1, 1, 40))
    # r (1 - r) = 4/16 and the mean square 1/16: (4/16 + 1/16 + 1/4) / (2/16 + 1/4) each
    np.testing.assert_allclose(worth(two).alone_b, 2 * 1.5)


def test_bins_without_samples_and_a_single_group():
    score = tossed(0.3)
    weight = np.ones(score.shape)
    weight[:, :, 7] = 0.0
    found = worth(score, weight)
    assert found.alone_b[7] == found.summed_b[7] == found.curve_b[7] == 0.0
    assert np.isfinite([found.alone_b, found.summed_b, found.curve_b]).all()
    weight[:, :, :3] = 0.0  # also the first ones
    with warnings.catch_warnings(action="error"):
        found = worth(score, weight)
    assert (found.summed_b[3:] >= 0).all() and np.isfinite(found.summed_b[8:]).all()
    assert np.isfinite(found.curve_b).all() and found.curve_b[8:].min() > 0
    alone = worth(score[:1], inefficiency=2.0)
    np.testing.assert_allclose(alone.alone_b, 25.0, rtol=0.05)
