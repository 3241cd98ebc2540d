"""Drawing sequences value by value: prefixes of inputs with their cached keys and values."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from transformers import DynamicCache


def cache_argument(module: torch.nn.Module) -> str:
    """Return by which name a decoder takes keys and values; transformers 5.24 has renamed it."""
    taken = inspect.signature(module.forward).parameters
    return "cache" if "cache" in taken else "past_key_values"


@dataclass
class PrefixCache:
    """A batch of prefixes of one length, with their keys and values.

    Attributes
    ----------
    cache : of n prefixes
    log_p : float32 [n, n_values], log-probabilities of the next site's values
    """

    cache: DynamicCache
    log_p: torch.Tensor


class PrefixDecoder:
    """Extends prefixes of values by a causal language model.

    Parameters
    ----------
    lm : a Hugging Face decoder
    token_ids : int64 [n_values], the token of each value
    before : int64 [P], fixed tokens in front
    """

    def __init__(self, lm: Any, token_ids: torch.Tensor, before: torch.Tensor) -> None:
        self._lm, self._token_ids, self._before = lm, token_ids, before
        self.cache_argument = cache_argument(lm)

    def begin(self, x: torch.Tensor) -> PrefixCache:
        """Evaluate the first t values of inputs, int64 [n, t]; t = 0 is allowed."""
        cache = DynamicCache(config=self._lm.config)
        before = self._before.expand(len(x), -1)
        tokens = torch.cat([before, self._token_ids[x]], dim=1)  # [n, P + t]
        if tokens.shape[1] == 0:  # nothing predicts the first site
            n_values = len(self._token_ids)
            uniform = -torch.log(torch.tensor(float(n_values), device=x.device))
            return PrefixCache(cache, uniform.expand(len(x), n_values))
        return self._advance(cache, tokens)

    def extend(self, prefixes: PrefixCache, values: torch.Tensor) -> PrefixCache:
        """Append one value, int64 [n], to each prefix; `prefixes` is used up."""
        return self._advance(prefixes.cache, self._token_ids[values][:, None])

    def branch(self, prefixes: PrefixCache) -> PrefixCache:
        """Append every value to each prefix: n * n_values prefixes, the value running fastest."""
        n_values = len(self._token_ids)
        cache = self._copy(prefixes.cache, lambda t: t.repeat_interleave(n_values, 0))
        return self._advance(cache, self._token_ids.repeat(len(prefixes.log_p))[:, None])

    def select(self, prefixes: PrefixCache, rows: torch.Tensor) -> PrefixCache:
        """Return some of the prefixes, int64 [k], in that order; `prefixes` may still be used."""
        cache = self._copy(prefixes.cache, lambda t: t.index_select(0, rows))
        return PrefixCache(cache, prefixes.log_p.index_select(0, rows))

    def _copy(
        self, cache: DynamicCache, of_rows: Callable[[torch.Tensor], torch.Tensor]
    ) -> DynamicCache:
        """Return a cache whose keys and values, [n, ...] each, are made of another's."""
        copy = DynamicCache(config=self._lm.config)
        for index, layer in enumerate(cache.layers):
            layer_: Any = layer
            if layer_.keys is not None:  # empty where nothing stands in front of the first site
                copy.update(of_rows(layer_.keys), of_rows(layer_.values), index)
            if hasattr(layer_, "cumulative_length"):  # of a sliding window, which holds fewer
                own: Any = copy.layers[index]
                own.cumulative_length = layer_.cumulative_length
        return copy

    def _advance(self, cache: DynamicCache, tokens: torch.Tensor) -> PrefixCache:
        keys_and_values = {self.cache_argument: cache}
        logits = self._lm(input_ids=tokens, use_cache=True, **keys_and_values).logits[:, -1]
        return PrefixCache(cache, logits.float().log_softmax(-1)[:, self._token_ids])
