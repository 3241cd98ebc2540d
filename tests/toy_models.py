"""Small models with known answers, brought as a user would bring hers (``kind = "python"``)."""

from __future__ import annotations

import itertools
import time

import numpy as np
import pair
import torch

SITE_ENERGY = np.array([0, 1, 1, 3, 2])


class LatticeModel:
    """Independent sites with integer energies times a unit: every z is exact in float32."""

    def __init__(self, n_sites, n_values, unit, device):
        self.n_sites, self.n_values, self.unit = n_sites, n_values, unit
        self.energy = torch.tensor(SITE_ENERGY[:n_values], dtype=torch.float32, device=device)

    def output(self, x):
        return self.energy[x].sum(dim=1) * self.unit

    def render(self, x):
        return ["-".join(map(str, row)) for row in x.tolist()]

    def log_count(self):
        """Return (z [L], ln of the number of inputs [L]) by convolution."""
        count = np.ones(1)
        for _ in range(self.n_sites):
            count = np.convolve(count, np.bincount(SITE_ENERGY[: self.n_values]))
        levels = np.flatnonzero(count)
        return levels * self.unit, np.log(count[levels])


class CoupledModel:
    """Asymmetric site energies and couplings between neighbours: nothing about it is symmetric."""

    n_sites, n_values = 3, 4

    def __init__(self, device="cpu"):
        random = np.random.default_rng(5)
        site = torch.from_numpy(random.normal(size=(self.n_sites, self.n_values)))
        pair = torch.from_numpy(random.normal(size=(self.n_values, self.n_values)))
        self.site, self.pair = site.to(device), pair.to(device)

    def output(self, x):
        z = self.site[torch.arange(self.n_sites), x].sum(dim=1)
        return (z + self.pair[x[:, :-1], x[:, 1:]].sum(dim=1)).float()

    def all_inputs(self):
        """Return every input, int64 [n_values^D, D]."""
        return torch.tensor(list(itertools.product(range(self.n_values), repeat=self.n_sites)))


def lattice(device, n_sites=6, n_values=4, unit=0.25):
    return LatticeModel(n_sites, n_values, unit, device)


def coupled(device):
    return CoupledModel(device)


class NanModel(LatticeModel):
    """Returns NaN for inputs that begin with 3, 3, 3."""

    def output(self, x):
        z = super().output(x)
        return torch.where((x[:, :3] == 3).all(dim=1), torch.nan, z)


def nan(device):
    return NanModel(6, 4, 0.25, device)


def wrong_shape(device):
    model = LatticeModel(6, 4, 0.25, device)
    model.output = lambda x: torch.zeros(3)
    return model


def no_sites(device):
    model = LatticeModel(6, 4, 0.25, device)
    del model.n_sites
    return model


def fails(device):
    raise RuntimeError("the factory itself is broken")


class TableModel:
    """A model of `pair`: its output is looked up."""

    n_sites, n_values = pair.N_SITES, pair.N_VALUES

    def __init__(self, which, device, seconds):
        self.z, self.seconds = torch.from_numpy(pair.table(which)).to(device), seconds
        self.place = torch.tensor(
            [pair.N_VALUES**i for i in range(pair.N_SITES)][::-1], device=device
        )

    def output(self, x):
        time.sleep(self.seconds)
        return self.z[(x * self.place).sum(dim=1)]


def table(device, which="good", seconds=0.0):
    """Return a model of `pair`; `seconds` slow it down."""
    return TableModel(which, device, seconds)
