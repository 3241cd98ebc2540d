"""Runs of the lattice model that stand at their beginning, or where their file has them."""

from __future__ import annotations

import numpy as np
from run_tools import LATTICE

from omniinput_hpc.cli.common import to_toml
from omniinput_hpc.config import input_file
from omniinput_hpc.parallel.comm import World
from omniinput_hpc.parallel.signals import StopRequest
from omniinput_hpc.parallel.stopping import StopCheck
from omniinput_hpc.sampling import build
from omniinput_hpc.sampling.restart import Existing, Identity

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
    built = build.build(WORLD, config, None)
    header = {"config": to_toml(config)}
    build.prepare_file(built, identity_of(built), found or Existing(), header, lambda: None)
    stopping = stopping or StopCheck(StopRequest(), WORLD, None)
    return build.start(WORLD, built, writer, stopping, lock or HeldLock())
