"""A language model one can enumerate: each value's probabilities depend on the one before it."""

from __future__ import annotations

import itertools

import numpy as np
import torch
from mpi4py import MPI


class MarkovModel:
    """z = - mean over sites 1 .. D-1 of l[x_{t-1}, x_t], l being log-probabilities.

    With `forbidden` values the table is that of more values than are allowed: its rows then sum
    to less than 1.
    """

    def __init__(self, n_sites, n_values, forbidden=0, spread=1.5, device="cpu"):
        random = np.random.default_rng(11)
        logits = spread * random.normal(size=(n_values + forbidden, n_values + forbidden))
        table = torch.from_numpy(logits).log_softmax(dim=1)[:n_values, :n_values]
        self.table = table.float().to(device)
        self.n_sites, self.n_values, self.predicted_from = n_sites, n_values, 1

    def output(self, x):
        return -self.table[x[:, :-1], x[:, 1:]].mean(dim=1)

    def conditional_logits(self, x):
        rows = self.table[x[:, :-1]]
        return self.output(x), torch.cat([torch.zeros_like(rows[:, :1]), rows], dim=1)

    def render(self, x):
        return ["-".join(map(str, row)) for row in x.tolist()]

    def all_inputs(self):
        return torch.tensor(list(itertools.product(range(self.n_values), repeat=self.n_sites)))

    def exact_distribution(self, beta):
        """Return exp(-beta z) over all inputs, normalized."""
        log_p = -beta * self.output(self.all_inputs()).double()
        return (log_p - log_p.logsumexp(0)).exp().numpy()

    def exact_log_g(self, edges):
        """Return ln of the number of inputs in each bin."""
        z = self.output(self.all_inputs()).double().numpy()
        with np.errstate(divide="ignore"):
            return np.log(np.histogram(z, edges)[0])


def markov(device, n_sites=6, n_values=5, forbidden=0):
    return MarkovModel(n_sites, n_values, forbidden, device=device)


def weights(device, n_sites=6, n_values=5, rank=None):
    """Return the same with rows of log-weights that do not add up to 1, but after a 0.

    With `rank`, on that rank alone.
    """
    model = MarkovModel(n_sites, n_values, device=device)
    if rank is None or MPI.COMM_WORLD.Get_rank() == rank:
        model.table += torch.linspace(0.0, 1.0, n_values, device=device)[:, None]
    return model


class NotAFunctionModel(MarkovModel):
    """z about 10 that is no function of the input: `size` times what `kind` says is added.

    "noise" is normal, "row" is the input's row in the batch, "batch" the mean over the batch; `z`
    stays as it is for the first `quiet` evaluations.
    """

    def __init__(self, n_sites, n_values, size, kind, quiet, device):
        super().__init__(n_sites, n_values, device=device)
        self.size, self.kind, self.quiet = size, kind, quiet
        self.random = torch.Generator(device).manual_seed(3)

    def _added(self, z):
        self.quiet -= 1
        if self.quiet >= 0:
            return torch.zeros_like(z)
        if self.kind == "row":
            return self.size * torch.arange(len(z), device=z.device)
        if self.kind == "batch":
            return self.size * z.mean().expand(len(z))
        return self.size * torch.randn(len(z), generator=self.random, device=z.device)

    def output(self, x):
        z = super().output(x) + 8.0
        return z + self._added(z)

    def conditional_logits(self, x):
        z = self.output(x)
        rows = self.table[x[:, :-1]] - 8.0 - (z - super().output(x) - 8.0)[:, None, None]
        return z, torch.cat([torch.zeros_like(rows[:, :1]), rows], dim=1)

    def output_and_gradient(self, x):
        one_hot = torch.zeros((*x.shape, self.n_values), device=x.device)
        return self.output(x), one_hot.scatter_(2, x[:, :, None], 0.0)


def no_function(device, size, kind="noise", quiet=0, n_sites=6, n_values=5):
    return NotAFunctionModel(n_sites, n_values, size, kind, quiet, device)
