"""Laws of inputs and outputs under them whose distributions are known exactly."""

from __future__ import annotations

import numpy as np
import torch
from toy_models import AutoregressiveModel, ToyKVCache


class ChainLaw:
    """A Markov chain over values: a law whose first site is drawn from its first row.

    Values 0 and 1 are rare: about one in a hundred.
    """

    predicted_from = 0

    def __init__(self, n_values=20, n_sites=24, seed=3, device="cpu"):
        random = np.random.default_rng(seed)
        p = random.dirichlet(np.ones(n_values - 2), size=n_values + 1)
        rare = 10.0 ** random.uniform(-3, -2, size=(n_values + 1, 2))
        self.p = np.hstack([rare, p * (1 - rare.sum(axis=1, keepdims=True))])  # [V + 1, V]
        self.n_values, self.n_sites = n_values, n_sites
        self._log_p = torch.tensor(np.log(self.p), dtype=torch.float32, device=device)

    def conditional_logits(self, x):
        before = torch.nn.functional.pad(x[:, :-1], (1, 0), value=self.n_values)
        rows = self._log_p[before]  # [W, D, V]
        return -rows.gather(2, x[:, :, None])[:, :, 0].mean(dim=1), rows

    def output(self, x):
        return self.conditional_logits(x)[0]


class Events:
    """z = -(number of sites with a value below `below`)."""

    def __init__(self, n_values=20, n_sites=24, below=2, device="cpu"):
        self.n_values, self.n_sites, self.below = n_values, n_sites, below

    def output(self, x):
        return -(x < self.below).sum(dim=1).float()


def log_p_of_counts(law):
    """Return ln P(k events), float64 [D + 1], by dynamic programming over (last value, count)."""
    p, n = law.p, law.n_sites
    at = np.zeros((law.n_values, n + 1))
    at[:2, 1], at[2:, 0] = p[-1, :2], p[-1, 2:]
    for _ in range(n - 1):
        moved = p[:-1].T @ at  # [V, D + 1], by the new value
        at = moved
        at[:2] = np.roll(moved[:2], 1, axis=1)
    return np.log(at.sum(axis=0))


def chain(device="cpu", **options):
    return ChainLaw(device=device, **options)


def events(device="cpu", **options):
    return Events(device=device, **options)


class NormalizedRows(AutoregressiveModel):
    """Conditionals that depend on the whole prefix, in normalized rows; float64."""

    def rows(self, one_hot):
        return super().rows(one_hot).log_softmax(dim=2)


class NormalizedRowsOnKvCache(NormalizedRows):
    """The same with a KV cache, as a language model has it."""

    def kv_cache(self, n_walkers):
        if getattr(self, "_kv_cache", None) is None or self._kv_cache.n_walkers != n_walkers:
            self._kv_cache = ToyKVCache(self, n_walkers)  # one for all kernels
        return self._kv_cache


class Under:
    """A model under a law, as `CheckedModel` hands both to kernels."""

    def __init__(self, model, law):
        self._model, self.law = model, law

    def __getattr__(self, name):
        return getattr(self._model, name)
