"""Models with another output, as a run builds them, and all inputs of the small ones."""

from __future__ import annotations

import itertools

import torch

from omniinput_hpc import models
from omniinput_hpc.config import Config

TABLES = {
    "run": {"output": "run.h5", "seed": 1, "rounds": 2},
    "sampler": {"method": "parallel-tempering", "walkers": 8, "steps": 5, "exchanges": 2},
    "ladder": {"betas": [0.0, 1.0]},
    "bins": {"lower": 0.0, "upper": 40.0, "width": 0.5},
    "samples": {"every": 5},
}


def config_of(model, output, **tables):
    """Return the whole input of a run with these tables."""
    model = {"kind": "causal-lm", **model}
    return Config.model_validate({**TABLES, "model": model, "output": output, **tables})


def built(model, output, **tables):
    """Return the model as a run builds it, after the checks that come before."""
    config = config_of(model, output, **tables)
    about = models.preflight(config)
    found = models.build(config, "cpu", about.get("folder"))
    assert about["n_values"] in (None, found.n_values)
    return found


def inputs(model, n=9, seed=1):
    """Return random inputs, int64 [n, D]."""
    shape = (n, model.n_sites)
    return torch.randint(model.n_values, shape, generator=torch.Generator().manual_seed(seed))


def all_inputs(model):
    """Return every input, int64 [V^D, D]."""
    return torch.tensor(list(itertools.product(range(model.n_values), repeat=model.n_sites)))
