"""What a pilot measures, beside exact moments; and kernels that fit what a model offers."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from exact_moments import moments
from runs_in_progress import WORLD, config_of

from omniinput_hpc.errors import UserError
from omniinput_hpc.pilot import measure, proposal
from omniinput_hpc.pilot.rehearse import Seen
from omniinput_hpc.pilot.settings import Rehearsal, Spread
from omniinput_hpc.sampling import auto_walkers, build
from omniinput_hpc.sampling.trial import BatchTrial
from omniinput_zoo.exact import lattice

SETTINGS = ("ladder.betas=[0.0, 1e-9]", "sampler.walkers=32", "model.options={n_sites=20}")


def always(seconds=60.0):
    return measure.Deadline(seconds, lambda: 0.0)


def nothing():
    return None


@pytest.fixture
def built(tmp_path):
    return build.build(WORLD, config_of(tmp_path, *SETTINGS), None)


def test_no_more_walkers_are_tried_than_a_cpu_takes(built, monkeypatch):
    tried = []

    def of_the_same_time(world, built, n_walkers):
        tried.append(n_walkers)
        return BatchTrial(n_walkers, 1e-4, 0, 0)

    monkeypatch.setattr(auto_walkers, "_try_walkers", of_the_same_time)
    found, seconds = proposal._with_walkers(WORLD, built)
    assert found.geometry.n_walkers == max(tried) == proposal.MAX_CPU_WALKERS and seconds == 1e-4


def test_the_cost_is_that_of_the_ladder_that_is_proposed(built, monkeypatch):
    """Even if it was chosen after the last rehearsal, whose neighbours hardly swapped."""
    tried = []

    def rehearsed(world, built, config, seconds, share, stopping):
        beta_k = config.beta_k
        tried.append(len(beta_k))
        spread = Spread(beta_k, -beta_k / 4, np.full(len(beta_k), 0.5), -5.0, 5.0)
        rejection_k = np.full(len(beta_k) - 1, 0.5 if len(tried) == 1 else 0.95)
        return Seen(Rehearsal(0.1, 1000, 5.0, seconds=2.0), spread, rejection_k)

    monkeypatch.setattr(auto_walkers, "_try_walkers", lambda *_: BatchTrial(16, 1e-4, 0, 0))
    monkeypatch.setattr(proposal.rehearse, "run", rehearsed)
    stopping = SimpleNamespace(after_move=nothing)
    made = proposal.make(WORLD, built, proposal.Aim(), 0.5, stopping)
    n_rungs = len(made.tree["ladder"]["betas"])
    assert n_rungs != tried[-1] and len(tried) == 2
    assert made.seen.rehearsal.seconds == pytest.approx(2.0 * n_rungs / tried[-1])


def test_outputs_at_zero_have_the_exact_moments(built):
    z = measure.outputs_at_zero(built, always(), nothing)
    exact, _ = moments(built.model, np.array([0.0]))
    assert len(z) == measure.N_DRAWN
    assert abs(z.mean() - exact.mean_i[0]) < 4 * exact.sd_i[0] / np.sqrt(len(z))
    assert z.std() == pytest.approx(exact.sd_i[0], rel=0.1)


def test_few_outputs_do_where_time_is_over(built):
    over = measure.Deadline(0.0, lambda: 1.0)
    assert len(measure.outputs_at_zero(built, over, nothing)) == measure.FEWEST


def test_cooled_chains_follow_the_exact_moments(built):
    z = measure.outputs_at_zero(built, always(), nothing)
    spread, ends = measure.cooled_spread(built, z, 1e6, nothing)
    assert set(ends) == {"low", "high"} and all(ends.values())
    assert (np.diff(spread.beta_i) > 0).all() and 0.0 in spread.beta_i
    exact, _ = moments(built.model, spread.beta_i)
    near = np.abs(spread.beta_i) < 3.0
    assert near.sum() > 6
    off = np.abs(spread.mean_i - exact.mean_i)[near] / exact.sd_i[near]
    assert off.max() < 0.75  # short chains lag behind
    np.testing.assert_allclose(spread.sd_i[near], exact.sd_i[near], rtol=0.35)
    assert spread.lowest <= exact.lowest + 2.0 and spread.highest >= exact.highest - 4.0


def test_a_model_of_one_output_is_refused(built, monkeypatch):
    flat = np.zeros(32, dtype=np.float32)
    monkeypatch.setattr(built.rungs[0].walkers, "evaluate", lambda x: flat)
    with pytest.raises(UserError, match="z = 0 for all of 1024 random inputs"):
        measure.outputs_at_zero(built, always(), nothing)


class Gradient:
    """z is the sum of the values, of which there are three."""

    def output_and_gradient(self, x):
        slope = torch.arange(3.0).expand(*x.shape, 3)
        return x.sum(dim=1).float(), slope


class Conditionals(Gradient):
    """All values are alike, given those before."""

    def conditional_logits(self, x):
        log_p = torch.full((*x.shape, 3), -np.log(3.0))
        return torch.full((len(x),), np.log(3.0)), log_p


@pytest.mark.parametrize(("model", "name"), [
    (Conditionals(), "lm-conditional"), (Gradient(), "gibbs-with-gradients"),
    (lattice("cpu"), "metropolis"),
])  # fmt: skip
def test_the_kernel_is_what_the_model_offers(model, name):
    assert measure.kernel_table(model) == {"kernel": {"name": name}}
