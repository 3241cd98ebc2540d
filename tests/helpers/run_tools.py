"""What tests of whole runs share: starting one in a process, and comparing files byte by byte."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import h5py
import numpy as np
from warm import Zygote

from omniinput_hpc.runfile.reader import open_run

ROOT = Path(__file__).resolve().parents[2]
FLAVOUR = ROOT / ".venv" / "mpi-flavour"
LAUNCHER = FLAVOUR.read_text() if FLAVOUR.is_file() else ""

PATIENCE = 800
"""Seconds that tests wait for what takes a few on an idle machine; see also pyproject.toml."""

ZYGOTE: Zygote | None = None
"""What processes are forked from, if they are."""

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
anchors = false
[bins]
lower = -0.125
upper = 4.625
width = 0.25
[samples]
every = 4
"""
"""The lattice model's input file, a run of a second; format it with `output`."""


def mpirun(n_ranks):
    """Return the launcher's words, as the set-up recorded them."""
    words = [line.partition(" = ")[2] for line in LAUNCHER.splitlines() if "mpirun =" in line]
    return [*(words[0].split() if words else ["mpirun"]), "-n", str(n_ranks)]


def command(*arguments, ranks=1, module="omniinput_hpc", cold=False):
    """Return the command line of a run.

    module : or a script, "analysis/choose.py"
    cold : whether it must be a process of its own from the start, as in tests of how it begins;
        see `warm`, and `signal_all` for what is killed
    """
    launcher = mpirun(ranks) if ranks > 1 else []
    if ZYGOTE is None or cold:
        start = [] if module.endswith(".py") else ["-m"]
        return [*launcher, sys.executable, *start, module, *map(str, arguments)]
    return [*launcher, *ZYGOTE.command(module, arguments)]


def run(*arguments, ranks=1, module="omniinput_hpc", timeout=PATIENCE, cwd=ROOT, cold=False):
    """Run the program to its end; return the finished process with its texts."""
    return subprocess.run(
        command(*arguments, ranks=ranks, module=module, cold=cold),
        capture_output=True,
        text=True,
        timeout=timeout,
        cwd=cwd,
        env=environment(),
    )


def environment():
    """Return the environment of a run: helpers and the package are importable from anywhere."""
    folders = [ROOT / "tests/helpers", ROOT / "tests/campaigns", ROOT]
    path = os.pathsep.join(map(str, folders))
    return {**os.environ, "PYTHONPATH": path}


def begin_warm():
    """Have processes forked from one that has torch imported, from now on; see `warm`."""
    global ZYGOTE
    ZYGOTE = Zygote(environment())


def running(process):
    """Return the numbers of the program's processes that a process of `command` stands for."""
    return (ZYGOTE.processes() if ZYGOTE else []) or [process.pid]


def signal_all(process, number):
    """Send a signal to a process group, and to the processes that are forked for it."""
    for leader in {*running(process), process.pid}:
        os.killpg(leader, number)


def said_until_its_end(process):
    """Return what a process group's leader wrote to stderr; kill the group where it hangs."""
    try:
        return process.communicate(timeout=PATIENCE)[1]
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        raise


def wait_for_rounds(process, path, n):
    """Wait until a live run has committed n rounds; return how many it has."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        if path.exists():
            with open_run(path) as live:  # readers need no lock
                if live.rounds >= n:
                    return live.rounds
        assert process.poll() is None, f"it has ended: {process.communicate()[1]}"
        time.sleep(0.02)
    raise AssertionError(f"no {n} rounds within {PATIENCE} s")


def loaded(name):
    """Return the module of a file outside the package, given relative to the repository."""
    path = ROOT / name
    spec = importlib.util.spec_from_file_location(f"loaded_{path.stem}", path)
    module, before = importlib.util.module_from_spec(spec), list(sys.path)
    sys.modules[spec.name] = module  # dataclasses look for it there
    spec.loader.exec_module(module)
    sys.path[:] = before
    return module


def contents(path):
    """Return every dataset's bytes by name."""
    found = {}
    with h5py.File(path, "r", locking=False) as file:

        def visit(name, item):
            if isinstance(item, h5py.Dataset):
                found[name] = (item.shape, str(item.dtype), np.asarray(item[...]).tobytes())

        file.visititems(visit)
    return found


def assert_same(one, other):
    """Assert that two run files hold byte-equal datasets."""
    a, b = contents(one), contents(other)
    assert a.keys() == b.keys()
    different = [name for name in a if a[name] != b[name]]
    assert not different, f"{one} and {other} differ in {different}"
