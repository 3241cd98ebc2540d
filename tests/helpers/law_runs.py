"""Runs under a law, of exact draws: a Markov chain over 4 values and 5 sites, all inputs known."""

import numpy as np
from lattice import ArrayRun
from law_models import ChainLaw
from run_files import CONFIG, put_run

N_VALUES, N_SITES = 4, 5
X = np.indices((N_VALUES,) * N_SITES).reshape(N_SITES, -1).T  # all inputs [1024, 5]
BETA_K, EDGES = np.array([0.0, 1.5, 3.0, 4.5, 6.0]), np.arange(-5.5, 1.0)
LAW = """[law]
kind = "python"
factory = "law_models:chain"
options = { n_values = 4, n_sites = 5, n_rare = 2 }"""
UNIFORM = np.full(len(X), 1.0 / len(X))


def law():
    """Return the probability of each input, float64 [1024]."""
    p = ChainLaw(N_VALUES, N_SITES, n_rare=2).p
    before = np.pad(X[:, :-1], ((0, 0), (1, 0)), constant_values=N_VALUES)
    return p[before, X].prod(axis=1)


Q = law()


def outputs(below=2):
    """Return z of each input by `law_models.events`, float64 [1024]."""
    return -np.less(X, below).sum(axis=1).astype(float)


def ends_low(x):
    """Right are inputs whose last value is 0."""
    return (x[:, -1] == 0).astype(float)


def bin_masses(weight, z, of=1.0):
    """Return the sum of weight times `of` in each bin, float64 [6]."""
    return np.histogram(z, EDGES, weights=weight * of)[0]


def write_law_run(path, below=2, seed=1, words=LAW, weight=Q, walkers=16, moves=40):
    """Write a run of `law_models.events`, drawn from weight(x) exp(-beta z) on each rung."""
    rng, z, rounds = np.random.default_rng(seed), outputs(below), 16
    size = (rounds, walkers * moves)
    p_kn = weight * np.exp(-np.outer(BETA_K, z - z.max()))
    i_rks = np.stack([rng.choice(len(X), size, p=p / p.sum()) for p in p_kn], axis=1)
    run = ArrayRun(
        X[i_rks].astype(np.uint8), z[i_rks].astype(np.float32), walkers, BETA_K, EDGES, N_VALUES
    )
    options = f"{{ n_values = 4, n_sites = 5, below = {below} }}"
    model = f'kind = "python"\nfactory = "law_models:events"\noptions = {options}\n{words}'
    config = CONFIG.format(
        rounds=rounds, seed=seed, model=model, walkers=walkers, moves=moves,
        betas=BETA_K.tolist(), lower=EDGES[0], upper=EDGES[-1], width=1.0,
    )  # fmt: skip
    config += (
        '[kernel]\nname = "metropolis"\n[analysis]\nside = "low"\nrule = "law_runs:ends_low"\n'
    )
    fingerprint = " ".join([f"events:{below}", *([f"law:{words}"] if words else [])])
    put_run(path, run, config, fingerprint.replace("\n", " "), rounds)
    return run
