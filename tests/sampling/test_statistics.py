"""The whole program against an exact density: sampled, written, read, reweighted, compared.

z-scores are (sampled - exact) / standard error of log g per bin; their root mean square over the
bins of several runs must lie in 0.7 to 1.4 and none beyond 4.5. (The bins of one run go up and down
together: 24 of them count for a few, so that the rms of one run alone ranges from 0.5 to 1.5. What
is wrong must therefore give more than 2.)
"""

import numpy as np
import pytest
from toy_models import LatticeModel

from omniinput_hpc.cli import run as launch
from omniinput_hpc.estimators.density.density import density_of_run
from omniinput_hpc.kernels.metropolis import Metropolis
from omniinput_hpc.runfile.reader import open_run

pytestmark = pytest.mark.slow

SETTINGS = [
    "run.rounds=28", "run.burn_in=3", "sampler.walkers=64", "sampler.steps=5",
    "sampler.exchanges=6", "model.options.n_sites=8", "bins.upper=6.125",
    "ladder.betas=[-5.0, -2.0, 0.0, 2.0, 5.0]", "samples.every=5",
]  # fmt: skip


def z_scores(toml, seed, *more):
    path = toml.with_name(f"run-{seed}.h5")
    changes = [*SETTINGS, f"run.seed={seed}", f"run.output={path}", *more]
    assert launch.main([str(toml), *(w for c in changes for w in ("--set", c))]) == 0
    with open_run(path) as run:
        density = density_of_run(run.data)
    assert density.absolute
    z, log_count = LatticeModel(8, 4, 0.25, "cpu").log_count()
    seen = density.count_b > 0
    np.testing.assert_allclose((density.edges[:-1] + 0.125)[seen], z[: seen.sum()])
    known = np.isfinite(density.log_g_error_b[seen])
    delta = density.log_g_b[seen] - log_count[: seen.sum()]
    return density, (delta / density.log_g_error_b[seen])[known], delta[known]


def rms(score):
    return np.sqrt(np.mean(score**2))


def check_wrong(toml, *more):
    _, score, _ = z_scores(toml, 1, *more)
    assert len(score) >= 20
    assert rms(score) > 2


@pytest.fixture
def toml(tmp_path, lattice_toml):
    path = tmp_path / "lattice.toml"
    path.write_text(lattice_toml.format(output=tmp_path / "run.h5"))
    return path


@pytest.mark.parametrize(("blocks", "n_runs"), [
    (1, 3), (4, 2), pytest.param(1, 5, marks=pytest.mark.release),
])  # fmt: skip
def test_the_density_is_the_exact_one(toml, blocks, n_runs):
    runs = [z_scores(toml, 1 + i, f"sampler.blocks={blocks}") for i in range(n_runs)]
    score = np.concatenate([score for _, score, _ in runs])
    assert len(score) >= 20 * len(runs)
    assert 0.7 < rms(score) < 1.4, f"rms z-score {rms(score):.2f}"
    assert np.abs(score).max() < 4.5
    assert max(np.abs(delta).max() for _, _, delta in runs) < 0.8
    reasons = [density.verdict.reasons for density, _, _ in runs]
    assert not any(reasons), reasons


def test_a_kernel_that_forgets_to_accept_fails(toml, monkeypatch):
    class Hot(Metropolis):
        def step(self, state, ensemble, stream):
            return super().step(state, type(ensemble)(0.8 * ensemble.beta), stream)

    monkeypatch.setattr("omniinput_hpc.kernels.metropolis.Metropolis", Hot)
    check_wrong(toml)


def test_swaps_accepted_without_asking_fail(toml, monkeypatch):
    monkeypatch.setattr(
        "omniinput_hpc.tempering.ladder.accept_swaps",
        lambda a, b, x, y, u, *more: np.ones(len(u), dtype=bool),
    )
    check_wrong(toml)


def test_inputs_taken_from_the_next_block_fail(toml, monkeypatch):
    """The decision is a lane's own; what comes is the configuration of the next block's lane."""
    from omniinput_hpc.sampling.exchange import Exchanger

    swap_pair = Exchanger._swap_pair

    def shifted(self, k, held, near, ensembles, exchange):
        before = {j: held[j].copy() for j in (k, k + 1)}
        swap_pair(self, k, held, near, ensembles, exchange)
        for j, other in ((k, k + 1), (k + 1, k)):
            came = held[j]["walker"] != before[j]["walker"]
            held[j] = np.where(came, np.roll(before[other], 16), before[j])

    monkeypatch.setattr(Exchanger, "_swap_pair", shifted)
    monkeypatch.setattr(Exchanger, "check", lambda self, imbalance_w: None)  # which notices it
    check_wrong(toml, "sampler.blocks=4")


def test_counting_accepted_moves_alone_fails(toml, monkeypatch):
    from omniinput_hpc.histogram import Histogram

    add = Histogram.add

    def moved_only(self, z):
        moved = np.concatenate([np.ones((1, z.shape[1]), bool), z[1:] != z[:-1]])
        add(self, np.where(moved, z, np.float32(1e9)))

    monkeypatch.setattr(Histogram, "add", moved_only)
    check_wrong(toml)
