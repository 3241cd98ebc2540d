"""Variants of `zoo.exact`'s Markov chain: other rows, draws, outputs that are no function."""

from __future__ import annotations

from functools import cache

import torch
from mpi4py import MPI
from numba import njit

from omniinput_hpc.models.compiled_change import as_change
from omniinput_hpc.models.protocol import Draws
from omniinput_zoo.exact import MarkovChain as MarkovModel
from omniinput_zoo.exact import markov

__all__ = [
    "DrawnModel", "MarkovModel", "NotAFunctionModel", "compiled", "drawn_together", "markov",
    "no_function", "weights",
]  # fmt: skip


def weights(device, n_sites=6, n_values=5, rank=None):
    """Return the same with rows of log-weights that do not add up to 1, but after a 0.

    With `rank`, on that rank alone.
    """
    model = MarkovModel(n_sites, n_values, device=device)
    if rank is None or MPI.COMM_WORLD.Get_rank() == rank:
        model.table += torch.linspace(0.0, 1.0, n_values, device=device)[:, None]
    return model


@cache
def compiled(device, n_sites=6, n_values=5, forbidden=0):
    """Return the model with a change of one input that numba compiles."""
    model = MarkovModel(n_sites, n_values, forbidden, device=device)
    table = model.table.double().numpy()

    @njit
    def compiled_change(x, site, value):
        dz = 0.0
        if site > 0:
            dz += table[x[site - 1], x[site]] - table[x[site - 1], value]
        if site + 1 < n_sites:
            dz += table[x[site], x[site + 1]] - table[value, x[site + 1]]
        return dz / (n_sites - 1)

    model.compiled_change, model.change = compiled_change, as_change(compiled_change)
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


class Rows:
    """What a KV cache is of a chain, for draws: the last value of each of n inputs."""

    def __init__(self, table, n):
        self.n_walkers, self._table, self._last = n, table, None

    def begin_anew(self):
        self._last = None

    def extend(self, values):
        self._last = values

    def row(self):
        return self._table[self._last]


class DrawnModel(MarkovModel):
    """The same, drawn from by a KV cache, up to `together` inputs at once."""

    def __init__(self, n_sites, n_values, forbidden=0, together=0, device="cpu"):
        super().__init__(n_sites, n_values, forbidden, device=device)
        self.draws = Draws(lambda n: Rows(self.table, n), together)


def drawn_together(device, n_sites=6, n_values=5, together=24):
    """Return a model of which some segments' draws are made at once."""
    return DrawnModel(n_sites, n_values, together=together, device=device)
