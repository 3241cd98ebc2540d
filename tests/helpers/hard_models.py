"""Small models that are hard to sample in different ways, each with its exact density.

`truth` returns all outputs that inputs have, float64 [L], and ln of how many inputs have each [L].
The factories at the end make them as ``[model] kind = "python"`` does.
"""

from __future__ import annotations

import itertools
import math
from functools import partial

import numpy as np
import torch
from numba import njit
from scipy.special import gammaln


def log_binomial(n, k):
    return gammaln(n + 1) - gammaln(np.asarray(k) + 1) - gammaln(n - np.asarray(k) + 1)


def merged(z, log_count):
    """Add up the counts of equal levels."""
    z, log_count = np.asarray(z, dtype=float).ravel(), np.asarray(log_count, dtype=float).ravel()
    levels, level_i = np.unique(z, return_inverse=True)
    total = np.full(len(levels), -np.inf)
    np.logaddexp.at(total, level_i.ravel(), log_count)
    return levels, total


def convolved(z, log_count, times):
    """Return the density of a sum over independent, equal blocks."""
    out = np.zeros(1), np.zeros(1)
    for _ in range(times):
        out = merged(np.add.outer(out[0], z), np.add.outer(out[1], log_count))
    return out


def compiled(level):
    """Return a `compiled_change` for a compiled function from an input, int64 [D], to z."""

    @njit
    def change(x, site, value):
        before, old = level(x), x[site]
        x[site] = value
        after = level(x)
        x[site] = old
        return after - before

    return change


class Hidden:
    """All `key` sites 1: z = 1/4 of the others' sum; else the sum of all. Outputs overlap."""

    def __init__(self, key=10, rest=24, device="cpu"):
        self.key, self.rest, self.n_sites, self.n_values = key, rest, key + rest, 2

        @njit
        def level(x):
            k, r = x[:key].sum(), x[key:].sum()
            return 0.25 * r if k == key else float(k + r)

        self.compiled_change = compiled(level)

    def output(self, x):
        k, r = x[:, : self.key].sum(dim=1), x[:, self.key :].sum(dim=1)
        return torch.where(k == self.key, 0.25 * r, (k + r).float()).float()

    def truth(self):
        r, k = np.arange(self.rest + 1), np.arange(self.key)
        count = log_binomial(self.key, k)[:, None] + log_binomial(self.rest, r)
        outside = np.add.outer(k, r), count
        inside = 0.25 * r, log_binomial(self.rest, r)
        both = zip(outside, inside, strict=True)
        return merged(*(np.concatenate([a.ravel(), b]) for a, b in both))


class TwoPhases:
    """`hid` sites decide between two phases with a wall between; both have every output."""

    def __init__(self, hid=16, rest=16, barrier=6.0, shift=1.0, device="cpu"):
        self.hid, self.rest, self.shift = hid, rest, shift
        self.n_sites, self.n_values = hid + 2 * rest, 2
        m = np.arange(hid + 1)
        wall = np.round(8 * barrier * (1 - (2 * m / hid - 1) ** 2)) / 8
        self.wall = torch.as_tensor(wall, dtype=torch.float32)

        @njit
        def level(x):
            m = x[:hid].sum()
            if 2 * m < hid:
                return wall[m] + x[hid : hid + rest].sum()
            return wall[m] + shift + 0.5 * x[hid + rest :].sum()

        self.compiled_change = compiled(level)

    def output(self, x):
        m = x[:, : self.hid].sum(dim=1)
        a = x[:, self.hid : self.hid + self.rest].sum(dim=1)
        b = x[:, self.hid + self.rest :].sum(dim=1)
        left = 2 * m < self.hid
        return (self.wall[m] + torch.where(left, a.float(), self.shift + 0.5 * b)).float()

    def truth(self):
        m, r = np.arange(self.hid + 1)[:, None], np.arange(self.rest + 1)
        own = np.where(2 * m < self.hid, r, self.shift + 0.5 * r)
        count = log_binomial(self.hid, m) + log_binomial(self.rest, r) + self.rest * math.log(2)
        return merged(self.wall.double().numpy()[:, None] + own, count)


class OfOnes:
    """z depends on the number of ones among n sites of two values."""

    def __init__(self, z_n, device="cpu"):
        self.n_sites, self.n_values = len(z_n) - 1, 2
        self.level = torch.as_tensor(z_n, dtype=torch.float32)
        z_n = self.level.double().numpy()

        @njit
        def level(x):
            return z_n[x.sum()]

        self.compiled_change = compiled(level)

    def output(self, x):
        return self.level[x.sum(dim=1)]

    def truth(self):
        n = self.n_sites
        return merged(self.level.double().numpy(), log_binomial(n, np.arange(n + 1)))


def convex(n=60, power=4.0, device="cpu"):
    """A first-order transition: z = -n (ones / n)^power, to a sixteenth."""
    return OfOnes(np.round(-n * (np.arange(n + 1) / n) ** power * 16) / 16)


def heavy(n=16, rate=0.5, device="cpu"):
    """A heavy tail: z = -exp(rate ones)."""
    return OfOnes(-np.exp(rate * np.arange(n + 1)))


def long_range(n=64, coupling=1.0, field=0.02, device="cpu"):
    """All spins coupled with all (Curie-Weiss), and a weak field that tells the phases apart."""
    m = 2 * np.arange(n + 1) - n
    return OfOnes(np.round(32 * (-0.5 * coupling * m**2 / n - field * m)) / 32)


def two_ends(n=24, device="cpu"):
    """Two ground states far from each other: z is the distance to the nearer one."""
    return OfOnes(np.minimum(np.arange(n + 1), n - np.arange(n + 1)).astype(float))


class Lattice:
    """z = unit * a sum of whole energies 0 to 3: with unit = 0.1 levels lie on edges of bins."""

    def __init__(self, n=11, with_change=True, unit=0.1, device="cpu"):
        self.n_sites, self.n_values = n, 4
        self.energy = torch.arange(4, dtype=torch.float32) * unit
        if with_change:
            self.change = self._change

    def output(self, x):
        return self.energy[x].sum(dim=1)

    def _change(self, x, site, value):
        return self.energy[value] - self.energy[x.gather(1, site[:, None])[:, 0]]

    def truth(self):
        """By enumeration with `output` itself: its rounding decides which bin a level is in."""
        levels, counts = [], []
        total = self.n_values**self.n_sites
        power = self.n_values ** torch.arange(self.n_sites)
        for begin in range(0, total, 1 << 20):
            code = torch.arange(begin, min(begin + (1 << 20), total))
            z, n = np.unique(self.output((code[:, None] // power) % 4).numpy(), return_counts=True)
            levels.append(z.astype(float)), counts.append(np.log(n))
        return merged(np.concatenate(levels), np.concatenate(counts))


class Aniso:
    """One site of V values decides, all others hardly matter."""

    def __init__(self, n=24, v=32, device="cpu"):
        self.n_sites, self.n_values = n, v

        @njit
        def level(x):
            zeros = 0
            for d in range(1, n):
                zeros += x[d] == 0
            return x[0] + zeros / 64.0

        self.compiled_change = compiled(level)

    def output(self, x):
        return (x[:, 0] + (x[:, 1:] == 0).sum(dim=1) / 64.0).float()

    def truth(self):
        n, v = self.n_sites - 1, self.n_values
        k = np.arange(n + 1)
        rest = log_binomial(n, k) + (n - k) * math.log(v - 1)
        z = np.add.outer(np.arange(v), k / 64.0)
        return merged(z, np.broadcast_to(rest, z.shape))


class Chain:
    """z = number of domain walls of an open Potts chain."""

    def __init__(self, n=48, q=4, device="cpu"):
        self.n_sites, self.n_values = n, q

        @njit
        def level(x):
            walls = 0.0
            for d in range(1, n):
                walls += x[d] != x[d - 1]
            return walls

        self.compiled_change = compiled(level)

    def output(self, x):
        return (x[:, 1:] != x[:, :-1]).sum(dim=1).float()

    def truth(self):
        n, q = self.n_sites, self.n_values
        w = np.arange(n)
        return w.astype(float), math.log(q) + log_binomial(n - 1, w) + w * math.log(q - 1)


class Glass:
    """A spin glass of n spins, all coupled by whole numbers: rugged, enumerated."""

    def __init__(self, n=18, seed=5, device="cpu"):
        self.n_sites, self.n_values = n, 2
        rng = np.random.default_rng(seed)
        upper = np.triu(rng.integers(-3, 4, size=(n, n)), 1)
        self.coupling = torch.as_tensor(upper, dtype=torch.float32)

        @njit
        def level(x):
            z = 0.0
            for i in range(n):
                for j in range(i + 1, n):
                    z -= upper[i, j] * (2 * x[i] - 1) * (2 * x[j] - 1)
            return z

        self.compiled_change = compiled(level)

    def output(self, x):
        s = 2.0 * x.float() - 1.0
        return -((s @ self.coupling) * s).sum(dim=1)

    def truth(self):
        code = torch.arange(1 << self.n_sites)
        x = (code[:, None] >> torch.arange(self.n_sites)) & 1
        levels, count = np.unique(self.output(x).double().numpy(), return_counts=True)
        return levels, np.log(count)


class Blocks:
    """Independent blocks of a few sites of two values; z is the sum of each block's table."""

    def __init__(self, table, n_blocks, device="cpu"):
        self.width = int(math.log2(len(table)))
        self.n_blocks, self.n_sites, self.n_values = n_blocks, n_blocks * self.width, 2
        self.table = torch.as_tensor(table, dtype=torch.float32)
        self.power = 2 ** torch.arange(self.width)
        width, z_c = self.width, np.asarray(table, dtype=float)

        @njit
        def level(x):
            z = 0.0
            for block in range(n_blocks):
                code = 0
                for i in range(width):
                    code += x[block * width + i] << i
                z += z_c[code]
            return z

        self.compiled_change = compiled(level)

    def output(self, x):
        code = (x.reshape(len(x), self.n_blocks, self.width) * self.power).sum(dim=2)
        return self.table[code].sum(dim=1)

    def truth(self):
        z, count = np.unique(self.table.double().numpy(), return_counts=True)
        return convolved(z, np.log(count), self.n_blocks)


def _of_bits(width, function):
    return [function(bits[::-1]) for bits in itertools.product((0, 1), repeat=width)]


def deceptive(n_blocks=8, width=5, device="cpu"):
    """Traps: fewer ones lower z, but the lowest is all ones."""
    return Blocks(_of_bits(width, lambda b: 0.0 if all(b) else 1.0 + sum(b) / 2), n_blocks)


def constrained(n_blocks=8, width=4, penalty=4.0, device="cpu"):
    """Odd blocks cost a penalty: single flips within the constraint are impossible."""
    return Blocks(_of_bits(width, lambda b: sum(b) / 4 + penalty * (sum(b) % 2)), n_blocks)


class Outliers:
    """z = ones, but where all `key` sites are 1: far above. Rare, and far from the rest."""

    def __init__(self, key=12, rest=24, far=40.0, device="cpu"):
        self.key, self.rest, self.far = key, rest, far
        self.n_sites, self.n_values = key + rest, 2

        @njit
        def level(x):
            k, ones = x[:key].sum(), float(x.sum())
            return ones + far - key if k == key else ones

        self.compiled_change = compiled(level)

    def output(self, x):
        k, ones = x[:, : self.key].sum(dim=1), x.sum(dim=1).float()
        return torch.where(k == self.key, ones + self.far - self.key, ones)

    def truth(self):
        k, r = np.arange(self.key)[:, None], np.arange(self.rest + 1)
        usual = k + r, log_binomial(self.key, k) + log_binomial(self.rest, r)
        rare = self.far + r, log_binomial(self.rest, r)
        return merged(*(np.concatenate([a.ravel(), b]) for a, b in zip(usual, rare, strict=True)))


MODELS = {
    "hidden": Hidden, "two_phases": TwoPhases, "convex": convex, "heavy": heavy,
    "long_range": long_range, "two_ends": two_ends, "lattice": Lattice, "aniso": Aniso,
    "chain": Chain, "glass": Glass, "deceptive": deceptive, "constrained": constrained,
    "outliers": Outliers,
}  # fmt: skip


def make(name, device="cpu", **options):
    """Make a model of `MODELS`."""
    return MODELS[name](device=device, **options)


for _name in MODELS:
    globals()[f"make_{_name}"] = partial(make, _name)
