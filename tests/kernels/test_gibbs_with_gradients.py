"""The gibbs-with-gradients kernel: exact in every ensemble; and wrong variants of it are caught."""

import pytest
import torch
from exactness import (
    Draw,
    Explorer,
    Gaussian,
    ScriptedStream,
    Tabulated,
    check_alone,
    check_exact,
    check_sites,
    distribution,
    shift_of_value,
    site_changed,
    value_given,
)
from law_models import NormalizedRows, Under
from toy_models import AutoregressiveModel, CoupledModel, lattice
from wrong_variants import OneSlope, without_proposal_term

from omniinput_hpc import kernels
from omniinput_hpc.config.kernels import GibbsWithGradients as Options
from omniinput_hpc.config.kernels import Metropolis
from omniinput_hpc.errors import UserError
from omniinput_hpc.kernels import gibbs_with_gradients
from omniinput_hpc.kernels.gibbs_with_gradients import GibbsCache, GibbsWithGradients
from omniinput_hpc.kernels.parts.gradients import Dense, Differentiable
from omniinput_hpc.kernels.parts.law import Law
from omniinput_hpc.kernels.state import Info, State
from omniinput_hpc.tempering.ensembles import Canonical

COUPLED = CoupledModel(dtype=torch.float64)
AUTOREGRESSIVE = AutoregressiveModel(n_values=4)
ENSEMBLES = [*map(Canonical, (-2.0, 0.5, 1.0, 2.0)), Gaussian(), Tabulated()]
OPTIONS = Options(name="gibbs-with-gradients")
DRAWS = [Draw(3, site_changed), Draw(4, value_given)]


def after_a_swap(kernel, x, z):
    """Begin elsewhere, move, and be put at x: what was cached before must not matter."""
    elsewhere = x.roll(1, 0)
    kernel.start(elsewhere, z.roll(1, 0))
    return kernel.start(x, z)


def rejected(kernel, x, z):
    """Be at x with what a rejected move leaves in the cache."""
    state = kernel.start(x, z)
    half = torch.full_like(z, 0.5)

    class NeverAway(Canonical):
        def log_weight(self, z_asked):
            return torch.where(z_asked == z, 0.0, -1e9)

    new, info = kernel.step(state, NeverAway(1.0), ScriptedStream([half] * 3))
    assert not info.accepted.any()
    assert new.cache.log_s is not None
    return new


@pytest.mark.slow
@pytest.mark.parametrize("model", [COUPLED, AUTOREGRESSIVE])
@pytest.mark.parametrize("ensemble", ENSEMBLES)
def test_transition_matrix_is_exact(model, ensemble):
    kernel = GibbsWithGradients(OPTIONS, model, 64)
    check_exact(kernel, model, ensemble, DRAWS, start=after_a_swap)


@pytest.mark.parametrize("ensemble", ENSEMBLES[2:])
@pytest.mark.parametrize("n_walkers", [1, 64])
def test_a_walker_does_not_depend_on_the_others(ensemble, n_walkers):
    kernel = GibbsWithGradients(OPTIONS, COUPLED, n_walkers)
    check_alone(kernel, COUPLED, ensemble, 2, n_walkers=n_walkers)


@pytest.mark.slow
def test_what_a_rejected_move_leaves_in_the_cache_is_exact():
    kernel = GibbsWithGradients(OPTIONS, COUPLED, 64)
    check_exact(kernel, COUPLED, Canonical(1.0), DRAWS, start=rejected)


@pytest.mark.slow
def test_what_was_cached_at_another_beta_is_not_used():
    def at_another_beta(kernel, x, z):
        new = rejected(kernel, x, z)
        assert new.cache.beta == 1.0
        return new

    kernel = GibbsWithGradients(OPTIONS, COUPLED, 64)
    for ensemble in (Canonical(2.0), Gaussian()):
        check_exact(kernel, COUPLED, ensemble, DRAWS, start=at_another_beta)


def test_what_an_accepted_move_leaves_in_the_cache_is_as_new():
    kernel = GibbsWithGradients(OPTIONS, COUPLED, 64)
    x = COUPLED.all_inputs()
    state = kernel.start(x, COUPLED.output(x))
    random = torch.Generator().manual_seed(1)

    class Stream:
        def uniform(self, *shape):
            return torch.rand(shape, generator=random, dtype=torch.float64)

    some = 0
    for _ in range(20):
        state, info = kernel.step(state, Canonical(1.0), Stream())
        some += int(info.accepted.sum())
        fresh = kernel.start(state.x, state.z)
        assert torch.equal(fresh.cache.gradient.g, state.cache.gradient.g)
        slope = torch.ones(len(x), dtype=torch.float64)
        expected = kernel._log_site_weights(fresh.cache.gradient, state.x, slope)
        torch.testing.assert_close(state.cache.log_s, expected, rtol=1e-13, atol=1e-13)
    assert some > 100


@pytest.mark.slow
def test_a_chunk_at_a_time_is_the_same(monkeypatch):
    """Of 256 x 3 x 4 numbers, 40 are worked on at once."""
    kernel = GibbsWithGradients(OPTIONS, COUPLED, 64)
    expected = Explorer(kernel, COUPLED, Canonical(1.0), DRAWS).matrix()
    monkeypatch.setattr("omniinput_hpc.kernels.parts.gradients.CPU_CHUNK_ELEMENTS", 40)
    found = Explorer(kernel, COUPLED, Canonical(1.0), DRAWS).matrix()
    assert (found == expected).all()


@pytest.mark.slow
def test_it_is_accepted_more_than_uniform_moves():
    def accepted(options, draws):
        kernel = kernels.build(options, COUPLED, 64)
        p = Explorer(kernel, COUPLED, Canonical(2.0), draws).matrix()
        return 1 - (distribution(COUPLED, Canonical(2.0)) * p.diagonal()).sum()

    uniform = [Draw(3, site_changed), Draw(3, shift_of_value(4))]
    assert accepted(OPTIONS, DRAWS) > 2 * accepted(Metropolis(), uniform)


def test_a_model_without_gradients_is_bad_input():
    with pytest.raises(UserError, match="needs a model with output_and_gradient"):
        kernels.build(OPTIONS, lattice("cpu"), 8)


def test_a_gradient_of_the_wrong_shape_is_bad_input():
    class Wrong(CoupledModel):
        def output_and_gradient(self, x):
            z, g = super().output_and_gradient(x)
            return z, g[:, 0]

    x = torch.zeros((2, 3), dtype=torch.int64)
    kernel = kernels.build(OPTIONS, Wrong(), 2)
    with pytest.raises(UserError, match=r"found \[2\] and \[2, 4\]"):
        kernel.start(x, COUPLED.output(x))


SITE = Options(name="gibbs-with-gradients", proposal="site")
UNDER_A_LAW = Under(COUPLED, Law(NormalizedRows(n_values=4)))


class AtSite(GibbsWithGradients):
    """Redraws one site."""

    def __init__(self, site, model):
        super().__init__(SITE, model, 64)
        self._site = site

    def _random_site(self, stream, n):
        return torch.full((n,), self._site)


def check(model, ensemble, kernel=AtSite):
    check_sites(lambda site: kernel(site, model), model, ensemble, start=after_a_swap)


@pytest.mark.parametrize("ensemble", ENSEMBLES[1::2])
@pytest.mark.parametrize("law", [False, True], ids=["uniform", "law"])
def test_site_proposals_are_exact(ensemble, law):
    check(UNDER_A_LAW if law else COUPLED, ensemble)


def test_site_proposals_choose_every_site():
    kernel = GibbsWithGradients(SITE, COUPLED, 6)
    u = torch.linspace(0, 1, 7, dtype=torch.float64)[:6]
    assert kernel._random_site(ScriptedStream([u]), 6).tolist() == [0, 0, 1, 1, 2, 2]


def test_site_proposals_that_forget_the_law_fail(monkeypatch):
    monkeypatch.setattr(Law, "log_q", lambda self, x, z: torch.zeros(len(x), dtype=torch.float64))
    with pytest.raises(AssertionError):
        check(UNDER_A_LAW, Canonical(1.0))


def test_site_proposals_without_their_reverse_fail(monkeypatch):
    monkeypatch.setattr(gibbs_with_gradients, "decide", without_proposal_term)
    with pytest.raises(AssertionError):
        check(COUPLED, Canonical(1.0))


def test_site_proposals_with_one_slope_fail():
    class OneSlopeAtSite(AtSite, NoSlopeAtTheNewOutput):
        pass

    with pytest.raises(AssertionError):
        check(COUPLED, Gaussian(), OneSlopeAtSite)


def mean_over_the_batch(ensemble, z, z_new, log_proposal_ratio, u):
    return u.log() < ensemble.log_weight(z_new) - ensemble.log_weight(z) + log_proposal_ratio.mean()


@pytest.mark.slow
@pytest.mark.parametrize("decide", [without_proposal_term, mean_over_the_batch])
def test_wrong_acceptances_fail(decide, monkeypatch):
    monkeypatch.setattr(gibbs_with_gradients, "decide", decide)
    kernel = GibbsWithGradients(OPTIONS, COUPLED, 64)
    with pytest.raises(AssertionError, match=r"invariant|balance"):
        check_exact(kernel, COUPLED, Canonical(1.0), DRAWS)


class Identity(GibbsWithGradients):
    def step(self, state, ensemble, stream):
        return state, Info(torch.zeros(len(state.z), dtype=torch.bool))


class MeanOverSites(GibbsWithGradients):
    """The shares of the sites are means over values where sums belong, on the way back."""

    def _log_site_weights(self, gradient, x, slope):
        shares = super()._log_site_weights(gradient, x, slope)
        return shares - shares.logsumexp(dim=1, keepdim=True)  # so that their sum is always 1


class WalkersMixed(GibbsWithGradients):
    """The neighbour's gradient is used."""

    def start(self, x, z):
        state = super().start(x, z)
        return State(x, z, GibbsCache(Dense(state.cache.gradient.g.roll(1, 0))))


class StaleGradient(GibbsWithGradients):
    """What was cached first is kept for good, also after a swap."""

    def start(self, x, z):
        self.kept = getattr(self, "kept", None)
        if self.kept is None or len(self.kept.cache.gradient.g) != len(x):
            self.kept = super().start(x, z)
        return State(x, z, self.kept.cache)


class StaleOutput(GibbsWithGradients):
    """The z of before a swap is kept."""

    def start(self, x, z):
        return super().start(x, z.roll(1))


class NoSlopeAtTheNewOutput(GibbsWithGradients):
    """The reverse proposal is made with the slope at the old z."""

    def step(self, state, ensemble, stream):
        return super().step(state, OneSlope(ensemble, state.z), stream)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("wrong", "ensemble"),
    [
        (Identity, Canonical(1.0)),
        (MeanOverSites, Canonical(1.0)),
        (WalkersMixed, Canonical(1.0)),
        (StaleGradient, Canonical(1.0)),
        (StaleOutput, Canonical(1.0)),
        (NoSlopeAtTheNewOutput, Gaussian()),
        (NoSlopeAtTheNewOutput, Tabulated()),
    ],
)
def test_wrong_variants_fail(wrong, ensemble):
    with pytest.raises(AssertionError, match=r"invariant|balance|accepted|rows"):
        kernel = wrong(OPTIONS, COUPLED, 64)
        check_exact(kernel, COUPLED, ensemble, DRAWS, start=after_a_swap)


def test_mixed_walkers_are_seen_in_a_batch():
    with pytest.raises(AssertionError, match="mixed"):
        check_alone(WalkersMixed(OPTIONS, COUPLED, 64), COUPLED, Canonical(1.0), 2)


def test_a_model_may_write_every_gradient_into_one_tensor():
    """Else a walker that keeps its input would have the gradient of the one that it refused."""

    class OneTensor(CoupledModel):
        def output_and_gradient(self, x):
            z, g = super().output_and_gradient(x)
            self.g = getattr(self, "g", torch.empty_like(g))
            return z, self.g.copy_(g)

    model = OneTensor()
    x, other = model.all_inputs()[:8], model.all_inputs()[-8:]
    found = Differentiable(model, "a kernel").evaluate_again(x, model.output(x))
    model.output_and_gradient(other)
    torch.testing.assert_close(found.g, CoupledModel().output_and_gradient(x)[1])
