"""Walkers come into a window far from where uniformly random inputs are, and S stays theirs."""

import numpy as np
import pytest
import torch
from exactness import Draw, Explorer, ScriptedStream, distribution
from known_answers import Sites
from run_tools import LATTICE, assert_same, contents, run
from runs_in_progress import config_of, sampled
from toy_models import CoupledModel

from omniinput_hpc import kernels, rng
from omniinput_hpc.config import WangLandau
from omniinput_hpc.config.kernels import DiscreteLangevin, GibbsWithGradients, Metropolis
from omniinput_hpc.errors import UserError
from omniinput_hpc.kernels import DeviceStream, wang_landau
from omniinput_hpc.kernels.wang_landau import WangLandauEnsemble
from omniinput_hpc.sampling.rung import Rung

EDGES = np.arange(-0.5, 701.0)
RANDOM = 154.0  # mean energy of uniformly random inputs; its deviation is 16
CPU = torch.device("cpu")


def learner(low, high, n_walkers):
    window = (int(np.searchsorted(EDGES, low)), int(np.searchsorted(EDGES, high)))
    return WangLandauEnsemble(EDGES, window, WangLandau(ln_f_first=0.005), CPU, n_walkers)


def learnt(options, low, high, segments, steps, n_walkers=16):
    """Return z of walkers that began at random, and the learner."""
    model, rung = Sites(), learner(low, high, n_walkers)
    kernel = kernels.build(options, model, n_walkers)
    own, shared = (rng.generator(4, purpose) for purpose in ("moves", "choices"))
    stream = DeviceStream(own, CPU, 1 << 12, shared)
    x = stream.integers(model.n_values, n_walkers, model.n_sites)
    state = kernel.start(x, model.output(x))
    assert (state.z - RANDOM).abs().max() < 70
    for _ in range(segments):
        for _ in range(steps):
            rung.begin_move(stream, state.z)
            state, _ = kernel.step(state, rung, stream)
            rung.after_move(state.z)
        rung.after_segment()
        state = kernel.start(state.x, state.z)
    return state.z.numpy(), rung


GRADIENT = GibbsWithGradients(name="gibbs-with-gradients")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "low", "high", "steps"),
    [
        (Metropolis(), 20.5, 60.5, 100),
        (Metropolis(), 350.5, 500.5, 100),
        (GRADIENT, 20.5, 60.5, 15),
    ],
)
def test_walkers_come_into_a_far_window(options, low, high, steps, monkeypatch):
    z, rung = learnt(options, low, high, 20, steps)
    assert ((z > low) & (z < high)).all()
    assert bool(rung._visited.any()) and rung.learning
    monkeypatch.setattr(wang_landau, "BETA_GROWTH", 1.0)  # the same without cooling
    z, _ = learnt(options, low, high, 20, steps)
    assert ((z < low) | (z > high)).all()


def test_the_beta_outside_resumes_and_stays_where_walkers_are_inside():
    _, rung = learnt(Metropolis(), 20.5, 60.5, 4, 20)
    again = learner(20.5, 60.5, 16)
    again.restore(rung.learning_state())
    z = torch.linspace(0.0, 300.0, 50)
    assert torch.equal(again.log_weight(z), rung.log_weight(z))
    assert torch.equal(again.slope(z), rung.slope(z))
    assert (again.slope(z[z < 20]) < 0).all() and (again.slope(z[z > 61]) > 0).all()
    before = again.slope(z)[-1]
    again.after_move(torch.full((16,), 40.0))
    again.after_segment()
    assert again.slope(z)[-1] == before
    again.after_move(torch.full((16,), 140.0))
    again.after_segment()
    assert again.slope(z)[-1] == pytest.approx(1.5 * float(before))


@pytest.mark.parametrize("schedule", ["1/t", "halving"])
def test_learning_ends_only_after_a_flat_histogram(schedule):
    """Many walkers start with an increment below the last one, here 0.1 * 4 / 16."""
    options = WangLandau(ln_f_last=0.05, schedule=schedule)
    rung = WangLandauEnsemble(EDGES, (100, 104), options, CPU, 16)
    assert rung.ln_f == 0.025
    z = torch.tensor([100.0, 101.0, 102.0, 103.0])
    rung.after_move(torch.cat([z, z[:1].expand(12)]))
    rung.after_segment()
    assert rung.learning and not rung.reached
    rung.after_move(torch.cat([z.repeat(3), z[1:], z[1:2]]))
    for _ in range(20):
        rung.after_move(z.repeat(4))
    rung.after_segment()
    assert not rung.learning and rung.reached


def drawn_betas(freeze, n=4000):
    """Return the betas of many moves of a directional proposal."""
    options = WangLandau(ln_f_first=0.005, proposal="directional", proposal_beta=[0.5, 3.0])
    rung = WangLandauEnsemble(EDGES, (0, 700), options, CPU, 1)
    own, shared = (rng.generator(4, purpose) for purpose in ("moves", "choices"))
    stream, z = DeviceStream(own, CPU, 1 << 13, shared), torch.tensor([RANDOM])
    rung.begin_segment(stream, 1)
    rung.after_move(z)
    if freeze:
        rung.freeze()
    else:
        rung.after_move(z + 1.0)  # another bin begins: no bin is flat any more
    found = []
    for _ in range(n):
        rung.begin_move(stream, z)
        found.append(float(rung.slope(z)))
    return np.array(found)


def test_a_directional_proposal_has_both_signs_once_frozen():
    """One sign alone is exact as well, and hardly ever goes the other way."""
    beta = drawn_betas(freeze=True)
    assert (np.abs(beta) >= 0.5).all() and (np.abs(beta) <= 3.0).all()
    assert abs((beta > 0).mean() - 0.5) < 4.0 * 0.5 / np.sqrt(len(beta))
    assert abs(np.abs(beta).mean() - 1.75) < 4.0 * 2.5 / np.sqrt(12.0 * len(beta))


def test_where_a_bin_is_not_flat_the_proposal_leads_to_slightly_larger_outputs():
    assert set(drawn_betas(freeze=False, n=20)) == {-0.1}  # beta > 0 leads to low z


KEPT = WangLandau(
    ln_f_first=0.005, proposal="directional", proposal_beta=[0.5, 3.0], direction="kept"
)


class Binary(CoupledModel):
    """Three sites of two values, with outputs that all differ."""

    n_values = 2


BINARY = Binary(dtype=torch.float64)
OUTPUTS = BINARY.output(BINARY.all_inputs())
ONE_BIN_EACH = np.linspace(float(OUTPUTS.min()) - 0.4, float(OUTPUTS.max()) + 0.4, 24)
FLIPS = [
    Draw(2, lambda x, x_new, site=site: (x[:, site] == x_new[:, site]).long()) for site in range(3)
]


class HeadsInwards(WangLandauEnsemble):
    """A wrong variant: with frozen weights, too, walkers at an extreme head for the other one."""

    def _turned(self, gamma, entry):
        frozen, self.learning = self.learning, True
        turned = super()._turned(gamma, entry)
        self.learning = frozen
        return turned


def frozen_ensemble(make, known):
    """Return an ensemble with S of its own in each bin, which has met the `known` outputs alone."""
    rung = make(ONE_BIN_EACH, (0, len(ONE_BIN_EACH) - 1), KEPT, CPU, len(OUTPUTS))
    for _ in range(30):
        rung.after_move(OUTPUTS[known])
    for number, z in enumerate(OUTPUTS[known]):
        for _ in range(40 * number):
            rung.after_move(z[None])
    rung.freeze()
    return rung


class AtBeta:
    """The frozen ensemble with one beta of the proposal."""

    def __init__(self, rung, beta):
        self.log_weight, self._beta = rung.log_weight, beta

    def slope(self, z):
        return torch.full_like(z, self._beta)


def matrix_with_direction(rung, u=0.3):
    """Return P [2n, 2n] over inputs and directions: first those that head up, then down."""
    n, beta = len(OUTPUTS), 0.5 + 2.5 * u
    options = DiscreteLangevin(name="discrete-langevin", step_size=0.4)
    kernel = kernels.build(options, BINARY, n)
    p_at = {
        sign: Explorer(kernel, BINARY, AtBeta(rung, sign * beta), FLIPS).matrix()
        for sign in (-1.0, 1.0)
    }
    p = np.zeros((2, n, 2, n))
    for was, heading in enumerate((1, -1)):
        rung.set_headings(np.full(n, heading, np.int8))
        rung.begin_move(ScriptedStream([torch.tensor([u], dtype=torch.float64)]), OUTPUTS)
        slope_w, heading_w = rung.slope(OUTPUTS).numpy(), rung.headings()
        np.testing.assert_allclose(slope_w, -beta * heading_w, rtol=1e-12)
        for x in range(n):  # the move is made in the direction that the walker then keeps
            is_ = 0 if heading_w[x] == 1 else 1
            p[was, x, is_] = p_at[np.sign(slope_w[x])][x]
    return p.reshape(2 * n, 2 * n)


@pytest.mark.parametrize("known", [slice(None), slice(2, 7), slice(4, 5)])
def test_kept_directions_are_exact_once_frozen(known):
    """On inputs and directions together: pi(x) / 2 is invariant, and every state is reached.

    Also where the window has bins beyond the known ones, and where a single bin is known.
    """
    rung = frozen_ensemble(WangLandauEnsemble, known)
    pi = np.tile(distribution(BINARY, rung), 2) / 2.0
    p = matrix_with_direction(rung)
    assert np.abs(p.sum(axis=1) - 1.0).max() < 1e-12
    assert 0.5 * np.abs(pi @ p - pi).sum() < 1e-10
    reach = np.linalg.matrix_power(p + np.eye(len(p)), 2 * len(p))
    assert (reach > 0).all()


def test_walkers_that_only_head_inwards_are_not_exact():
    """The papers' rule is for learning: counted, it is wrong."""
    rung = frozen_ensemble(HeadsInwards, slice(None))
    pi = np.tile(distribution(BINARY, rung), 2) / 2.0
    assert 0.5 * np.abs(pi @ matrix_with_direction(rung) - pi).sum() > 1e-3


def test_a_kept_direction_lasts_until_an_extreme_is_reached():
    """While learning: S2, section 16. The direction is of each walker, and no coin is thrown."""
    rung = WangLandauEnsemble(EDGES, (0, 700), KEPT, CPU, 3)
    own, shared = (rng.generator(4, purpose) for purpose in ("moves", "choices"))
    stream = DeviceStream(own, CPU, 1 << 10, shared)
    rung.set_headings(np.array([1, -1, 1], np.int8))
    for z in ([150.0, 151.0, 152.0], [150.0, 152.0, 151.0], [151.0, 150.0, 152.0]):
        rung.after_move(torch.tensor(z))  # each bin was met three times: all are flat

    def move(*z):
        rung.begin_segment(stream, 3)
        rung.begin_move(stream, torch.tensor(z))
        return rung.headings().tolist()

    assert move(151.0, 151.0, 151.0) == [1, -1, 1]
    assert (np.sign(rung.slope(torch.zeros(3)).numpy()) == [-1, 1, -1]).all()
    assert move(151.0, 151.0, 152.0) == [1, -1, -1]  # the highest known: turns round
    assert move(151.0, 150.0, 151.0) == [1, 1, -1]  # the lowest
    assert move(152.0, 150.0, 150.0) == [-1, 1, 1]
    assert rung.slope(torch.zeros(3)).abs().min() >= 0.5  # never the calm beta
    rung.after_move(torch.tensor([160.0, 160.0, 160.0]))  # a new bin: nothing is flat any more
    assert move(151.0, 151.0, 151.0) == [-1, 1, 1]
    np.testing.assert_allclose(rung.slope(torch.zeros(3)), wang_landau.CALM_BETA)


RUN = (
    "sampler.method=wang-landau", "run.burn_in=8", "run.rounds=3", "ladder.betas=[0.0]",
    "kernel.name=gibbs-with-gradients", "model.factory=toy_models:coupled",
    "bins.lower=-12.0", "bins.upper=12.0", "bins.width=0.5", "wang_landau.windows=3",
    "wang_landau.ln_f_last=0.01", "sampler.walkers=4", "sampler.exchanges=2",
    "wang_landau.proposal=directional", "wang_landau.proposal_beta=[0.5, 2.0]",
)  # fmt: skip
KEEP = "wang_landau.direction=kept"


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Return the file of a run that was not stopped."""
    folder = tmp_path_factory.mktemp("whole")
    sampled(folder, *RUN, KEEP)
    return folder / "run.h5"


@pytest.mark.slow
@pytest.mark.parametrize("until", [-6, -1, 2])
def test_a_run_that_was_stopped_goes_on_in_the_same_directions(whole, tmp_path, until):
    """In burn-in while learning, in burn-in with frozen weights, and counted."""
    sampled(tmp_path, *RUN, KEEP, until=until)
    sampled(tmp_path, *RUN, KEEP)
    assert_same(whole, tmp_path / "run.h5")


@pytest.mark.slow
def test_directions_that_are_not_resumed_are_found(whole, tmp_path, monkeypatch):
    """The test above fails where a resumed run begins with other directions."""
    sampled(tmp_path, *RUN, KEEP, until=1)
    resume = Rung.resume

    def forgetful(rung, checkpoint, tuned_beta):
        resume(rung, checkpoint, tuned_beta)
        rung.heading_w = -rung.heading_w

    monkeypatch.setattr(Rung, "resume", forgetful)
    sampled(tmp_path, *RUN, KEEP)
    with pytest.raises(AssertionError, match="differ"):
        assert_same(whole, tmp_path / "run.h5")


@pytest.mark.slow
def test_directions_go_with_their_walkers(tmp_path, monkeypatch):
    """With moves that do nothing and outputs away from all extremes, only exchanges happen."""
    monkeypatch.setattr(WangLandauEnsemble, "_turned", lambda self, gamma, entry: gamma)
    sampled(tmp_path, *RUN, KEEP)
    found = contents(tmp_path / "run.h5")
    _, _, raw = found["state/heading"]
    heading = np.frombuffer(raw, np.int8).reshape(2, 4, 4)
    walker = np.frombuffer(found["state/walker"][2], np.int32).reshape(2, 4, 4)
    assert (heading == wang_landau.first_headings(4)[walker % 4]).all()
    moved = walker // 4 != np.arange(4)[:, None]
    assert moved.any(), "no walker was exchanged"


@pytest.mark.slow
def test_files_of_redrawn_directions_are_as_before(tmp_path):
    sampled(tmp_path, *RUN)
    assert "state/heading" not in contents(tmp_path / "run.h5")


@pytest.mark.slow
def test_kept_directions_on_two_ranks_are_the_same(whole, tmp_path):
    (tmp_path / "a.toml").write_text(LATTICE.format(output="a.h5"))
    words = [w for change in (*RUN, KEEP) for w in ("--set", change)]
    done = run("a.toml", *words, ranks=2, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert_same(whole, tmp_path / "a.h5")


def test_only_a_directional_proposal_keeps_directions(tmp_path):
    with pytest.raises(UserError, match='direction = "kept" belongs to proposal = "directional"'):
        config_of(tmp_path, "sampler.method=wang-landau", "run.burn_in=4", KEEP)
