"""A ladder in two directions against the exact joint density; the tail of y is reached."""

import json
from dataclasses import replace

import numpy as np
import pytest
import two_sums
from scipy.special import logsumexp

from omniinput_hpc.cli import run as launch
from omniinput_hpc.estimators import two_directions
from omniinput_hpc.estimators.density.density import density_of_run
from omniinput_hpc.estimators.two_directions import TwoDirections
from omniinput_hpc.report.recorded import Recorded
from omniinput_hpc.results.changes import inputs_at
from omniinput_hpc.results.diagnosis import diagnosis_of
from omniinput_hpc.results.observables import joint_of
from omniinput_hpc.runfile.reader import open_run

N_SITES = 12
LADDERS = {
    "z and y": ([1.0, 0.5, 0.0, 0.0, 0.0, 0.0, 0.0], [0, 0, 0, -0.6, -1.2, -2.0, -3.0]),
    "z": ([0.0, 0.3, 0.6, 1.0, 1.5, 2.0, 2.5], None),
}
INPUT = """[run]
output = "{path}"
seed = {seed}
rounds = {rounds}
burn_in = 4
[model]
kind = "python"
factory = "two_sums:model"
[[observables]]
name = "sum"
function = "two_sums:y"
[sampler]
walkers = {walkers}
steps = 8
exchanges = 10
[ladder]
betas = {betas}
{more}
[kernel]
name = "metropolis"
[bins]
lower = 0.0
upper = 9.25
width = 0.25
[samples]
every = 4
"""


def sampled(folder, ladder="z and y", seed=1, rounds=40, walkers=16):
    betas, lambdas = LADDERS[ladder]
    more = f'lambdas = {lambdas}\nobservable = "sum"' if lambdas else ""
    toml, path = folder / "run.toml", folder / "run.h5"
    toml.write_text(
        INPUT.format(path=path, seed=seed, rounds=rounds, walkers=walkers, betas=betas, more=more)
    )
    assert launch.main([str(toml)]) == 0
    return path


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return sampled(tmp_path_factory.mktemp("two"))


@pytest.fixture(scope="module")
def found(path):
    with open_run(path) as run:
        return joint_of(run, "sum")


def sigmas(joint):
    """Return by how many standard errors the cells of 100 inputs or more are off."""
    exact = two_sums.log_g(N_SITES, joint.z_edges, joint.y_edges)
    some = (exact > np.log(100)) & np.isfinite(joint.error_bc)
    return (joint.log_g_bc[some] - exact[some]) / joint.error_bc[some]


def test_cells_are_right(path):
    with open_run(path) as run:
        off = sigmas(joint_of(run, "sum", cells=40).found)  # of one y each
    assert len(off) > 80
    assert 0.7 < np.sqrt(np.mean(off**2)) < 1.4
    assert np.abs(off).max() < 5.0


def test_all_rungs_are_diagnosed_and_places_count_the_plain_ones(path):
    with open_run(path) as run:
        found, plain = diagnosis_of(run), len(run.data.beta_k)
        assert (plain, len(found.found.beta_k)) == (3, 7)
        assert np.isfinite(found.found.rhat_k).all() and len(found.found.rhat_k) == 7
        assert np.flatnonzero(found.found.drawn_k).tolist() == [2]  # not the tilted ones at beta 0
        assert len(found.lines()) > 7
        n = run.samples_per_round
        (text,) = inputs_at(run, np.array([(1 * plain + 2) * n + 3]))
        assert text == json.dumps(" ".join(map(str, run.slab("samples/x", 1)[2, 3])))
        said = Recorded(run, density_of_run(run.data)).search("no input").said
        assert f"of {run.rounds * plain * n:,} recorded samples" in said


def test_a_solution_without_lambda_is_wrong(path, found, monkeypatch):
    with open_run(path) as run:
        right = TwoDirections.of
        monkeypatch.setattr(
            TwoDirections, "of", lambda run, lambda_k, *more: right(run, 0.8 * lambda_k, *more)
        )
        assert np.sqrt(np.mean(sigmas(joint_of(run, "sum").found) ** 2)) > 3.0


def test_marginals_agree(path, found):
    """The joint density, summed over y, is that of z from the rungs of lambda = 0."""
    joint, density = found.found, found.densities[0]
    log_g_b = logsumexp(joint.log_g_bc, axis=1)
    some = density.log_g_error_b < 0.2
    assert some.sum() > 8
    off = (log_g_b - density.log_g_b)[some] / density.log_g_error_b[some]
    assert np.abs(off).max() < 4.0


def test_the_tail_of_y_is_reached(found, tmp_path):
    """y = 36, one input of 16,777,216; with a ladder in z alone little is known above 30."""
    joint = found.found
    exact_c = logsumexp(two_sums.log_g(N_SITES, joint.z_edges, joint.y_edges), axis=0)
    assert joint.y_edges[-2:].tolist() == [3 * N_SITES - 0.5, 3 * N_SITES + 1.5]
    assert joint.error_c.max() < 0.3
    assert np.abs(joint.log_g_c - exact_c).max() < 0.6
    with open_run(sampled(tmp_path, "z")) as run:
        seen = joint_of(run, "sum").found
    assert not (seen.error_c[seen.y_edges[:-1] > 30.5] < 0.5).any()


def test_lines_say_which_rungs_the_verdict_is_about(found):
    lines = "\n".join(found.lines())
    assert "4 of 7 rungs weigh inputs by sum, too" in lines
    assert "these 4 rungs: lanes agree" in lines


def test_problems_are_named(path):
    with open_run(path) as run:
        y_rks = np.stack([run.slab("observables/sum", r) for r in range(run.rounds)])
        lambda_k = run.config.ladder.lambda_k
        good = TwoDirections.of(run.all_rungs(), lambda_k, y_rks, range(run.rounds))
        assert good.problem() == ""
        drift_k1 = np.where(lambda_k == -2.0, 5.0, 0.5)[:, None]
        drifted = y_rks + drift_k1 * (np.arange(y_rks.shape[2]) % run.walkers)
        apart = TwoDirections.of(run.all_rungs(), lambda_k, drifted, range(run.rounds))
        assert "lanes disagree about y at beta = 0, lambda = -2 (R-hat" in apart.problem()
        elsewhere = replace(good, z_ktw=good.z_ktw + drift_k1[..., None] * (np.arange(16) % 2))
        assert "lanes disagree about z at beta = 0, lambda = -" in elsewhere.problem()
        stuck = run.all_rungs()
        stuck.swaps_k2[4, 1] = 0
        never = TwoDirections.of(stuck, lambda_k, y_rks, range(run.rounds))
        assert never.problem().startswith("beta = 0, lambda = -1.2 and beta = 0, lambda = -2 never")


def test_a_density_that_is_not_absolute_sums_to_one(path):
    with open_run(path) as run:
        y_rks = np.stack([run.slab("observables/sum", r) for r in range(run.rounds)])
        lambda_k = run.config.ladder.lambda_k + 0.1
        two = TwoDirections.of(run.all_rungs(), lambda_k, y_rks, range(run.rounds))
        assert not two.absolute
        joint = two_directions.joint_density(two, np.array([0.0, 9.5]), np.array([0.0, 40.0]))
        np.testing.assert_allclose(joint.log_g_bc, 0.0, atol=1e-9)


def test_a_language_model_s_own_normalizer_makes_it_absolute(path, monkeypatch):
    """The rungs at beta = 1 and 0.5, as if beta = 1 were the model itself."""
    site = np.exp(-two_sums.UNIT * two_sums.Z_V).sum()
    monkeypatch.setattr(two_directions, "model_log_z", lambda run: N_SITES * np.log(site))
    with open_run(path) as run:
        y_rks = np.stack([run.slab("observables/sum", r)[:2] for r in range(run.rounds)])
        part = replace(run.all_rungs().first_rungs(2), model_beta=1.0)
        parts = (part, run.config.ladder.lambda_k[:2], y_rks, range(run.rounds))
        assert not TwoDirections.of(*parts).absolute
        two = TwoDirections.of(*parts, pinned=True)
        assert two.absolute
        off = sigmas(two_directions.joint_density(two, run.edges[::2], np.arange(40.0) - 0.5))
    assert len(off) > 50 and np.sqrt(np.mean(off**2)) < 1.5 and np.abs(off.mean()) < 1.0


def test_rungs_with_lambda_that_are_not_to_be_trusted_have_no_upper_bounds(
    path, found, monkeypatch
):
    assert np.isfinite(found.found.upper_bc).any() and "log_g_upper" in found.lines()[-1]
    monkeypatch.setattr(TwoDirections, "problem", lambda self: "add rungs")
    with open_run(path) as run:
        again = joint_of(run, "sum")
    assert np.isnan(again.found.upper_bc).all() and "log_g_upper" not in again.lines()[-1]


def test_one_lane_has_no_errors(tmp_path):
    with open_run(sampled(tmp_path, rounds=2, walkers=1)) as run:
        joint = joint_of(run, "sum").found
    assert np.isfinite(joint.log_g_c).any()
    assert not np.isfinite(joint.error_bc).any()


def test_an_output_at_the_upper_end_is_counted_as_in_the_histogram(found):
    two, joint = found.two, found.found
    z_edges, top = joint.z_edges, two.run.edges[-1]
    at_the_end = replace(two, z_ktw=np.where(two.z_ktw > z_edges[3], top, two.z_ktw))
    again = two_directions.joint_density(at_the_end, two.run.edges, joint.y_edges)
    assert again.count_bc[-1].sum() == (two.z_ktw > z_edges[3]).sum()
