"""Two models of one space that is enumerated, 4,096 inputs, and a run of the first one's draws."""

import itertools

import h5py
import numpy as np
from lattice import Lattice, ancestral_run
from rules_file import MODEL as PYTHON
from run_files import CONFIG, put_run
from sealed_changes import seal

from omniinput_hpc.runfile import rescored
from omniinput_hpc.runfile.reader import open_run

MODEL = Lattice(n_sites=6)
X_ID = np.array(list(itertools.product(range(4), repeat=6)), dtype=np.uint8)
Z = MODEL.z(X_ID)
EDGES = np.arange(-0.125, 5.0, 0.5)
NOISE = 0.1 + 0.2 * (X_ID[:, 0] == 0) + 0.08 * Z * np.random.default_rng(4).normal(size=len(Z))
OTHER = (Z + NOISE).astype(np.float32)
"""Another model's output of every input: shifted, by site 0, and noisier the larger z is."""
TILT_KD = np.array([np.full(6, tilt) + np.linspace(-0.8, 0.8, 6) for tilt in (0.0, 1.0, 2.0, 4.0)])


def other_of(x_rksd):
    """Return the other model's outputs, float32 [...], of inputs [..., 6]."""
    return OTHER[x_rksd.astype(int) @ 4 ** np.arange(6)[::-1]]


def drawn(seed):
    """Return an ancestral run of the first model."""
    return ancestral_run(MODEL, TILT_KD, EDGES, rounds=10, walkers=16, moves=8, seed=seed)


def put(path, run):
    """Write a run of the first model to a file; return its path."""
    config = CONFIG.format(
        rounds=run.rounds, seed=1, model=PYTHON, walkers=run.walkers, moves=8,
        betas=run.beta_k.tolist(), lower=EDGES[0], upper=EDGES[-1], width=0.5,
    )  # fmt: skip
    put_run(path, run, config, "own", run.rounds)
    return path


def put_rescored(path, name, z_rks, fingerprint=None):
    """Write the side file of a run file: another model's outputs; return its path.

    The other model's fingerprint is its name, unless it is given.
    """
    side = rescored.path_of(path, name)
    with open_run(path) as run:
        rescored.create(
            side, run, {"config": run.config_toml, "model_fingerprint": fingerprint or name}
        )
        fields, n_rungs = rescored.fields_of(run.geometry), run.geometry.n_rungs
    with h5py.File(side, "r+", locking=False) as file:
        file["samples/z"][: len(z_rks)] = z_rks
        file["progress/rounds_committed"][0] = len(z_rks)
        seal(file, fields, n_rungs)
    return side
