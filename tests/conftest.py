"""Shared by all tests: one thread a process, and a small input file for runs in seconds."""

from __future__ import annotations

import gc
import logging
import os
import sys

# Before anything imports numpy or torch: tests run beside each other, on few cores.
for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(name, "1")

import pytest  # noqa: E402
from run_tools import LATTICE, begin_warm  # noqa: E402

from omniinput_hpc.runfile import hdf5_trial  # noqa: E402

CRASH_ON = hdf5_trial.crash_on

begin_warm()  # it is started when it is first used


def pytest_collection_finish():
    """Spare garbage collections, which the program asks for, the objects of all tests' modules."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def lattice_toml():
    """Return the text of the lattice model's input file; format it with `output`."""
    return LATTICE


@pytest.fixture
def log_lines():
    """Return the list that the program's log lines are appended to during a test."""
    lines = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())
    logger = logging.getLogger("omniinput_hpc")
    logger.handlers, logger.propagate = [handler], False
    logger.setLevel(logging.INFO)
    return lines


@pytest.fixture(scope="session", autouse=True)
def _no_hdf5_trials():
    """Open files without trying them first in a process of their own: that takes 0.25 s each."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hdf5_trial, "crash_on", lambda path: None)
        yield


@pytest.fixture(autouse=True)
def _forget(tmp_path_factory):
    """Forget what a test leaves in its process: modules that it wrote, whose names others use,
    and where its log went.
    """
    log = logging.getLogger("omniinput_hpc")
    before, about_log = set(sys.modules), (log.handlers, log.propagate, log.level)
    yield
    log.handlers, log.propagate, level = about_log
    log.setLevel(level)
    written = str(tmp_path_factory.getbasetemp())
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", None)).startswith(written):
            del sys.modules[name]


@pytest.fixture
def hdf5_trials(monkeypatch):
    """Have files tried in a process of their own, as the program does."""
    monkeypatch.setattr(hdf5_trial, "crash_on", CRASH_ON)
