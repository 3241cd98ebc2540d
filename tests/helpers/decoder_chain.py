"""A language model without a language: a Markov chain whose density is exact for any length.

Each token costs what the table says for it after the token before; costs are whole multiples of a
unit, so that the number of inputs per total cost follows by adding up over tokens (dynamic
programming), and z, the mean cost of a predicted token, lies on a lattice. As in a language model,
the tempered conditionals p(token | before)^b / sum have sums of their own after every token: the
probability of an ancestral draw is no function of z, and far from b = 1 few draws carry most of the
weight.
"""

from __future__ import annotations

import numpy as np
from lattice import ArrayRun


class DecoderChain:
    """D tokens of V values.

    Parameters
    ----------
    seed : of the table
    sharpness, spread : of the tokens' logits: normal ones times sharpness exp(spread normal), a
        factor for each token before
    """

    def __init__(
        self, seed, n_sites=24, n_values=8, sharpness=1.0, spread=0.7, unit=0.05, n_bins=60
    ):
        rng = np.random.default_rng(seed)
        self.seed, self.n_sites, self.n_values = seed, n_sites, n_values
        scale = sharpness * np.exp(spread * rng.normal(size=(n_values, 1)))
        table = scale * rng.normal(size=(n_values, n_values))
        table -= np.logaddexp.reduce(table, axis=1, keepdims=True)
        self.cost = np.rint(-table / unit).astype(int)
        self.cost -= self.cost.min()
        self.unit = unit
        self.count_l = self._count()
        self.z_l = np.arange(len(self.count_l)) * unit / (n_sites - 1)
        levels = np.flatnonzero(self.count_l)
        share_l = np.cumsum(self.count_l) / self.count_l.sum()
        last = int(np.searchsorted(share_l, 1.0 - 1e-4))
        self.width = max(1, round((last - levels[0]) / n_bins))
        place = levels[0] - 0.5 + self.width * np.arange(n_bins + 1)
        self.edges = place * unit / (n_sites - 1)
        bin_l = (np.arange(len(self.count_l)) - levels[0]) // self.width
        inside = (bin_l >= 0) & (bin_l < n_bins)
        with np.errstate(divide="ignore"):
            self.log_g_b = np.log(np.bincount(bin_l[inside], self.count_l[inside], n_bins))

    def _count(self):
        """Return the inputs per total cost."""
        n_levels = self.cost.max() * (self.n_sites - 1) + 1
        count_vl = np.zeros((self.n_values, n_levels))
        count_vl[:, 0] = 1.0
        for _ in range(1, self.n_sites):
            after_vl = np.zeros_like(count_vl)
            for before, token in np.ndindex(self.cost.shape):
                c = self.cost[before, token]
                after_vl[token, c:] += count_vl[before, : n_levels - c]
            count_vl = after_vl
        return count_vl.sum(axis=0)

    def log_p(self, betas):
        """Return the log-probabilities of tempered conditionals [K, V, V]; b of the loss's sum."""
        log_w = -np.asarray(betas, float)[:, None, None] * self.cost * self.unit
        return log_w - np.logaddexp.reduce(log_w, axis=2, keepdims=True)

    def ancestral_run(self, betas, seed, *, rounds=8, walkers=16, moves=5):
        """Return a run of direct draws, first token uniform, the others from the conditionals."""
        rng = np.random.default_rng([self.seed, seed])
        log_p = self.log_p(betas)
        size = (rounds, walkers * moves)
        x = np.empty((rounds, len(betas), size[1], self.n_sites), np.uint8)
        level = np.zeros(x.shape[:3], int)
        log_q = np.full((*x.shape[:3], len(betas)), -np.log(self.n_values))
        for k, upto in enumerate(np.cumsum(np.exp(log_p), axis=2)[:, :, :-1]):
            token = rng.integers(self.n_values, size=size)
            x[:, k, :, 0] = token
            for d in range(1, self.n_sites):
                after = (rng.random(size)[..., None] >= upto[token]).sum(axis=-1)
                level[:, k] += self.cost[token, after]
                log_q[:, k] += np.moveaxis(log_p[:, token, after], 0, -1)
                token = x[:, k, :, d] = after
        return self._run(x, level, walkers, betas, log_q)

    def chain_run(self, betas, seed, *, rounds=8, walkers=16, moves=5):
        """Return a run of canonical rungs, every move independent of the last: exact in z alone."""
        rng = np.random.default_rng([self.seed, seed, 1])
        beta_k = np.asarray(betas, float) * (self.n_sites - 1)
        with np.errstate(divide="ignore"):
            log_p_kl = np.log(self.count_l) - np.outer(beta_k, self.z_l)
        p_kl = np.exp(log_p_kl - np.logaddexp.reduce(log_p_kl, axis=1, keepdims=True))
        size = (rounds, walkers * moves)
        level = np.stack([rng.choice(len(p), size, p=p / p.sum()) for p in p_kl], axis=1)
        x = np.zeros((*level.shape, self.n_sites), np.uint8)
        return self._run(x, level, walkers, betas, None)

    def _run(self, x, level, walkers, betas, log_q):
        z = (level * self.unit / (self.n_sites - 1)).astype(np.float32)
        beta_k = np.asarray(betas, float) * (self.n_sites - 1)
        run = ArrayRun(x, z, walkers, beta_k, self.edges, self.n_values)
        run.log_q = log_q
        return run
