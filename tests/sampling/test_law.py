"""Runs under a law of inputs, against exact probabilities down to ln P = -100.

The law is a Markov chain, and z is minus the number of sites with a rare value, whose distribution
follows by dynamic programming. z-scores are as in test_statistics. To print those of ten seeds:
`PYTHONPATH=tests/helpers .venv/bin/python tests/sampling/test_law.py [KERNEL [SEEDS]]`
"""

from __future__ import annotations

import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tomli_w
import torch
from law_models import ChainLaw, log_p_of_counts
from scipy.stats import kstest

from omniinput_hpc.cli import enumerate as enumerate_
from omniinput_hpc.cli import run as launch
from omniinput_hpc.estimators.comparison.samplers import compare_samplers
from omniinput_hpc.estimators.density.density import density_of_run
from omniinput_hpc.kernels.parts.law import Law
from omniinput_hpc.results.tables import read_exact
from omniinput_hpc.runfile.reader import open_run

INPUT = """
[run]
output = "{output}"
seed = {seed}
rounds = {rounds}
burn_in = 6
[model]
kind = "python"
factory = "law_models:events"
options = {{ n_sites = {sites} }}
[law]
kind = "python"
factory = "law_models:quick_chain"
options = {{ n_sites = {sites} }}
[sampler]
walkers = {walkers}
steps = {steps}
exchanges = {exchanges}
[ladder]
lowest = 0.0
highest = {highest}
rungs = {rungs}
spacing = "linear"
tune = true
[bins]
lower = -{sites}.5
upper = 0.5
width = 1.0
[samples]
every = 20
"""
KERNELS = {
    "metropolis": {"name": "metropolis"},
    "from-law": {"name": "from-law", "weights": {"site": 0.8, "block": 0.1, "suffix": 0.1}},
    "default": None,
}


DEEP = {
    "metropolis": {"rungs": 14, "rounds": 20, "exchanges": 40, "steps": 6},
    "from-law": {"rungs": 10, "rounds": 16, "exchanges": 20, "steps": 20},
}
"""Runs down to ln P = -100, with 40 sites, 128 walkers and betas up to 6.5."""


def deep_scores(kernel, seed, folder):
    return scores(kernel, seed, folder, 40, highest=6.5, walkers=128, **DEEP[kernel])


def scores(
    kernel, seed, folder, sites=6, rungs=3, rounds=40, highest=3.0, steps=3, walkers=32,
    exchanges=20,
):  # fmt: skip
    """Return the density of a run, and its z-scores in bins with intervals."""
    path, file = folder / f"{kernel}-{seed}.h5", folder / f"{kernel}-{seed}.toml"
    text = INPUT.format(
        output=path, seed=seed, sites=sites, rungs=rungs, rounds=rounds, highest=highest,
        steps=steps, walkers=walkers, exchanges=exchanges,
    )  # fmt: skip
    tables = {"kernel": KERNELS[kernel]} if KERNELS[kernel] else {}
    file.write_text(text + tomli_w.dumps(tables))
    assert launch.main([str(file)]) == 0
    with open_run(path) as run:
        density = density_of_run(run.data)
    exact_b = log_p_of_counts(ChainLaw(n_sites=sites))[::-1]
    known = np.isfinite(density.log_g_error_b) & np.isnan(density.log_g_upper_b)
    return density, ((density.log_g_b - exact_b) / density.log_g_error_b)[known], exact_b[known]


def rms(score):
    return float(np.sqrt(np.mean(score**2)))


@pytest.mark.slow
@pytest.mark.parametrize("kernel", ["metropolis", "default"])
def test_probabilities_are_exact(kernel, tmp_path):
    density, score, exact = scores(kernel, 1, tmp_path)
    assert density.measure == "probability" and density.absolute
    assert abs(np.logaddexp.reduce(density.log_g_b)) < 1e-9
    assert density.verdict.converged, density.verdict.reasons
    assert len(score) == 7 and exact.min() < -12
    assert 0.4 < rms(score) < 1.6 and np.abs(score).max() < 4.5


@pytest.mark.slow
@pytest.mark.release
@pytest.mark.timeout(4 * 3600)  # 70 CPU minutes on a slow machine
@pytest.mark.parametrize("kernel", ["metropolis", "from-law"])
def test_probabilities_are_exact_down_to_exp_minus_100(kernel, tmp_path):
    every = [deep_scores(kernel, seed, tmp_path) for seed in range(1, 11)]
    score = np.concatenate([score for _, score, _ in every])
    assert min(exact.min() for _, _, exact in every) < -100
    assert 0.8 < rms(score) < 1.25 and np.abs(score).max() < 4.5


@pytest.mark.slow
def test_a_kernel_that_forgets_the_law_fails(tmp_path, monkeypatch):
    monkeypatch.setattr(Law, "log_q", lambda self, x, z: torch.zeros(len(x), dtype=torch.float64))
    _, score, _ = scores("metropolis", 1, tmp_path, rounds=16)
    assert rms(score) > 2


MARKOV = """
[run]
output = "{output}"
seed = {seed}
rounds = {rounds}
burn_in = 4
[model]
kind = "python"
factory = "markov_model:markov"
[sampler]
walkers = 32
steps = 10
exchanges = 10
[ladder]
betas = {betas}
[bins]
lower = 0.0
upper = 6.0
width = 0.05
[samples]
every = 10
"""


def markov(folder, name, betas, seed=1, rounds=12, more=""):
    """Return the density of a run of the Markov chain of 6 sites (m = 5) and 5 values."""
    path, file = folder / f"{name}.h5", folder / f"{name}.toml"
    file.write_text(MARKOV.format(output=path, betas=betas, seed=seed, rounds=rounds) + more)
    assert launch.main([str(file)]) == 0
    with open_run(path) as run:
        return density_of_run(run.data)


def pair(folder, seed):
    """Return the densities of a run under the model's own law, and of one without a law.

    With its loss as z, beta under its own law is beta - m without a law. The second density is
    multiplied by q, which is exp(-m z) / V.
    """
    uniform = markov(folder, f"uniform-{seed}", [0.0, 2.5, 5.0, 8.0], seed)
    law = '[law]\nkind = "model"\n'
    own = markov(folder, f"own-{seed}", [-5.0, -2.5, 0.0, 3.0], seed + 100, more=law)
    return own, under(uniform, 5)


def under(uniform, m):
    log_q_b = -m * np.nan_to_num(uniform.z_b) - np.log(5)  # NaN without counts
    logs = {k: getattr(uniform, k) + log_q_b for k in ("log_g_b", "log_g_jb", "plain_log_g_jb")}
    return replace(uniform, **logs)


@pytest.mark.slow
def test_the_models_own_law_and_the_uniform_one_say_the_same(tmp_path):
    own, uniform = pair(tmp_path, 1)
    assert compare_samplers(own, uniform).p > 0.001
    assert compare_samplers(own, under(uniform, -0.2)).p < 0.001


@pytest.mark.slow
@pytest.mark.release
def test_of_20_pairs_under_both_laws_few_disagree(tmp_path):
    p = [compare_samplers(*pair(tmp_path, seed)).p for seed in range(20)]
    assert (np.array(p) < 0.05).sum() <= 4, p  # 5 % of 20; more than 4 in 1 of 400 cases
    assert kstest(p, "uniform").pvalue > 0.001


@pytest.mark.slow
@pytest.mark.parametrize("prompt", [pytest.param("", marks=pytest.mark.release), "file", "uniform"])
def test_enumeration_weighs_by_the_law(prompt, tmp_path):
    """A tempered law, after prompts; the run agrees with the enumeration that it is compared to."""
    law = '[law]\nkind = "model"\ntemperature = 2.0\n'
    if prompt == "file":
        (tmp_path / "prompts.json").write_text("[[0, 1], [2, 2], [4, 0], [0, 1]]")
        law += f'prompt = {{ kind = "data", file = "{tmp_path / "prompts.json"}", sites = 2 }}\n'
    elif prompt:
        law += 'prompt = { kind = "uniform", sites = 2 }\n'
    density = markov(tmp_path, "run", [-4.0, 0.0, 4.0], rounds=8, more=law)
    assert enumerate_.main([str(tmp_path / "run.toml"), "--output", str(tmp_path / "e.csv")]) == 0
    exact = read_exact(tmp_path / "e.csv", density.edges)
    assert abs(np.logaddexp.reduce(exact.log_g_b)) < 1e-5
    known = np.isfinite(exact.log_g_b) & (density.count_b > 100)
    score = (density.log_g_b - exact.log_g_b)[known] / density.log_g_error_b[known]
    assert known.sum() > 15 and rms(score) < 1.6


def main(kernel="from-law", seeds="10"):
    every = []
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(1, int(seeds) + 1):
            density, score, exact = deep_scores(kernel, seed, Path(folder))
            every.append(score)
            print(
                f"{kernel} seed {seed}: converged {density.verdict.converged}, {len(score)} bins "
                f"to ln P = {exact.min():.1f}, rms {rms(score):.2f}, "
                f"largest {np.abs(score).max():.1f}", flush=True,
            )  # fmt: skip
            print(*density.verdict.reasons, sep="\n", flush=True)
    score = np.concatenate(every)
    over = np.mean(np.abs(score) > 3)
    print(f"{kernel}: rms {rms(score):.2f}, {over:.2%} of {len(score)} bins over 3")


if __name__ == "__main__":
    main(*sys.argv[1:])
