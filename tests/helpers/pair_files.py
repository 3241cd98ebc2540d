"""Run files of the two models of `model_pair`, each with the other one's outputs beside it."""

from __future__ import annotations

import h5py
import model_pair
from pair_runs import OTHER, draw
from run_files import put_run
from sealed_changes import seal

from omniinput_hpc.runfile import rescored
from omniinput_hpc.runfile.reader import open_run

CONFIG = '[run]\noutput = "a.h5"\nseed = 1\nrounds = 8\n'
CONFIG += '[model]\nkind = "python"\nfactory = "model_pair:make"\n'


def write(path, which, beta_k, seed, **options):
    """Write a run of a model of the pair, and what the other model says of its samples."""
    run = draw(which, beta_k, seed, **options)
    put_run(path, run, CONFIG, which, run.rounds)
    with open_run(path) as reader:
        side = rescored.path_of(path, OTHER[which])
        attributes = {"config": CONFIG, "model_fingerprint": OTHER[which]}
        rescored.create(side, reader, attributes)
    with h5py.File(side, "r+", locking=False) as file:
        file["samples/z"][...] = model_pair.table(OTHER[which])[model_pair.number(run.x_rksd)]
        file["progress/rounds_committed"][0] = run.rounds
        seal(file, rescored.fields_of(reader.geometry), reader.geometry.n_rungs)
