"""An exactly solvable model: independent sites, so that outputs are sums of site energies.

Levels (the possible outputs) lie on a lattice; the number of inputs per level and the mean score
of the rule "site 0 has value 0" follow by convolution, and canonical samples are drawn site by
site, independently: the truth and the sampling distributions are exact.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
from configs import config_with

from omniinput_hpc.estimators.density.rung_weights import RungWeights
from omniinput_hpc.estimators.run_data import RunData

ENERGY_V = np.array([0, 1, 1, 3])  # of each value; levels are sums over sites


@dataclass(frozen=True)
class Lattice:
    """D sites of 4 values; z = (sum of energies) * unit."""

    n_sites: int = 8
    unit: float = 0.25

    @property
    def n_values(self):
        return len(ENERGY_V)

    def _levels(self, n_sites):
        count_l = np.ones(1)
        site = np.bincount(ENERGY_V)
        for _ in range(n_sites):
            count_l = np.convolve(count_l, site)
        return count_l

    def z_l(self):
        return np.arange(self.n_sites * ENERGY_V.max() + 1) * self.unit

    def count_l(self):
        """Inputs per level."""
        return self._levels(self.n_sites)

    def right_l(self):
        """Inputs per level with value 0 at site 0 (energy 0)."""
        rest = self._levels(self.n_sites - 1)
        return np.pad(rest, (0, len(self.z_l()) - len(rest)))

    def bin_sums(self, edges, value_l):
        """Sum a value per level over bins (np.histogram would subtract sums: digits are lost)."""
        bin_l = np.searchsorted(edges, self.z_l(), side="right") - 1
        bin_l[self.z_l() == edges[-1]] = len(edges) - 2
        inside = (bin_l >= 0) & (bin_l < len(edges) - 1)
        return np.bincount(bin_l[inside], np.asarray(value_l)[inside], len(edges) - 1)

    def draw(self, beta_k, n, rng):
        """Return x [K, n, D] from the canonical distributions."""
        p_kv = np.exp(-np.outer(beta_k, ENERGY_V) * self.unit)
        cumulative_kv = np.cumsum(p_kv / p_kv.sum(axis=1, keepdims=True), axis=1)
        u = rng.random((len(beta_k), n, self.n_sites, 1))
        return (u >= cumulative_kv[:, None, None, :-1]).sum(axis=-1).astype(np.uint8)

    def z(self, x):
        return (ENERGY_V[x].sum(axis=-1) * self.unit).astype(np.float32)


MODEL = Lattice()
CONFIG = config_with()
BETA_K = np.array([-6.0, -3.0, -1.0, 0.0, 1.0, 3.0, 6.0])
LEVEL_EDGES = (np.arange(len(MODEL.z_l()) + 1) - 0.5) * MODEL.unit  # one level a bin


def first_is_zero(x):
    """Score by site 0 alone."""
    return (x[:, 0] == 0).astype(np.float64)


class ArrayRun:
    """A `RunData` in memory whose parts can be set: every move is also a recorded sample."""

    def __init__(self, x_rksd, z_rks, walkers, beta_k, edges, n_values, groups=16):
        self.path = Path("memory.h5")
        self.fingerprint, self.created = "none", ""
        self.config = CONFIG
        self.x_rksd, self.z_rks, self.walkers = x_rksd, z_rks, walkers
        self.beta_k, self.edges = np.asarray(beta_k, float), np.asarray(edges, float)
        self.rounds = self.rounds_planned = len(z_rks)
        self.rounds_per_block = 1
        self.samples_per_round = z_rks.shape[2]
        self.kappa, self.z0 = np.zeros((2, len(beta_k)))
        self.log_w_kb = np.zeros((len(beta_k), len(edges) - 1))
        self.model_beta, self.round_trips_v = np.nan, np.ones(walkers * len(beta_k), np.int64)
        self.cold_starts, self.rows_normalized, self.is_part = 2, False, False
        self.swaps_k2 = np.zeros((len(beta_k) - 1, 2), np.int64)
        self.log_q = None  # of ancestral runs: [rounds, K, S, K]
        self.n_values, self.n_ids, self.n_sites = n_values, n_values, x_rksd.shape[3]
        n_groups = min(groups, walkers)
        lane_s = np.arange(z_rks.shape[2]) % walkers
        group_s = lane_s * n_groups // walkers
        n_bins, n_rungs = len(edges) - 1, len(beta_k)
        z = z_rks.astype(float)
        b_rks = np.digitize(z, self.edges) - 1  # -1 below, n_bins above
        b_rks[z == self.edges[-1]] = n_bins - 1
        r, k, g = np.meshgrid(range(self.rounds), range(n_rungs), group_s, indexing="ij")
        counts = np.zeros((self.rounds, n_rungs, n_groups, n_bins + 2), np.int64)
        np.add.at(counts, (r, k, g, b_rks + 1), 1)
        self.counts_rkgb = counts[..., 1:-1]
        self.outside_rk2 = counts.sum(axis=2)[..., [0, -1]]
        z_sum = np.zeros((n_rungs, n_bins + 2))
        np.add.at(z_sum, (k, b_rks + 1), z)
        self.z_sum_kb = z_sum[:, 1:-1]

    log_inputs = np.nan
    log_measure, group_s, moves_k = RunData.log_measure, RunData.group_s, RunData.moves_k
    z_of, counts_nkb = RunData.z_of, RunData.counts_nkb
    ancestral = property(lambda self: self.log_q is not None)
    counts_kb = property(lambda self: self.counts_rkgb.sum(axis=(0, 2)))
    lane_counts_kgb = property(lambda self: self.counts_rkgb.sum(axis=0))
    outside_k2 = property(lambda self: self.outside_rk2.sum(axis=0))
    source = data = property(lambda self: self)

    @property
    def weights(self):
        return RungWeights(self.beta_k, self.kappa, self.z0, self.log_w_kb, self.edges)

    def record(self):
        """Return the run as it is now as a true `RunData`."""
        names = [field.name for field in fields(RunData)]
        return RunData(**{name: getattr(self, name) for name in names})

    def histograms(self):
        return iter(self.counts_rkgb.sum(axis=2))

    def samples(self, rounds=None):
        some = slice(None) if rounds is None else list(rounds)
        yield from zip(self.x_rksd[some], self.z_rks[some], strict=True)

    def samples_walker(self, round_):  # no swaps
        lane_s = np.arange(self.z_rks.shape[2]) % self.walkers
        return lane_s + self.walkers * np.arange(len(self.beta_k))[:, None]

    def samples_z(self, rounds=slice(None), rungs=slice(None)):
        return self.z_rks[rounds, rungs]

    def z(self, *parts, **named):
        return self.samples_z(*parts, **named)

    def samples_log_q(self):
        return None if self.log_q is None else iter(self.log_q)


def independent_run(model, beta_k, edges, *, rounds=16, walkers=8, moves=20, seed=1, groups=16):
    """Return a run whose moves are independent draws from the canonical distributions."""
    rng = np.random.default_rng(seed)
    size = walkers * moves
    x = model.draw(beta_k, rounds * size, rng)
    x_rksd = x.reshape(len(beta_k), rounds, size, -1).swapaxes(0, 1)
    return ArrayRun(x_rksd, model.z(x_rksd), walkers, beta_k, edges, model.n_values, groups)


def weighted_run(model, log_w_kl, edges, *, rounds=16, walkers=16, moves=20, seed=1):
    """Return a run whose outputs have weights w_k(z) of any form; its x are all zero.

    The log-weights are given at the model's levels, [K, L]; `beta_k` of the run is still to be set.
    """
    rng = np.random.default_rng(seed)
    with np.errstate(divide="ignore"):
        log_p_kl = np.log(model.count_l()) + log_w_kl
    p_kl = np.exp(log_p_kl - log_p_kl.max(axis=1, keepdims=True))
    size = (rounds, walkers * moves)
    level_krs = np.stack([rng.choice(len(p), size, p=p / p.sum()) for p in p_kl])
    z_rks = model.z_l()[level_krs].swapaxes(0, 1).astype(np.float32)
    x_rksd = np.zeros((*z_rks.shape, model.n_sites), np.uint8)
    return ArrayRun(x_rksd, z_rks, walkers, np.zeros(len(log_w_kl)), edges, model.n_values)


def ancestral_run(model, tilt_kd, edges, *, rounds=16, walkers=16, moves=20, seed=1):
    """Return independent draws of q_k(x) = prod_d p(x_d), p proportional to exp(-tilt_kd energy).

    Sites with tilts of their own: q_k is no function of z.
    """
    rng = np.random.default_rng(seed)
    log_p_kdv = -tilt_kd[:, :, None] * ENERGY_V * model.unit
    log_p_kdv -= np.log(np.exp(log_p_kdv).sum(axis=2, keepdims=True))
    upto_kdv = np.cumsum(np.exp(log_p_kdv), axis=2)[:, :, :-1]
    n_rungs, n_sites = tilt_kd.shape
    u = rng.random((rounds, n_rungs, walkers * moves, n_sites, 1))
    x_rksd = (u >= upto_kdv[None, :, None]).sum(axis=-1).astype(np.uint8)
    log_q = log_p_kdv[:, np.arange(n_sites), x_rksd].sum(axis=-1)  # [J, rounds, K, S]
    run = ArrayRun(
        x_rksd, model.z(x_rksd), walkers, tilt_kd.mean(axis=1), edges, model.n_values
    )  # fmt: skip
    run.log_q = np.moveaxis(log_q, 0, -1)
    return run


def canonical_log_weights(beta_k, z_b):
    """Return log w_kb = -beta_k z_b [K, B]; bins without a mean z (NaN) get 0."""
    return -np.outer(beta_k, np.where(np.isfinite(z_b), z_b, 0.0))


def canonical(beta_k, edges):
    """Return the weights of canonical rungs alone."""
    zero_k = np.zeros(len(beta_k))
    return RungWeights(beta_k, zero_k, zero_k, np.zeros((len(beta_k), len(edges) - 1)), edges)
