"""Moves, then an exchange, on the product space of 2 rungs with 2 walkers each: exact.

The kernel's matrix comes from `exactness`, the exchange's from the very `Exchanger` of a run: its
acceptances by bisection of the uniform numbers it draws, its destinations by letting it swap.
"""

import itertools

import numpy as np
import pytest
import torch
from exactness import Draw, Explorer, bisect, distribution, site_changed
from law_models import Under

from omniinput_hpc.config import WangLandau
from omniinput_hpc.kernels.metropolis import Metropolis, Options
from omniinput_hpc.kernels.parts.tilt import SecondDirection
from omniinput_hpc.kernels.wang_landau import LearningState, WangLandauEnsemble
from omniinput_hpc.parallel.comm import World
from omniinput_hpc.runfile.layout import Geometry
from omniinput_hpc.sampling import exchange
from omniinput_hpc.sampling.exchange import Exchanger
from omniinput_hpc.tempering import ladder
from omniinput_hpc.tempering.ensembles import Canonical, Gaussian
from omniinput_hpc.tempering.ladder import Block, Grid

pytestmark = pytest.mark.slow

Z = np.array([0.0, 0.7, 1.1, 2.6])  # of the inputs 00, 01, 10, 11: coupled, and not symmetric


class TwoByTwo:
    n_sites, n_values, device = 2, 2, "cpu"

    def all_inputs(self):
        return torch.tensor([[0, 0], [0, 1], [1, 0], [1, 1]])

    def output(self, x):
        return torch.from_numpy(Z).float()[x[:, 0] * 2 + x[:, 1]]


MODEL, WORLD = TwoByTwo(), World()
X = MODEL.all_inputs().numpy().astype(np.uint8)
DRAWS = [Draw(2, site_changed)]  # the other of two values is not drawn
EDGES = np.linspace(0.0, 3.0, 7)
STATES_OF_ONE = X.astype(int)
STATES = np.array(list(itertools.product(range(4), repeat=4)))  # rung 0: walkers 0, 1; rung 1


def flat(first, end):
    """Return a frozen flat-histogram ensemble with a window of bins, as kernels have it."""
    entropy = np.array([np.nan, 0.3, -0.2, 0.9, 0.1, -0.4, 0.6, np.nan])
    rung = WangLandauEnsemble(EDGES, (first, end), WangLandau(), torch.device("cpu"), 2)
    learning = np.array([1e-4, 1e-4, 0.0, 1.0, 1.0, 1.0])
    rung.restore(LearningState(entropy, np.zeros(8), learning))
    return rung


PAIRS = {
    "canonical": (Canonical(-2.0), Canonical(0.5)),
    "cold": (Canonical(1.0), Canonical(2.0)),
    "gaussian": (Gaussian(0.5, 1.5, 0.6), Canonical(1.0)),
    "windows": (flat(0, 3), flat(1, 6)),
}


class Slot:
    def __init__(self, x, z):
        self.place(x, z)

    def place(self, x, z):
        self.x, self.z = x.copy(), z.copy()

    def configurations(self):
        return self.x, self.z


class HeldRung:
    def __init__(self, k, lanes, number_w, ensemble):
        self.k, self.ensemble, w = k, ensemble, len(number_w)
        number_w = number_w[lanes.start : lanes.stop]
        self.walker_w = np.array(lanes, dtype=np.int32) + k * w
        self.direction_w = np.zeros(len(lanes), dtype=np.int8)
        self.walkers = Slot(X[number_w], Z[number_w].astype(np.float32))

    @property
    def number_w(self):
        """Which input each walker is on; its output must have come along."""
        x, z = self.walkers.configurations()
        number_w = x[:, 0].astype(int) * 2 + x[:, 1]
        np.testing.assert_allclose(z, Z[number_w].astype(np.float32), err_msg="a stale output")
        return number_w


def exchanged(exchanger_type, pair, number_kw, u_w, monkeypatch, n_blocks=1, second=None):
    """Let walkers exchange once with given uniform numbers; return theirs and their inputs."""
    w = number_kw.shape[1]
    swapper = exchanger_type(
        Geometry(1, 2, w, 6, w, 2, 2, 1), EDGES, 3, WORLD, Grid(2, n_blocks, 1), second
    )
    held = [Block(k, b, n_blocks) for k in range(2) for b in range(n_blocks)]
    rungs = [HeldRung(block.k, block.lanes(w), number_kw[block.k], pair[block.k]) for block in held]
    with monkeypatch.context() as patch:
        patch.setattr(exchange.Uniform, "of_pair", lambda *_: u_w)
        swapper.swap(rungs, 0)
    walker_kw, to_kw = (
        np.concatenate([getattr(rung, name) for rung in rungs]).reshape(2, w)
        for name in ("walker_w", "number_w")
    )
    return walker_kw, to_kw


def exchange_matrix(exchanger_type, pair, monkeypatch, n_blocks=1, second=None):
    """Return the exchange's matrix over the product space, float64 [256, 256].

    With two blocks the walkers of a state are in different ones.
    """
    both = np.array(list(itertools.product(range(4), repeat=2))).T  # [2, 16]: a lane each

    def swaps(u, lane):
        number_kw = both[:, lane]
        walker_kw, _ = exchanged(
            exchanger_type, pair, number_kw, u.numpy(), monkeypatch, n_blocks, second
        )
        return torch.from_numpy(walker_kw[0] >= len(lane))

    accept = bisect(swaps, both.shape[1]).numpy().reshape(4, 4)
    taken_c2 = np.array(list(itertools.product((True, False), repeat=2)))
    number_sk2 = STATES.reshape(-1, 2, 2)
    a_s12 = accept[number_sk2[:, 0], number_sk2[:, 1]][:, None, :]
    probability_sc = np.where(taken_c2, a_s12, 1 - a_s12).prod(axis=2)
    u_sc2 = np.where(taken_c2, a_s12 / 2, (1 + a_s12) / 2)
    # every state with every decision of its two lanes, side by side in one batch
    number_ksc2 = np.broadcast_to(number_sk2.transpose(1, 0, 2)[:, :, None], (2, *u_sc2.shape))
    number_kw, u_w = number_ksc2.reshape(2, -1), u_sc2.ravel()
    order = np.arange(len(u_w)).reshape(-1, n_blocks).T.ravel()  # lanes by their blocks
    _, to_kw = exchanged(
        exchanger_type, pair, number_kw[:, order], u_w[order], monkeypatch, n_blocks, second
    )
    to_ksc2 = to_kw[:, np.argsort(order)].reshape(2, *u_sc2.shape)
    to_sc = np.tensordot(
        to_ksc2.transpose(1, 2, 0, 3).reshape(-1, 4, 4), 4 ** np.arange(4)[::-1], 1
    )
    p = np.zeros((len(STATES), len(STATES)))
    np.add.at(p, (np.arange(len(STATES))[:, None], to_sc), probability_sc)
    return p


def metropolis(pi):
    """Return the matrix of uniform single-site moves, for walls that stop `Explorer`."""
    near = (STATES_OF_ONE[:, None] != STATES_OF_ONE).sum(axis=2) == 1
    ratio = np.divide(pi, pi[:, None], out=np.ones((4, 4)), where=pi[:, None] > 0)
    p = np.where(near, 0.5 * np.minimum(1.0, ratio), 0.0)
    return p + np.diag(1.0 - p.sum(axis=1))


def check(exchanger_type, pair, monkeypatch, n_blocks=1, second=None):
    """Assert that moves and an exchange leave the joint distribution invariant, and exchange."""
    moves, laws = [], []
    for k, ensemble in enumerate(pair):
        model = MODEL if second is None else Under(MODEL, second.law(k, None))
        laws.append(distribution(model, ensemble))
        if laws[-1].all():
            kernel = Metropolis(Options(), model, 64)
            moves.append(Explorer(kernel, model, ensemble, DRAWS).matrix())
        else:
            moves.append(metropolis(laws[-1]))
    move = np.kron(np.kron(moves[0], moves[0]), np.kron(moves[1], moves[1]))
    pi = np.kron(np.kron(laws[0], laws[0]), np.kron(laws[1], laws[1]))
    swap = exchange_matrix(exchanger_type, pair, monkeypatch, n_blocks, second)
    assert np.abs(swap.sum(axis=1) - 1).max() < 1e-12
    both = move @ swap
    assert 0.5 * np.abs(pi @ both - pi).sum() < 1e-10, "the joint distribution is not invariant"
    assert pi @ (1 - np.diag(swap)) > 0.01, "hardly anything is exchanged"
    inside = pi > 0
    step = both[np.ix_(inside, inside)] > 0
    assert (np.linalg.matrix_power(step.astype(float), 16) > 0).all(), "not irreducible"


@pytest.mark.parametrize("n_blocks", [1, 2])
@pytest.mark.parametrize("name", PAIRS)
def test_moves_and_an_exchange_leave_the_joint_law_as_it_is(name, n_blocks, monkeypatch):
    check(Exchanger, PAIRS[name], monkeypatch, n_blocks)


def y_of(x):
    return np.array([0.4, -1.0, 2.0, 0.3])[x[:, 0] * 2 + x[:, 1]]


SECOND = SecondDirection(np.array([0.0, 0.8]), y_of)


@pytest.mark.parametrize("n_blocks", [1, 2])
def test_exchange_with_a_second_direction(n_blocks, monkeypatch):
    check(Exchanger, PAIRS["cold"], monkeypatch, n_blocks, SECOND)


class OneDirection(Exchanger):
    """Lambda does not count."""

    def _swap_pair(self, *arguments):
        self._second = None
        super()._swap_pair(*arguments)


class OtherSign(Exchanger):
    """The ratio of the observable's weights upside down."""

    def _swap_pair(self, *arguments):
        self._second = SecondDirection(-SECOND.lambda_k, y_of)
        super()._swap_pair(*arguments)


@pytest.mark.parametrize("wrong", [OneDirection, OtherSign])
def test_a_wrong_exchange_with_a_second_direction_fails(wrong, monkeypatch):
    with pytest.raises(AssertionError):
        check(wrong, PAIRS["cold"], monkeypatch, 1, SECOND)


class Reversed(Exchanger):
    """The ratio upside down."""

    def _swap_pair(self, k, held, near, ensembles, exchange):
        reversed_pair = {k: ensembles[k + 1], k + 1: ensembles[k]}
        super()._swap_pair(k, held, near, reversed_pair, exchange)


class OtherLane(Exchanger):
    """What comes is another lane's walker."""

    def _swap_pair(self, k, held, near, ensembles, exchange):
        before = {key: value.copy() for key, value in held.items()}
        super()._swap_pair(k, held, near, ensembles, exchange)
        swapped = held[k]["walker"] != before[k]["walker"]
        held[k] = np.where(swapped, np.roll(before[k + 1], 1), before[k])


class OtherBlock(Exchanger):
    """What comes is a walker of the other block."""

    def _swap_pair(self, k, held, near, ensembles, exchange):
        before = {key: value.copy() for key, value in held.items()}
        super()._swap_pair(k, held, near, ensembles, exchange)
        swapped = held[k]["walker"] != before[k]["walker"]
        other = np.roll(before[k + 1], len(swapped) // 2)
        held[k] = np.where(swapped, other, before[k])


class OutputStays(Exchanger):
    """Inputs travel, outputs stay."""

    def _swap_pair(self, k, held, near, ensembles, exchange):
        z = {key: value["z"].copy() for key, value in held.items()}
        super()._swap_pair(k, held, near, ensembles, exchange)
        for key, old in z.items():
            held[key]["z"] = old


class Never(Exchanger):
    """No exchange at all."""

    def _swap_pair(self, *arguments):
        pass


@pytest.mark.parametrize("wrong", [Reversed, OtherLane, OutputStays, Never])
def test_wrong_exchanges_fail(wrong, monkeypatch):
    with pytest.raises(AssertionError):
        check(wrong, PAIRS["canonical"], monkeypatch)


@pytest.mark.parametrize("wrong", [OtherBlock, Reversed])
def test_wrong_exchanges_of_blocks_fail(wrong, monkeypatch):
    with pytest.raises(AssertionError):
        check(wrong, PAIRS["canonical"], monkeypatch, n_blocks=2)


def test_one_decision_for_all_lanes_fails(monkeypatch):
    """A mean over lanes where each lane's own ratio belongs."""
    accept = ladder.accept_swaps

    def by_mean(lower, upper, z_lower_w, z_upper_w, *more):
        mean = [np.full_like(z, z.mean()) for z in (z_lower_w, z_upper_w)]
        return accept(lower, upper, *mean, *more)

    monkeypatch.setattr(ladder, "accept_swaps", by_mean)
    with pytest.raises(AssertionError):
        check(Exchanger, PAIRS["canonical"], monkeypatch)
