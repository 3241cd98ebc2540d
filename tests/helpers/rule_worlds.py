"""Virtual runs scored by a rule whose true r, precision, recall and AUPR are known.

Outputs are those of a lattice of 16 sites, in bins of one level, whose numbers of inputs are exact.
An input is right if a uniform number that its lane carries along is below r of its level. A lane
keeps its level with one probability per move, and its number with another: what is right then
stays right while z changes, as in chains that move slowly.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
from lattice import ArrayRun, Lattice

from omniinput_hpc.estimators.density.density import density_of_run
from omniinput_hpc.estimators.errors.jackknife import (
    TAILS,
    draw_together,
    jackknife_error,
    t_quantile,
)
from omniinput_hpc.estimators.precision_recall import curves, from_rule

LATTICE = Lattice(n_sites=16)
BETA_K = np.array([-10.0, -6.0, -4.0, -2.0, 0.0, 2.0, 4.0, 6.0, 9.0, 13.0])
EDGES = (np.arange(len(LATTICE.z_l()) + 1) - 0.5) * LATTICE.unit
N_LEVELS = len(LATTICE.z_l())
QUANTITIES = ("r", "precision", "recall", "AUPR")
ALLOWED = (0.92, 0.99)


@dataclass(frozen=True)
class Sampled:
    """A run without its scores: its density, and of each sample group of lanes, bin and weight."""

    density: object
    group_i: np.ndarray
    bin_i: np.ndarray
    w_i: np.ndarray
    shape: tuple  # rungs, moves, walkers


@cache
def sampled(seed, walkers=16, moves=150, keep_z=0.0):
    """Return a run of 10 rungs."""
    rng = np.random.default_rng([seed, 31])
    shape = (len(BETA_K), moves, walkers)
    x = LATTICE.draw(BETA_K, moves * walkers, rng)
    z_kmw = kept(LATTICE.z(x).reshape(shape), keep_z, rng)
    rounds = 6
    z_rks = z_kmw.reshape(len(BETA_K), rounds, -1).swapaxes(0, 1)
    x_rksd = np.zeros((*z_rks.shape, LATTICE.n_sites), np.uint8)
    run = ArrayRun(x_rksd, z_rks, walkers, BETA_K, EDGES, LATTICE.n_values)
    density = density_of_run(run)
    z_i = z_kmw.astype(float).ravel()
    bin_i = np.rint(z_i / LATTICE.unit).astype(int)
    log_w_i = -density.log_mixture(z_i) - density.log_g_b[bin_i]
    lane_i = np.tile(np.arange(walkers), len(z_i) // walkers)
    return Sampled(density, density.parts[0].group_w[lane_i], bin_i, np.exp(log_w_i), shape)


def kept(value_kmw, keep, rng):
    """Return values of which each move's is, with a probability, that of the move before."""
    moves = value_kmw.shape[1]
    fresh = rng.random(value_kmw.shape) >= keep
    fresh[:, 0] = True
    since = np.maximum.accumulate(np.where(fresh, np.arange(moves)[:, None], 0), axis=1)
    return np.take_along_axis(value_kmw, since, axis=1)


@dataclass(frozen=True)
class RuleWorld:
    """r of each level; how many moves, lanes, and how long levels and rightness are kept."""

    r_l: np.ndarray
    moves: int = 150
    walkers: int = 16
    keep_z: float = 0.0
    keep_right: float = 0.0

    def truth(self):
        g_l = LATTICE.count_l()
        seen = g_l > 0
        return curves.trace(np.log(g_l[seen]), self.r_l[seen], "low"), np.flatnonzero(seen)

    def draw(self, seed, n_densities):
        run = sampled(seed % n_densities, self.walkers, self.moves, self.keep_z)
        rng = np.random.default_rng([seed, 32])
        u_i = kept(rng.random(run.shape), self.keep_right, rng).ravel()
        r_i = (u_i < self.r_l[run.bin_i]).astype(float)
        return run.density, sums_of(run, r_i)


def sums_of(run, r_i):
    n_groups, n_bins = len(run.density.lanes_g), N_LEVELS
    cell_i = run.group_i * n_bins + run.bin_i

    def per_cell(v_i):
        return np.bincount(cell_i, v_i, n_groups * n_bins).reshape(n_groups, n_bins)

    count_gb = per_cell(np.ones(len(r_i))).astype(int)
    count_b, square_b = count_gb.sum(axis=0), np.bincount(run.bin_i, run.w_i**2, n_bins)
    per_one_b = count_b / np.clip(run.density.effective_b, 1e-300, np.maximum(count_b, 1))
    return from_rule.ScoreSums(
        per_cell(run.w_i), per_cell(run.w_i * r_i), count_gb, square_b,
        np.bincount(run.bin_i, run.w_i * r_i**2, n_bins), square_b * np.maximum(per_one_b, 1.0),
        count_gb.sum(axis=0), (count_gb > 0).sum(axis=0),
    )  # fmt: skip


def old_laws(density, sums, curve):
    """Return AUPR intervals by two wrong laws: the jackknife's, and symmetric draws of arcsin.

    `precision-recall` had the first, `compare` the second, clipped to the estimate.
    """
    bins = np.sort(curve.bin_t)
    used_b = np.isin(np.arange(N_LEVELS), bins)
    r_b, log_g_jb = curve.r_b, density.log_g_jb[:, bins]
    r_jb = from_rule._without_each(sums, density.z_b, used_b)
    without = curves.trace(log_g_jb, r_jb[:, bins], "low")
    pairs = zip(without.precision_t, without.log_recall_t, strict=True)
    aupr_j = np.array([curves.area(*pair) for pair in pairs])
    error = float(jackknife_error(curve.aupr, aupr_j, density.lanes_g))
    half = t_quantile(len(aupr_j)) * error
    theta_b, theta_jb = (
        np.concatenate([g[..., bins], np.arcsin(np.sqrt(r[..., bins]))], axis=-1)
        for g, r in ((density.log_g_b, r_b), (density.log_g_jb, r_jb))
    )
    drawn = draw_together(theta_b, theta_jb, density.lanes_g, np.random.default_rng(0))
    r_mb = np.sin(np.clip(drawn[:, len(bins) :], 0.0, np.pi / 2)) ** 2
    draws = curves.trace(drawn[:, : len(bins)], r_mb, "low")
    area_m = curves.areas(draws.precision_t, draws.log_recall_t, curve.aupr_range)
    low, high = np.nanquantile(area_m, TAILS)
    clipped = np.fmin(low, curve.aupr), np.fmax(high, curve.aupr)
    return (curve.aupr - half, min(1.0, curve.aupr + half)), clipped


def worlds():
    """Return the rows, by name."""
    level = np.arange(N_LEVELS)
    constant = {f"r {r:g}": np.full(N_LEVELS, r) for r in (0.001, 0.02, 0.2, 0.98)}
    rising = 0.02 + 0.96 / (1.0 + np.exp(-4.0 * (level - 24.0) / 24.0))
    rows = constant | {
        "r rises": rising,
        "r falls": rising[::-1],
        "half all right": np.where(level < 24, 1.0, 0.3),
        "hardly wrong": np.full(N_LEVELS, 0.9998),
    }
    found = {name: RuleWorld(r_l) for name, r_l in rows.items()}
    for name in ("r 0.02", "r 0.2", "r 0.98", "r rises"):
        found[f"{name}, short"] = RuleWorld(rows[name], moves=6)
        found[f"{name}, kept"] = RuleWorld(rows[name], keep_right=0.9)
        found[f"{name}, both kept"] = RuleWorld(rows[name], keep_right=0.9, keep_z=0.8)
    # of right inputs that come in one or two bursts nothing tells how alike they are
    found["r 0.001, kept"] = RuleWorld(rows["r 0.001"], keep_right=0.5)
    for name in ("r 0.02", "r 0.2"):
        found[f"{name}, few a lane"] = RuleWorld(rows[name], keep_right=0.97)
        found[f"{name}, 4 lanes"] = RuleWorld(rows[name], moves=600, walkers=4, keep_right=0.9)
    return found


def held(world, density, sums):
    """Return which shares of a run's intervals hold the truth [4], the old laws [2], one-sided."""
    right, level_t = world.truth()
    curve = from_rule.rule_curve(density, sums, whole=True)
    at, b = np.searchsorted(level_t, curve.bin_t), curve.bin_t

    def share(low, value, high):
        return np.mean((low - 1e-9 <= value) & (value <= high + 1e-9))

    own = curves.curve_range(right.precision_t, right.log_recall_t)
    shared = curves.common_range(own, curve.aupr_range)
    ends = shared if shared[1] > shared[0] else own
    aupr = curves.area(right.precision_t, right.log_recall_t, *ends)
    pair = curve.bands.low, curve.bands.high
    found = [
        share(curve.r_low_b[b], world.r_l[b], curve.r_high_b[b]),
        share(pair[0].precision_t, right.precision_t[at], pair[1].precision_t),
        share(pair[0].log_recall_t, right.log_recall_t[at], pair[1].log_recall_t),
        share(curve.aupr_low, aupr, curve.aupr_high),
    ]
    known = (curve.r_b[b] > 0).sum() > 1
    old = old_laws(density, sums, curve) if known else ((-1.0, -1.0), (-1.0, -1.0))
    return np.array(
        [*found, *(share(low, aupr, high) for low, high in old), float(curve.aupr_one_sided != 0)]
    )


def coverage(world, n_runs, n_densities=None):
    """Return shares of intervals that hold the truth, by the program [4] and of AUPRs by two wrong
    laws [2]; and the share of AUPRs that are one-sided.

    Each run has its own density, unless `n_densities` take turns.
    """
    n_densities = n_densities or n_runs
    found = np.mean([held(world, *world.draw(seed, n_densities)) for seed in range(n_runs)], axis=0)
    return found[:4], found[4:6], float(found[6])
