"""Shared by all tests: one thread a process, and a small input file for runs in seconds."""

from __future__ import annotations

import logging
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


@pytest.fixture
def log_lines(monkeypatch):
    """Yield the list that the program's log lines are appended to during a test."""
    lines = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())
    logger = logging.getLogger("omniinput_hpc")
    monkeypatch.setattr(logger, "handlers", [handler])
    monkeypatch.setattr(logger, "propagate", False)
    level = logger.level
    logger.setLevel(logging.INFO)
    yield lines
    logger.setLevel(level)
