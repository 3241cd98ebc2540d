"""The metropolis kernel: exact, whatever the batch; and wrong variants of it are caught."""

import itertools

import numpy as np
import pytest
import torch
from exactness import (
    Draw,
    Explorer,
    Gaussian,
    ScriptedStream,
    check_alone,
    check_exact,
    check_matrix,
    distribution,
    shift_of_value,
    site_changed,
)
from ising import IsingModel, WholeIsing
from scipy.stats import chisquare
from toy_models import CoupledModel, KVCacheModel, LatticeModel, LocalModel, ToyKVCache

from omniinput_hpc import kernels, rng
from omniinput_hpc.config.kernels import Metropolis as Options
from omniinput_hpc.config.kernels import Mixture
from omniinput_hpc.errors import UserError
from omniinput_hpc.kernels import DeviceStream, metropolis
from omniinput_hpc.kernels.metropolis import Metropolis, Summed, reaches_every_input
from omniinput_hpc.kernels.state import Info, State
from omniinput_hpc.tempering.ensembles import Canonical

MODEL = CoupledModel()
DRAWS = [
    Draw(MODEL.n_sites, site_changed),
    Draw(MODEL.n_values - 1, shift_of_value(MODEL.n_values)),
]


@pytest.mark.parametrize("beta", [-2.0, 0.5, 1.0, 2.0])
def test_transition_matrix_is_exact(beta):
    check_exact(Metropolis(Options(), MODEL, 64), MODEL, Canonical(beta), DRAWS)


def test_at_beta_zero_every_move_is_accepted():
    kernel = Metropolis(Options(), MODEL, 2)
    x = torch.tensor([[0, 1, 2], [3, 3, 3]])
    u = torch.tensor([0.1, 0.999999], dtype=torch.float64)
    state, info = kernel.step(
        kernel.start(x, MODEL.output(x)), Canonical(0.0), ScriptedStream([u, u, u])
    )
    assert info.accepted.all()
    assert ((state.x != x).sum(dim=1) == 1).all()


@pytest.mark.parametrize("n_walkers", [1, 64])
def test_a_walker_does_not_depend_on_the_others(n_walkers):
    kernel = Metropolis(Options(), MODEL, n_walkers)
    check_alone(kernel, MODEL, Canonical(1.0), 2, n_walkers=n_walkers)


def test_several_sites_change_at_once():
    kernel = Metropolis(Options(sites=2), MODEL, 3)
    x = torch.zeros((3, 3), dtype=torch.int64)
    draws = [
        torch.tensor([0.9, 0.1, 0.5, 0.2, 0.3, 0.4, 0.6, 0.8, 0.7], dtype=torch.float64),
        torch.full((6,), 0.5, dtype=torch.float64),
        torch.zeros(3, dtype=torch.float64),
    ]
    state, _ = kernel.step(kernel.start(x, MODEL.output(x)), Canonical(1.0), ScriptedStream(draws))
    assert (state.x != 0).tolist() == [
        [True, False, True],
        [False, True, True],
        [False, True, True],
    ]


CACHED = KVCacheModel()


def moved_elsewhere(kernel, x, z):
    """Accept some proposals elsewhere, be put at x, and be rejected once."""
    n = len(x)
    draws = [torch.rand(n, generator=torch.Generator().manual_seed(i)).double() for i in range(2)]
    state, _ = kernel.step(
        kernel.start(x.roll(1, 0), z.roll(1, 0)), Canonical(0.1), ScriptedStream(draws, [0.0])
    )
    kernel.step(state, Canonical(0.1), ScriptedStream(draws, [0.4]))
    return kernel.start(x, z)


@pytest.mark.slow
def test_transition_matrices_on_a_kv_cache_are_exact():
    """All walkers change the same site; each site alone is exact, together they go everywhere."""
    together, draws = np.zeros((27, 27)), [Draw(2, shift_of_value(3))]
    for site in range(3):
        kernel = Metropolis(Options(), CACHED, 64)
        choices = [(site + 0.5) / 3]
        explorer = Explorer(kernel, CACHED, Canonical(2.0), draws, choices, moved_elsewhere)
        p = explorer.matrix()
        check_matrix(p, distribution(CACHED, Canonical(2.0)), irreducible=False)
        together += p / 3
    check_matrix(together, distribution(CACHED, Canonical(2.0)))


def test_several_shared_sites_change_at_once():
    kernel = Metropolis(Options(sites=2), CACHED, 2)
    x = torch.zeros((2, 3), dtype=torch.int64)
    draws = [torch.full((2,), u, dtype=torch.float64) for u in (0.1, 0.9, 0.0)]
    stream = ScriptedStream(draws, [0.9, 0.1, 0.5])
    state, _ = kernel.step(kernel.start(x, CACHED.output(x)), Canonical(1.0), stream)
    assert state.x.tolist() == [[0, 1, 2], [0, 1, 2]] or state.x.tolist() == [[0, 2, 1]] * 2


def walked(n_moves=40):
    """Return 64 walkers' recorded z and that of their x, after some moves on a KV cache."""
    kernel = Metropolis(Options(), CACHED, 64)
    stream = DeviceStream(
        rng.generator(5, "moves"), torch.device("cpu"), 1 << 12, rng.generator(5, "choices")
    )
    x = torch.zeros((64, 3), dtype=torch.int64)
    state = kernel.start(x, CACHED.output(x))
    for _ in range(n_moves):
        state, _ = kernel.step(state, Canonical(1.0), stream)
    return kernel, state


def test_z_is_of_the_evaluation_that_fills_the_kv_cache():
    kernel = Metropolis(Options(), CACHED, 64)
    stream = DeviceStream(
        rng.generator(5, "moves"), torch.device("cpu"), 1 << 12, rng.generator(5, "choices")
    )
    x = torch.randint(3, (64, 3), generator=torch.Generator().manual_seed(1))
    state, info = kernel.step(kernel.start(x, CACHED.output(x) + 1e-3), Canonical(2.0), stream)
    assert not info.accepted.all()
    torch.testing.assert_close(state.z, CACHED.output(state.x), atol=1e-6, rtol=0)


def test_what_a_kv_cache_keeps_is_what_the_walkers_are(monkeypatch):
    kernel, state = walked()
    assert torch.equal(kernel._kv_cache.kept, state.x)
    torch.testing.assert_close(state.z, CACHED.output(state.x))

    def accept(self, accepted):
        self.kept, self.version = self.new, self.version + 1

    monkeypatch.setattr(ToyKVCache, "accept", accept)
    with pytest.raises(AssertionError, match="has changed"):
        walked()


def after_moves(kernel, beta, n=200_000, moves=3):
    """Return counts of all inputs after moves of walkers from the ensemble, and those expected."""
    pi = distribution(MODEL, Canonical(beta))
    start = np.random.default_rng(5).choice(len(pi), size=n, p=pi)
    x = MODEL.all_inputs()[torch.from_numpy(start)]
    state = kernel.start(x, MODEL.output(x))
    stream = DeviceStream(np.random.default_rng(6), torch.device("cpu"), n)
    for _ in range(moves):
        state, _ = kernel.step(state, Canonical(beta), stream)
    weights = MODEL.n_values ** torch.arange(MODEL.n_sites - 1, -1, -1)
    return np.bincount((state.x * weights).sum(dim=1), minlength=len(pi)), pi * n


@pytest.mark.parametrize("sites", [2, 3])
@pytest.mark.parametrize("beta", [-2.0, 1.0])
def test_several_sites_keep_walkers_in_the_ensemble(sites, beta):
    assert chisquare(*after_moves(Metropolis(Options(sites=sites), MODEL, 200_000), beta))[1] > 1e-3


def test_a_wrong_acceptance_of_several_sites_shows():
    kernel = HalfTheEnergy(Options(sites=2), MODEL, 200_000)
    assert chisquare(*after_moves(kernel, 1.0))[1] < 1e-6


def test_more_sites_than_the_model_has_is_bad_input():
    with pytest.raises(UserError, match=r"kernel\.sites = 4"):
        Metropolis(Options(sites=4), MODEL, 8)


class Identity(Metropolis):
    def step(self, state, ensemble, stream):
        return state, Info(torch.zeros(len(state.z), dtype=torch.bool))


class WalkersMixed(Metropolis):
    """The walker's neighbour's z decides."""

    def step(self, state, ensemble, stream):
        mixed = State(state.x, state.z.roll(1))
        new, info = super().step(mixed, ensemble, stream)
        return State(new.x, torch.where(info.accepted, new.z, state.z)), info


class HalfTheEnergy(Metropolis):
    """A mean where a sum belongs."""

    def step(self, state, ensemble, stream):
        return super().step(state, Canonical(ensemble.beta / 2), stream)


class OneSidedProposal(Metropolis):
    """Values can be raised, or start again at 0, by one only: asymmetric, and unpaid."""

    def step(self, state, ensemble, stream):
        site = stream.integers(3, len(state.z), 1)
        stream.integers(3, len(state.z), 1)
        x = state.x.scatter(1, site, (state.x.gather(1, site) + 1) % 4)
        z = self._model.output(x)
        accepted = stream.uniform(len(z)).log() < -ensemble.beta * (z - state.z).double()
        chosen = torch.where(accepted[:, None], x, state.x)
        return State(chosen, torch.where(accepted, z, state.z)), Info(accepted)


class StaleOutput(Metropolis):
    """The z of the start is kept for good."""

    def step(self, state, ensemble, stream):
        new, info = super().step(state, ensemble, stream)
        return State(new.x, state.z * 0), info

    def start(self, x, z):
        return State(x, z * 0)


@pytest.mark.parametrize(
    "wrong", [Identity, WalkersMixed, HalfTheEnergy, OneSidedProposal, StaleOutput]
)
def test_wrong_variants_fail(wrong):
    with pytest.raises(AssertionError, match=r"invariant|balance|accepted|irreducible|rows"):
        check_exact(wrong(Options(), MODEL, 64), MODEL, Canonical(1.0), DRAWS)


LOCAL = LocalModel(dtype=torch.float64)


class Counted:
    """A model whose full evaluations are counted."""

    def __init__(self, model):
        self.n_sites, self.n_values, self.n_outputs = model.n_sites, model.n_values, 0
        self.change, self._model = model.change, model

    def output(self, x):
        self.n_outputs += 1
        return self._model.output(x)


@pytest.mark.parametrize("ensemble", [*map(Canonical, (-2.0, 0.5, 2.0)), Gaussian()])
def test_transition_matrix_by_changes_is_exact(ensemble):
    check_exact(Metropolis(Options(), LOCAL, 64), LOCAL, ensemble, DRAWS)
    check_alone(Metropolis(Options(), LOCAL, 64), LOCAL, ensemble, 2)


class WithoutTheRight(LocalModel):
    """The pair with the next site is forgotten."""

    def change(self, x, site, value):
        return super().change(x.scatter(1, (site + 1).clamp(max=2)[:, None], 0), site, value)


class OfTheOldZ(Metropolis):
    """Changes are added to the z of the start, rejected or not."""

    def _step_by_change(self, change, state, ensemble, stream):
        new, info = super()._step_by_change(change, state, ensemble, stream)
        cache = Summed(state.cache.z + 1.0)
        return State(new.x, cache.z.to(new.z.dtype), cache), info


@pytest.mark.parametrize(
    ("kernel", "model"), [(Metropolis, WithoutTheRight(dtype=torch.float64)), (OfTheOldZ, LOCAL)]
)
def test_wrong_changes_fail(kernel, model):
    with pytest.raises(AssertionError, match=r"invariant|balance|stale"):
        check_exact(kernel(Options(), model, 64), model, Canonical(1.0), DRAWS)
        check_alone(kernel(Options(), model, 64), model, Canonical(1.0), 2)


def segment_of(model, n_moves, beta=1.0, sites=1):
    """Return 32 walkers after some moves."""
    kernel = Metropolis(Options(sites=sites), model, 32)
    stream = DeviceStream(rng.generator(5, "moves"), torch.device("cpu"), 1 << 12)
    x = torch.from_numpy(rng.generator(5, "start").integers(2, size=(32, model.n_sites)))
    state = kernel.start(x, model.output(x))
    for _ in range(n_moves):
        state, _ = kernel.step(state, Canonical(beta), stream)
    return state


def test_changes_give_the_bits_of_full_evaluations():
    """z of an 8 x 8 lattice is a whole number over 64: no sum is rounded."""
    by_change = segment_of(IsingModel(8), 300, 24.0)
    whole = segment_of(WholeIsing(8), 300, 24.0)
    assert torch.equal(by_change.x, whole.x)
    assert torch.equal(by_change.z, whole.z)


def test_only_the_start_evaluates_whole_inputs(monkeypatch):
    model = Counted(IsingModel(8))
    segment_of(model, 300)
    assert model.n_outputs == 2  # for the state, and at its start
    monkeypatch.setattr(metropolis, "EVALUATE_EVERY", 100)
    model.n_outputs = 0
    segment_of(model, 300)
    assert model.n_outputs == 4
    model.n_outputs = 0
    segment_of(model, 10, sites=3)  # changes are of one site
    assert model.n_outputs == 11


def test_rounding_does_not_add_up():
    """With changes summed in float32, z would be off by a hundred units in the last place."""
    model = IsingModel(10)  # z is a whole number over 100: every change is rounded
    state = segment_of(model, 999, 4.0)
    exact = model.output(state.x).double()
    assert (state.z.double() - exact).abs().max() < 4e-7
    assert (state.cache.z - exact).abs().max() < 4e-6
    assert state.cache.n_moves == 999


def reached(sites_of_parts, n_values, n_sites):
    """Return how many inputs moves reach from one of them, by trying all moves."""
    shifts = [
        np.array(shift)
        for shift in itertools.product(range(n_values), repeat=n_sites)
        if np.count_nonzero(shift) in sites_of_parts
    ]
    found, new = {(0,) * n_sites}, [(0,) * n_sites]
    while new:
        x = np.array(new.pop())
        to = {tuple(int(v) for v in (x + shift) % n_values) for shift in shifts} - found
        found |= to
        new += to
    return len(found)


@pytest.mark.parametrize("n_values", [2, 3])
@pytest.mark.parametrize("n_sites", [1, 2, 3, 4])
def test_it_is_known_whether_every_input_is_reached(n_sites, n_values):
    numbers = range(1, n_sites + 1)
    for sites in (some for n in (1, 2, 3) for some in itertools.combinations(numbers, n)):
        everywhere = reached(sites, n_values, n_sites) == n_values**n_sites
        assert reaches_every_input(sites, n_values, n_sites) == everywhere, sites


def test_moves_that_conserve_something_are_refused():
    model, metropolis = LatticeModel(4, 2, 1.0, "cpu"), {"name": "metropolis"}
    for sites in (2, 4):
        with pytest.raises(UserError, match=rf"kernel\.sites = {sites}: with 2 values per site"):
            kernels.build(Options(sites=sites), model, 8)
    pairs = [{**metropolis, "sites": 2}, {**metropolis, "sites": 4}]
    with pytest.raises(UserError, match=r"kernel\.sites = 2, 4: with 2 values per site"):
        kernels.build(Mixture.model_validate({"name": "mixture", "parts": pairs}), model, 8)
    single = Mixture.model_validate({"name": "mixture", "parts": [pairs[0], metropolis]})
    assert kernels.build(single, model, 8).parts
    assert kernels.build(Options(sites=3), model, 8).parts
