"""Runs of the lattice model in this process: begun, sampled for some rounds, or finished."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import numpy as np
from run_tools import LATTICE

from omniinput_hpc.cli import run as launch
from omniinput_hpc.cli.common import to_toml
from omniinput_hpc.config import input_file
from omniinput_hpc.parallel.comm import World
from omniinput_hpc.parallel.signals import StopRequest
from omniinput_hpc.parallel.stopping import StopCheck
from omniinput_hpc.sampling import build, loop
from omniinput_hpc.sampling.restart import Existing, Identity, find_existing

WORLD = World()
FINGERPRINT = "lattice"


class HeldLock:
    """A lock that is held for as long as `is_held` says."""

    is_held = True

    def keep(self):
        return self.is_held

    def is_taken(self):
        return not self.is_held

    def release(self):
        self.is_held = False

    def lost(self):
        return RuntimeError("lock lost")


def config_of(folder, *changes):
    """Return the lattice model's input with its output in a folder; `changes` as after --set."""
    return input_file.parse(LATTICE.format(output=folder / "run.h5"), "lattice.toml", changes)


def identity_of(built):
    """Return what tells whether a resumed run has the same model."""
    return Identity(FINGERPRINT, built.probe(), {"numpy": np.__version__}, np.nan)


def begin(config, found=None, stopping=None, lock=None, writer="gather"):
    """Return a `Run`, its file made, its walkers placed."""
    found, built = found or Existing(), build.build(WORLD, config, None)
    built = replace(built, geometry=found.shapes(built.geometry))
    header = {"config": to_toml(config)}
    build.prepare_file(built, identity_of(built), found, header, lambda: None)
    stopping = stopping or StopCheck(StopRequest(), WORLD, None)
    return build.start(WORLD, built, writer, stopping, lock or HeldLock())


class Enough(Exception):
    """A run has committed as many rounds as it should."""


def sampled(folder, *changes, until=None):
    """Sample a run, or resume its file, to the end or `until` so many rounds; return the file."""
    sample_until(begun(config_of(folder, *changes)), until)
    return folder / "run.h5"


def begun(config):
    """Return a run that is begun, or resumed if its file is there."""
    return begin(config, find_existing(config, FINGERPRINT, "auto"))


def sample_until(run, until=None):
    """Sample a run to the end or `until` so many rounds, and close its file."""
    committed = run.progress.committed

    def after(round_, *values):
        committed(round_, *values)
        if until is not None and round_ + 1 == until:
            raise Enough

    run.progress.committed = after
    with suppress(Enough):
        loop.sample(run)
    run.writer.close()


def launched(folder):
    """Run the lattice model's input file as the command does; return the run file."""
    toml = folder / "lattice.toml"
    toml.write_text(LATTICE.format(output=folder / "run.h5"))
    assert launch.main([str(toml)]) == 0
    return folder / "run.h5"
