"""Runs of the two models of `model_pair` in memory: independent draws, and exact answers."""

from __future__ import annotations

import model_pair
import numpy as np
from lattice import ArrayRun

from omniinput_hpc.estimators.comparison.input_counts import pairs_of
from omniinput_hpc.estimators.density.density import density_of_run

EDGES = np.arange(1.5, 7.51, 0.25)
ABSOLUTE = np.array([-2.0, 0.0, 1.0, 2.0, 4.0])
RELATIVE = np.array([0.5, 1.0, 2.0, 4.0])
OTHER = {"good": "worse", "worse": "good"}


def draw(which, beta_k, seed, *, rounds=8, walkers=16, moves=8, edges=EDGES):
    """Return a run whose moves are independent draws from the canonical distributions."""
    options = {"rounds": rounds, "walkers": walkers, "moves": moves}
    z = model_pair.table(which)
    return draw_from(z, model_pair.X_ID, beta_k, seed, edges, model_pair.N_VALUES, **options)


def draw_from(table, x_id, beta_k, seed, edges, n_values, *, rounds, walkers, moves):
    """Return such a run of a model whose z of all inputs `x_id`, [n, D], is a table [n]."""
    rng = np.random.default_rng(seed)
    z = table.astype(float)
    size = walkers * moves
    number_rks = np.empty((rounds, len(beta_k), size), dtype=np.int64)
    for k, beta in enumerate(beta_k):
        p = np.exp(-beta * (z - z.min()))
        cumulative = np.cumsum(p / p.sum())
        number_rks[:, k] = np.searchsorted(cumulative, rng.random((rounds, size)))
    number_rks = np.minimum(number_rks, len(z) - 1)
    return ArrayRun(x_id[number_rks], table[number_rks], walkers, beta_k, edges, n_values)


def both(which, run):
    """Return a run's density, and its samples with both models' outputs."""
    density = density_of_run(run)
    other = model_pair.table(OTHER[which])[model_pair.number(run.x_rksd)]
    return density, pairs_of(density, run.z_rks, other, run.walkers)


def log_count(which, low, high):
    """Return the exact ln of the number of inputs with output in [low, high]."""
    z = model_pair.table(which)
    return float(np.log(((z >= low) & (z <= high)).sum()))
