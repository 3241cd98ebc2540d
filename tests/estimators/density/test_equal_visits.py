"""Inputs of one output are met equally often: right runs pass, and one that is hardly met shows."""

import numpy as np
import pytest
from lattice import ArrayRun, Lattice, independent_run

from omniinput_hpc.estimators.density.density import density_of_run
from omniinput_hpc.estimators.density.equal_visits import unequal_visits
from omniinput_hpc.estimators.samples import inputs_of_bins

MODEL = Lattice()
BETA_K = np.array([-3.0, -1.5, 0.0, 1.5, 3.0, 6.0])
EDGES = (np.arange(len(MODEL.z_l()) + 1) - 0.5) * MODEL.unit  # one level a bin
SIZES = {"walkers": 16, "rounds": 64}


def sentences(run):
    return [
        r for r in density_of_run(run).verdict.reasons if r.startswith("inputs with one output")
    ]


def met_by(run, level, n_lanes):
    """Return the run, in which one input of a level is met by so many lanes: others got another."""
    x, z = run.x_rksd.copy(), run.z_rks
    at_level = np.digitize(z.astype(float), run.edges) - 1 == level
    inputs = np.unique(x[at_level], axis=0)
    lane_rks = np.broadcast_to(np.arange(z.shape[2]) % run.walkers, z.shape)
    taken = at_level & (x == inputs[0]).all(axis=-1) & (lane_rks >= n_lanes)
    x[taken] = inputs[1]
    return ArrayRun(x, z, run.walkers, run.beta_k, run.edges, run.n_values)


@pytest.mark.parametrize("n", [8, pytest.param(20, marks=pytest.mark.release)])
def test_right_runs_meet_all_alike(n):
    """Levels of 1, 9 and 45 inputs; in 20 runs chance makes 0.02 sentences."""
    assert not any(
        sentences(independent_run(MODEL, BETA_K, EDGES, seed=s, **SIZES)) for s in range(n)
    )


@pytest.mark.parametrize("n_lanes", [1, 3, 7])
def test_an_input_that_few_lanes_meet_is_named(n_lanes):
    run = independent_run(MODEL, BETA_K, EDGES, seed=1, **SIZES)
    (reason,) = sentences(met_by(run, 1, n_lanes))
    assert f"recorded at z = {EDGES[1]:g} was visited by {n_lanes} of 16 lanes" in reason
    assert "and 16 are expected" in reason


def test_an_input_that_half_of_the_lanes_meet_is_easy_to_find():
    run = independent_run(MODEL, BETA_K, EDGES, seed=1, **SIZES)
    assert not sentences(met_by(run, 1, 8))
    few = independent_run(MODEL, BETA_K, EDGES, seed=1, walkers=8, rounds=128)
    assert sentences(met_by(few, 1, 4))  # all 8 lanes miss another one with probability 1/256


def test_nothing_is_asked_where_inputs_are_many_or_their_number_is_not_known():
    run = independent_run(MODEL, BETA_K, EDGES, seed=1, **SIZES)
    wrong, n_bins = met_by(run, 1, 1), len(EDGES) - 1
    known, inputs = np.full(n_bins, 1.0), inputs_of_bins(wrong, EDGES, np.ones(n_bins, bool))
    assert not unequal_visits(wrong, inputs, known, np.full(n_bins, 1000.0)).passed
    nothing_known = np.full(n_bins, np.inf)
    assert unequal_visits(wrong, inputs, nothing_known, np.full(n_bins, 1000.0)).passed
    assert unequal_visits(wrong, inputs, known, np.full(n_bins, 5.0)).passed
