"""Shared by all tests: one thread a process, and a small input file for runs in seconds."""

from __future__ import annotations

import os

# Before anything imports numpy or torch: tests run beside each other, on few cores.
for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(name, "1")

import pytest  # noqa: E402
from run_tools import LATTICE  # noqa: E402


@pytest.fixture
def lattice_toml():
    """Return the text of the lattice model's input file; format it with `output`."""
    return LATTICE
