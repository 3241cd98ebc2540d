"""The two constants of a language model, from a run's density."""

import numpy as np
import pytest
from lattice import Lattice, independent_run

from omniinput_hpc.estimators.density.density import density_of_run
from omniinput_hpc.estimators.density.known_ratio import (
    describe,
    exact_difference,
    log_constants_apart,
)

EDGES = (np.arange(len(Lattice().z_l()) + 1) - 0.5) * Lattice().unit
BETA_K = np.array([0.0, 1.5, 3.0])


def exact():
    model = Lattice()
    count, z = model.count_l(), model.z_l()
    log_w = np.log(count[count > 0]) - 3.0 * z[count > 0]
    return np.log(model.count_l().sum()) - np.logaddexp.reduce(log_w)


@pytest.mark.slow
def test_the_constants_apart_are_the_exact_ones():
    scores = []
    for seed in range(12):
        run = independent_run(Lattice(), BETA_K, EDGES, rounds=24, moves=40, seed=seed)
        value, error = log_constants_apart(density_of_run(run), 3.0)
        scores.append((value - exact()) / error)
    assert 0.6 < np.sqrt(np.mean(np.square(scores))) < 1.5 and np.abs(scores).max() < 4.5


def test_a_ladder_that_is_wrong_in_between_shows():
    run = independent_run(Lattice(), BETA_K, EDGES, rounds=24, moves=40)
    density = density_of_run(run)
    wrong = density.log_g_b + 0.5 * density.z_b  # as if each rung's beta were 0.5 off
    object.__setattr__(density, "log_g_b", wrong)
    object.__setattr__(density, "log_g_jb", density.log_g_jb + 0.5 * density.z_b)
    value, error = log_constants_apart(density, 3.0)
    assert abs(value - exact()) > 5 * error


def test_only_whole_vocabularies_have_known_constants():
    decoder = {"model": {"kind": "causal-lm"}}
    assert exact_difference(decoder, 24.0, 2000) == pytest.approx(24 * np.log(2000))
    for model in ({"kind": "causal-lm", "tokens": "no-special"}, {"kind": "python"}):
        assert np.isnan(exact_difference({"model": model}, 24.0, 2000))


def test_the_line_says_whether_the_exact_constant_is_inside():
    run = independent_run(Lattice(), BETA_K, EDGES, rounds=24, moves=40)
    run.config, run.model_beta = {"model": {"kind": "causal-lm"}}, 3.0
    density = density_of_run(run)
    (line,) = describe(density, run)
    assert "NOT inside" in line  # the lattice model is no language model
    run.n_values = float(np.exp(exact() / 3.0))
    assert "NOT" not in describe(density, run)[0]
