"""Annealed runs of the lattice model in memory: populations whose weights are drawn, Z known.

On rung k a population's walkers are independent draws of the canonical distribution, and its weight
is Z_k times a positive random number of mean 1: as if its Z had come out so. What it has seen is
right on average, and its draws share its error.
"""

import numpy as np
from configs import config_with
from lattice import LEVEL_EDGES, ArrayRun, Lattice

SPREAD_K = np.array([0.0, 0.3, 0.6, 0.9])
"""Standard deviations of ln of the populations' weights."""
BETA_K = np.array([0.0, 2.0, 4.0, 6.0])


def annealed_run(seed=1, *, rounds=16, walkers=64, moves=2, exchanges=2, spread_k=SPREAD_K,
                 shared=False, beta_k=BETA_K, edges=LEVEL_EDGES):  # fmt: skip
    """Return such a run, and ln Z [K]: 16 populations for each of `exchanges` in a round.

    With `shared` all populations of a round have the same weight, as if they were one.
    """
    model = Lattice()
    rng = np.random.default_rng(seed)
    size = walkers * moves * exchanges
    x = model.draw(beta_k, rounds * size, rng)
    x_rksd = x.reshape(len(beta_k), rounds, size, -1).swapaxes(0, 1)
    run = ArrayRun(
        x_rksd, model.z(x_rksd), walkers, beta_k, edges, model.n_values
    )  # fmt: skip
    run.config = config_with(sampler={"method": "annealed", "exchanges": exchanges})
    log_z_k = np.log((model.count_l() * np.exp(-np.outer(beta_k, model.z_l()))).sum(axis=1))
    common = rng.normal(size=(rounds, 1, exchanges, 1 if shared else 16))
    share_rkeg = common * np.ones(16) * spread_k[:, None, None]
    share_rkeg -= 0.5 * spread_k[:, None, None] ** 2
    log_w_rkeg = log_z_k[:, None, None] + share_rkeg
    group_w = np.arange(walkers) * 16 // walkers
    log_w = np.repeat(log_w_rkeg[..., group_w][:, :, :, None], moves, axis=3)
    log_w_rks = log_w.reshape(rounds, len(beta_k), size)
    run.log_q = (-beta_k[:, None] * run.z_rks.astype(float) - log_w_rks)[..., None]
    return run, log_z_k
