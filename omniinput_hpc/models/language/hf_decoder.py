"""Run any Hugging Face decoder with cached keys and values, by the model's own forward pass.

The model gets a cache whose layers write into a buffer that is allocated once, and return views of
it up to the positions that are evaluated: nothing grows and no prefix is copied. `make` tests
whether this works for a model.
"""

from __future__ import annotations

import copy
import inspect
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from transformers import DynamicCache
from transformers.cache_utils import Cache, CacheLayerMixin, DynamicLayer, DynamicSlidingWindowLayer
from transformers.modeling_outputs import BaseModelOutputWithPastAndCrossAttentions

from omniinput_hpc.models.device import multiplies_in_tf32
from omniinput_hpc.models.language import output_head
from omniinput_hpc.models.language.attention_masks import CausalMasks, narrowest_window
from omniinput_hpc.models.language.foreign_code import (
    N_TRIAL_INPUTS,
    ForeignError,
    foreign_code,
    trial_inputs,
)
from omniinput_hpc.models.language.prefix_cache import cache_argument

log = logging.getLogger("omniinput_hpc")

MAX_DISTANCE = {torch.float32: 1e-4, torch.float16: 2e-2, torch.bfloat16: 1e-1}
"""Largest `distance` allowed between a pass in pieces and a whole pass. 32 layers of random weights
were 0.002 (float16) and 0.017 (bfloat16) apart."""


class UnsupportedDecoder(Exception):
    """The model cannot be evaluated in pieces; the text says why."""


@dataclass(frozen=True)
class HeadShapes:
    """What one layer caches per token: numbers and sizes of the heads of keys and values."""

    n_keys: int
    key_size: int
    n_values: int
    value_size: int

    @property
    def width(self) -> int:
        """Numbers cached per token."""
        return self.n_keys * self.key_size + self.n_values * self.value_size


class FixedCacheLayer(CacheLayerMixin):
    """A layer's keys and values in the buffer of a `KVCache`.

    Positions outside a sliding window stay here, too: the model's own mask hides them.
    """

    is_sliding = False

    def __init__(self, heads: HeadShapes) -> None:
        super().__init__()
        self._heads, self._seen = heads, 0
        self.is_initialized = True

    def use_buffer(self, buffer: torch.Tensor) -> None:
        """Use another buffer from now on, [W, T, at least `HeadShapes.width`]."""
        h = self._heads
        split = h.n_keys * h.key_size
        keys, values = buffer[..., :split], buffer[..., split : h.width]
        self.keys = keys.unflatten(-1, (h.n_keys, h.key_size)).transpose(1, 2)  # [W, H, T, d]
        self.values = values.unflatten(-1, (h.n_values, h.value_size)).transpose(1, 2)

    def truncate(self, seen: int) -> None:
        """Forget all but the first `seen` positions."""
        self._seen = seen

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Store keys and values, [W, H, n, d]; return views of all up to them, [W, H, end, d]."""
        assert self.keys is not None and self.values is not None
        end = self._seen + key_states.shape[2]
        self.keys[:, :, self._seen : end] = key_states
        self.values[:, :, self._seen : end] = value_states
        self._seen = end
        return self.keys[:, :, :end], self.values[:, :, :end]

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        """Do nothing: the buffer exists already."""

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Return the number of keys after this query, and the position of the first."""
        return self._seen + query_length, 0

    def get_seq_length(self) -> int:
        """Return the number of positions seen."""
        return self._seen

    def get_max_length(self) -> int:
        """Return -1, which means no limit in transformers."""
        return -1


class GivenHiddenStates(nn.Module):
    """Replace a decoder's body: return the hidden states that are passed in."""

    def forward(
        self, *args: Any, inputs_embeds: torch.Tensor, **kwargs: Any
    ) -> BaseModelOutputWithPastAndCrossAttentions:
        """Return `inputs_embeds` as a decoder's output."""
        return BaseModelOutputWithPastAndCrossAttentions(last_hidden_state=inputs_embeds)


class FullHead:
    """Everything that a model does to hidden states after its body, such as scaling and capping."""

    def __init__(self, lm: Any) -> None:
        self._lm = copy.copy(lm)  # the weights are shared
        self._lm._modules = {**lm._modules, lm.base_model_prefix: GivenHiddenStates()}

    def __call__(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return logits, [..., V], of [..., E]."""
        flat = hidden if hidden.dim() == 3 else hidden[None]
        logits: torch.Tensor = self._lm(inputs_embeds=flat, use_cache=False).logits
        return logits.view(*hidden.shape[:-1], -1)


class HfDecoder:
    """A `Decoder` that runs the model's own body with cached keys and values.

    It never synchronizes with the device, unless the model does (mixtures of experts, rotations
    that depend on the length). Unlike those of `Gpt2Decoder`, its bits depend on how many positions
    are evaluated at once. A `KVCache` holds keys and values twice: for a model of OLMo-7B's shape
    in bfloat16 (32 layers of 4,096 keys and values) each copy takes 0.5 MiB per token, together 1.5
    GiB for 64 walkers of 25 tokens.

    Parameters
    ----------
    lm : a Hugging Face decoder
    n_positions : T, of every sequence
    own_masks : pass `CausalMasks` to the model; otherwise, and if a layer looks back over fewer
        than T positions, the model makes its own masks
    special : tokens that the inputs of the trial hold
    """

    walker_dim = 1

    def __init__(
        self, lm: Any, n_positions: int, own_masks: bool = True, special: Sequence[int] = ()
    ) -> None:
        self.special = special
        self._body, self._n_positions = lm.base_model, n_positions
        self._cache_argument = cache_argument(lm.base_model)
        self._head: Callable[[torch.Tensor], torch.Tensor] = lm.get_output_embeddings()
        self.n_vocab = int(lm.get_output_embeddings().weight.shape[0])
        self._hidden, self._keys, heads, window = probe(lm)
        unlimited = window is None or window >= n_positions
        self.masks = CausalMasks(n_positions, self._keys) if own_masks and unlimited else None
        self._width = max(h.width for h in heads)
        self._layers = [FixedCacheLayer(h) for h in heads]
        self._cache = Cache(layers=list[Any](self._layers))
        self._buffer: torch.Tensor | None = None

    def head(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return the logits, [..., V], of hidden states [..., E]."""
        return self._head(hidden)

    def use_full_head(self, lm: Any) -> None:
        """Apply everything that the model does to hidden states, not only its output layer."""
        self._head = FullHead(lm)

    def use_float32_head(self, lm: Any) -> None:
        """Apply the output layer without rounding to its dtype, if the device can."""
        self._head = output_head.head_of(lm)

    def allocate(self, n_walkers: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return keys and values [layers, W, T, all heads], and hidden states [T, W, E]."""
        t = self._n_positions
        kv = self._keys.new_zeros((len(self._layers), n_walkers, t, self._width))
        return kv, self._hidden.new_zeros((t, n_walkers, self._hidden.shape[-1]))

    def run(self, tokens: torch.Tensor, begin: int, kv: torch.Tensor) -> torch.Tensor:
        """Evaluate some positions (see `Decoder.run`)."""
        if self._buffer is not kv:
            for layer, buffer in zip(self._layers, kv, strict=True):
                layer.use_buffer(buffer)
            self._buffer = kv
        for layer in self._layers:
            layer.truncate(begin)
        mask = None if self.masks is None else self.masks.of(begin, len(tokens))
        keys_and_values = {self._cache_argument: self._cache}
        done = self._body(
            input_ids=tokens.T, attention_mask=mask, use_cache=True, **keys_and_values
        )
        hidden: torch.Tensor = done.last_hidden_state  # [W, n, E]
        return hidden.transpose(0, 1)


def probe(lm: Any) -> tuple[torch.Tensor, torch.Tensor, list[HeadShapes], int | None]:
    """Evaluate two tokens; return hidden states, keys, each layer's heads, and the window.

    Hidden states and keys serve for their dtype and device. The window is the narrowest of any
    layer, None without one. Raises `UnsupportedDecoder` if the model caches anything else per
    token.
    """
    name = cache_argument(lm.base_model)
    if name not in inspect.signature(lm.base_model.forward).parameters:
        raise UnsupportedDecoder("it takes no keys and values")
    cache = DynamicCache(config=lm.config)
    tokens = torch.zeros((1, 2), dtype=torch.int64, device=lm.device)
    with foreign_code():
        hidden = lm.base_model(input_ids=tokens, use_cache=True, **{name: cache}).last_hidden_state
    heads, layers = [], list[Any](cache.layers)
    for layer in layers:
        if type(layer) not in (DynamicLayer, DynamicSlidingWindowLayer) or layer.keys is None:
            raise UnsupportedDecoder(
                f"a layer caches something other than keys and values ({type(layer).__name__})"
            )
        keys, values = layer.keys, layer.values
        if keys.dim() != 4 or values.dim() != 4:
            raise UnsupportedDecoder("it caches keys and values of an unsupported shape")
        heads.append(HeadShapes(keys.shape[1], keys.shape[3], values.shape[1], values.shape[3]))
    if not heads:
        raise UnsupportedDecoder("it caches no keys and values")
    return hidden, layers[0].keys, heads, narrowest_window(layers)


def try_out(decoder: HfDecoder, lm: Any) -> None:
    """Compare random inputs, evaluated in pieces that overwrite each other, with whole passes.

    The inputs hold every special token. Raises `UnsupportedDecoder` if the outputs differ or need
    more than the last hidden state.
    """
    kv, hidden = decoder.allocate(N_TRIAL_INPUTS)
    every = torch.arange(decoder.n_vocab, device=kv.device)
    for tokens in trial_inputs(decoder.special, every, len(hidden)):
        _compare(decoder, lm, tokens.T, kv, hidden)


def _compare(
    decoder: HfDecoder, lm: Any, x: torch.Tensor, kv: torch.Tensor, hidden: torch.Tensor
) -> None:
    """Compare inputs x, int64 [T, N_TRIAL_INPUTS], and variants, in pieces with whole passes.

    kv and hidden are overwritten; see `try_out`.
    """
    t = len(hidden)
    first, second = t // 3, 2 * t // 3
    y, v = (x.roll((shift, shift), (0, 1)) for shift in (1, 2))
    y[:first], v[:second] = x[:first], y[:second]
    whole = whole_rows(lm, decoder, torch.cat([x, y, v], dim=1))  # [T, 3 N_TRIAL_INPUTS, V]
    pieces = [(x, 0, t), (y, first, first + 1), (y, first + 1, t), (v, second, t)]
    for tokens, begin, end in pieces:
        with foreign_code():
            if begin < end:
                hidden[begin:end] = decoder.run(tokens[begin:end], begin, kv)
            logits = decoder.head(hidden)
        if end == t:
            expected, whole = whole.split((N_TRIAL_INPUTS, whole.shape[1] - N_TRIAL_INPUTS), dim=1)
            found = logits.float().log_softmax(-1)
            # TF32 keeps as many bits as float16
            dtype = torch.float16 if multiplies_in_tf32(kv) else kv.dtype
            apart, most = distance(found, expected, dtype), MAX_DISTANCE[dtype]
            if not apart <= most:
                raise UnsupportedDecoder(
                    "evaluated in pieces it gives different outputs "
                    f"({apart:.2g} apart, {most:g} allowed)"
                )


def whole_rows(lm: Any, decoder: HfDecoder, tokens: torch.Tensor) -> torch.Tensor:
    """Return l of tokens, int64 [T, n], by the model's own forward pass: float32 [T, n, V].

    If its logits are not a linear map of the hidden state, the decoder gets the full head. Raises
    `UnsupportedDecoder` if the logits depend on more than the last hidden state.
    """
    with foreign_code():
        logits = lm(input_ids=tokens.T, use_cache=False).logits
        states = lm.base_model(input_ids=tokens.T, use_cache=False).last_hidden_state
        linear = decoder.head(states)
    if torch.equal(logits, linear):
        decoder.use_float32_head(lm)
    else:
        decoder.use_full_head(lm)
        with foreign_code():
            again = decoder.head(states)
        if not torch.equal(logits, again):
            raise UnsupportedDecoder("its logits depend on more than the last hidden state")
    rows: torch.Tensor = logits.float().log_softmax(-1).transpose(0, 1)
    return rows


def distance(found: torch.Tensor, expected: torch.Tensor, dtype: torch.dtype) -> float:
    """Return how far rows of l, float32 [..., V], are apart.

    For float32: the largest difference, in units of max(1, largest |l|). For half precision, whose
    rounding grows with the layers: the root mean square, in units of the standard deviation of l.
    """
    difference = found - expected
    if dtype == torch.float32:
        return float(difference.abs().max() / expected.abs().max().clamp_min(1.0))
    spread = expected - expected.mean(-1, keepdim=True)
    return float((difference.square().mean() / spread.square().mean()).sqrt())


@torch.no_grad()
def make(lm: Any, n_positions: int, special: Sequence[int] = ()) -> HfDecoder | None:
    """Return the model's decoder if its outputs equal the model's; else log why not, return None.

    The fallback, full forward passes, is as correct and about ten times slower. `special` are the
    tokens that the model may treat differently. A second try leaves the masks to the model: some
    models take positions from the mask, or combine it with another.
    """
    for own_masks in (True, False):
        try:
            decoder = HfDecoder(lm, n_positions, own_masks, special)
            try_out(decoder, lm)
            return decoder
        except (UnsupportedDecoder, ForeignError) as error:
            reason = error
    # Warn of an error of the model: it may come from a change in transformers
    log_refusal(
        lm, reason, logging.INFO if isinstance(reason, UnsupportedDecoder) else logging.WARNING
    )
    return None


def log_refusal(lm: Any, reason: object, level: int = logging.INFO) -> None:
    """Log why a model has no decoder with cached keys and values."""
    what = type(lm).__name__
    log.log(level, "%s: whole inputs are evaluated in every move: %s", what, reason)
