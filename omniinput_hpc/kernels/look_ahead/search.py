"""The search in burn-in for texts of which a language model is certain, such as memorized ones.

A memorized text is rarely begun and then nearly certain, and it may begin at any site. Many texts
with rare steps are therefore drawn, and the few values before their sharpest rows are tried as
beginnings. Hot texts make rare steps as likely as others. Cold texts sometimes restart from a
uniform value; they find runs of steps that are rare and yet the likeliest of their rows. A beam
search (`look_ahead.beginnings`) finds such steps without repeating the common ones.
"""

from __future__ import annotations

from math import ceil

import numpy as np
import torch
from numpy.typing import NDArray

from omniinput_hpc.config.kernels import CONTEXT_LENGTH
from omniinput_hpc.kernels.look_ahead.beginnings import Beginnings
from omniinput_hpc.kernels.look_ahead.continuations import (
    NOTHING,
    SEED_GAIN,
    Continuations,
    Texts,
    contexts_of,
)
from omniinput_hpc.kernels.look_ahead.exploration import N_BATCHES, N_KINDS, Explorer
from omniinput_hpc.kernels.parts.tempered_rows import draw_scaled, log_sums
from omniinput_hpc.kernels.state import SearchBudget

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]

HOT, COLD, BEGUN = 0.5, 0.25, 1.0
"""Multiples of the budget for hot texts, cold texts and the beam search (`beginnings`)."""
RESTART = 0.25
"""Probability that a cold text starts again at a site, from a uniform value."""
COLDEST = 4.0
"""Largest exponent of cold texts, in units of b."""
N_CANDIDATES = 4
"""Number of batches of contexts that are tried as beginnings, with each length."""
MAX_BATCH, MAX_ELEMENTS = 256, 1 << 22
"""Largest n and n D V of n > W texts drawn at once: for a small model they cost no more than W."""
MIN_LENGTH = 2
"""Shortest length of contexts that are tried as beginnings; every first value is tried anyway."""


class Search(Explorer):
    """Draws texts from a model at exponent b, given known continuations (see `Explorer`)."""

    def found(self, known: Continuations | None, budget: SearchBudget) -> Texts:
        """Return as many texts as `Explorer.texts`, or the budget's share of them, after a search.

        Texts of the second half of the kinds begin with the end of a context whose gain is known to
        be large, or with one of the contexts after which the model was most certain.
        """
        surest = self.surest_contexts(known, budget)
        ends = np.zeros((0, CONTEXT_LENGTH), dtype=np.int64)
        if known is not None:
            ends = known.seeds(self.like.shape[1])
        if not len(surest):  # these texts then begin like the first half of the kinds
            surest = np.full((1, CONTEXT_LENGTH), NOTHING)
        device = self.like.device
        ends = ends if len(ends) else surest
        n = max(ceil(budget.share * N_BATCHES), ceil(N_KINDS / len(self.like)))
        return self._extended(
            torch.from_numpy(ends).to(device), torch.from_numpy(surest).to(device), n
        )

    def surest_contexts(self, known: Continuations | None, budget: SearchBudget) -> IntArray:
        """Return contexts after which rows stay sharpest, the best first, [n, CONTEXT_LENGTH].

        Contexts whose gain is known to be large are left out. Each context is cut to its shortest
        ending that does about as well; the values before are `NOTHING`.
        """
        contexts = self._candidates(known, budget)
        if not len(contexts):
            return contexts
        lengths = range(MIN_LENGTH, CONTEXT_LENGTH + 1)
        column = np.arange(CONTEXT_LENGTH)
        tries = [
            np.where(column < CONTEXT_LENGTH - length, NOTHING, contexts) for length in lengths
        ]
        sure_ln = self._sureness(np.concatenate(tries)).reshape(len(lengths), -1)
        shortest = np.argmax(sure_ln >= sure_ln.max(axis=0) - 1.0, axis=0)
        chosen = np.stack(tries)[shortest, np.arange(len(contexts))]
        order = np.argsort(-sure_ln.max(axis=0), kind="stable")
        chosen = chosen[order]
        _, first = np.unique(chosen, axis=0, return_index=True)
        return np.asarray(chosen[np.sort(first)][: ceil(budget.share * len(self.like))])

    def _candidates(self, known: Continuations | None, budget: SearchBudget) -> IntArray:
        """Return the contexts before the sharpest rows, of drawn texts and of likely beginnings.

        There are at most `N_CANDIDATES` times W of each, times the budget's share.
        """
        room, n_sites = ceil(budget.share * N_CANDIDATES * len(self.like)), self.like.shape[1]
        drawn = _Sharpest(known, room, n_sites)
        n_hot, n_cold, n_begun = (ceil(share * budget.n_batches) for share in (HOT, COLD, BEGUN))
        for batch in range(n_hot + n_cold):
            if batch < n_hot:
                x, log_z = self._texts(batch, n_hot, cold=False)
            else:
                x, log_z = self._texts(batch - n_hot, n_cold, cold=True)
            drawn.add(contexts_of(x).reshape(-1, CONTEXT_LENGTH), log_z[:, 1:].ravel())
        if not len(budget.first_values):
            return drawn.contexts
        begun = _Sharpest(known, room, n_sites)
        beginnings = Beginnings(
            self.begin, self.like, self.n_values, self.first, self.b, self.stream
        )
        begun.add(*beginnings.met(budget.first_values, n_begun * self.like.numel()))
        return np.unique(np.concatenate([drawn.contexts, begun.contexts]), axis=0)

    def _texts(self, batch: int, n_batches: int, cold: bool) -> tuple[IntArray, FloatArray]:
        """Return W texts, hot or cold with random exponents, and ln Z at b, float64 [W, D]."""
        x = torch.zeros_like(self.like)
        n_walkers, n_sites = x.shape
        number = torch.arange(n_walkers, device=x.device) + batch * n_walkers
        log_z = torch.zeros(x.shape, dtype=torch.float64, device=x.device)
        u = self.stream.uniform(n_walkers)
        exponent = self.b * (1.0 + (COLDEST - 1.0) * u if cold else u**2)
        own = torch.full_like(exponent, self.b)
        for t, u, row in self.sites(x, n_sites):
            if row is None:
                x[:, t] = self._first_value(t, number, n_batches, u)
            else:
                here = exponent
                if cold:
                    here = exponent.masked_fill(self.stream.uniform(n_walkers) < RESTART, 0.0)
                x[:, t], _ = draw_scaled(row, here, u)
                log_z[:, t] = log_sums(row, own)
        return x.cpu().numpy(), log_z.cpu().numpy()

    def _sureness(self, contexts: IntArray) -> FloatArray:
        """Return the sum of ln Z at b over the next sites, drawn cold, after each context, [n]."""
        n_walkers, n_sites = self.like.shape
        sums = []
        for begin in range(0, len(contexts), n_walkers):
            some = np.resize(contexts[begin : begin + n_walkers], (n_walkers, CONTEXT_LENGTH))
            begun, begins = _aligned(torch.from_numpy(some).to(self.like.device))
            x = torch.zeros_like(self.like)
            total = torch.zeros(n_walkers, dtype=torch.float64, device=x.device)
            own = torch.full_like(total, self.b)
            for t, u, row in self.sites(x, min(2 * CONTEXT_LENGTH, n_sites)):
                if row is not None:
                    x[:, t], _ = draw_scaled(row, 2.0 * own, u)
                    counts = (t >= begun) & (t < begun + CONTEXT_LENGTH)
                    total += torch.where(counts, log_sums(row, own), 0.0)
                if t < CONTEXT_LENGTH:
                    x[:, t] = torch.where(t < begun, begins[:, t], x[:, t])
            sums.append(total.cpu().numpy()[: len(contexts) - begin])
        return np.concatenate(sums)

    def _begins(
        self, kind: torch.Tensor, seeds: torch.Tensor, surest: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return how many given values texts begin with, [W], and these, [W, CONTEXT_LENGTH]."""
        u_3w = self.stream.uniform(3, len(kind))
        column = torch.arange(CONTEXT_LENGTH, device=kind.device)
        length = 1 + (CONTEXT_LENGTH * u_3w[0]).long()
        of_seed = seeds[(u_3w[1] * len(seeds)).long()]
        ends = of_seed.masked_fill(column < CONTEXT_LENGTH - length[:, None], NOTHING)
        of_surest = surest[(u_3w[2] * len(surest)).long()]
        contexts = torch.where((kind >= 3 * N_KINDS // 4)[:, None], of_surest, ends)
        contexts[kind < N_KINDS // 2] = NOTHING
        return _aligned(contexts)


class _Sharpest:
    """The contexts before the sharpest rows, the best first, without those of known large gain.

    Attributes
    ----------
    contexts : int64 [n, CONTEXT_LENGTH], all different, at most `room`
    """

    def __init__(self, known: Continuations | None, room: int, n_sites: int) -> None:
        self.contexts = np.zeros((0, CONTEXT_LENGTH), dtype=np.int64)
        self._sure, self._room = np.zeros(0), room
        self._known = known
        self._gain_c = None if known is None else known.gains(n_sites).max(axis=0)

    def add(self, contexts: IntArray, sure: FloatArray) -> None:
        """Add contexts [n, CONTEXT_LENGTH] with ln Z after each [n], and keep the best."""
        keep = contexts[:, -MIN_LENGTH] != NOTHING
        if len(self._sure) == self._room:
            keep[keep] = sure[keep] >= self._sure.min()
        contexts, sure = contexts[keep], sure[keep]
        if self._known is not None and self._gain_c is not None and len(contexts):
            at = self._known.index_of(contexts)
            new = (at < 0) | (self._gain_c[at] < SEED_GAIN)
            contexts, sure = contexts[new], sure[new]
        contexts = np.concatenate([self.contexts, contexts])
        contexts, first = np.unique(contexts, axis=0, return_index=True)
        sure = np.concatenate([self._sure, sure])[first]
        order = np.argsort(-sure, kind="stable")[: self._room]
        self.contexts, self._sure = contexts[order], sure[order]


def _aligned(contexts: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the lengths of contexts, int64 [n], and their values, left-aligned, [n, 4]."""
    length = (contexts != NOTHING).sum(dim=1)
    column = torch.arange(CONTEXT_LENGTH, device=contexts.device)
    at = (column - length[:, None]) % CONTEXT_LENGTH
    return length, contexts.gather(1, at).clamp(min=0)


def batch_size(n_walkers: int, n_sites: int, n_values: int) -> int:
    """Return how many texts a search draws at once: W, or more if D V is small."""
    n = min(MAX_BATCH, MAX_ELEMENTS // (n_sites * n_values))
    return n if n >= 2 * n_walkers else n_walkers


def likeliest(texts: Texts, n: int) -> IntArray:
    """Return the n likeliest texts with different beginnings, int64 [n, D], repeated if too few."""
    order = np.argsort(-texts.log_p.sum(axis=1), kind="stable")
    _, first = np.unique(texts.x[order, :CONTEXT_LENGTH], axis=0, return_index=True)
    best = order[np.sort(first)]
    return np.asarray(texts.x[np.resize(best[:n], n)])
