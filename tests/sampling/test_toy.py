"""The Toy in the repository: its weights, its exact truth, and that the two belong together."""

from pathlib import Path

import numpy as np
import pytest
import torch
from run_tools import run

from omniinput_hpc import models
from omniinput_hpc.config import input_file
from omniinput_hpc.estimators.density.density import density_of_run
from omniinput_hpc.histogram import bin_of
from omniinput_hpc.results.record import read_results
from omniinput_hpc.results.tables import read_table
from omniinput_hpc.runfile.reader import open_run
from omniinput_zoo.toy import completions, is_valid, next_digit_probabilities

pytestmark = pytest.mark.slow

CONFIG = input_file.load(Path("inputs/toy.toml"))
_, TRUTH = read_table(Path("inputs/exact/toy.csv"), ["z_lower", "log_g", "count", "r"])
HEADER = read_results(Path("inputs/exact/toy.results.json"))["analyses"][0]["tables"][0]["about"]


def stated(words):
    return float(next(line for line in HEADER if line.startswith(words)).rpartition(":")[2])


def test_the_exact_conditionals_give_the_uniform_law_over_valid_inputs():
    count, p = completions(), next_digit_probabilities()
    assert count[0, 0] == stated("right inputs")
    random = np.random.default_rng(1)
    x = random.integers(10, size=(20_000, 8))
    valid = x[is_valid(x) == 1]
    total = np.concatenate([np.zeros((len(valid), 1), int), valid.cumsum(axis=1)], axis=1)
    law = np.prod([p[t, total[:, t], valid[:, t]] for t in range(8)], axis=0)
    np.testing.assert_allclose(law, 1 / count[0, 0], rtol=1e-12)


def test_the_truth_belongs_to_the_weights_and_is_whole():
    about = models.preflight(CONFIG)
    assert any(about["fingerprint"] in line for line in HEADER)
    assert TRUTH["count"].sum() == 10**8
    np.testing.assert_allclose(TRUTH["log_g"], np.log(TRUTH["count"]), atol=1e-9)


def test_what_the_toy_generates():
    assert stated("share of right inputs among what the model generates") >= 0.999
    assert stated("highest z of a right input") < 3.0  # every one is generated, p > exp(-21)
    assert sum(f.stat().st_size for f in Path("inputs/models/toy").iterdir()) < 3e6


def test_the_truth_agrees_with_the_models_own_forward():
    """Random inputs, exact binomial expectation per wide bin, 5 sigma."""
    model = models.build(CONFIG, "cpu")
    n = 20_000
    x = torch.randint(10, (n, 8), generator=torch.Generator().manual_seed(2))
    z = torch.cat([model.output(part) for part in x.split(2000)]).double().numpy()
    edges = np.arange(0, 12.5, 0.5)
    share = np.zeros(len(edges) - 1)
    np.add.at(share, bin_of(TRUTH["z_lower"] + 0.01, edges), TRUTH["count"] / 1e8)
    counts = np.bincount(bin_of(z, edges), minlength=len(share))
    sigma = np.sqrt(n * share * (1 - share)) + 1
    assert (np.abs(counts - n * share) < 5 * sigma).all()
    assert abs(is_valid(x.numpy()).mean() - 0.03785821) < 5 * np.sqrt(0.0379 / n)


def test_a_short_run_lies_on_the_truth(tmp_path):
    """A part of inputs/toy.toml: rms z-score where there are 10,000 inputs or more.

    On one rank: the bytes do not depend on their number, and two would wait for each other.
    """
    words = [f"run.output={tmp_path}/toy.h5", "run.rounds=5", "run.burn_in=2"]
    done = run("inputs/toy.toml", *(w for s in words for w in ("--set", s)))
    assert done.returncode == 0, done.stderr
    with open_run(tmp_path / "toy.h5") as file:
        density = density_of_run(file.data)
    exact = np.full(len(density.log_g_b), -np.inf)
    exact[bin_of(TRUTH["z_lower"] + 0.01, density.edges)] = TRUTH["log_g"]
    many = exact >= np.log(10_000)
    delta, error = (density.log_g_b - exact)[many], density.log_g_error_b[many]
    assert np.isfinite(error).all()
    assert 0.7 < np.sqrt(np.mean((delta / error) ** 2)) < 1.4
    assert np.median(error) < 0.15
    assert (np.abs(delta) < np.maximum(0.3, 4.5 * error)).all()
