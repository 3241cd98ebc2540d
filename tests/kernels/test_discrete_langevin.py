"""The discrete-langevin kernel: exact in every ensemble; and wrong variants of it are caught."""

from dataclasses import replace

import numpy as np
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
    value_at,
)
from toy_models import AutoregressiveModel, CoupledModel, lattice
from wrong_variants import OneSlope, without_proposal_term

from omniinput_hpc import kernels
from omniinput_hpc.config import input_file
from omniinput_hpc.config.kernels import DiscreteLangevin as Options
from omniinput_hpc.errors import UserError
from omniinput_hpc.kernels import discrete_langevin
from omniinput_hpc.kernels.discrete_langevin import DiscreteLangevin, LangevinCache
from omniinput_hpc.kernels.parts.gradients import Dense
from omniinput_hpc.kernels.state import Info, State
from omniinput_hpc.tempering.ensembles import Canonical


class Ternary(CoupledModel):
    """Three values a site: the transition matrix has 27 rows."""

    n_values = 3


COUPLED = Ternary(dtype=torch.float64)
AUTOREGRESSIVE = AutoregressiveModel()
ENSEMBLES = [
    *map(Canonical, (-2.0, 2.0)), Gaussian(), Tabulated(),
    *(pytest.param(Canonical(beta), marks=pytest.mark.release) for beta in (0.5, 1.0)),
]  # fmt: skip
DRAWS = [Draw(3, value_at(site), of_x_alone=True) for site in range(3)]


def options(**keys):
    return Options.model_validate({"name": "discrete-langevin", "step_size": 0.4, **keys})


def after_a_swap(kernel, x, z):
    """Begin elsewhere, and be put at x: what was cached before must not matter."""
    kernel.start(x.roll(1, 0), z.roll(1, 0))
    return kernel.start(x, z)


@pytest.mark.slow
@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("ensemble", ENSEMBLES)
def test_transition_matrix_is_exact(ensemble, ordered):
    kernel = DiscreteLangevin(options(ordered=ordered), COUPLED, 64)
    check_exact(kernel, COUPLED, ensemble, DRAWS, start=after_a_swap)


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("ensemble", [Canonical(0.5), Gaussian()])
def test_sites_of_many_values_are_exact(ensemble, ordered, monkeypatch):
    """Values are drawn by blocks: here of two values in place of 64."""
    monkeypatch.setattr("omniinput_hpc.kernels.parts.categorical.BLOCK_SIZE", 2)
    kernel = DiscreteLangevin(options(ordered=ordered), COUPLED, 64)
    check_exact(kernel, COUPLED, ensemble, DRAWS, start=after_a_swap)


class Kept(DiscreteLangevin):
    """A wrong variant: sums are kept when the step size has changed."""

    def step(self, state, ensemble, stream):
        cache = state.cache
        if cache.sums is not None:
            key = (ensemble.beta, float(self.tuned[0]))
            state = State(state.x, state.z, replace(cache, made_for=key))
        return super().step(state, ensemble, stream)


def moves_after_a_change_of_step_size(make, forget):
    """Return walkers after two moves, of which the second has another step size."""
    kernel, x = make(options(), COUPLED, 64), COUPLED.all_inputs()
    stream = kernels.DeviceStream(np.random.default_rng(3), torch.device("cpu"), 64 * 8)
    state, _ = kernel.step(kernel.start(x, COUPLED.output(x)), Canonical(2.0), stream)
    if forget:
        state = kernel.start(state.x, state.z)
    kernel.tuned = np.array([2.0, 1.0])
    moved, _ = kernel.step(state, Canonical(2.0), stream)
    return moved.x


def test_kept_sums_are_those_that_would_be_computed():
    expected = moves_after_a_change_of_step_size(DiscreteLangevin, forget=True)
    assert torch.equal(moves_after_a_change_of_step_size(DiscreteLangevin, False), expected)
    assert not torch.equal(moves_after_a_change_of_step_size(Kept, False), expected)


class Binary(CoupledModel):
    """Two values a site, which stay or flip."""

    n_values = 2


BINARY = Binary(dtype=torch.float64)


def stays_at(site):
    return lambda x, x_new: (x[:, site] == x_new[:, site]).long()


FLIPS = [Draw(2, stays_at(site)) for site in range(3)]


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("ensemble", ENSEMBLES)
def test_transition_matrix_of_flips_is_exact(ensemble, ordered, monkeypatch):
    kernel = DiscreteLangevin(options(ordered=ordered), BINARY, 64)
    p = check_exact(kernel, BINARY, ensemble, FLIPS, start=after_a_swap)
    monkeypatch.setattr(kernel, "_binary", False)  # as values of any number are drawn
    draws = [Draw(2, value_at(site)) for site in range(3)]
    of_values = Explorer(kernel, BINARY, ensemble, draws, start=after_a_swap).matrix()
    np.testing.assert_allclose(p, of_values, rtol=0, atol=1e-11)
    check_alone(kernel, BINARY, ensemble, 3)


@pytest.mark.slow
@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("ensemble", [Canonical(1.0), Gaussian()])
@pytest.mark.parametrize("u", [0.0, pytest.param(0.3, marks=pytest.mark.release), 0.9])
def test_a_shared_proposal_beta_is_exact_whatever_it_is(ensemble, ordered, u):
    kernel = DiscreteLangevin(options(ordered=ordered, proposal_beta=[-2.0, 3.0]), COUPLED, 64)
    check_exact(kernel, COUPLED, ensemble, DRAWS, choices=[u])


@pytest.mark.slow
def test_a_language_model_s_gradient_will_do():
    kernel = DiscreteLangevin(options(), AUTOREGRESSIVE, 64)
    draws = [Draw(3, value_at(site)) for site in range(3)]
    check_exact(kernel, AUTOREGRESSIVE, Canonical(2.0), draws)


@pytest.mark.parametrize("n_walkers", [1, 64])
@pytest.mark.parametrize("ensemble", [Canonical(1.0), Gaussian()])
def test_a_walker_does_not_depend_on_the_others(ensemble, n_walkers):
    kernel = DiscreteLangevin(options(), COUPLED, n_walkers)
    check_alone(kernel, COUPLED, ensemble, 3, n_walkers=n_walkers)


@pytest.mark.slow
def test_a_chunk_at_a_time_is_the_same(monkeypatch):
    """27 x 3 numbers, one site, are worked on at once."""
    for ordered in (False, True):
        kernel = DiscreteLangevin(options(ordered=ordered), COUPLED, 64)
        expected = Explorer(kernel, COUPLED, Canonical(1.0), DRAWS[:]).matrix()
        with monkeypatch.context() as patch:
            patch.setattr("omniinput_hpc.kernels.parts.gradients.CPU_CHUNK_ELEMENTS", 1)
            found = Explorer(kernel, COUPLED, Canonical(1.0), DRAWS).matrix()
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-13)


@pytest.mark.slow
def test_a_small_step_stays_near_where_values_are_ordered():
    kernel = DiscreteLangevin(options(ordered=True, step_size=0.05), COUPLED, 64)
    p = Explorer(kernel, COUPLED, Canonical(0.0), DRAWS).matrix()
    x = COUPLED.all_inputs().numpy()
    distance = np.abs(x[:, None] - x[None]).max(axis=2)
    assert p[distance > 1].max() < 1e-10
    assert p[distance == 1].min() > 1e-30


def test_the_step_size_is_tuned_towards_its_acceptance():
    kernel = DiscreteLangevin(options(step_size=1000.0, proposal_beta=[0.0, 0.0]), COUPLED, 256)
    random = torch.Generator().manual_seed(1)

    class Stream:
        def uniform(self, *shape):
            return torch.rand(shape, generator=random, dtype=torch.float64)

        def shared_uniform(self, n):
            return np.zeros(n)

    x = torch.randint(3, (256, 3), generator=random)
    state, rates = kernel.start(x, COUPLED.output(x)), []
    for segment in range(80):
        accepted = 0
        for _ in range(4):
            state, info = kernel.step(state, Canonical(2.0), Stream())
            accepted += int(info.accepted.sum())
        rates.append(accepted / 1024)
        if segment < 60:
            kernel.adapt(np.array([1024]), np.array([accepted]))
    assert rates[0] < 0.4
    assert abs(np.mean(rates[60:]) - 0.574) < 0.03
    assert kernel.tuned[1] == 60
    frozen = kernel.tuned.copy()
    kernel.adapt(np.array([0]), np.array([0]))
    assert (kernel.tuned == frozen).all(), "a segment without moves teaches nothing"


@pytest.mark.slow
def test_it_goes_on_with_the_step_size_that_is_put_back():
    one, other = (DiscreteLangevin(options(step_size=s), COUPLED, 64) for s in (0.3, 5.0))
    other.tuned = one.tuned.copy()
    matrices = [Explorer(k, COUPLED, Canonical(1.0), DRAWS).matrix() for k in (one, other)]
    assert (matrices[0] == matrices[1]).all()
    assert len(one.tuned) == options().n_tuned


def test_a_model_without_gradients_is_bad_input():
    with pytest.raises(UserError, match="needs a model with output_and_gradient"):
        kernels.build(options(), lattice("cpu"), 8)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ("step_size = 0.0", "kernel.step_size: expected a number of at least 0.001, found 0.0"),
        ("step_size = 1e7", "kernel.step_size: expected a number of at most 1000000.0"),
        ("step_size = nan", "kernel.step_size"),
        ("proposal_beta = [1.0, 0.0]", "kernel.proposal_beta: expected [low, high]"),
        ("proposal_beta = [1.0]", "kernel.proposal_beta"),
        ("ordered = 1", "kernel.ordered: expected true or false"),
    ],
)
def test_bad_input(keys, message, lattice_toml):
    text = lattice_toml.format(output="a.h5") + f'[kernel]\nname = "discrete-langevin"\n{keys}\n'
    with pytest.raises(UserError) as caught:
        input_file.parse(text, "a.toml")
    assert message in str(caught.value)


def mean_over_sites(ensemble, z, z_new, log_proposal_ratio, u):
    return u.log() < ensemble.log_weight(z_new) - ensemble.log_weight(z) + log_proposal_ratio / 3


@pytest.mark.slow
@pytest.mark.parametrize("decide", [without_proposal_term, mean_over_sites])
def test_wrong_acceptances_fail(decide, monkeypatch):
    monkeypatch.setattr(discrete_langevin, "decide", decide)
    with pytest.raises(AssertionError, match=r"invariant|balance"):
        check_exact(DiscreteLangevin(options(), COUPLED, 64), COUPLED, Canonical(1.0), DRAWS)


class Identity(DiscreteLangevin):
    def step(self, state, ensemble, stream):
        return state, Info(torch.zeros(len(state.z), dtype=torch.bool))


class WithoutNormalizer(DiscreteLangevin):
    """Only the scores are compared, not what they are divided by."""

    def _propose(self, gradient, sums, x, slope, u):
        x_new, _ = super()._propose(gradient, sums, x, slope, u)
        return x_new, self._unnormalized(gradient, sums, x, slope, x_new)

    def _unnormalized(self, gradient, sums, x, slope, to):
        return self._scores(gradient.g, x, slope).gather(2, to[..., None]).sum(dim=(1, 2))

    _log_probability = _unnormalized


class WalkersMixed(DiscreteLangevin):
    """The neighbour's gradient is used."""

    def start(self, x, z):
        return State(x, z, LangevinCache(Dense(super().start(x, z).cache.gradient.g.roll(1, 0))))


class StaleGradient(DiscreteLangevin):
    """What was cached first is kept for good, also after a swap."""

    def start(self, x, z):
        self.kept = getattr(self, "kept", None)
        if self.kept is None or len(self.kept.gradient.g) != len(x):
            self.kept = super().start(x, z).cache
        return State(x, z, self.kept)


class PerSiteAcceptance(DiscreteLangevin):
    """The last site is accepted on its own, more easily than the others."""

    def step(self, state, ensemble, stream):
        last = ScriptedStream([*stream.columns[:-1], stream.columns[-1] / 2])
        alone, _ = super().step(state, ensemble, last)
        new, info = super().step(state, ensemble, stream)
        x = torch.cat([new.x[:, :2], alone.x[:, 2:]], dim=1)
        return self.start(x, COUPLED.output(x)), info


class NoSlopeAtTheNewOutput(DiscreteLangevin):
    """The reverse proposal is made with the slope at the old z."""

    def step(self, state, ensemble, stream):
        return super().step(state, OneSlope(ensemble, state.z), stream)


class BetaOnOneSide(DiscreteLangevin):
    """The drawn beta is used forward only."""

    def _log_probability(self, gradient, sums, x, slope, to):
        one = slope * 0 + 1.0
        return super()._log_probability(gradient, self._sums(gradient, x, one), x, one, to)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("wrong", "ensemble"),
    [
        (Identity, Canonical(1.0)),
        (WithoutNormalizer, Canonical(1.0)),
        (WalkersMixed, Canonical(1.0)),
        (StaleGradient, Canonical(1.0)),
        (PerSiteAcceptance, Canonical(1.0)),
        (NoSlopeAtTheNewOutput, Gaussian()),
        (NoSlopeAtTheNewOutput, Tabulated()),
        (BetaOnOneSide, Canonical(2.0)),
    ],
)
def test_wrong_variants_fail(wrong, ensemble):
    kernel = wrong(options(), COUPLED, 64)
    with pytest.raises(AssertionError, match=r"invariant|balance|accepted|rows"):
        check_exact(kernel, COUPLED, ensemble, DRAWS, start=after_a_swap)


@pytest.mark.parametrize("wrong", [BetaOnOneSide, NoSlopeAtTheNewOutput])
def test_wrong_flips_fail(wrong):
    with pytest.raises(AssertionError, match=r"invariant|balance"):
        check_exact(wrong(options(), BINARY, 64), BINARY, Gaussian(), FLIPS)
