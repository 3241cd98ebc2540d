"""A ladder of the lattice model whose coldest rung is stuck, in memory and as a run file."""

import h5py
import numpy as np
from lattice import LEVEL_EDGES as EDGES
from lattice import ArrayRun, Lattice, independent_run
from run_files import CONFIG, put_run

MODEL = 'kind = "python"\nfactory = "toy_models:lattice"'
BETAS = np.array([-3.0, 0.0, 3.0, 6.0])
MODEL_BETA = 3.0


def cold_run(stuck=True, **options):
    """Return a ladder, the coldest rung of which is stuck in one half of the lanes."""
    sizes = {"rounds": 32, "moves": 40, **options}
    run = independent_run(Lattice(), BETAS, EDGES, **sizes)
    run.model_beta = MODEL_BETA
    if stuck:
        x, z = run.x_rksd.copy(), run.z_rks.copy()
        half = np.arange(z.shape[2]) % run.walkers >= run.walkers // 2
        x[:, 3, half], z[:, 3, half] = x[:, 1, half], z[:, 1, half]
        run = ArrayRun(x, z, run.walkers, run.beta_k, run.edges, run.n_values)
        run.model_beta = MODEL_BETA
    return run


def write_cold_run(path, **options):
    """Write such a run's file; return the run."""
    run = cold_run(**options)
    config = CONFIG.format(
        rounds=run.rounds, seed=1, model=MODEL, walkers=run.walkers,
        moves=run.samples_per_round // run.walkers, betas=BETAS.tolist(), lower=EDGES[0],
        upper=EDGES[-1], width=EDGES[1] - EDGES[0],
    )  # fmt: skip
    put_run(path, run, config, "exact", run.rounds)
    with h5py.File(path, "r+", locking=False) as file:
        file.attrs["model_beta"] = MODEL_BETA
    return run
