"""Shared by all tests: a small input file for runs in seconds."""

from __future__ import annotations

import pytest
from run_tools import LATTICE


@pytest.fixture
def lattice_toml():
    """Return the text of the lattice model's input file; format it with `output`."""
    return LATTICE
