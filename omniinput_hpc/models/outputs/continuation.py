"""``next`` and ``text``: how unlikely certain tokens are after an input of a decoder.

The input, between the prefix and some fixed tokens, is evaluated up to the last token that predicts
one of those in question; logits are computed only at the positions that predict them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any

import torch

from omniinput_hpc.config import CausalLm, Config
from omniinput_hpc.config.output import Next, Text
from omniinput_hpc.errors import UserError
from omniinput_hpc.models.language import hf_folder, tokenizer
from omniinput_hpc.models.language.causal_lm import CausalLanguageModel
from omniinput_hpc.models.language.embedding_leaf import EmbeddingLeaf, gradient_problem, table_of
from omniinput_hpc.models.language.foreign_code import foreign_code
from omniinput_hpc.models.language.gpt2_decoder import Decoder
from omniinput_hpc.models.language.kv_cache import KVCache, chunk_length
from omniinput_hpc.models.language.shared_caches import SharedCaches
from omniinput_hpc.models.language.trial import longest_within
from omniinput_hpc.models.outputs.checks import Tokens, tokens_of
from omniinput_hpc.models.outputs.of_base import OfBase

ZOf = Callable[[torch.Tensor], torch.Tensor]
"""Returns z, float32 [n], of logits, float32 [n, m, V]."""


class Continuation(OfBase):
    """A decoder whose output depends on its predictions after the input.

    Parameters
    ----------
    base : the decoder
    after : fixed tokens that are evaluated after each input
    n_read : m, number of last positions whose logits z depends on
    z_of : returns z of these logits
    """

    base: CausalLanguageModel

    def __init__(self, base: CausalLanguageModel, after: list[int], n_read: int, z_of: ZOf) -> None:
        super().__init__(base)
        self.lm, self.n_read, self._z_of = base.lm, n_read, z_of
        self._linear = base.has_linear_head
        self._after = torch.tensor(after, dtype=torch.int64, device=base.device)
        self._caches = SharedCaches(self._new_cache, base.n_sites, base.device)

    @torch.no_grad()
    def output(self, x: torch.Tensor) -> torch.Tensor:
        """Return z, float32 [W], of x, int64 [W, D]."""
        if self._decoder is not None:
            return self._caches.whole(len(x)).output(x)
        read = self._read(self._tokens(x))
        logits_of = self.base.head if self._linear else torch.Tensor.float
        return torch.cat([self._z_of(logits_of(part).float()) for part in self._parts(read)])

    def output_and_gradient(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return z [W] and dz/d one_hot(x), float32 [W, D, n_values]."""
        z, e, _ = self.output_and_factors(x)
        return z, e @ self.embedding.T

    @cached_property
    def without_gradient(self) -> str:
        """Why the model has no gradient; "" if it has one. Tried at the first access."""
        self.base.no_prefix()  # tries its decoder out, whose lookups of tokens must not count
        return gradient_problem(self, self.base.trial(), self._tokens)

    @cached_property
    def embedding(self) -> torch.Tensor:
        """Float32 [n_values, E]."""
        return table_of(self.lm, self.base.token_ids)

    def output_and_factors(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, tuple[()]]:
        """Return z [W], e, float32 [W, D, E], and an empty rest (see `protocol.Factors`)."""
        more = self.base.no_prefix()  # first: it may try the base's decoder out
        with torch.enable_grad(), EmbeddingLeaf(self.lm) as embedded:
            read = self._read(self._tokens(x), **more)
            parts = list(map(self._z_and_slope, self._parts(read.detach())))
            z, slope = (torch.cat(of) for of in zip(*parts, strict=True))
            e = embedded.gradient(read, slope)
        n_before = len(self.base.before)
        return z, e[:, n_before : n_before + self.n_sites].float(), ()

    def target_rows(self, rest: tuple[()], site: torch.Tensor) -> torch.Tensor:
        """Return zeros, float32 [W, n_values]."""
        return torch.zeros((len(site), self.n_values), device=site.device)

    @property
    def kv_cache(self) -> Callable[[int], KVCache] | None:
        """The function that makes the `KVCache` of W inputs; None without a decoder."""
        return None if self._decoder is None else self._caches.shared

    @property
    def cache_bytes(self) -> int:
        """See `OfBase`."""
        return self._caches.n_bytes + super().cache_bytes

    @property
    def without_graphs(self) -> str:
        """See `OfBase`."""
        return self._caches.without_graphs or super().without_graphs

    def _z_and_slope(self, read: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return z [n] of what `_read` returned, and dz/d read."""
        with torch.no_grad():
            logits = self.base.head(read) if self._linear else read
        leaf = logits.float().detach().requires_grad_()
        z = self._z_of(leaf)
        (slope,) = torch.autograd.grad(z.sum(), leaf)  # [n, m, V]
        weight = self.lm.get_output_embeddings().weight  # [V, H]
        slope = slope.to(read.dtype)
        return z.detach(), slope @ weight.to(read.dtype) if self._linear else slope

    def _read(self, tokens: torch.Tensor, **more: Any) -> torch.Tensor:
        """Return the last hidden states, or logits if the head is not linear, [W, m, ...]."""
        given = {**self.base.given(tokens), **(more or {"use_cache": False})}
        with foreign_code():
            if self._linear:
                states: torch.Tensor = self.lm.base_model(**given).last_hidden_state
                return states[:, -self.n_read :]
            if "logits_to_keep" in inspect.signature(self.lm.forward).parameters:
                given["logits_to_keep"] = self.n_read
            logits: torch.Tensor = self.lm(**given).logits
            return logits[:, -self.n_read :]

    def _parts(self, read: torch.Tensor) -> Iterator[torch.Tensor]:
        """Yield the rows of some walkers, so that their logits take little memory."""
        n_vocab = len(self.lm.get_output_embeddings().weight)
        yield from read.split(chunk_length(read, self.n_read * n_vocab))

    def _tokens(self, x: torch.Tensor) -> torch.Tensor:
        """Return the tokens that are evaluated, int64 [W, T]."""
        before, after = (t.expand(len(x), -1) for t in (self.base.before, self._after))
        return torch.cat([before, self.base.token_ids[x], after], dim=1)

    @cached_property
    def _decoder(self) -> Decoder | None:
        return self.base.decoder(len(self.base.before) + self.n_sites + len(self._after))

    def _new_cache(self, n_walkers: int) -> KVCache:
        assert self._decoder is not None
        base = self.base
        cache = ContinuationCache(
            self._decoder, base.token_ids, base.before, base.n_sites, n_walkers
        )
        cache.use(self._after, self.n_read, self._z_of)
        return cache


class ContinuationCache(KVCache):
    """A KV cache of inputs with fixed tokens after them."""

    def use(self, after: torch.Tensor, n_read: int, z_of: ZOf) -> None:
        """Set the tokens after each input and what z is; see `Continuation`."""
        self._after = after[:, None].expand(-1, self.n_walkers)
        self._n_read, self._z_of = n_read, z_of
        kv, hidden, _ = self._proposed
        z = torch.zeros((1, 1, self.n_walkers), device=hidden.device)
        self._proposed = (kv, hidden, z)

    def _fed(self, x: torch.Tensor, t: int) -> torch.Tensor:
        """See `KVCache`; the last token of the input is evaluated, too."""
        return torch.cat([self._tokens(x[:, t:]), self._after])

    def _score(self, x: torch.Tensor, t: int) -> None:
        """Store z of the proposals."""
        hidden = self._proposed[1][-self._n_read :]  # [m, W, E]
        n = chunk_length(hidden, self._n_read * self._decoder.n_vocab)
        parts = hidden.split(n, dim=1)
        z = [self._z_of(self._decoder.head(part).float().transpose(0, 1)) for part in parts]
        self._proposed[2].copy_(torch.cat(z)[None, None])

    def _z(self) -> torch.Tensor:
        return self._proposed[2][0, 0].clone()


def z_of_next(output: Next, tokens: Tokens, device: torch.device) -> ZOf:
    """Return z of the next token: -ln P(targets), or ln P(against) - ln P(targets)."""
    targets = torch.tensor(tokens.targets, device=device)
    against = torch.tensor(tokens.against, device=device) if tokens.against else None
    largest = output.aggregate == "max"

    def log_share(logits: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        chosen = logits[:, -1, ids]  # [n, k]
        return chosen.amax(-1) if largest else chosen.logsumexp(-1)

    def z_of(logits: torch.Tensor) -> torch.Tensor:
        rest = logits[:, -1].logsumexp(-1) if against is None else log_share(logits, against)
        return rest - log_share(logits, targets)

    return z_of


def z_of_text(text: list[int], device: torch.device) -> ZOf:
    """Return z of a text: the mean loss of its tokens."""
    ids = torch.tensor(text, device=device)[None, :, None]  # [1, m, 1]

    def z_of(logits: torch.Tensor) -> torch.Tensor:
        chosen = logits.gather(2, ids.expand(len(logits), -1, -1)).squeeze(2)  # [n, m]
        return (logits.logsumexp(-1) - chosen).mean(1)

    return z_of


def build(config: Config, base: CausalLanguageModel, device: str) -> Continuation:
    """Return a decoder with the output ``next`` or ``text``.

    Raises a `UserError` if the decoder has too few positions.
    """
    output = config.output
    assert isinstance(output, Next | Text) and isinstance(config.model, CausalLm)
    folder = hf_folder.resolve(config.model.path)
    n_vocab = len(base.lm.get_output_embeddings().weight)
    tokens = tokens_of(output, folder, n_vocab, tokenizer.read(folder))
    after = tokens.after if isinstance(output, Next) else tokens.targets[:-1]
    n = len(base.before) + base.n_sites + len(after)
    longest = longest_within(base.lm, n)
    if longest < n:
        raise UserError(
            f'output.name = "{output.name}": inputs with the tokens before and after them have '
            f"{n} tokens, beyond the {longest} positions of {folder}"
        )
    if isinstance(output, Next):
        return Continuation(base, after, 1, z_of_next(output, tokens, base.device))
    z_of = z_of_text(tokens.targets, base.device)
    return Continuation(base, after, len(tokens.targets), z_of)
