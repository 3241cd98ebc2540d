"""Shared by all tests: tests/ is importable, and a small input file for runs in seconds."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parent
sys.path.insert(0, str(TESTS))

LATTICE = """
[run]
output = "{output}"
seed = 7
rounds = 5
burn_in = 3
[model]
kind = "python"
factory = "toy_models:lattice"
[sampler]
walkers = 8
steps = 5
exchanges = 3
[ladder]
betas = [-2.0, 0.0, 1.5, 4.0]
[bins]
lower = -0.125
upper = 4.625
width = 0.25
[samples]
every = 4
"""


@pytest.fixture
def lattice_toml():
    """Return the text of the lattice model's input file; format it with `output`."""
    return LATTICE
