"""Language models: any decoder that Hugging Face's AutoModelForCausalLM loads from a folder.

z is the mean negative log-likelihood, in nats, of the predicted tokens given those before them: of
all but the first (``predicted_from = 1``), as in Hugging Face's own loss, or of all of them after a
prefix of fixed tokens (``predicted_from = 0``). If only some tokens are allowed, a site's value is
an index into the allowed tokens; probabilities are still normalized over all tokens.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
import torch
from transformers import AutoModelForCausalLM, DynamicCache

from omniinput_hpc.config import Allowed, CausalLm
from omniinput_hpc.errors import UserError
from omniinput_hpc.models.language import (
    hf_decoder,
    hf_folder,
    openvino_engine,
    output_head,
    tokenizer,
)
from omniinput_hpc.models.language.embedding_leaf import (
    EmbeddingLeaf,
    gradient_problem,
    table_of,
)
from omniinput_hpc.models.language.foreign_code import (
    ForeignError,
    as_close,
    foreign_code,
    special_tokens,
    trial_inputs,
)
from omniinput_hpc.models.language.gpt2_decoder import Decoder, Gpt2Decoder, is_gpt2
from omniinput_hpc.models.language.hf_decoder import HfDecoder
from omniinput_hpc.models.language.kv_cache import KVCache, chunk_length
from omniinput_hpc.models.language.loading import load
from omniinput_hpc.models.language.prefix_cache import (
    PrefixCache,
    PrefixDecoder,
    WholePrefixes,
    cache_argument,
    prefix_problem,
)
from omniinput_hpc.models.language.shared_caches import SharedCaches
from omniinput_hpc.models.language.trial import check_length
from omniinput_hpc.models.protocol import Draws

log = logging.getLogger("omniinput_hpc")

Rest = tuple[torch.Tensor, torch.Tensor]

MAX_DRAWN, MAX_DRAWN_BYTES = 320, 4 << 30
"""Largest number of inputs drawn together on a GPU, and of bytes of their keys and values. Up to
about this number, the time per token is that of reading the weights; beyond it, computing takes
longer (on an H100 in bfloat16 from 263 inputs on). On a CPU it does so for a few inputs."""


class CausalLanguageModel:
    """A causal language model: see the module's docstring, and `models.protocol` for the methods.

    Attributes
    ----------
    n_weights : number of the model's weights
    token_ids : int64 [n_values], the token of each value
    space : the values that the sites may take, among those that the model knows
    whole_rows : whether these are all tokens, so that rows of probabilities sum to 1
    """

    def __init__(self, options: CausalLm, device: str, allowed: Allowed = None) -> None:
        folder = hf_folder.resolve(options.path)
        self.lm = load(AutoModelForCausalLM, folder, options.dtype, device)
        self.n_weights = sum(weights.numel() for weights in self.lm.parameters())
        self.device = torch.device(device)
        n_vocab = int(self.lm.get_output_embeddings().weight.shape[0])
        words = tokenizer.read(folder)
        tokens = hf_folder.tokens_of(options, folder, n_vocab, words)
        self.space = hf_folder.space_of(options, folder, n_vocab, words, allowed)
        tokens = tokens[self.space.to_ids(np.arange(self.space.n_values))]
        before = hf_folder.prefix_ids(options, folder, n_vocab, words)
        check_length(self.lm, options.length, str(folder), n_before=len(before))
        self.token_ids = torch.from_numpy(tokens).to(device)
        self.n_sites, self.n_values = options.length, len(tokens)
        self.predicted_from = 0 if before else 1
        self._all_tokens = self.whole_rows = len(tokens) == n_vocab
        self._before = torch.tensor(before, dtype=torch.int64, device=device)
        self._special = special_tokens(self.lm, words)
        self._mask_needed = False
        where = f"model.path = {folder}"
        self._mask_needed = self._try_out(where)
        self._engine: openvino_engine.Program | None = None
        if options.engine == "openvino":
            tokens_of = [self._tokens(x) for x in self.trial()]
            network = openvino_engine.Network(self.lm, self._loss_with_mask)
            self._engine = openvino_engine.compiled(network, tokens_of, device, where)
        shown = before if words is None else hf_folder.without_beginning(before, words)
        self._text = tokenizer.Text(words, tokens, shown)

    @torch.no_grad()
    def output(self, x: torch.Tensor) -> torch.Tensor:
        """Return the mean NLL, float32 [W], of x, int64 [W, D]."""
        if self._engine is not None:
            return self._engine(self._tokens(x))
        if self._decoder is not None:
            return self._whole(len(x)).output(x)
        tokens = self._tokens(x)
        return self._loss(tokens, self._all_logits(tokens[:, :-1]))

    def _loss(self, tokens: torch.Tensor, logits: torch.Tensor) -> torch.Tensor:
        """Return z, float32 [W], of tokens [W, P + D] and their logits [W, P + D - 1, V]."""
        logits = self._predicting(logits).float()  # [W, m, V]
        log_norm = logits.logsumexp(dim=-1)  # [W, m]
        chosen = logits.gather(2, self._predicted(tokens)).squeeze(2)  # [W, m]
        z: torch.Tensor = (log_norm - chosen).mean(dim=1)
        return z

    def _loss_with_mask(self, tokens: torch.Tensor) -> torch.Tensor:
        given, ones = tokens[:, :-1], torch.ones_like(tokens[:, :-1])
        return self._loss(tokens, self.lm(given, attention_mask=ones, use_cache=False).logits)

    @torch.no_grad()
    def conditional_logits(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return z [W] and the log-probabilities of every value at every site [W, D, n_values].

        The row of a first site that is not predicted is zero.
        """
        if self._decoder is not None:
            return self._whole(len(x)).conditional_logits(x)
        tokens = self._tokens(x)
        log_p = self._logits(tokens).log_softmax(-1)  # [W, m, V]
        z = -log_p.gather(2, self._predicted(tokens)).squeeze(2).mean(dim=1)
        if not self._all_tokens:
            log_p = log_p[..., self.token_ids]
        if self.predicted_from:
            log_p = torch.cat([torch.zeros_like(log_p[:, :1]), log_p], dim=1)
        return z, log_p

    def output_and_gradient(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return z [W] and dz/d one_hot(x), float32 [W, D, n_values].

        The input part is the gradient at the embeddings times the embedding matrix; the target
        part, at predicted sites, is -log p / m.
        """
        tokens = self._tokens(x)
        given = {**self.given(tokens[:, :-1]), **self.no_prefix()}
        with torch.enable_grad(), EmbeddingLeaf(self.lm) as embedded:
            with foreign_code():
                logits = self.lm(**given).logits
            log_p = self._predicting(logits).float().log_softmax(-1)  # [W, m, V]
            z = -log_p.gather(2, self._predicted(tokens)).squeeze(2).mean(dim=1)
            e = embedded.gradient(z.sum())  # [W, P + D - 1, E]
        with torch.no_grad():
            g = self._of_inputs(e) @ self._embedding.T  # [W, D, n_values]
            g[:, self.predicted_from :] -= log_p.detach()[..., self.token_ids] / log_p.shape[1]
        return z.detach(), g

    @cached_property
    def without_gradient(self) -> str:
        """Why the model has no gradient; "" if it has one. Tried at the first access."""
        return gradient_problem(self, self.trial(), lambda x: self._tokens(x)[:, :-1])

    @property
    def embedding(self) -> torch.Tensor | None:
        """Float32 [n_values, E]; None if the head is not linear in the last hidden state."""
        return self._embedding if self.has_linear_head else None

    @cached_property
    def has_linear_head(self) -> bool:
        """Whether logits are a linear map of the last hidden state."""
        probe = torch.arange(4, device=self.device)[None] % self.n_values
        try:
            with torch.no_grad(), foreign_code():
                logits = self.lm(input_ids=probe, use_cache=False).logits
                hidden = self.lm.base_model(input_ids=probe, use_cache=False).last_hidden_state
                linear = self.lm.get_output_embeddings()(hidden)
        except ForeignError:  # use the gradient that is not factored
            return False
        return torch.equal(logits, linear)

    def output_and_factors(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, Rest]:
        """Return z [W], e float32 [W, D, E], and the rest that `target_rows` takes.

        Logits are computed for a few walkers at a time to save memory.
        """
        tokens = self._tokens(x)
        weight = self.lm.get_output_embeddings().weight  # [V, H]
        given = {**self.given(tokens[:, :-1]), **self.no_prefix()}
        with torch.enable_grad(), EmbeddingLeaf(self.lm) as embedded:
            with foreign_code():
                states = self.lm.base_model(**given)
            hidden = self._predicting(states.last_hidden_state)  # [W, m, H]
        h = hidden.detach()
        slope, log_norm = torch.empty_like(h), torch.empty(h.shape[:2], device=self.device)
        chosen = torch.empty_like(log_norm)
        target = self._predicted(tokens)  # [W, m, 1]
        with torch.no_grad():
            n = chunk_length(h, h.shape[1] * len(weight))
            for some in (slice(begin, begin + n) for begin in range(0, len(x), n)):
                logits = self.head(h[some]).float()  # [n, m, V]
                log_norm[some] = logits.logsumexp(dim=-1)
                chosen[some] = logits.gather(2, target[some]).squeeze(2)
                p = (logits - log_norm[some, :, None]).exp_()
                # dz/dh = (sum over v of p_v U_v - U_x) / m
                p.scatter_add_(2, target[some], torch.full_like(p[..., :1], -1.0))
                slope[some] = (p.to(weight.dtype) @ weight) / h.shape[1]
        e = embedded.gradient(hidden, slope)
        z = (log_norm - chosen).mean(dim=1)
        return z, self._of_inputs(e), (h, log_norm)

    @torch.no_grad()
    def target_rows(self, rest: Rest, site: torch.Tensor) -> torch.Tensor:
        """Return the target part of the gradient, float32 [W, n_values], at sites, int64 [W]."""
        h, log_norm = rest
        walker = torch.arange(len(site), device=site.device)
        row = (site - self.predicted_from).clamp_min(0)
        logits = self.head(h[walker, row]).float()[:, self.token_ids]
        target = (log_norm[walker, row, None] - logits) / h.shape[1]
        return torch.where((site >= self.predicted_from)[:, None], target, 0.0)

    @torch.no_grad()
    def begin(self, x: torch.Tensor) -> PrefixCache:
        """Evaluate the first t values of inputs, int64 [n, t]; t = 0 is allowed."""
        return self._prefixes.begin(x)

    @torch.no_grad()
    def extend(self, prefixes: PrefixCache, values: torch.Tensor) -> PrefixCache:
        """Append one value, int64 [n], to each prefix; `prefixes` must not be used afterwards."""
        return self._prefixes.extend(prefixes, values)

    @torch.no_grad()
    def branch(self, prefixes: PrefixCache) -> PrefixCache:
        """Append every value to each prefix: n * n_values prefixes, the value varying fastest."""
        return self._prefixes.branch(prefixes)

    @torch.no_grad()
    def select(self, prefixes: PrefixCache, rows: torch.Tensor) -> PrefixCache:
        """Return some of the prefixes, int64 [k], in that order; `prefixes` may still be used."""
        return self._prefixes.select(prefixes, rows)

    @cached_property
    def _prefixes(self) -> PrefixDecoder | WholePrefixes:
        """The decoder that extends prefixes; with the model's cache if that gives the same rows."""
        cached = PrefixDecoder(self.lm, self.token_ids, self._before)
        why = "without a mask it masks some tokens itself" if self._mask_needed else ""
        for x in [] if why else self.trial():
            why = why or prefix_problem(cached, x, self.conditional_logits(x)[1], self.lm.dtype)
        if not why:
            return cached
        what = type(self.lm).__name__
        log.warning("%s: prefixes are evaluated without a cache, which is slower: %s", what, why)
        return WholePrefixes(self._all_logits, self.token_ids, self._before)

    @property
    def kv_cache(self) -> Callable[[int], KVCache] | None:
        """Return the function that makes the `KVCache` of W inputs; None without a decoder.

        All callers with the same W share one cache; its `version` tells a caller whether the cache
        still holds the caller's inputs.
        """
        return None if self._decoder is None else self._caches.shared

    @cached_property
    def draws(self) -> Draws | None:
        """The record for drawing inputs with a KV cache; None without a decoder."""
        if self._decoder is None:
            return None
        allocated = sum(tensor.nbytes for tensor in self._decoder.allocate(1))
        bytes_each = allocated + self._decoder.state_bytes
        n_together = min(MAX_DRAWN, MAX_DRAWN_BYTES // bytes_each)
        return Draws(self._caches.drawing, 0 if self.device.type == "cpu" else n_together)

    @property
    def cache_bytes(self) -> int:
        """Memory of the KV caches in bytes; 0 without one."""
        return self._caches.n_bytes

    @property
    def packed_bytes(self) -> int:
        """Memory of packed weights, besides the model's own, in bytes."""
        own = 0 if self._decoder is None else self._decoder.packed_bytes
        return own + (0 if self._engine is None else self._engine.n_bytes)

    @property
    def without_graphs(self) -> str:
        """Why a GPU evaluates without CUDA graphs; "" if it uses them, and on a CPU."""
        return self._caches.without_graphs

    @cached_property
    def _caches(self) -> SharedCaches:
        """The model's KV caches."""
        return SharedCaches(self._new_cache, self.n_sites, self.device)

    def _whole(self, n_walkers: int) -> KVCache:
        return self._caches.whole(n_walkers)

    def _new_cache(self, n_walkers: int) -> KVCache:
        assert self._decoder is not None
        return KVCache(self._decoder, self.token_ids, self._before, self.n_sites, n_walkers)

    @cached_property
    def _decoder(self) -> Decoder | None:
        n_positions = len(self._before) + self.n_sites - 1
        return self.decoder(n_positions) if n_positions else None

    def decoder(self, n_positions: int) -> Decoder | None:
        """Return a decoder with cached keys and values; None, with a log message, without one."""
        if is_gpt2(self.lm):
            return Gpt2Decoder(self.lm, n_positions)
        if self._mask_needed:
            hf_decoder.log_refusal(self.lm, "without a mask it masks some tokens itself")
            return None
        return hf_decoder.make(self.lm, n_positions, self._special, self._before)

    def render(self, x: torch.Tensor) -> list[str]:
        """Return the text of each input with the prefix; token ids without a tokenizer.

        Tokens that begin every text are left out (see `hf_folder.without_beginning`).
        """
        return self._text.render(x.cpu().numpy())

    def _tokens(self, x: torch.Tensor) -> torch.Tensor:
        """Return the tokens of the prefix and the inputs, int64 [W, P + D]."""
        return torch.cat([self._before.expand(len(x), -1), self.token_ids[x]], dim=1)

    def _predicted(self, tokens: torch.Tensor) -> torch.Tensor:
        return tokens[:, tokens.shape[1] - self.n_sites + self.predicted_from :, None]

    def _predicting(self, at_positions: torch.Tensor) -> torch.Tensor:
        """Return those of the positions 0 to P + D - 2 that predict a site, [W, m, ...]."""
        return at_positions[:, max(0, len(self._before) - 1) :]

    def _logits(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return the logits of the predicted tokens, float32 [W, m, V]."""
        # The last position predicts a token beyond x, so it is never evaluated
        return self._predicting(self._all_logits(tokens[:, :-1])).float()

    def _all_logits(self, tokens: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.lm(**self.given(tokens), use_cache=False).logits
        return logits

    def given(self, tokens: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return the arguments that pass tokens to the decoder."""
        # transformers checks whether a mask is all ones, which synchronizes
        mask = {"attention_mask": torch.ones_like(tokens)} if self._mask_needed else {}
        return {"input_ids": tokens, **mask}

    @torch.no_grad()
    def _try_out(self, where: str) -> bool:
        """Return whether the decoder needs a mask of ones, because it otherwise masks some tokens.

        Raises `UserError` if it cannot evaluate inputs with every special token, or if predictions
        depend on later tokens (for example because it counts padding).
        """
        needed, what = False, f"this {type(self.lm).__name__}"
        for x in self.trial() if len(self._before) + self.n_sites > 1 else []:
            tokens = self._tokens(x)[:, :-1]
            half, other = tokens.shape[1] // 2, tokens.clone()
            other[:, half:] = tokens.roll(1, 0)[:, half:]
            ones = {"attention_mask": torch.ones_like(tokens), "use_cache": False}
            try:
                with foreign_code():
                    found, ahead = (self.lm(input_ids=t, **ones).logits for t in (tokens, other))
            except ForeignError as error:
                many = f"cannot evaluate every input of {self.n_sites} tokens"
                raise UserError(f"{where}: {what} {many}: {error}") from None
            if half and not as_close(ahead[:, :half], found[:, :half], self.lm.dtype):
                raise UserError(
                    f"{where}: its predictions depend on later tokens, so {what} is not a "
                    "causal language model; if only special tokens cause this (padding that it "
                    'masks), set model.tokens = "no-special" to leave them out'
                )
            try:
                with foreign_code():
                    needed = needed or not torch.equal(self._all_logits(tokens), found)
            except ForeignError:
                needed = True
        return needed

    def trial(self) -> list[torch.Tensor]:
        """Return batches of inputs [n, D] that together hold every special token."""
        return trial_inputs(self._special, self.token_ids, self.n_sites)

    def no_prefix(self) -> dict[str, Any]:
        """Return arguments for a pass without cached keys and values."""
        if not isinstance(self._decoder, Gpt2Decoder | HfDecoder):
            return {"use_cache": False}
        # Without this empty cache transformers looks for packed sequences, which synchronizes
        cache = DynamicCache(config=self.lm.config)
        return {cache_argument(self.lm): cache, "use_cache": True}

    @cached_property
    def head(self) -> Callable[[torch.Tensor], torch.Tensor]:
        """The map from hidden states to logits."""
        return output_head.head_of(self.lm)

    @property
    def before(self) -> torch.Tensor:
        """The tokens of the prefix, int64 [P]."""
        return self._before

    def _of_inputs(self, e: torch.Tensor) -> torch.Tensor:
        """Return the sites' part of a gradient at the embeddings, float32 [W, D, E].

        It is zero for the last site, which is only predicted.
        """
        return torch.nn.functional.pad(e, (0, 0, 0, 1))[:, len(self._before) :].float()

    @cached_property
    def _embedding(self) -> torch.Tensor:
        return table_of(self.lm, self.token_ids)


def build(options: CausalLm, device: str, allowed: Allowed = None) -> CausalLanguageModel:
    """Load a language model (see `models.table.build`)."""
    return CausalLanguageModel(options, device, allowed)
