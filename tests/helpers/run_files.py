"""Run files for the scripts' tests: an exactly solvable model's independent draws."""

import h5py
import numpy as np
from lattice import BETA_K, MODEL, independent_run
from lattice import LEVEL_EDGES as EDGES

from omniinput_hpc.results.tables import write_table
from omniinput_hpc.runfile import layout

NO_MODEL = 'kind = "causal-lm"\npath = "none"\nlength = 8'
CONFIG = """
[run]
output = "runs/lattice.h5"
seed = {seed}
rounds = {rounds}
[model]
{model}
[sampler]
walkers = {walkers}
steps = {moves}
exchanges = 1
[ladder]
betas = {betas}
[bins]
lower = {lower}
upper = {upper}
width = {width}
[samples]
every = 1
"""


def write_run(
    path, *, planned=None, committed=None, beta_k=BETA_K, edges=EDGES, config_seed=1,
    model=NO_MODEL, **options,
):  # fmt: skip
    """Write a run file; return the same run in memory."""
    run = independent_run(MODEL, beta_k, edges, **options)
    planned = run.rounds if planned is None else planned
    config = CONFIG.format(
        rounds=planned,
        seed=config_seed,
        model=model,
        walkers=run.walkers,
        moves=run.samples_per_round // run.walkers,
        betas=list(map(float, beta_k)),
        lower=edges[0],
        upper=edges[-1],
        width=edges[1] - edges[0],
    )
    put_run(path, run, config, "exact", planned, committed)
    return run


def put_run(path, run, config, fingerprint, planned, committed=None):
    """Write a run in memory to a file."""
    beta_k, edges = run.beta_k, run.edges
    g = layout.Geometry(
        rounds=planned,
        n_rungs=len(beta_k),
        n_walkers=run.walkers,
        n_bins=len(edges) - 1,
        samples_per_round=run.samples_per_round,
        n_sites=run.n_sites,
        n_values=run.n_values,
        n_kernels=1,
        log_q=run.log_q is not None,
    )
    attributes = {"config": config, "model_fingerprint": fingerprint}
    layout.create(path, g, layout.first_values(run.beta_k, run.edges), attributes)
    done = slice(0, run.rounds)
    with h5py.File(path, "r+", locking=False) as file:
        file["histogram/counts"][done] = run.counts_rkgb.sum(axis=2)
        file["histogram/outside"][done] = run.outside_rk2
        for parity in range(2):
            file["histogram/lane_counts"][parity] = run.lane_counts_kgb
            file["histogram/z_sum"][parity] = run.z_sum_kb
        file["samples/x"][done] = run.x_rksd
        file["samples/z"][done] = run.z_rks
        if run.log_q is not None:
            file["samples/log_q"][done] = run.log_q
        file["progress/rounds_committed"][0] = run.rounds if committed is None else committed


def write_exact(path, edges=EDGES, with_r=True):
    """Write the exact density in the format of `omniinput enumerate`."""
    g_b, right_b = (MODEL.bin_sums(edges, v) for v in (MODEL.count_l(), MODEL.right_l()))
    bins = np.flatnonzero(g_b)
    columns = {
        "z_lower": edges[bins],
        "z_upper": edges[bins + 1],
        "log_g": np.log(g_b[bins]),
        "log_g_error": np.zeros(len(bins)),
        "count": g_b[bins].astype(np.int64),
    }
    if with_r:
        columns["r"] = right_b[bins] / g_b[bins]
    write_table(path, columns)
