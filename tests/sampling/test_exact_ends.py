"""Chains without anchors find both known ends of a language model, and their constants."""

import exact_ends
import numpy as np
import pytest
from language_folders import V, save_decoder
from scipy.stats import ks_2samp

from omniinput_hpc import models
from omniinput_hpc.estimators.density.density import density_of_run
from omniinput_hpc.estimators.density.known_ratio import log_constants_apart
from omniinput_hpc.runfile.reader import open_run

pytestmark = pytest.mark.slow

INPUT = """
[run]
output = "run.h5"
seed = 3
rounds = 12
burn_in = 2
[model]
kind = "causal-lm"
path = "{folder}"
length = 6
[sampler]
walkers = 128
steps = 5
exchanges = 2
[ladder]
betas = [0.0]
[kernel]
name = "lm-conditional"
[bins]
lower = 0.0
upper = 30.0
width = 0.03
[samples]
every = 1
"""
M = 5


@pytest.fixture(scope="module")
def run_path(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ends")
    save_decoder("gpt2", folder)
    (folder / "ends.toml").write_text(INPUT.format(folder=folder))
    exact_ends.sample(folder / "ends.toml", folder / "run.h5", [0.0, 2.5, 4.0, float(M)])
    return folder / "run.h5"


def test_both_ends_are_those_drawn_exactly(run_path):
    for n, p, p_other in exact_ends.compare(run_path).values():
        assert n >= 1000
        assert p > 0.01
        assert p_other < 1e-6


def test_a_slightly_wrong_end_is_noticed(run_path):
    """The rung below the model's own is no sample of the model."""
    with open_run(run_path) as run:
        config = run.config
        exact = exact_ends.drawn(models.build(config, "cpu"), 4000, 1, of_the_model=True)
        assert ks_2samp(exact_ends.thinned(run, 2), exact).pvalue < 1e-4


def test_the_constants_differ_by_m_ln_v(run_path):
    with open_run(run_path) as run:
        density = density_of_run(run.data)
    parts = (density.log_g_b, density.log_g_jb, density.inside, density.believed_b, density.lanes_g)
    value, error = log_constants_apart(*parts, float(M))
    assert abs(value - M * np.log(V)) < 4 * error
    assert error < 0.1
