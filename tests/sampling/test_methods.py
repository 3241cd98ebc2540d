"""Every method against an exact density: sampled, written, read and reweighted.

z-scores as in test_statistics: (sampled - exact) / standard error of log g per bin, pooled over
several runs; rms 0.7 to 1.4, none beyond 4.5.
"""

from dataclasses import replace

import numpy as np
import pytest
import run_tools
from markov_model import MarkovModel, weights
from run_tools import LATTICE
from toy_models import LatticeModel

from omniinput_hpc.cli import run as launch
from omniinput_hpc.estimators.density.density import density_of_run
from omniinput_hpc.kernels.wang_landau import WangLandauEnsemble
from omniinput_hpc.results.diagnosis import diagnose
from omniinput_hpc.runfile.reader import open_run

pytestmark = pytest.mark.slow

LATTICE_SETTINGS = [
    "run.rounds=24", "run.burn_in=8", "sampler.walkers=64", "sampler.steps=5",
    "sampler.exchanges=6", "model.options.n_sites=8", "bins.upper=6.125", "samples.every=5",
    "ladder.anchors=true",
]  # fmt: skip
MARKOV_SETTINGS = [
    "run.rounds=24", "run.burn_in=8", "sampler.walkers=64", "sampler.steps=3",
    "sampler.exchanges=4", "model.factory=markov_model:markov", "samples.every=1",
    "bins.lower=0.0", "bins.upper=8.0", "bins.width=0.25",
]  # fmt: skip
SAMPLES = ("samples/x", "samples/z", "samples/log_q")
FLAT = [
    "sampler.method=wang-landau", "wang_landau.ln_f_last=0.01",
    "run.rounds=12", "run.burn_in=16", "sampler.steps=10",
]  # fmt: skip
METHODS = {
    "anchored": ["ladder.betas=[-5.0, -2.0, 0.0, 2.0, 5.0]"],
    "tuned": ["ladder.betas=[-5.0, -0.5, 0.0, 0.5, 5.0]", "ladder.tune=true", "run.burn_in=16"],
    "gaussian": [
        "ladder.betas=[-5.0, -3.0, 0.0, 2.0, 4.0]",
        "ladder.kappa=[0.0, 2.0, 0.0, 3.0, 0.0]", "ladder.z0=[0.0, 3.0, 0.0, 1.5, 0.0]",
    ],
    "wang-landau": [*FLAT, "ladder.betas=[0.0]"],
    "replica-exchange wang-landau": [*FLAT, "ladder.betas=[0.0]", "wang_landau.windows=3"],
}  # fmt: skip
BETAS_MARKOV = "ladder.betas=[-4.0, 0.0, 2.5, 5.0, 7.0]"  # m = 5


def run(tmp_path, settings, seed):
    toml = tmp_path / "input.toml"
    toml.write_text(LATTICE.format(output=tmp_path / f"run-{seed}.h5"))
    changes = [*settings, f"run.seed={seed}"]
    assert launch.main([str(toml), *(w for c in changes for w in ("--set", c))]) == 0
    return tmp_path / f"run-{seed}.h5"


def scores(density, exact_log_g_b):
    """Return z-scores over the bins with a known error; -inf marks bins without inputs."""
    seen = density.count_b > 0
    assert np.isfinite(exact_log_g_b[seen]).all()
    known = seen & np.isfinite(density.log_g_error_b) & (density.log_g_error_b > 0)
    return (density.log_g_b[known] - exact_log_g_b[known]) / density.log_g_error_b[known]


def check(score, n_least):
    rms = np.sqrt(np.mean(score**2))
    assert len(score) >= n_least
    assert 0.7 < rms < 1.4, f"rms z-score {rms:.2f}"
    assert np.abs(score).max() < 4.5


def exact_lattice(edges):
    z, log_count = LatticeModel(8, 4, 0.25, "cpu").log_count()
    log_g_b = np.full(len(edges) - 1, -np.inf)
    log_g_b[np.searchsorted(edges, z) - 1] = log_count
    return log_g_b


def lattice_scores(tmp_path, settings, seeds):
    parts = []
    for seed in seeds:
        with open_run(run(tmp_path, [*LATTICE_SETTINGS, *settings], seed)) as finished:
            density = density_of_run(finished.data)
        assert density.absolute
        parts.append(scores(density, exact_lattice(density.edges)))
    return np.concatenate(parts)


@pytest.mark.parametrize("method", METHODS)
def test_the_density_of_the_lattice_is_exact(tmp_path, method):
    check(lattice_scores(tmp_path, METHODS[method], (1, 2)), 36)


def test_flat_rungs_with_weights_that_go_on_changing_fail(tmp_path, monkeypatch):
    """S must be frozen: what is counted while it moves is no sample of one ensemble."""
    monkeypatch.setattr(WangLandauEnsemble, "after_segment", lambda self: None)
    monkeypatch.setattr(WangLandauEnsemble, "freeze", lambda self: None)
    with pytest.raises(AssertionError):
        check(lattice_scores(tmp_path, METHODS["wang-landau"], [1, 2]), 30)


@pytest.mark.parametrize("forbidden", [pytest.param(0, marks=pytest.mark.release), 2])
@pytest.mark.parametrize("method", ["ancestral", "parallel-tempering"])
def test_the_density_of_a_language_model_is_exact(tmp_path, method, forbidden):
    settings = [
        *MARKOV_SETTINGS, BETAS_MARKOV, f"sampler.method={method}",
        f"model.options.forbidden={forbidden}",
    ]  # fmt: skip
    parts = []
    if method == "ancestral":  # independent draws, each many evaluations: fewer will do
        settings += ["run.rounds=4", "run.burn_in=1"]
    for seed in (1, 2):
        with open_run(run(tmp_path, settings, seed)) as finished:
            density = density_of_run(finished.data)
        assert density.absolute
        exact = MarkovModel(6, 5, forbidden).log_g(density.edges)
        parts.append(scores(density, exact))
    check(np.concatenate(parts), 20)


def test_every_move_of_an_ancestral_run_is_a_draw(tmp_path):
    """Also for a model whose compiled loop would make all moves of a segment but the last."""
    settings = [*MARKOV_SETTINGS, BETAS_MARKOV, "sampler.method=ancestral", "run.rounds=2",
                "run.burn_in=0"]  # fmt: skip
    with open_run(run(tmp_path, settings, 1)) as finished:
        expected = {name: finished.slab(name, 1) for name in SAMPLES}
    settings += ["model.factory=markov_model:compiled"]
    (tmp_path / "run-1.h5").unlink()
    with open_run(run(tmp_path, settings, 1)) as finished:
        for name, there in expected.items():
            np.testing.assert_array_equal(finished.slab(name, 1), there)


@pytest.mark.parametrize(("ladder", "forbidden"), [
    ("ladder.betas=[5.0, 6.0, 7.0]", 0), (BETAS_MARKOV, 2),
    pytest.param(BETAS_MARKOV, 0, marks=pytest.mark.release),
])  # fmt: skip
def test_what_the_model_itself_adds_up_to_scales_the_density(tmp_path, ladder, forbidden):
    """Where values are forbidden, what the model's probabilities add up to is not known.

    In bins of 0.25 the mean z of a bin would not stand for its exp(-5 z).
    """
    settings = [
        *MARKOV_SETTINGS, ladder, "ladder.anchors=true", f"model.options.forbidden={forbidden}",
        "bins.width=0.03125",
    ]  # fmt: skip
    parts = []
    for seed in (1, 2):
        with open_run(run(tmp_path, settings, seed)) as finished:
            density = density_of_run(finished.data)
            assert density.pinned == finished.data.rows_normalized == (not forbidden)
            assert density.absolute
        exact = MarkovModel(6, 5, forbidden).log_g(density.edges)
        firm = np.where(density.effective_b >= 50, density.log_g_error_b, np.inf)
        parts.append(scores(replace(density, log_g_error_b=firm), exact))
    check(np.concatenate(parts), 40)


def test_a_ladder_without_0_does_not_know_the_scale_where_values_are_forbidden(tmp_path):
    settings = [
        *MARKOV_SETTINGS, "ladder.betas=[5.0, 6.0, 7.0]", "ladder.anchors=true",
        "model.options.forbidden=2", "run.rounds=4",
    ]  # fmt: skip
    with open_run(run(tmp_path, settings, 1)) as finished:
        density = density_of_run(finished.data)
        assert not density.pinned and not finished.data.rows_normalized
        assert not density.absolute


@pytest.mark.parametrize("method", ["ancestral", "parallel-tempering"])
def test_the_density_is_exact_where_rows_are_no_probabilities(tmp_path, method):
    """Ancestral draws normalize the rows themselves; the ladder does without its anchor at m."""
    settings = [
        *MARKOV_SETTINGS, BETAS_MARKOV, f"sampler.method={method}",
        "model.factory=markov_model:weights", "bins.lower=-1.0", "samples.every=1",
    ]  # fmt: skip
    parts = []
    if method == "ancestral":  # independent draws, each many evaluations: fewer will do
        settings += ["run.rounds=4", "run.burn_in=1"]
    for seed in (1, 2):
        with open_run(run(tmp_path, settings, seed)) as finished:
            density = density_of_run(finished.data)
            assert density.absolute and np.isnan(finished.model_beta)
        parts.append(scores(density, weights("cpu").log_g(density.edges)))
    check(np.concatenate(parts), 20)


def test_tuning_moves_the_interior_betas_only_and_evens_the_rejections(tmp_path):
    settings = ["ladder.betas=[-5.0, -4.9, -4.8, -4.7, 0.0, 0.1, 0.2, 5.0]", "ladder.tune=true",
                "run.burn_in=64", "run.rounds=10"]  # fmt: skip
    with open_run(run(tmp_path, [*LATTICE_SETTINGS, *settings], 1)) as finished:
        beta_k, attempted_accepted = finished.beta_k, finished.swaps_k2()
    rejection_k = 1 - attempted_accepted[:, 1] / attempted_accepted[:, 0]
    assert beta_k[0] == -5.0 and beta_k[-1] == 5.0 and 0.0 in beta_k
    assert (np.diff(beta_k) > 0).all()
    assert rejection_k.max() < 0.8 and rejection_k.max() < 1.5 * rejection_k.mean()


def test_a_tuned_ladder_makes_half_the_ideal_round_trips(tmp_path):
    """Where segments decorrelate z and rungs are enough: 1 / (2 + 2 Lambda) is for very many."""
    settings = [
        "ladder.betas=[-5.0, -4.9, -4.8, -4.7, -4.0, -1.0, 0.0, 0.1, 0.2, 0.3, 5.0]",
        "ladder.tune=true", "sampler.walkers=32", "sampler.steps=24",
        "run.burn_in=16", "run.rounds=20",
    ]  # fmt: skip
    with open_run(run(tmp_path, [*LATTICE_SETTINGS, *settings], 1)) as finished:
        diagnosis = diagnose(finished)
    assert (1 - diagnosis.swapped_k).max() < 0.8
    assert diagnosis.trip_rate > 0.5 * diagnosis.ideal_rate


@pytest.mark.parametrize("writer", ["mpio", "gather"])
def test_a_window_that_nobody_enters_ends_the_run_with_one_sentence(tmp_path, writer):
    path = tmp_path / "input.toml"
    path.write_text(LATTICE.format(output=tmp_path / "run.h5"))
    changes = [
        "sampler.method=wang-landau", "ladder.betas=[0.0]", "run.burn_in=4", "sampler.steps=1",
        "sampler.exchanges=1", "model.options.n_sites=100", "bins.upper=300.125",
        "wang_landau.windows=[[-0.125, 1.125], [0.875, 300.125]]", f"run.writer={writer}",
        "samples.every=1",
    ]  # fmt: skip
    words = [word for change in changes for word in ("--set", change)]
    done = run_tools.run(path, *words, ranks=3)
    assert done.returncode == 2, done.stderr
    told = [line for line in done.stderr.splitlines() if line.strip()]
    assert told[-1] == (
        "omniinput_hpc: no walker has reached the window [-0.125, 1.125] of rung 0: raise "
        "run.burn_in, or let the windows of [wang_landau] overlap more"
    )
    assert "Traceback" not in done.stderr
