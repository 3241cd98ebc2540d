"""Walkers come into a window far from where uniformly random inputs are, and S stays theirs."""

import numpy as np
import pytest
import torch
from known_answers import Sites

from omniinput_hpc import kernels, rng
from omniinput_hpc.config import WangLandau
from omniinput_hpc.config.kernels import GibbsWithGradients, Metropolis
from omniinput_hpc.kernels import DeviceStream, wang_landau
from omniinput_hpc.kernels.wang_landau import WangLandauEnsemble

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
