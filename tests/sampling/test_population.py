"""Annealed runs: Z of every rung and the density are exact, for any ranks and kills the same."""

import numpy as np
import pytest
import run_tools
from markov_model import MarkovModel
from planted_passages import planted_passages
from scipy.special import logsumexp

from omniinput_hpc.cli import run as launch
from omniinput_hpc.estimators.density.density import density_of_run
from omniinput_hpc.estimators.populations import constants_of
from omniinput_hpc.parallel.stopping import StopRun
from omniinput_hpc.runfile.reader import open_run
from omniinput_hpc.sampling import loop, population, rung
from omniinput_hpc.tempering.annealing import Carried, carry

PASSAGES = {"n_sites": 9, "n_values": 24, "n_passages": 3, "enter_bits": 5}
INPUT = """
[run]
output = "{output}"
seed = 5
rounds = 3
[model]
kind = "python"
factory = "planted_passages:planted_passages"
options = {{ n_sites = 9, n_values = 24, n_passages = 3, enter_bits = 5 }}
[sampler]
method = "annealed"
walkers = 32
steps = 2
exchanges = 2
[ladder]
betas = [8.0, 8.5, 9.0, 9.5]
[kernel]
name = "lm-conditional"
[bins]
lower = -0.01
upper = 19.99
width = 0.2
[samples]
every = 1
"""
MARKOV = ["model.factory=markov_model:markov", "ladder.betas=[5.0, 6.0, 7.0, 8.0]",
          "bins.lower=0.0", "bins.upper=8.0", "bins.width=0.25"]  # fmt: skip


def run(tmp_path, *changes, name="run", code=0):
    toml, path = tmp_path / f"{name}.toml", tmp_path / f"{name}.h5"
    text = INPUT.format(output=path)
    if any("factory" in change for change in changes):
        text = "".join(line for line in text.splitlines(True) if not line.startswith("options"))
    toml.write_text(text)
    words = [word for change in changes for word in ("--set", change)]
    assert launch.main([str(toml), *words]) == code
    return path


def exact_levels(model):
    """Return all outputs of a model of `SETTINGS`, and ln of their numbers."""
    if model != "markov":
        return planted_passages("cpu", **PASSAGES).log_count()
    chain = MarkovModel(6, 5, 0)
    z = chain.output(chain.all_inputs()).double().numpy()
    return z, np.zeros(len(z))


SETTINGS = {
    "passages": [],
    # learned in burn-in, then frozen
    "ahead": ["kernel.look_ahead=true", "run.burn_in=4", "sampler.steps=1"],
    "markov": [*MARKOV, "ladder.betas=[5.0, 7.0, 9.0]"],
}


def ratios(tmp_path, model):
    """Return each population's Z over the exact one [n, K]."""
    own = SETTINGS[model]
    path = run(tmp_path, "run.rounds=24", "sampler.walkers=128", *own)
    with open_run(path) as finished:
        found, beta_k = constants_of(finished.data), finished.beta_k
    z_l, log_count_l = exact_levels(model)
    return np.exp(found.log_z_nk - logsumexp(log_count_l[:, None] - np.outer(z_l, beta_k), axis=0))


def check_unbiased(ratio_nk):
    """Assert that the mean over 768 populations is 1 on every rung: within 3 standard errors.

    On the lowest rung, where each is 1 but for rounding, within 1e-5.
    """
    n = len(ratio_nk)
    assert n == 768
    error_k = ratio_nk.std(axis=0, ddof=1) / np.sqrt(n)
    assert error_k.max() < 0.05, "the test would find a bias of 15 %"
    score_k = (ratio_nk.mean(axis=0) - 1.0) / np.maximum(error_k, 1e-5)
    assert np.abs(score_k).max() < 3.0, score_k


@pytest.mark.parametrize("model", ["passages", "ahead", "markov"])
def test_constants_are_unbiased(tmp_path, model):
    check_unbiased(ratios(tmp_path, model))


class WeighsAfterTheMoves(population.Population):
    """A wrong variant: the new beta's factor is taken of where the moves have led."""

    def arrive(self, random):
        before = self._before
        if before is None:
            return
        zero = np.zeros(len(before.log_weight_w))
        u_g = random.random(self._n_groups)
        carried = carry(before.log_weight_w, zero, 0.0, self._group_w, u_g)
        self.log_weight_w = carried.log_weight_w
        self.walkers.take(before.walkers, carried.source_w)

    def weigh(self, z_sw, log_q_swj):
        if log_q_swj is None:
            gap = self.walkers.ensemble.beta - self._before.walkers.ensemble.beta
            self.log_weight_w = self.log_weight_w - gap * z_sw[-1].astype(np.float64)
        return super().weigh(z_sw, log_q_swj)


def keeps_weights(log_weight_w, z_w, gap, group_w, u_g):
    """Another: walkers are drawn by weight, and keep their weights."""
    carried = carry(log_weight_w, z_w, gap, group_w, u_g)
    return Carried((log_weight_w - gap * z_w)[carried.source_w], carried.source_w)


@pytest.mark.parametrize(
    ("module", "name", "variant"),
    [(rung, "Population", WeighsAfterTheMoves), (population, "carry", keeps_weights)],
)
def test_wrong_variants_are_biased(tmp_path, monkeypatch, module, name, variant):
    monkeypatch.setattr(module, name, variant)
    with pytest.raises(AssertionError):
        check_unbiased(ratios(tmp_path, "markov"))


MANY = ["run.rounds=24", "sampler.walkers=512", "sampler.exchanges=1"]
"""384 populations of 32 walkers."""


def scores(density, exact_b):
    """Return deviations in standard errors of bins of 50 effective counts or more."""
    use = density.believed_b & (density.effective_b >= 50) & np.isfinite(density.log_g_error_b)
    assert np.isfinite(exact_b[density.count_b > 0]).all()
    return (density.log_g_b[use] - exact_b[use]) / density.log_g_error_b[use]


@pytest.mark.slow
def test_the_density_is_exact(tmp_path):
    """On passages by dynamic programming: rms of all scores 0.8 to 1.25, none beyond 4."""
    found = []
    exact = planted_passages("cpu", **PASSAGES)
    for seed in range(1, 5):
        settings = [*MANY, "bins.width=0.1", f"run.seed={seed}"]
        with open_run(run(tmp_path, *settings, name=f"run-{seed}")) as finished:
            density = density_of_run(finished.data)
        assert density.absolute and density.ancestral
        found.append(scores(density, exact.log_g(density.edges)))
    every = np.concatenate(found)
    assert len(every) > 40
    assert 0.8 < np.sqrt(np.mean(every**2)) < 1.25
    assert np.abs(every).max() < 4.0


@pytest.mark.slow
@pytest.mark.parametrize("forbidden", [pytest.param(0, marks=pytest.mark.release), 2])
def test_a_language_model_that_is_enumerated(tmp_path, forbidden):
    """Where values are forbidden, the lowest rung's draws have weights of their own."""
    found = []
    for seed in (1, 2, 3):
        settings = [*MARKOV, f"model.options.forbidden={forbidden}", *MANY, f"run.seed={seed}"]
        with open_run(run(tmp_path, *settings, name=f"run-{seed}")) as finished:
            density = density_of_run(finished.data)
        found.append(scores(density, MarkovModel(6, 5, forbidden).log_g(density.edges)))
    every = np.concatenate(found)
    assert len(every) > 20
    assert 0.7 < np.sqrt(np.mean(every**2)) < 1.4
    assert np.abs(every).max() < 4.0


def test_a_run_that_stopped_and_went_on_is_equal(tmp_path, monkeypatch):
    whole = run(tmp_path, name="whole")
    commit, done = loop.commit, []

    def stopping(run_, stats):
        if len(done) == 1:
            raise StopRun("stopped here")
        done.append(run_.next_round)
        return commit(run_, stats)

    monkeypatch.setattr(loop, "commit", stopping)
    run(tmp_path, code=75)
    monkeypatch.setattr(loop, "commit", commit)
    run_tools.assert_same(run(tmp_path), whole)


@pytest.mark.skipif(not run_tools.LAUNCHER, reason="no MPI launcher")
def test_ranks_share_blocks_and_change_no_bit(tmp_path):
    one = run(tmp_path, "sampler.blocks=2", name="one")
    toml = tmp_path / "one.toml"
    two = ["--set", "sampler.blocks=2", "--set", f"run.output={tmp_path}/two.h5"]
    done = run_tools.run(toml, *two, ranks=2)
    assert done.returncode == 0, done.stderr
    run_tools.assert_same(one, tmp_path / "two.h5")
    done = run_tools.run(toml, "--set", f"run.output={tmp_path}/three.h5", ranks=2)
    assert done.returncode == 2
    assert "2 ranks do not divide sampler.blocks = 1" in done.stderr
    assert "Traceback" not in done.stderr


REFUSED = {
    "the lowest beta": (["ladder.betas=[7.0, 9.0]"], "the lowest beta must be m = 8, the number"),
    "no conditionals": (
        ["model.factory=toy_models:lattice"],
        'sampler.method = "annealed" needs an autoregressive model with conditional_logits',
    ),
    "one rung": (["ladder.betas=[8.0]"], "give at least two"),
    "samples": (["samples.every=2"], "set samples.every = 1"),
    "uneven populations": (["sampler.walkers=24"], "use a multiple of 16"),
    "blocks": (["sampler.blocks=32"], "sampler.blocks = 32 splits populations"),
    "gaussian": (["ladder.kappa=[0.0, 1.0, 0.0, 0.0]", "ladder.z0=[0.0, 1.0, 0.0, 0.0]"],
                 "ladder.kappa has no effect"),
    "tuned": (["ladder.tune=true"], "ladder.tune is for"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_annealed_is_refused(tmp_path, capsys, case):
    changes, words = REFUSED[case]
    path = run(tmp_path, *changes, code=2)
    told = capsys.readouterr().err
    assert words in told
    assert "Traceback" not in told
    assert not path.exists()


def test_a_check_plans_it(tmp_path, capsys):
    toml = tmp_path / "run.toml"
    toml.write_text(INPUT.format(output=tmp_path / "run.h5"))
    assert launch.main([str(toml), "--check"]) == 0
    said = "".join(capsys.readouterr())
    assert "4 rungs, annealed, beta 8 to 9.5" in said
    assert "relative" not in said
    assert "time  " in said


def test_what_is_written_is_exp_of_beta_z_over_the_weight(tmp_path):
    """The lowest rung's draws know their probability; weights hold for all moves of a segment."""
    with open_run(run(tmp_path)) as finished:
        (log_q, *_), z = list(finished.samples_log_q()), finished.samples_z(slice(0, 1))[0]
        beta_k = finished.beta_k
    assert log_q.shape == (4, 32 * 4, 1)
    log_w = -beta_k[:, None] * z.astype(float) - log_q[:, :, 0]
    np.testing.assert_allclose(log_w[0], np.log(24), atol=1e-4)
    by_move = log_w.reshape(4, 2, 2, 32)
    np.testing.assert_allclose(by_move[1:, :, 0], by_move[1:, :, 1], atol=1e-9)
    assert by_move[1:].std() > 0.01
