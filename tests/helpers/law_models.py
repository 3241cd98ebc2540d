"""Laws of inputs and outputs under them whose distributions are known exactly."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import torch
from toy_models import AutoregressiveModel, ToyKVCache

N_RARE = 6
N_RARE_OF_FEW = 2


class ChainLaw:
    """A Markov chain over values: a law whose first site is drawn from its last row.

    `rare` is the range of the probabilities that a value is rare, below `N_RARE`.
    """

    predicted_from = 0

    def __init__(
        self, n_values=20, n_sites=40, rare=(0.05, 0.12), seed=3, device="cpu", n_rare=N_RARE
    ):
        random = np.random.default_rng(seed)
        p = random.dirichlet(np.ones(n_values - n_rare), size=n_values + 1)
        of_each = random.dirichlet(np.full(n_rare, 2.0), size=n_values + 1)
        events = random.uniform(*rare, size=(n_values + 1, 1)) * of_each
        self.p = np.hstack([events, p * (1 - events.sum(axis=1, keepdims=True))])  # [V + 1, V]
        self.n_values, self.n_sites = n_values, n_sites
        self._log_p = torch.tensor(np.log(self.p), dtype=torch.float32, device=device)

    def conditional_logits(self, x):
        before = torch.nn.functional.pad(x[:, :-1], (1, 0), value=self.n_values)
        rows = self._log_p[before]  # [W, D, V]
        return -rows.gather(2, x[:, :, None])[:, :, 0].mean(dim=1), rows

    def output(self, x):
        return self.conditional_logits(x)[0]


class ChainOnLastValues(ChainLaw):
    """The same chain, drawn from its last values alone: a hundred times fewer rows."""

    def begin(self, x):
        return self._after(x[:, -1] if x.shape[1] else x.new_full((len(x),), self.n_values))

    def extend(self, prefixes, values):
        return self._after(values)

    def _after(self, last):
        return SimpleNamespace(log_p=self._log_p[last])

    def kv_cache(self, n_walkers):
        return ChainCache(self, n_walkers)


class ChainCache(ToyKVCache):
    """What a KV cache is of a chain: the row of a site follows from the value before it."""

    def row(self):
        return self._rows_of(self.new, self.t)

    def rows_after(self, values):
        begin, end = self.t, self.t + values.shape[1]
        self.new[:, begin:end] = values
        self.t = end
        yield torch.stack([self._rows_of(self.new, t) for t in range(begin + 1, end + 1)])

    def current_rows(self, begin, end):
        yield torch.stack([self._rows_of(self.kept, t) for t in range(begin, end)])

    def _rows_of(self, x, t):
        last = x[:, t - 1] if t else x.new_full((len(x),), self.model.n_values)
        return self.model._log_p[last]


class Events:
    """z = -(number of sites with a value below `below`; by default, with a rare one)."""

    def __init__(self, n_values=20, n_sites=40, below=N_RARE, device="cpu"):
        self.n_values, self.n_sites, self.below = n_values, n_sites, below

    def output(self, x):
        return -(x < self.below).sum(dim=1).float()


def log_p_of_counts(law):
    """Return ln P(k events), float64 [D + 1], by dynamic programming over (last value, count)."""
    p, n = law.p, law.n_sites
    at = np.zeros((law.n_values, n + 1))
    at[:N_RARE, 1], at[N_RARE:, 0] = p[-1, :N_RARE], p[-1, N_RARE:]
    for _ in range(n - 1):
        at = p[:-1].T @ at  # [V, D + 1], by the new value
        at[:N_RARE] = np.roll(at[:N_RARE], 1, axis=1)
    return np.log(at.sum(axis=0))


def chain(device="cpu", **options):
    return ChainLaw(device=device, **options)


def quick_chain(device="cpu", **options):
    return ChainOnLastValues(device=device, **options)


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


class FewerTokens(NormalizedRows):
    """Rows of some of a model's tokens: their sums depend on the value before."""

    whole_rows = False

    def rows(self, one_hot):
        missing = torch.linspace(0.0, -2.0, self.n_values, dtype=one_hot.dtype)
        before = torch.nn.functional.pad(one_hot[:, :-1], (0, 0, 1, 0))
        return super().rows(one_hot) + (before @ missing)[..., None]


class FewerTokensOnKvCache(FewerTokens, NormalizedRowsOnKvCache):
    """The same with a KV cache."""


class Under:
    """A model under a law, as `CheckedModel` hands both to kernels."""

    def __init__(self, model, law):
        self._model, self.law = model, law

    def __getattr__(self, name):
        return getattr(self._model, name)


class Watched(Under):
    """Shows the proposals, also those that are never accepted."""

    def output(self, x):
        self.proposed = x
        return self._model.output(x)

    def output_and_gradient(self, x):
        self.proposed = x
        return self._model.output_and_gradient(x)


def leaky(device="cpu"):
    """Return a model whose rows sum to 0.9."""
    model = ChainLaw(5, 6, rare=(0.05, 0.1), device=device, n_rare=2)
    model._log_p += float(np.log(0.9))
    return model


class Seldom(ChainLaw):
    """The chain, whose last row is NaN, or sums to 0.5, after two rare values."""

    def __init__(self, wrong, device):
        super().__init__(5, 6, rare=(0.05, 0.1), device=device, n_rare=2)
        self._wrong = {"nan": np.nan, "half": np.log(0.5)}[wrong]

    def conditional_logits(self, x):
        rows = super().conditional_logits(x)[1]
        seldom = (x[:, -3:-1] < N_RARE_OF_FEW).all(dim=1)
        rows[seldom, -1] += self._wrong
        return -rows.gather(2, x[:, :, None])[:, :, 0].mean(dim=1), rows


def seldom(device="cpu", wrong="nan"):
    return Seldom(wrong, device)


def one_gradient(device="cpu", kept=False):
    """Return independent sites, whose gradient is one tensor, kept by the model or expanded."""
    log_p = torch.log_softmax(torch.arange(15.0).view(3, 5).sin(), dim=1)
    model = IndependentSites(log_p.to(device))
    g = (-log_p / 3).to(device)
    kept_g = g.repeat(64, 1, 1)
    model.output_and_gradient = lambda x: (
        model.output(x), kept_g[: len(x)] if kept else g[None].expand(len(x), -1, -1),
    )  # fmt: skip
    return model


def sorting(device="cpu"):
    """Return a model that sorts the inputs that it is given."""
    model = ChainLaw(5, 6, rare=(0.05, 0.1), device=device, n_rare=2)
    model.output = lambda x: ChainLaw.output(model, x.copy_(x.sort(1).values))
    return model


class Letters:
    """z = the number of "ab" in a text of letters, plus a quarter of that of "c"."""

    tokens = ("a", "b", "c", "d")
    n_values = 4

    def __init__(self, n_sites):
        self.n_sites = n_sites

    def output(self, x):
        pairs = (x[:, :-1] == 0) & (x[:, 1:] == 1)
        return pairs.sum(dim=1).float() + 0.25 * (x == 2).sum(dim=1).float()


def letters(device="cpu", n_sites=8, tokens=Letters.tokens):
    model = Letters(n_sites)
    model.tokens = tokens
    return model


def counts_of_letters(automaton):
    """Return the number of inputs of each z, as a dict, by dynamic programming over the sites."""
    at = {(0, None, 0.0): 1}  # by state, last value, z
    for i in range(automaton.n_sites):
        after = {}
        for (state, last, z), n in at.items():
            for v in range(automaton.next_qv.shape[1]):
                if automaton.allowed_iv is None or automaton.allowed_iv[i, v]:
                    more = (last == 0 and v == 1) + 0.25 * (v == 2)
                    key = (int(automaton.next_qv[state, v]), v, z + more)
                    after[key] = after.get(key, 0) + n
        at = after
    found = {}
    for (state, _, z), n in at.items():
        if automaton.accepting_q[state]:
            found[z] = found.get(z, 0) + n
    return found


class IndependentSites:
    """A law of independent sites: the rows of a file of ln p, float32 [D, V], perhaps -inf."""

    predicted_from = 0

    def __init__(self, log_p):
        self.n_sites, self.n_values = log_p.shape
        self._log_p = log_p

    def conditional_logits(self, x):
        sites = torch.arange(self.n_sites, device=x.device)
        rows = self._log_p.expand(len(x), -1, -1)  # [W, D, V]
        return -self._log_p[sites, x].mean(dim=1), rows

    def output(self, x):
        return self.conditional_logits(x)[0]


def independent(file, device="cpu"):
    return IndependentSites(torch.from_numpy(np.load(file)).to(device))
