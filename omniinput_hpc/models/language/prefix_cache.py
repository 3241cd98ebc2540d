"""Draw sequences value by value, from prefixes with cached keys and values."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from transformers import DynamicCache

from omniinput_hpc.models.language.foreign_code import ForeignError, as_close, foreign_code


def cache_argument(module: torch.nn.Module) -> str:
    """Return a decoder's argument for what it keeps, which transformers 5.24 has renamed.

    Before, it was `cache_params` in decoders without attention.
    """
    taken = inspect.signature(module.forward).parameters
    return next((name for name in ("cache", "cache_params") if name in taken), "past_key_values")


def reordered(cache: Any, rows: torch.Tensor) -> Any:
    """Return a copy of transformers' cache with some of its rows, int64 [k], in that order."""
    copied = copy.deepcopy(cache)
    copied.reorder_cache(rows)
    return copied


@dataclass
class PrefixCache:
    """A batch of prefixes of one length.

    Attributes
    ----------
    cache : transformers' cache of n prefixes; or, without a cache, their tokens, int64 [n, P + t]
    log_p : float32 [n, n_values], log-probabilities of the next site's values
    """

    cache: Any
    log_p: torch.Tensor


class PrefixDecoder:
    """Extend prefixes of values with a causal language model.

    Parameters
    ----------
    lm : a Hugging Face decoder
    token_ids : int64 [n_values], the token of each value
    before : int64 [P], fixed tokens in front
    """

    def __init__(self, lm: Any, token_ids: torch.Tensor, before: torch.Tensor) -> None:
        self._lm, self._token_ids, self._before = lm, token_ids, before
        self._cache_argument = cache_argument(lm)

    def begin(self, x: torch.Tensor) -> PrefixCache:
        """Evaluate the first t values of inputs, int64 [n, t]; t = 0 is allowed."""
        cache = DynamicCache(config=self._lm.config)
        before = self._before.expand(len(x), -1)
        tokens = torch.cat([before, self._token_ids[x]], dim=1)  # [n, P + t]
        if tokens.shape[1] == 0:
            return PrefixCache(cache, uniform_rows(len(x), self._token_ids))
        return self._advance(cache, tokens)

    def extend(self, prefixes: PrefixCache, values: torch.Tensor) -> PrefixCache:
        """Append one value, int64 [n], to each prefix; `prefixes` must not be used afterwards."""
        return self._advance(prefixes.cache, self._token_ids[values][:, None])

    def branch(self, prefixes: PrefixCache) -> PrefixCache:
        """Append every value to each prefix: n * n_values prefixes, the value varying fastest."""
        n_values = len(self._token_ids)
        rows = torch.arange(len(prefixes.log_p), device=self._token_ids.device)
        cache = reordered(prefixes.cache, rows.repeat_interleave(n_values))
        return self._advance(cache, self._token_ids.repeat(len(prefixes.log_p))[:, None])

    def select(self, prefixes: PrefixCache, rows: torch.Tensor) -> PrefixCache:
        """Return some of the prefixes, int64 [k], in that order; `prefixes` may still be used."""
        cache = reordered(prefixes.cache, rows)
        return PrefixCache(cache, prefixes.log_p.index_select(0, rows))

    def _advance(self, cache: DynamicCache, tokens: torch.Tensor) -> PrefixCache:
        keys_and_values = {self._cache_argument: cache}
        logits = self._lm(input_ids=tokens, use_cache=True, **keys_and_values).logits[:, -1]
        return PrefixCache(cache, logits.float().log_softmax(-1)[:, self._token_ids])


class WholePrefixes:
    """Extend prefixes as `PrefixDecoder` does, but evaluate each from its first token on.

    Parameters
    ----------
    logits_of : returns the logits, [n, t, V], of tokens, int64 [n, t]
    token_ids, before : see `PrefixDecoder`
    """

    def __init__(
        self,
        logits_of: Callable[[torch.Tensor], torch.Tensor],
        token_ids: torch.Tensor,
        before: torch.Tensor,
    ) -> None:
        self._logits_of, self._token_ids, self._before = logits_of, token_ids, before

    def begin(self, x: torch.Tensor) -> PrefixCache:
        """See `PrefixDecoder`."""
        return self._of(torch.cat([self._before.expand(len(x), -1), self._token_ids[x]], dim=1))

    def extend(self, prefixes: PrefixCache, values: torch.Tensor) -> PrefixCache:
        """See `PrefixDecoder`."""
        return self._of(torch.cat([prefixes.cache, self._token_ids[values][:, None]], dim=1))

    def branch(self, prefixes: PrefixCache) -> PrefixCache:
        """See `PrefixDecoder`."""
        n, n_values = len(prefixes.log_p), len(self._token_ids)
        last = self._token_ids.repeat(n)[:, None]
        return self._of(torch.cat([prefixes.cache.repeat_interleave(n_values, 0), last], dim=1))

    def select(self, prefixes: PrefixCache, rows: torch.Tensor) -> PrefixCache:
        """See `PrefixDecoder`."""
        some = (of.index_select(0, rows) for of in (prefixes.cache, prefixes.log_p))
        return PrefixCache(*some)

    def _of(self, tokens: torch.Tensor) -> PrefixCache:
        if tokens.shape[1] == 0:
            return PrefixCache(tokens, uniform_rows(len(tokens), self._token_ids))
        logits = self._logits_of(tokens)[:, -1]
        return PrefixCache(tokens, logits.float().log_softmax(-1)[:, self._token_ids])


def uniform_rows(n: int, token_ids: torch.Tensor) -> torch.Tensor:
    """Return l of a first site that is not predicted, float32 [n, n_values]."""
    n_values = len(token_ids)
    uniform = -torch.log(torch.tensor(float(n_values), device=token_ids.device))
    return uniform.expand(n, n_values)


@torch.no_grad()
def prefix_problem(
    decoder: PrefixDecoder, x: torch.Tensor, log_p: torch.Tensor, dtype: torch.dtype
) -> str:
    """Return how prefixes differ from whole inputs x, int64 [n, D]; "" if they do not.

    `log_p` holds the rows of whole inputs, float32 [n, D, n_values].
    """
    rows = torch.arange(len(x), device=x.device).flip(0)
    x_too, log_p_too = x[rows], log_p[rows]
    try:
        with foreign_code():
            prefixes = decoder.select(decoder.begin(x[:, :1]), rows)
            for t in range(1, x.shape[1]):
                if not as_close(prefixes.log_p, log_p_too[:, t], dtype):
                    return "its rows with the cache differ from those without it"
                if t + 1 < x.shape[1]:
                    prefixes = decoder.extend(prefixes, x_too[:, t])
    except ForeignError as error:
        return f"its cache fails ({error})"
    return ""
