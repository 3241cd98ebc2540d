"""Variants of `zoo.exact`'s Markov chain: unnormalized rows, and outputs that are no function."""

from __future__ import annotations

import torch
from mpi4py import MPI

from omniinput_hpc.zoo.exact import MarkovChain as MarkovModel
from omniinput_hpc.zoo.exact import markov

__all__ = ["MarkovModel", "NotAFunctionModel", "markov", "no_function", "weights"]


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
