"""What burn-in learns of a language model's continuations, and their estimated log-sums.

At exponent b the continuations of a prefix weigh V = ln of the sum over all of them of prod p^b.
Here V is estimated from a prefix's last values alone, by backward sums over the continuations that
were seen in texts, the others being taken for ordinary: each further site of ordinary text has the
log-sum `growth`. What is kept is V less that of ordinary text, the *gain* of a context.

A context is the last `CONTEXT_LENGTH` values of a prefix, or all of a shorter one. A prefix whose
last values are no context is taken for one that begins later: for the longest of its endings that
is a whole context, if any.
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
"""In place of the values before an input's first."""
MULTIPLIER = 6364136223846793005
"""Of the hash of a context (Knuth's), modulo 2^64."""
MIN_GAIN = 0.3
"""Nats by which a context's gain must differ from that of its longest shorter ending."""
SEED_GAIN = 1.0
"""The gain of contexts whose endings are tried as beginnings of texts."""
MAX_COUNT = 100.0
"""Weight of what earlier rounds saw, in occurrences."""
MIN_COUNT = 8.0
"""Occurrences after which a context may lead to less than its shorter endings do."""
MEMORY = 4
"""Sites over which the log-sums of ordinary text are taken to depend on each other."""
N_PASSES = 3
MIN_REST = 1e-6
"""The least share of continuations that were not seen: rounding must not make it negative."""


@dataclass(frozen=True)
class Texts:
    """Inputs and what the model says of them at one exponent.

    Attributes
    ----------
    x : int64 [N, D]
    log_p : float64 [N, D], l[t, x_t]; 0 at sites that are not predicted
    log_z : float64 [N, D], ln of the sum over v of exp(b l[t, v])
    tempered : bool [N], drawn token by token from exp(b l) / Z
    """

    x: IntArray
    log_p: FloatArray
    log_z: FloatArray
    tempered: NDArray[np.bool_]

    def with_others(self, others: Texts) -> Texts:
        """Return these and other texts."""
        return Texts(
            np.concatenate([self.x, others.x]),
            np.concatenate([self.log_p, others.log_p]),
            np.concatenate([self.log_z, others.log_z]),
            np.concatenate([self.tempered, others.tempered]),
        )


def keys_of(values: IntArray) -> IntArray:
    """Return a hash of contexts, int64 [...], of their values, [..., CONTEXT_LENGTH]."""
    key = np.zeros(values.shape[:-1], dtype=np.int64)
    with np.errstate(over="ignore"):
        for column in np.moveaxis(values, -1, 0):
            key = key * np.int64(MULTIPLIER) + column + 2
    return key


def contexts_of(x: IntArray) -> IntArray:
    """Return the context before each site but the first, [N, D - 1, CONTEXT_LENGTH]."""
    before = np.full((len(x), CONTEXT_LENGTH - 1), NOTHING)
    padded = np.concatenate([before, x[:, :-1]], axis=1)
    return np.lib.stride_tricks.sliding_window_view(padded, CONTEXT_LENGTH, axis=1)


@dataclass(frozen=True)
class Continuations:
    """Contexts, sorted by their keys, and what was seen to follow them.

    Attributes
    ----------
    b : exponent
    growth : log-sum of one site of ordinary text
    values : int64 [C, CONTEXT_LENGTH], a context's values, -1 before an input's first
    log_z : float64 [C], ln of the sum over the next value of p^b, its mean
    count : float64 [C], occurrences, `MAX_COUNT` at most
    share : float64 [C], how often ordinary text has the value, for a value alone; else 0
    context : int64 [T], index of the context of each continuation
    value : int64 [T], what follows
    log_p : float64 [T], its l, its mean
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
        """How many values a context has, int64 [C]."""
        return np.asarray((self.values != NOTHING).sum(axis=1))

    @property
    def after(self) -> IntArray:
        """The contexts that continuations lead to, [T, CONTEXT_LENGTH], kept or not."""
        return np.column_stack([self.values[self.context, 1:], self.value])

    def index_of(self, values: IntArray, shortened: bool = False) -> IntArray:
        """Return the index of contexts, or of the longest ending that is kept, int64 [...]; or -1.

        With `shortened` only endings shorter than the contexts themselves count.
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
        """Return V less that of ordinary text with 0 to D - 1 sites to come, float64 [D, C]."""
        n = len(self.values)
        gain_nc = np.zeros((n_sites, n))
        to = self.index_of(self.after)
        known = to >= 0
        context, to = self.context[known], to[known]
        p = np.exp(self.b * self.log_p[known])
        z = np.exp(self.log_z)
        rest = np.maximum(z - np.bincount(context, p, n), MIN_REST * z)
        alone = self.length == 1
        # What was not seen after a context a few times is no sign that it never comes: it leads at
        # least where its shorter ending leads.
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
        """Return contexts seen a few times, and their shorter endings, the shortest first."""
        shorter, length = self.index_of(self.values, shortened=True), self.length
        few = (self.count < MIN_COUNT) & (shorter >= 0)
        some_l = [np.flatnonzero(few & (length == n)) for n in range(2, CONTEXT_LENGTH + 1)]
        return [(some, shorter[some]) for some in some_l]

    def seeds(self, n_sites: int) -> IntArray:
        """Return whole contexts that lead somewhere, int64 [n, CONTEXT_LENGTH]."""
        strong = self.gains(n_sites).max(axis=0) >= SEED_GAIN
        seeds: IntArray = self.values[strong & (self.length == CONTEXT_LENGTH)]
        return seeds

    def numbers(self) -> FloatArray:
        """Return everything as numbers for the run file, float64 [n_tuned]."""
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
    """Return what `numbers` of a run file hold; None where nothing was learned."""
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
    """Return what is known after some texts more.

    Parameters
    ----------
    old : what was known
    texts : N > 0 inputs; where nothing was known some must be tempered draws. Without any, what is
        known of ordinary text stays
    b : exponent, not 1
    n_values, first : V, and the first predicted site (0 and 1 alike: site 1 has a context)
    """
    merged = _merge(old, texts, b, n_values, max(first, 1))
    n_sites = texts.x.shape[1]
    if texts.tempered.any():
        merged = _with_ordinary(merged, texts, n_values, first)
    gain_nc = merged.gains(n_sites)
    return _pruned(merged, gain_nc)


def _with_ordinary(merged: Continuations, texts: Texts, n_values: int, first: int) -> Continuations:
    """Return what is known with the growth and the shares of ordinary text, from tempered draws."""
    n_sites = texts.x.shape[1]
    at = _contexts_of(merged, texts)
    # Most sites of tempered draws are ordinary; those that lead elsewhere are then left out.
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
    """Return means over the texts' contexts and over what was known, unpruned."""
    some = slice(first, None)
    seen = contexts_of(texts.x)[:, first - 1 :].reshape(-1, CONTEXT_LENGTH)
    one_o = np.ones(len(seen))
    of_c = [(seen, texts.log_z[:, some].ravel(), one_o)]
    of_t = [(seen, texts.x[:, some].ravel(), texts.log_p[:, some].ravel(), one_o)]
    if old is not None:
        # About ln Z at another b: it is 0 at b = 1 and near linear.
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
    """Return each key once, where it is first, its numbers' mean, and its weights' sum."""
    keys, first, index = np.unique(key, return_index=True, return_inverse=True)
    total = np.bincount(index, weight).astype(np.float64)
    return keys, first, np.bincount(index, weight * number) / total, total


def _shares(drawn: IntArray, known: Continuations, n_values: int) -> FloatArray:
    """Return how often draws [n] have a value, for the contexts of one value alone; else 0."""
    share_v = (np.bincount(drawn, minlength=n_values) + 0.5) / (len(drawn) + 0.5 * n_values)
    return np.where(known.length == 1, share_v[known.values[:, -1]], 0.0)


def _contexts_of(known: Continuations, texts: Texts) -> IntArray:
    """Return the index of the context of each site, int64 [N, D]; -1 at the first."""
    return np.pad(known.index_of(contexts_of(texts.x)), ((0, 0), (1, 0)), constant_values=-1)


def _growth(log_z: FloatArray, use: NDArray[np.bool_], before: float) -> float:
    """Return ln of the mean of Z over some sites, [N, D]; the last log-sums are the weights.

    `before` where there is none.
    """
    z = np.where(use, log_z, 0.0)
    total, weight = 0.0, 0.0
    for t in range(1, z.shape[1]):
        w = np.exp(z[:, max(0, t - MEMORY) : t].sum(axis=1)) * use[:, t]
        weight += float(w.sum())
        total += float(w @ np.exp(z[:, t]))
    return float(np.log(total / weight)) if weight > 0 else before


def _pruned(known: Continuations, gain_nc: FloatArray) -> Continuations:
    """Return the contexts whose gain tells most, as many as there is room for."""
    shorter = known.index_of(known.values, shortened=True)
    other_nc = np.where(shorter >= 0, gain_nc[:, shorter], 0.0)
    tells = np.abs(gain_nc - other_nc).max(axis=0)
    room = min(MAX_CONTEXTS, len(tells))
    best = np.argsort(-tells, kind="stable")[:room]
    keep = np.zeros(len(tells), dtype=bool)
    keep[best] = tells[best] >= MIN_GAIN
    # Continuations: those that lead to what is kept, the weightiest if there are too many.
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
