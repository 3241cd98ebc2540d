"""Spaces that no one can enumerate, whose densities are known all the same, as custom models.

`Occupation` has a first-order transition: its output falls with the number of equal pairs, so that
at beta = 0.339 inputs of all different values and inputs of one value weigh the same, with next to
nothing between them. `Sites` are independent: its density spans more than 300 nats.
"""

from __future__ import annotations

from math import factorial

import numpy as np
import torch


class Occupation:
    """z = - sum over values v of n_v (n_v - 1) / 2, n_v being how often v occurs."""

    n_sites, n_values = 25, 64

    def __init__(self, device="cpu"):
        self._zero = torch.zeros((), device=device)

    def output(self, x):
        count = torch.zeros((len(x), self.n_values), device=x.device)
        count.scatter_add_(1, x, torch.ones_like(x, dtype=torch.float32))
        return -(count * (count - 1)).sum(dim=1) / 2

    @classmethod
    def log_count(cls):
        """Return (z [L], ln of the number of inputs [L]), by dynamic programming over values.

        The number of sequences with occupation numbers n_v is D! / prod n_v!.
        """
        d, pairs = cls.n_sites, cls.n_sites * (cls.n_sites - 1) // 2
        ways = np.zeros((d + 1, pairs + 1))  # [sites used, pairs]
        ways[0, 0] = 1.0
        for _ in range(cls.n_values):
            more = np.zeros_like(ways)
            for n in range(d + 1):
                p = n * (n - 1) // 2
                more[n:, p:] += ways[: d + 1 - n, : pairs + 1 - p] / factorial(n)
            ways = more
        count = ways[d] * float(factorial(d))
        level = np.flatnonzero(count > 0.5)
        return -level.astype(float), np.log(count[level])


class Sites:
    """100 independent sites of 256 values whose energies are whole numbers from 0 to 7."""

    n_sites, n_values = 100, 256

    def __init__(self, device="cpu"):
        self.energy = torch.from_numpy(self._energy()).float().to(device)

    @classmethod
    def _energy(cls):
        return np.repeat(np.arange(8), [94, 60, 40, 25, 16, 12, 8, 1])

    def output(self, x):
        return self.energy[x].sum(dim=1)

    def output_and_gradient(self, x):
        z = self.output(x)
        return z, self.energy.expand(*x.shape, self.n_values)

    @classmethod
    def log_count(cls):
        """Return (z [L], ln of the number of inputs [L]), by convolution, scaled as it grows."""
        site = np.bincount(cls._energy()) / cls.n_values
        log_p = np.zeros(1)
        for _ in range(cls.n_sites):
            p, shift = np.exp(log_p - log_p.max()), log_p.max()
            with np.errstate(divide="ignore"):
                log_p = np.log(_convolve(p, site)) + shift
        level = np.flatnonzero(np.isfinite(log_p))
        return level.astype(float), log_p[level] + cls.n_sites * np.log(cls.n_values)


def _convolve(p, site):
    out = np.zeros(len(p) + len(site) - 1)
    for shift, weight in enumerate(site):
        out[shift : shift + len(p)] += weight * p
    return out


def occupation(device):
    return Occupation(device)


def sites(device):
    return Sites(device)
