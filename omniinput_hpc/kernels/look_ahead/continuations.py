"""Statistics of a language model's continuations, learned in burn-in, and estimated log-sums.

At exponent b, the continuations of a prefix have the log-weight V: ln of the sum over all of them
of prod p^b. V is estimated from the last values of the prefix only, by backward sums over the
continuations that were seen in texts. Unseen continuations count as ordinary text, in which each
further site has the log-sum `growth`. The *gain* of a context is its V minus that of ordinary text.

A context is the last `CONTEXT_LENGTH` values of a prefix, or all of a shorter one. If the last
values of a prefix are not a known context, the prefix is treated as if it began later: the longest
ending that is a known context stands for it, if there is any.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from omniinput_hpc.config.kernels import CONTEXT_LENGTH, MAX_CONTEXTS, MAX_CONTINUATIONS

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

HEAD = 4
N_COLUMNS = CONTEXT_LENGTH + 3
NOTHING = -1
"""Stands for the values before the first one of an input."""
MULTIPLIER = 6364136223846793005
"""Multiplier of the hash of a context (Knuth's), modulo 2^64."""
MIN_GAIN = 0.3
"""Nats by which the gain of a context must differ from that of its longest shorter ending."""
SEED_GAIN = 1.0
"""Smallest gain of contexts whose endings are tried as beginnings of texts."""
MAX_COUNT = 100.0
"""Largest weight of the observations of earlier rounds, in occurrences."""
MIN_COUNT = 8.0
"""Occurrences from which on the gain of a context may be below that of its shorter endings."""
MEMORY = 4
"""Number of sites over which the log-sums of ordinary text are assumed to be correlated."""
N_PASSES = 3
MIN_REST = 1e-6
"""Smallest share of unseen continuations; rounding must not make it negative."""


@dataclass(frozen=True)
class Texts:
    """Inputs and their conditionals at one exponent.

    Attributes
    ----------
    x : int64 [N, D]
    log_p : float64 [N, D], l[t, x_t]; 0 at sites that are not predicted
    log_z : float64 [N, D], ln of the sum over v of exp(b l[t, v])
    tempered : bool [N], whether the text was drawn token by token from exp(b l) / Z
    """

    x: IntArray
    log_p: FloatArray
    log_z: FloatArray
    tempered: NDArray[np.bool_]

    def with_others(self, others: Texts) -> Texts:
        """Return these texts followed by others."""
        return Texts(
            np.concatenate([self.x, others.x]),
            np.concatenate([self.log_p, others.log_p]),
            np.concatenate([self.log_z, others.log_z]),
            np.concatenate([self.tempered, others.tempered]),
        )

    def rows(self) -> FloatArray:
        """Return all attributes as numbers, a row per text, float64 [N, 3 D + 1]."""
        return np.column_stack([self.x, self.log_p, self.log_z, self.tempered])


def texts_of(rows: FloatArray) -> Texts:
    """Return the texts of `Texts.rows`."""
    x, log_p, log_z = np.split(rows[:, :-1], 3, axis=1)
    return Texts(x.astype(np.int64), log_p, log_z, rows[:, -1] > 0)


def keys_of(values: IntArray) -> IntArray:
    """Return a hash of each context, int64 [...], given its values [..., CONTEXT_LENGTH]."""
    key = np.zeros(values.shape[:-1], dtype=np.int64)
    with np.errstate(over="ignore"):
        for column in np.moveaxis(values, -1, 0):
            key = key * np.int64(MULTIPLIER) + column + 2
    return key


def contexts_of(x: IntArray) -> IntArray:
    """Return the context before each site except the first, [N, D - 1, CONTEXT_LENGTH]."""
    before = np.full((len(x), CONTEXT_LENGTH - 1), NOTHING)
    padded = np.concatenate([before, x[:, :-1]], axis=1)
    return np.lib.stride_tricks.sliding_window_view(padded, CONTEXT_LENGTH, axis=1)


@dataclass(frozen=True)
class Continuations:
    """Contexts, sorted by their keys, and the values that were seen to follow them.

    Attributes
    ----------
    b : exponent
    growth : log-sum of one site of ordinary text
    values : int64 [C, CONTEXT_LENGTH], values of each context; -1 before the first of an input
    log_z : float64 [C], mean of ln of the sum over the next value of p^b
    count : float64 [C], occurrences, `MAX_COUNT` at most
    share : float64 [C], frequency of the value in ordinary text, for contexts of one value; else 0
    context : int64 [T], index of the context of each continuation
    value : int64 [T], the value that follows
    log_p : float64 [T], mean of l at that value
    weight : float64 [T], occurrences
    """

    b: float
    growth: float
    values: IntArray
    log_z: FloatArray
    count: FloatArray
    share: FloatArray
    context: IntArray
    value: IntArray
    log_p: FloatArray
    weight: FloatArray

    @property
    def length(self) -> IntArray:
        """Number of values of each context, int64 [C]."""
        return np.asarray((self.values != NOTHING).sum(axis=1))

    @property
    def after(self) -> IntArray:
        """The contexts that continuations lead to, [T, CONTEXT_LENGTH], kept or not."""
        return np.column_stack([self.values[self.context, 1:], self.value])

    def index_of(self, values: IntArray, shortened: bool = False) -> IntArray:
        """Return the index of each context or of its longest known ending, int64 [...]; -1 if none.

        With `shortened`, only endings shorter than the context itself count.
        """
        keys, values = keys_of(self.values), values.copy()
        found = np.full(values.shape[:-1], -1)
        allowed = np.full(values.shape[:-1], not shortened)
        for drop in range(CONTEXT_LENGTH if len(keys) else 0):
            if drop:
                allowed |= values[..., drop - 1] != NOTHING
                values[..., drop - 1] = NOTHING
            wanted = keys_of(values)
            at = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
            found = np.where((found < 0) & allowed & (keys[at] == wanted), at, found)
        return found

    def gains(self, n_sites: int) -> FloatArray:
        """Return V minus that of ordinary text with 0 to D - 1 sites to come, float64 [D, C]."""
        n = len(self.values)
        gain_nc = np.zeros((n_sites, n))
        to = self.index_of(self.after)
        known = to >= 0
        context, to = self.context[known], to[known]
        p = np.exp(self.b * self.log_p[known])
        z = np.exp(self.log_z)
        rest = np.maximum(z - np.bincount(context, p, n), MIN_REST * z)
        alone = self.length == 1
        # A continuation not seen after a rare context may still occur, so the gain of such a
        # context is at least that of its shorter ending.
        rarely_seen = self._rarely_seen()
        for more in range(1, n_sites):
            ahead = np.exp(gain_nc[more - 1])
            ordinary = 1.0 + float(self.share[alone] @ (ahead[alone] - 1.0))
            ordinary = max(ordinary, MIN_REST)
            total = rest * ordinary + np.bincount(context, p * ahead[to], n)
            gain_nc[more] = np.log(total) - self.growth - np.log(ordinary)
            for some, ending in rarely_seen:
                gain_nc[more, some] = np.maximum(gain_nc[more, some], gain_nc[more, ending])
        return gain_nc

    def _rarely_seen(self) -> list[tuple[IntArray, IntArray]]:
        """Return contexts seen less than `MIN_COUNT` times and their shorter endings, by length."""
        shorter, length = self.index_of(self.values, shortened=True), self.length
        few = (self.count < MIN_COUNT) & (shorter >= 0)
        some_l = [np.flatnonzero(few & (length == n)) for n in range(2, CONTEXT_LENGTH + 1)]
        return [(some, shorter[some]) for some in some_l]

    def seeds(self, n_sites: int) -> IntArray:
        """Return contexts of full length whose gain is large, int64 [n, CONTEXT_LENGTH]."""
        strong = self.gains(n_sites).max(axis=0) >= SEED_GAIN
        seeds: IntArray = self.values[strong & (self.length == CONTEXT_LENGTH)]
        return seeds

    def numbers(self) -> FloatArray:
        """Return all attributes as numbers for the run file, float64 [n_tuned]."""
        c, t = len(self.values), len(self.value)
        contexts, continuations = (
            np.zeros((N_COLUMNS, MAX_CONTEXTS)),
            np.zeros((4, MAX_CONTINUATIONS)),
        )
        contexts[:, :c] = *self.values.T, self.log_z, self.count, self.share
        continuations[:, :t] = self.context, self.value, self.log_p, self.weight
        head = [self.b, self.growth, c, t]
        return np.concatenate([head, contexts.ravel(), continuations.ravel()])


def of_numbers(numbers: FloatArray) -> Continuations | None:
    """Return the continuations that `numbers` hold; None if nothing was learned."""
    b, growth, c, t = numbers[:HEAD]
    if not c:
        return None
    some, rest = np.split(numbers[HEAD:], [N_COLUMNS * MAX_CONTEXTS])
    *values, log_z, count, share = some.reshape(N_COLUMNS, -1)[:, : int(c)]
    context, value, log_p, weight = rest.reshape(4, -1)[:, : int(t)]
    return Continuations(
        float(b), float(growth), np.stack(values, axis=1).astype(np.int64), log_z, count, share,
        context.astype(np.int64), value.astype(np.int64), log_p, weight,
    )  # fmt: skip


def learn(
    old: Continuations | None, texts: Texts, b: float, n_values: int, first: int
) -> Continuations:
    """Return the continuations known after more texts.

    Parameters
    ----------
    old : the continuations known before
    texts : N > 0 inputs, some of them tempered draws if `old` is None. Ordinary text is learned
        only from tempered draws
    b : exponent, not 1
    n_values, first : V, and the first predicted site (0 acts like 1, the first with a context)
    """
    merged = _merge(old, texts, b, n_values, max(first, 1))
    n_sites = texts.x.shape[1]
    if texts.tempered.any():
        merged = _with_ordinary(merged, texts, n_values, first)
    gain_nc = merged.gains(n_sites)
    return _pruned(merged, gain_nc)


def _with_ordinary(merged: Continuations, texts: Texts, n_values: int, first: int) -> Continuations:
    """Return `merged` with growth and shares of ordinary text, from the tempered draws."""
    n_sites = texts.x.shape[1]
    known = merged.index_of(contexts_of(texts.x))
    at = np.pad(known, ((0, 0), (1, 0)), constant_values=-1)  # [N, D]; none at the first site
    # Most sites of tempered draws are ordinary; each pass leaves out those that are not.
    predicted = slice(max(first, 1), None)
    use = np.zeros(texts.x.shape, dtype=bool)
    use[texts.tempered, predicted] = True
    growth, ordinary_c = float(np.median(texts.log_z[use])), np.ones(len(merged.values), dtype=bool)
    for _ in range(N_PASSES):
        use &= ordinary_c[at]
        share = _shares(texts.x[use], merged, n_values)
        merged = replace(merged, growth=growth, share=share)
        ordinary_c = merged.gains(n_sites)[n_sites // 2] < 1.0
        growth = _growth(texts.log_z, use & ordinary_c[at], growth)
    return replace(merged, growth=growth)


def _merge(
    old: Continuations | None, texts: Texts, b: float, n_values: int, first: int
) -> Continuations:
    """Return weighted means over the contexts of the texts and over `old`, without pruning."""
    some = slice(first, None)
    seen = contexts_of(texts.x)[:, first - 1 :].reshape(-1, CONTEXT_LENGTH)
    one_o = np.ones(len(seen))
    of_c = [(seen, texts.log_z[:, some].ravel(), one_o)]
    of_t = [(seen, texts.x[:, some].ravel(), texts.log_p[:, some].ravel(), one_o)]
    if old is not None:
        # This approximates ln Z at the new b: ln Z is 0 at b = 1 and nearly linear in b.
        scaled = old.log_z * (b - 1.0) / (old.b - 1.0)
        of_c.append((old.values, scaled, old.count))
        of_t.append((old.values[old.context], old.value, old.log_p, old.weight))
    values, log_z, count = (np.concatenate(parts) for parts in zip(*of_c, strict=True))
    keys, first_c, log_z, count = _means(keys_of(values), log_z, count)
    context, value, log_p, weight = (np.concatenate(parts) for parts in zip(*of_t, strict=True))
    index = np.searchsorted(keys, keys_of(context))
    pairs, _, log_p, weight = _means(index * n_values + value, log_p, weight)
    values = values[first_c]
    share = np.zeros(len(values))
    if old is not None:
        share[np.searchsorted(keys, keys_of(old.values))] = old.share
    return Continuations(
        b, 0.0 if old is None else old.growth, values, log_z, np.minimum(count, MAX_COUNT),
        share, pairs // n_values, pairs % n_values, log_p,
        np.minimum(weight, MAX_COUNT),
    )  # fmt: skip


def _means(
    key: IntArray, number: FloatArray, weight: FloatArray
) -> tuple[IntArray, IntArray, FloatArray, FloatArray]:
    """Return unique keys, their first indices, weighted means of numbers, sums of weights."""
    keys, first, index = np.unique(key, return_index=True, return_inverse=True)
    total = np.bincount(index, weight).astype(np.float64)
    return keys, first, np.bincount(index, weight * number) / total, total


def _shares(drawn: IntArray, known: Continuations, n_values: int) -> FloatArray:
    """Return the frequencies of values among `drawn` [n], for contexts of one value; else 0."""
    share_v = (np.bincount(drawn, minlength=n_values) + 0.5) / (len(drawn) + 0.5 * n_values)
    return np.where(known.length == 1, share_v[known.values[:, -1]], 0.0)


def _growth(log_z: FloatArray, use: NDArray[np.bool_], before: float) -> float:
    """Return ln of the mean of Z over the sites `use`, [N, D]; `before` if there are none.

    Each Z is weighted by the product of the `MEMORY` Z before it.
    """
    z = np.where(use, log_z, 0.0)
    total, weight = 0.0, 0.0
    for t in range(1, z.shape[1]):
        w = np.exp(z[:, max(0, t - MEMORY) : t].sum(axis=1)) * use[:, t]
        weight += float(w.sum())
        total += float(w @ np.exp(z[:, t]))
    return float(np.log(total / weight)) if weight > 0 else before


def _pruned(known: Continuations, gain_nc: FloatArray) -> Continuations:
    """Keep the contexts with the most informative gains, as many as there is room for."""
    shorter = known.index_of(known.values, shortened=True)
    other_nc = np.where(shorter >= 0, gain_nc[:, shorter], 0.0)
    tells = np.abs(gain_nc - other_nc).max(axis=0)
    room = min(MAX_CONTEXTS, len(tells))
    best = np.argsort(-tells, kind="stable")[:room]
    keep = np.zeros(len(tells), dtype=bool)
    keep[best] = tells[best] >= MIN_GAIN
    # Keep the weightiest continuations of kept contexts that lead to known contexts; leading to a
    # dropped one costs 20 nats.
    index = np.cumsum(keep) - 1
    to = known.index_of(known.after)
    gain = np.where(to >= 0, gain_nc.max(axis=0)[to], 0.0)
    worth = np.where(keep[known.context] & (to >= 0), known.b * known.log_p + gain, -np.inf)
    worth -= np.where(keep[to], 0.0, 20.0)
    chosen = np.argsort(-worth, kind="stable")[:MAX_CONTINUATIONS]
    chosen = np.sort(chosen[worth[chosen] > -np.inf])
    return replace(
        known, values=known.values[keep], log_z=known.log_z[keep], count=known.count[keep],
        share=known.share[keep], context=index[known.context[chosen]],
        value=known.value[chosen], log_p=known.log_p[chosen], weight=known.weight[chosen],
    )  # fmt: skip
