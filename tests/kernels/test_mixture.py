"""A mixture: parts by weight, each counted on its own, caches never stale."""

import tomllib

import h5py
import numpy as np
import pytest
import run_tools
import tomli_w
import torch
from toy_models import CoupledModel

from omniinput_hpc import kernels, rng
from omniinput_hpc.config.kernels import Mixture as Options
from omniinput_hpc.kernels import DeviceStream
from omniinput_hpc.kernels.mixture import Mixture
from omniinput_hpc.kernels.state import Info, State
from omniinput_hpc.tempering.ensembles import Canonical

MODEL = CoupledModel()


class Recounting:
    """Flips a site at random; its cache is the sum of x, and must be so whenever it moves."""

    parts = ("flip",)
    uniforms_per_move = 4

    def __init__(self):
        self.tuned, self.seen = np.zeros(2), []

    def start(self, x, z):
        return State(x, z, x.sum(dim=1))

    def step(self, state, ensemble, stream):
        assert torch.equal(state.cache, state.x.sum(dim=1))
        x = state.x.clone()
        x[:, 0] = stream.integers(4, len(x))
        return State(x, MODEL.output(x), x.sum(dim=1)), Info(torch.ones(len(x), dtype=torch.bool))

    def adapt(self, attempted_p, accepted_p):
        self.seen.append((attempted_p.tolist(), accepted_p.tolist()))


def stream(round_=0):
    return DeviceStream(
        rng.generator(1, "moves", round_),
        torch.device("cpu"),
        64,
        rng.generator(1, "choices", round_),
    )


def test_parts_are_drawn_by_weight_and_their_caches_follow_the_walkers():
    mixture = Mixture([Recounting(), Recounting(), Recounting()], [1.0, 2.0, 5.0], ("a", "b", "c"))
    random, counts = stream(), np.zeros(3)
    x = torch.zeros((2, 3), dtype=torch.int64)
    state = mixture.start(x, MODEL.output(x))
    n = 4000
    for _ in range(n):
        state, info = mixture.step(state, Canonical(1.0), random)
        counts[info.part] += 1
    share = np.array([1, 2, 5]) / 8
    assert (np.abs(counts - n * share) < 4 * np.sqrt(n * share * (1 - share))).all()


def test_a_stale_cache_would_be_noticed():
    class Stale(Mixture):
        def step(self, state, ensemble, stream):
            new, info = super().step(state, ensemble, stream)
            kept = tuple(
                a if a is not None else b for a, b in zip(new.cache, state.cache, strict=True)
            )
            return State(new.x, new.z, kept), info

    mixture, random = Stale([Recounting(), Recounting()], [1.0, 1.0], ("a", "b")), stream()
    state = mixture.start(torch.zeros((2, 3), dtype=torch.int64), torch.zeros(2))
    with pytest.raises(AssertionError):
        for _ in range(50):
            state, _ = mixture.step(state, Canonical(1.0), random)


def test_tuned_numbers_and_counts_go_to_the_parts_that_they_belong_to():
    first, second = Recounting(), Recounting()
    mixture = Mixture([first, second], [1.0, 1.0], ("a", "b"))
    mixture.tuned = np.array([1.0, 2.0, 3.0, 4.0])
    np.testing.assert_array_equal(first.tuned, [1, 2])
    np.testing.assert_array_equal(second.tuned, [3, 4])
    np.testing.assert_array_equal(mixture.tuned, [1, 2, 3, 4])
    mixture.adapt(np.array([10, 20]), np.array([3, 4]))
    assert first.seen == [([10], [3])] and second.seen == [([20], [4])]


def test_built_from_the_input_file_a_mixture_can_hold_any_kernel_twice():
    options = Options.model_validate(
        {
            "name": "mixture",
            "parts": [{"name": "metropolis"}, {"name": "metropolis", "sites": 2, "weight": 3.0}],
        }
    )
    kernel = kernels.build(options, MODEL, 8)
    assert kernel.parts == ("0:metropolis", "1:metropolis")
    assert len(kernel.tuned) == options.n_tuned == 0
    stored = tomli_w.dumps(options.model_dump(exclude_none=True))  # as a run file has it
    assert Options.model_validate(tomllib.loads(stored)) == options


@pytest.mark.slow
def test_a_run_counts_each_part_on_its_own(tmp_path, lattice_toml):
    parts = '[kernel]\nname = "mixture"\n' + "".join(
        f'[[kernel.parts]]\nname = "metropolis"\nsites = {n}\nweight = {w}\n'
        for n, w in ((1, 3.0), (4, 1.0))
    )
    toml = tmp_path / "a.toml"
    toml.write_text(lattice_toml.format(output=tmp_path / "a.h5") + parts)
    done = run_tools.run(toml)
    assert done.returncode == 0, done.stderr
    with h5py.File(tmp_path / "a.h5") as file:
        attempted, accepted = file["kernel/attempted"][:], file["kernel/accepted"][:]
        beta = file["ladder/beta"][:]
    assert attempted.shape == (5, 4, 2)
    assert (attempted.sum(axis=2) == 8 * 5 * 3).all()
    assert (attempted % 8 == 0).all(), "all walkers move by the same part"
    assert (accepted[:, beta == 0] == attempted[:, beta == 0]).all()
    assert 0.5 < attempted[..., 0].sum() / attempted.sum() < 0.95
    hot = accepted[:, -1].sum(axis=0) / attempted[:, -1].sum(axis=0)
    assert hot[0] > hot[1], "moves of four sites are accepted less"
