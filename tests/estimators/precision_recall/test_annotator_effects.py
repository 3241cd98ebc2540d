"""Annotators' effects: by hand, against the truth where each input has few annotators, unknown."""

import numpy as np
import pytest

from omniinput_hpc.estimators.precision_recall.annotator_effects import annotator_effects

NAN = np.nan


def effects(score_ai, bin_i, weight_i=None):
    score_ai, bin_i = np.array(score_ai, float), np.array(bin_i)
    weight_i = np.ones(len(bin_i)) if weight_i is None else np.array(weight_i, float)
    return annotator_effects(
        score_ai, weight_i / np.bincount(bin_i, weight_i)[bin_i], bin_i, bin_i.max() + 1
    )


def test_all_score_all():
    """Differences from the mean of all; their variance over the number of annotators."""
    found = effects([[0.9, 0.5], [0.6, 0.2], [0.3, -0.1]], [0, 0], [1, 7])
    np.testing.assert_allclose(found.effect_ab[:, 0], [0.3, 0.0, -0.3], atol=1e-12)
    np.testing.assert_allclose(found.error_b, 0.3 / np.sqrt(3))
    assert found.known


def test_effects_are_exact_along_a_chain_of_shared_inputs():
    """Ana and ben share one input, ben and cem another, cem scores a third alone."""
    truth = np.array([0.3, -0.1, -0.2])
    score_ai = np.array([[0.5, NAN, NAN], [0.5, 0.4, NAN], [NAN, 0.4, 0.7]]) + truth[:, None]
    found = effects(score_ai, [0, 0, 0])
    np.testing.assert_allclose(found.effect_ab[:, 0], truth, atol=1e-12)
    share_a = np.array([0.5, 1.0, 1.5]) / 3
    expected = np.sqrt((truth**2).sum() / 2 * (share_a**2).sum())
    np.testing.assert_allclose(found.error_b, expected)


def test_strangers_count_by_their_own_share_and_bins_without_shared_inputs_take_the_nearest():
    """Bin 0: two of four share. Bin 1: one alone. Bin 2: nobody."""
    score_ai = [[0.8, NAN, NAN, NAN], [0.4, NAN, NAN, NAN], [NAN, 0.5, NAN, 0.9],
                [NAN, NAN, 0.5, NAN]]  # fmt: skip
    found = effects(score_ai, [0, 0, 0, 1])
    np.testing.assert_allclose(found.effect_ab[:, 0], [0.2, -0.2, 0.0, 0.0], atol=1e-12)
    deviation = np.sqrt(2 * 0.2**2)
    parts = np.array([0.5, 0.5, 1.0, 1.0]) / 3
    np.testing.assert_allclose(
        found.error_b, [deviation * np.sqrt((parts**2).sum()), deviation], rtol=1e-12
    )


def test_without_a_shared_input_nothing_is_known():
    found = effects([[0.5, NAN], [NAN, 1.0]], [0, 1])
    assert not found.known and (found.error_b == 0).all()
    assert not effects([[0.5, 0.1]], [0, 1]).known


@pytest.mark.parametrize("per_input", [1, 2, 5])
def test_the_error_is_that_of_the_means_where_each_input_has_few_annotators(per_input):
    """Five annotators, each input scored by some; the old formula saw far too little."""
    rng, n, n_annotators, sigma = np.random.default_rng(1), 40, 5, 0.2
    square, variance, old = [], [], []
    for _ in range(400):
        effect_a = sigma * rng.normal(size=n_annotators)
        asked_ia = rng.permuted(np.tile(np.arange(n_annotators) < per_input, (n, 1)), axis=1)
        asked_ia[:2] = True  # two inputs that all score
        score_ai = np.where(asked_ia.T, 0.5 + effect_a[:, None], NAN)
        square.append((np.nanmean(score_ai, axis=0).mean() - 0.5) ** 2)
        variance.append(effects(score_ai, np.zeros(n, int)).error_b[0] ** 2)
        shared = asked_ia.sum(axis=1) > 1
        shift = score_ai - np.nanmean(score_ai, axis=0)
        shift_a = np.nanmean(shift[:, shared], axis=1)
        old.append((shift_a**2).sum() / (n_annotators * (n_annotators - 1)))
    assert np.mean(variance) == pytest.approx(np.mean(square), rel=0.2)
    if per_input == 2:
        assert np.mean(old) < 0.6 * np.mean(square)  # the wrong variant
