"""Small models with known answers, given as a user gives a custom model (``kind = "python"``)."""

from __future__ import annotations

import itertools

import model_pair
import numpy as np
import torch

from omniinput_zoo.exact import SITE_ENERGY, lattice
from omniinput_zoo.exact import Lattice as LatticeModel

__all__ = ["SITE_ENERGY", "LatticeModel", "lattice"]


class CoupledModel:
    """Asymmetric site energies and couplings between neighbours: nothing about it is symmetric."""

    n_sites, n_values = 3, 4

    def __init__(self, device="cpu", dtype=torch.float32):
        self.dtype = dtype
        random = np.random.default_rng(5)
        site = torch.from_numpy(random.normal(size=(self.n_sites, self.n_values)))
        pair = torch.from_numpy(random.normal(size=(self.n_values, self.n_values)))
        self.site, self.pair = site.to(device), pair.to(device)

    def output(self, x):
        z = self.site[torch.arange(self.n_sites), x].sum(dim=1)
        return (z + self.pair[x[:, :-1], x[:, 1:]].sum(dim=1)).to(self.dtype)

    def output_and_gradient(self, x):
        g = self.site.expand(len(x), -1, -1).clone()
        g[:, 1:] += self.pair[x[:, :-1]]
        g[:, :-1] += self.pair.T[x[:, 1:]]
        return self.output(x), g.to(self.dtype)

    def all_inputs(self):
        return all_inputs(self)


class LocalModel(CoupledModel):
    """The same, which also says how z changes with a site."""

    def change(self, x, site, value):
        old = x.gather(1, site[:, None])[:, 0]
        dz = self.site[site, value] - self.site[site, old]
        before, after = (x.gather(1, (site + by).clamp(0, 2)[:, None])[:, 0] for by in (-1, 1))
        dz += (self.pair[before, value] - self.pair[before, old]) * (site > 0)
        dz += (self.pair[value, after] - self.pair[old, after]) * (site < 2)
        return dz.to(self.dtype)


class AutoregressiveModel:
    """Conditionals that depend on the whole prefix, in rows that are not normalized; float64.

    z is minus their mean over the predicted sites; its gradient is autograd's, of the same
    function of one-hot inputs.
    """

    def __init__(self, device="cpu", predicted_from=1, n_values=3):
        self.n_sites, self.n_values, self.predicted_from = 3, n_values, predicted_from
        random = np.random.default_rng(9)
        shape = (self.n_sites, self.n_values)

        def normal(*shape):
            return torch.from_numpy(random.normal(size=shape)).to(device)

        self.site, self.past, self.coupling = normal(*shape), normal(*shape), normal(*shape)
        self.pair = normal(self.n_values, self.n_values)

    def rows(self, one_hot):
        """Return l, float64 [W, D, V]: row i depends on the sites before i."""
        seen = (one_hot * self.past).sum(dim=2).cumsum(dim=1)  # [W, D]
        before = torch.cat([torch.zeros_like(seen[:, :1]), seen[:, :-1]], dim=1)
        last = torch.cat([torch.zeros_like(one_hot[:, :1]), one_hot[:, :-1]], dim=1) @ self.pair
        return self.site + last + self.coupling * torch.sin(before)[:, :, None]

    def _z(self, one_hot):
        chosen = (self.rows(one_hot) * one_hot).sum(dim=2)
        return -chosen[:, self.predicted_from :].mean(dim=1)

    def _one_hot(self, x):
        return torch.nn.functional.one_hot(x, self.n_values).double()

    def output(self, x):
        return self._z(self._one_hot(x))

    def output_and_gradient(self, x):
        one_hot = self._one_hot(x).requires_grad_()
        z = self._z(one_hot)
        (g,) = torch.autograd.grad(z.sum(), one_hot)
        return z.detach(), g

    def conditional_logits(self, x):
        rows = self.rows(self._one_hot(x))
        z = -rows.gather(2, x[:, :, None])[:, self.predicted_from :, 0].mean(dim=1)
        rows[:, : self.predicted_from] = torch.nan  # nobody may look at them
        return z, rows

    def all_inputs(self):
        return all_inputs(self)


class NormalizedModel(AutoregressiveModel):
    """The same with normalized conditionals and outputs in float32, as a language model's are."""

    def rows(self, one_hot):
        return super().rows(one_hot).log_softmax(dim=2)

    def output(self, x):
        return super().output(x).float()

    def output_and_gradient(self, x):
        z, g = super().output_and_gradient(x)
        return z.float(), g.float()

    def conditional_logits(self, x):
        z, rows = super().conditional_logits(x)
        return z.float(), rows.float()


class ToyKVCache:
    """What a `KVCache` is to kernels, by whole evaluations; it notices where it is misused."""

    def __init__(self, model, n_walkers):
        self.model, self.n_walkers, self.version, self.kept = model, n_walkers, 0, None

    def load(self, x):
        self.kept, self.version = x.clone(), self.version + 1
        self.scored = self.kept

    def losses(self):
        rows = self._rows(self.scored).gather(2, self.scored[:, :, None])
        return -rows[:, self.model.predicted_from :, 0]

    def evaluate(self, x):
        self.load(x)
        return self.model.output(x)

    def propose(self, x, t):
        assert torch.equal(x[:, :t], self.kept[:, :t]), "a site before t has changed"
        self.new = self.scored = x.clone()
        return self.model.output(x)

    def begin(self, t):
        self.new, self.t = self.kept.clone(), t
        self.new[:, t:] = 0

    def begin_anew(self):
        self.new, self.t = torch.zeros(self.n_walkers, self.model.n_sites, dtype=torch.int64), 0

    def row(self):
        return self._rows(self.new)[:, self.t]

    def extend(self, values):
        self.new[:, self.t] = values
        self.t += 1

    def rows_after(self, values):
        for t in range(self.t, self.t + values.shape[1]):
            self.new[:, t] = values[:, t - self.t]
        begin, self.t = self.t + 1, self.t + values.shape[1]
        yield self._rows(self.new)[:, begin : self.t + 1].transpose(0, 1)

    def current_rows(self, begin, end):
        for t in range(begin, end):
            yield self._rows(self.kept)[None, :, t]

    def accept(self, accepted):
        if hasattr(self, "t") and self.t < self.model.n_sites:
            self.new[:, self.t :] = self.kept[:, self.t :]
        self.kept = torch.where(accepted[:, None], self.new, self.kept)
        self.version += 1

    def _rows(self, x):
        return self.model.conditional_logits(x)[1]


class KVCacheModel(AutoregressiveModel):
    """The same with a KV cache, as a language model has it."""

    def kv_cache(self, n_walkers):
        return ToyKVCache(self, n_walkers)


def all_inputs(model):
    """Return every input, int64 [n_values^D, D]."""
    return torch.tensor(list(itertools.product(range(model.n_values), repeat=model.n_sites)))


def coupled(device):
    return CoupledModel(device)


def normalized(device):
    return NormalizedModel(device)


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


def doubles(device):
    model = LatticeModel(6, 4, 0.25, device)
    model.output = lambda x: model.energy[x].sum(dim=1).double()
    return model


def no_tensor(device):
    model = LatticeModel(6, 4, 0.25, device)
    model.output = lambda x: [0.0] * len(x)
    return model


def noisy(device):
    model = LatticeModel(6, 4, 0.25, device)
    model.output = lambda x: model.energy[x].sum(dim=1) + torch.rand(len(x), device=device)
    return model


def no_sites(device):
    model = LatticeModel(6, 4, 0.25, device)
    del model.n_sites
    return model


def fails(device):
    raise RuntimeError("the factory itself is broken")


class TableModel:
    """A model of `model_pair`: its output is looked up."""

    n_sites, n_values = model_pair.N_SITES, model_pair.N_VALUES

    def __init__(self, which, device):
        self.z = torch.from_numpy(model_pair.table(which)).to(device)
        self.place = torch.tensor(
            [model_pair.N_VALUES**i for i in range(model_pair.N_SITES)][::-1], device=device
        )

    def output(self, x):
        return self.z[(x * self.place).sum(dim=1)]


def table(device, which="good"):
    """Return a model of `model_pair`."""
    return TableModel(which, device)
