"""What burn-in finds out about the ladder: swaps counted in stages, betas moved, a report."""

import numpy as np
import pytest

from omniinput_hpc.tempering.adaptation import LadderTuning
from omniinput_hpc.tempering.ladder import respace, stage_ends

BETA_K = np.array([-4.0, -1.0, 0.0, 1.0, 4.0])
SWAPS_K2 = np.array([[10, 2], [10, 9], [10, 9], [10, 2]])
MOMENTS_K3 = np.array([[4.0, 8.0, 20.0]] * 5)  # mean 2, mean square 5
RUNG_K3 = np.column_stack([BETA_K, 0 * BETA_K, 0 * BETA_K])
BURN_IN = 32


def rounds(tuning, last=0, first=-BURN_IN, swaps_k2=SWAPS_K2, beta_k=BETA_K):
    """Play burn-in rounds; return {round: new betas} of those that moved them."""
    moved = {}
    for round_ in range(first, last):
        rung_k3 = np.column_stack([beta_k, 0 * beta_k, 0 * beta_k])
        new = tuning.after_round(round_, rung_k3, swaps_k2, MOMENTS_K3)
        if new is not None:
            moved[round_] = new[:, 0]
            assert not new[:, 1:].any()
    return moved


def test_betas_move_at_the_ends_of_stages_alone():
    moved = rounds(LadderTuning(5, BURN_IN, True, (0.0,)))
    assert moved and set(moved) <= set(stage_ends(BURN_IN))
    for new_k in moved.values():
        np.testing.assert_array_equal(new_k, respace(BETA_K, 1 - SWAPS_K2[:, 1] / 10, (0.0,)))
        assert not np.array_equal(new_k, BETA_K)


@pytest.mark.parametrize("fixed", [(0.0,), (0.0, 1.0)])
def test_fixed_betas_and_the_ends_stay(fixed):
    swaps_k2 = np.array([[10, 1], [10, 9], [10, 7], [10, 3]])
    moved = rounds(LadderTuning(5, BURN_IN, True, fixed), swaps_k2=swaps_k2)
    assert moved
    for new_k in moved.values():
        assert {BETA_K[0], BETA_K[-1], *fixed} <= set(new_k)
        assert (np.diff(new_k) > 0).all()


def test_a_ladder_that_is_not_tuned_never_moves():
    tuning = LadderTuning(5, BURN_IN, False, (0.0,))
    assert rounds(tuning) == {}
    assert tuning.swaps_k2.sum() > 0  # of the last stage, for the report


def test_a_pair_that_was_never_tried_moves_nothing():
    untried = SWAPS_K2 * np.array([[1], [0], [1], [1]])
    assert rounds(LadderTuning(5, BURN_IN, True, (0.0,)), swaps_k2=untried) == {}


def test_spreads_are_of_the_last_round():
    tuning = LadderTuning(5, BURN_IN, True, (0.0,))
    assert np.isnan(tuning.z_std_k).all() and np.isnan(tuning.rejection_k).all()
    tuning.after_round(-2, RUNG_K3, SWAPS_K2, MOMENTS_K3)
    np.testing.assert_allclose(tuning.z_std_k, 1.0)
    np.testing.assert_allclose(tuning.rejection_k, [0.8, 0.1, 0.1, 0.8])


@pytest.mark.parametrize("stopped", range(-BURN_IN + 1, 0, 5))
def test_resuming_moves_the_same_betas(stopped):
    whole, first = (LadderTuning(5, BURN_IN, True, (0.0,)) for _ in range(2))
    expected, moved = rounds(whole), rounds(first, last=stopped)
    stored = first.swaps_k2.copy()
    resumed = LadderTuning(5, BURN_IN, True, (0.0,))
    resumed.resume(stored)
    moved.update(rounds(resumed, first=stopped))
    assert moved.keys() == expected.keys()
    for round_, new_k in expected.items():
        np.testing.assert_array_equal(moved[round_], new_k)
    assert (stored == first.swaps_k2).all()  # resuming took a copy


def report(tuning, log_lines):
    log_lines.clear()
    tuning.report(RUNG_K3)
    return log_lines


@pytest.mark.parametrize("tune", [True, False])
def test_the_report_names_lambda_and_the_worst_pair(log_lines, tune):
    tuning = LadderTuning(5, BURN_IN, tune, (0.0,))
    swaps_k2 = np.array([[10, 2], [10, 9], [10, 9], [10, 3]])
    tuning.after_round(-2, RUNG_K3, swaps_k2, MOMENTS_K3)
    assert report(tuning, log_lines) == [
        "ladder after burn-in: Lambda = 1.70: about 4 rungs are needed (1 + 2 Lambda); the "
        "ladder has 5; rungs 0 and 1 reject most, 80%",
        ("tuned betas" if tune else "betas") + ": -4, -1, 0, 1, 4",
        "sd of z per rung: 1, 1, 1, 1, 1",
    ]


def test_without_swaps_there_is_no_report(log_lines):
    assert report(LadderTuning(5, BURN_IN, True, (0.0,)), log_lines) == []
    assert report(LadderTuning(1, BURN_IN, True, (0.0,)), log_lines) == []
