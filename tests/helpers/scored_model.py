"""Scored inputs of the lattice model: drawn in wide bins from the exact law, scored by its rule."""

from itertools import product

import numpy as np
from lattice import BETA_K, MODEL, first_is_zero, independent_run
from lattice import LEVEL_EDGES as FINE

from omniinput_hpc.estimators.comparison.to_exact import Exact
from omniinput_hpc.estimators.density.density import density_of_run
from omniinput_hpc.estimators.precision_recall.curves import (
    accumulate,
    area,
    common_range,
    curve_range,
)
from omniinput_hpc.estimators.precision_recall.from_scores import Scored

WIDE = FINE[3:24:3]  # seven bins of three levels
X = np.array(list(product(range(MODEL.n_values), repeat=MODEL.n_sites)), dtype=np.uint8)
Z = MODEL.z(X).astype(float)
RULE = first_is_zero(X)


def exact(edges=WIDE):
    g_b, right_b = (MODEL.bin_sums(edges, v) for v in (MODEL.count_l(), MODEL.right_l()))
    return Exact(np.log(g_b), right_b / g_b)


def exact_aupr(log_recall_range, edges=WIDE):
    truth = exact(edges)
    curve = accumulate(truth.log_g_b, truth.r_b, "low")
    return area(*curve, *common_range(curve_range(*curve), log_recall_range))


def a_density(seed, **options):
    settings = {"rounds": 6, "walkers": 8, "moves": 10, **options}
    return density_of_run(independent_run(MODEL, BETA_K, FINE, seed=seed, **settings))


def scored_inputs(
    rng, per_bin=40, beta=0.0, law="by-weight", annotators=1, bias=0.0, noise=0.0, edges=WIDE,
    lanes=16, with_z=False,
):  # fmt: skip
    """Return inputs drawn per bin in proportion to exp(-beta z), as recorded samples may be.

    law "by-weight": drawn by weight from all, so that beta does not matter; "uniform": drawn
    alike, to be weighted by exp(beta z). Annotators differ by `bias` and err by `noise`.
    """
    bin_i, chosen = [], []
    for b in range(len(edges) - 1):
        pool = np.flatnonzero(np.digitize(Z, edges) == b + 1)
        p = np.exp(-beta * Z[pool]) if law == "uniform" else np.ones(len(pool))
        drawn = rng.choice(pool, min(per_bin, len(pool)), replace=False, p=p / p.sum())
        chosen.append(drawn)
        bin_i.append(np.full(len(drawn), b))
    i, bin_i = np.concatenate(chosen), np.concatenate(bin_i)
    leniency = bias * rng.normal(size=(annotators, 1))
    score = RULE[i] + leniency + noise * rng.normal(size=(annotators, len(i)))
    scored = Scored(
        edges=edges,
        bin_i=bin_i,
        lane_i=rng.integers(lanes, size=len(i)),
        weight_i=np.exp(beta * (Z[i] - Z[i].mean())) if law == "uniform" else np.ones(len(i)),
        score_ai=np.clip(score, 0.0, 1.0),
        annotators=[f"a{a}" for a in range(annotators)],
    )
    return (scored, Z[i]) if with_z else scored
