"""A lane that stays long in a text that few meet is named; short stays and common texts are not."""

import numpy as np
import pytest
from lattice import ArrayRun

from omniinput_hpc.estimators.density.density import density_of_run
from omniinput_hpc.estimators.density.long_stays import N_LOOKS, long_stays

R, K, W, D, V = 64, 4, 16, 10, 50
BETA_K = np.array([8.0, 9.0, 10.0, 12.0])
EDGES = np.linspace(0.0, 1.0, 11)


def run_of(x, model_beta=9.0):
    """Return a run whose inputs are given, [R, K, 2 W, D]; rungs 2 and 3 swap after every round."""
    z = np.random.default_rng(3).random(x.shape[:3]).astype(np.float32)
    run = ArrayRun(x, z, W, BETA_K, EDGES, V)
    run.model_beta, unswapped = model_beta, run.samples_walker
    run.samples_walker = lambda r: unswapped(r)[[0, 1, 3, 2]] if r % 2 else unswapped(r)
    return run


def texts(seed=1):
    return np.random.default_rng(seed).integers(V, size=(R, K, 2 * W, D))


def with_stay(lanes, rounds=slice(10, 10 + 28), rungs=(2, 3), same=6, seed=1):
    """Return inputs in which some lanes have a text, or some of its values, at all times."""
    x, text = texts(seed), np.arange(D)
    for lane in lanes:
        for sample in range(2):
            for r in range(R)[rounds]:  # on one of the rungs at a time
                x[r, rungs[r % len(rungs)], sample * W + lane, :same] = text[:same]
    return x


def test_a_text_that_comes_and_goes_is_no_stay():
    """Each round another of the lane's walkers has it."""
    run = run_of(with_stay([3]))
    run.samples_walker = lambda r: np.roll(np.arange(K * W).reshape(K, W), r // 4, axis=0)[
        :, np.arange(2 * W) % W
    ]
    assert long_stays(run).passed


def test_independent_texts_stay_nowhere():
    assert all(long_stays(run_of(texts(seed))).passed for seed in range(5))


def test_a_text_that_one_lane_keeps_is_named():
    reason = long_stays(run_of(with_stay([3]))).reason
    assert "of the run, and 1 of 16 lanes visited it" in reason
    assert reason in density_of_run(run_of(with_stay([3]))).verdict.reasons
    reason = long_stays(run_of(with_stay([3, 9]))).reason
    assert "of the run (1 more walker did so, too), and 2 of 16 lanes visited it" in reason


def test_the_highest_output_of_such_texts_is_named():
    run = run_of(with_stay([3, 9]))
    run.z_rks[:, 2:, 3], run.z_rks[:, 2:, W + 3] = 0.25, 0.25
    run.z_rks[:, 2:, 9], run.z_rks[:, 2:, W + 9] = 0.125, 0.125
    assert "with z of 0.25 or less" in long_stays(run).reason


@pytest.mark.parametrize("changes", [
    {"rounds": slice(10, 22)},  # too short: an eighth of the run and a half
    {"same": 4},  # fewer than half of its values
    {"lanes": range(4)},  # a text that a quarter of the lanes meet
])  # fmt: skip
def test_what_is_no_stay(changes):
    assert long_stays(run_of(with_stay(**({"lanes": [3]} | changes)))).passed


def test_where_texts_that_many_meet_are_left_as_slowly_no_stay_is_long():
    """The same stay of one lane, beside others' in a text that half of the lanes meet."""
    x, text = with_stay([3]), np.arange(D) + 20
    assert not long_stays(run_of(x)).passed
    for lane in range(8, 16):
        x[lane : lane + 16, 1, W + lane] = text
    assert long_stays(run_of(x)).passed
    x[:, 1] = texts(7)[:, 1]
    for lane in range(8, 16):
        x[3 * lane : 3 * lane + 4, 1, W + lane] = text  # a sixteenth of the run
    assert not long_stays(run_of(x)).passed


def test_what_is_not_asked():
    x = with_stay([3])
    assert long_stays(run_of(x, model_beta=12.0)).passed, "no rung is colder than the model"
    assert long_stays(run_of(x, model_beta=np.nan)).passed, "no language model"
    assert long_stays(run_of(x[: N_LOOKS - 1])).passed, "too few rounds"
    drawn = run_of(x)
    drawn.log_q = np.zeros((R, K, 2 * W, K))
    assert long_stays(drawn).passed, "draws, not chains"
