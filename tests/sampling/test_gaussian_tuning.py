"""A Gaussian ladder across a first-order transition, tuned: rates equal, the density right."""

from dataclasses import replace

import numpy as np
import pytest
import run_tools
from known_answers import SmallOccupation

from omniinput_hpc.cli import run as launch
from omniinput_hpc.estimators.density.density import density_of_run
from omniinput_hpc.parallel.stopping import StopRun
from omniinput_hpc.runfile.reader import open_run
from omniinput_hpc.sampling import loop

INPUT = """
[run]
output = "{output}"
seed = 3
rounds = 12
burn_in = 14
[model]
kind = "python"
factory = "known_answers:small_occupation"
[sampler]
walkers = 96
steps = 8
exchanges = 16
[ladder]
betas = [0.59, 0.59, 0.59, 0.59, 0.59, 0.59, 0.3, 0.0]
kappa = [0.04, 0.04, 0.04, 0.04, 0.04, 0.04, 0.0, 0.0]
z0 = [-45.0, -36.0, -27.0, -18.0, -9.0, 0.0, 0.0, 0.0]
tune = true
[kernel]
name = "metropolis"
[bins]
lower = -45.5
upper = 0.5
width = 1.0
[samples]
every = 64
"""
SHORT = [
    "run.rounds=2",
    "run.burn_in=6",
    "sampler.walkers=8",
    "sampler.exchanges=2",
    "samples.every=8",
]
SIGMAS = 4.0
CORRELATED = 3.0
"""Swaps of one pair that follow each other, over independent ones: what one of them counts."""
TUNED_BY = 4 * 16 / 2
"""Exchanges of a pair in the last of the stages of 1, 2 and 4 rounds."""


def run(folder, *changes, name="run"):
    toml, path = folder / f"{name}.toml", folder / f"{name}.h5"
    toml.write_text(INPUT.format(output=path))
    return launch.main([str(toml), *(w for c in changes for w in ("--set", c))]), path


def sigmas_apart(path):
    """Return how many standard errors pairs' shares of accepted swaps are from their mean, [K - 1].

    The error is that of counting them, and of the last stage that the ladder was tuned by.
    """
    with open_run(path) as finished:
        attempted_k, accepted_k = finished.swaps_k2().T
        walkers = finished.walkers
    share_k = accepted_k / attempted_k
    mean = share_k.mean()
    n = 1.0 / (1.0 / attempted_k + 1.0 / (walkers * TUNED_BY))
    return (share_k - mean) / np.sqrt(CORRELATED * mean * (1.0 - mean) / n)


@pytest.mark.slow
def test_rates_are_equal_and_the_density_is_right(tmp_path):
    code, path = run(tmp_path)
    assert code == 0
    assert np.abs(sigmas_apart(path)).max() < SIGMAS
    with open_run(path) as finished:
        density, kappa_k, z0_k = density_of_run(finished.data), finished.kappa_k(), finished.z0_k()
        given = replace(finished.data.weights, z0_k=np.array([-45, -36, -27, -18, -9, 0, 0, 0.0]))
        wrong = density_of_run(replace(finished.data, weights=given))
    assert density.absolute and (kappa_k[:5] > 0).all() and np.diff(z0_k[:5]).min() > 0
    score = z_scores(density)
    assert len(score) > 25
    assert np.abs(score).max() < 4.5 and 0.4 < np.sqrt(np.mean(score**2)) < 1.7
    assert np.abs(z_scores(wrong)).max() > 9, "z0 as it was given, not as it was tuned"


def z_scores(density):
    known = (density.effective_b >= 50) & np.isfinite(density.log_g_error_b)
    exact_b = SmallOccupation().log_g(density.edges)
    return (density.log_g_b[known] - exact_b[known]) / density.log_g_error_b[known]


@pytest.mark.slow
def test_as_it_was_given_the_ladder_is_uneven(tmp_path):
    """The wrong variant: nothing is moved."""
    code, path = run(tmp_path, "ladder.tune=false", "run.rounds=4", "run.burn_in=4")
    assert code == 0
    assert np.abs(sigmas_apart(path)).max() > 2 * SIGMAS


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    code, path = run(tmp_path_factory.mktemp("whole"), *SHORT)
    assert code == 0
    return path


@pytest.mark.parametrize("stop_after", [2, 5, 7])
def test_a_run_that_stopped_and_went_on_is_equal(whole, tmp_path, monkeypatch, stop_after):
    """Stopped between stages, after the last of them, and among the counted rounds."""
    commit, done = loop.commit, []

    def stopping(running, stats):
        if len(done) == stop_after:
            raise StopRun("stopped here")
        done.append(running.next_round)
        return commit(running, stats)

    monkeypatch.setattr(loop, "commit", stopping)
    assert run(tmp_path, *SHORT)[0] == 75
    monkeypatch.setattr(loop, "commit", commit)
    code, path = run(tmp_path, *SHORT)
    assert code == 0
    run_tools.assert_same(path, whole)
    with open_run(path) as finished:
        assert not np.isin(finished.z0_k()[1:5], [-36, -27, -18, -9]).any(), "nothing was tuned"


@pytest.mark.slow
@pytest.mark.skipif(not run_tools.LAUNCHER, reason="no MPI launcher")
def test_ranks_change_no_bit(whole, tmp_path):
    toml, path = tmp_path / "run.toml", tmp_path / "run.h5"
    toml.write_text(INPUT.format(output=path))
    done = run_tools.run(toml, *(w for c in SHORT for w in ("--set", c)), ranks=2)
    assert done.returncode == 0, done.stderr
    run_tools.assert_same(path, whole)
