"""Shared by all tests: tests/ is importable, and a small input file for runs in seconds."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parent
sys.path.insert(0, str(TESTS))

from run_tools import LATTICE  # noqa: E402


@pytest.fixture
def lattice_toml():
    """Return the text of the lattice model's input file; format it with `output`."""
    return LATTICE
