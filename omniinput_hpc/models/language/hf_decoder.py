"""Run any Hugging Face decoder with cached keys and values, by the model's own forward pass.

The model gets a cache whose layers write into a buffer that is allocated once, and return views of
it up to the positions that are evaluated: nothing grows and no prefix is copied. `make` tests
whether this works for a model.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from transformers import DynamicCache
from transformers.cache_utils import Cache, CacheLayerMixin, DynamicLayer, DynamicSlidingWindowLayer

from omniinput_hpc.models.device import multiplies_in_tf32
from omniinput_hpc.models.language import output_head
from omniinput_hpc.models.language.attention_masks import CausalMasks, narrowest_window
from omniinput_hpc.models.language.decoder_body import (
    BodyAndHead,
    FullHead,
    UnsupportedDecoder,
    body_of,
    takes_a_cache,
)
from omniinput_hpc.models.language.foreign_code import (
    N_TRIAL_INPUTS,
    ForeignError,
    foreign_code,
    trial_inputs,
)
from omniinput_hpc.models.language.packed import packed_body, packed_bytes
from omniinput_hpc.models.language.prefix_cache import cache_argument
from omniinput_hpc.models.language.state_decoder import StateDecoder

log = logging.getLogger("omniinput_hpc")

MAX_DISTANCE = {torch.float32: 1e-4, torch.float16: 2e-2, torch.bfloat16: 1e-1}
"""Largest `distance` allowed between a pass in pieces and a whole pass. 32 layers of random weights
were 0.002 (float16) and 0.017 (bfloat16) apart."""


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


class HfDecoder(BodyAndHead):
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
    packed : the packed body (`packed_body`), if another decoder of the model has made it
    """

    without_graphs = ""
    state_bytes = 0

    def __init__(
        self,
        lm: Any,
        n_positions: int,
        own_masks: bool = True,
        special: Sequence[int] = (),
        packed: Any = None,
    ) -> None:
        super().__init__(lm, special)
        self._n_positions = n_positions
        self._packed = packed_body(self.body) if packed is None else packed
        self._cache_argument = cache_argument(self.body)
        self._hidden, self._keys, heads, window = probe(lm)
        unlimited = window is None or window >= n_positions
        self.masks = CausalMasks(n_positions, self._keys) if own_masks and unlimited else None
        self._width = max(h.width for h in heads)
        self._layers = [FixedCacheLayer(h) for h in heads]
        self._cache = Cache(layers=list[Any](self._layers))
        self._buffer: torch.Tensor | None = None

    @property
    def packed_bytes(self) -> int:
        """Memory of the packed weights (see `Decoder`)."""
        return super().packed_bytes + packed_bytes(self._packed)

    def rewind(self) -> None:
        """Do nothing: keys and values of earlier positions are kept."""

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
        done = self._packed(
            input_ids=tokens.T, attention_mask=mask, use_cache=True, **keys_and_values
        )
        hidden: torch.Tensor = done.last_hidden_state  # [W, n, E]
        return hidden.transpose(0, 1)


TriedDecoder = HfDecoder | StateDecoder


def probe(lm: Any) -> tuple[torch.Tensor, torch.Tensor, list[HeadShapes], int | None]:
    """Evaluate two tokens; return hidden states, keys, each layer's heads, and the window.

    Hidden states and keys serve for their dtype and device. The window is the narrowest of any
    layer, None without one. Raises `UnsupportedDecoder` if the model caches anything else per
    token.
    """
    body = body_of(lm)
    if not takes_a_cache(body):
        raise UnsupportedDecoder("it takes no keys and values")
    cache = DynamicCache(config=lm.config)
    tokens = torch.zeros((1, 2), dtype=torch.int64, device=lm.device)
    with foreign_code():
        keys_and_values = {cache_argument(body): cache}
        hidden = body(input_ids=tokens, use_cache=True, **keys_and_values).last_hidden_state
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


def try_out(decoder: TriedDecoder, lm: Any, before: torch.Tensor) -> None:
    """Compare random inputs, evaluated in pieces that overwrite each other, with whole passes.

    The inputs hold every special token, after the tokens that all inputs begin with, int64 [P].
    Raises `UnsupportedDecoder` if the outputs differ or need more than the last hidden state.
    """
    kv, hidden = decoder.allocate(N_TRIAL_INPUTS)
    every = torch.arange(decoder.n_vocab, device=kv.device)
    for tokens in trial_inputs(decoder.special, every, len(hidden) - len(before)):
        x = torch.cat([before[:, None].expand(-1, len(tokens)), tokens.T])
        _compare(decoder, lm, x, len(before), (kv, hidden))


def _compare(
    decoder: TriedDecoder,
    lm: Any,
    x: torch.Tensor,
    n_before: int,
    memory: tuple[torch.Tensor, torch.Tensor],
) -> None:
    """Compare inputs x, int64 [T, N_TRIAL_INPUTS], and variants, in pieces with whole passes.

    The variants begin with the same n_before tokens, and one is appended token by token if the
    decoder asks for it. The memory that the decoder allocated is overwritten; see `try_out`.
    """
    kv, hidden = memory
    t, n = len(hidden), len(hidden) - n_before
    latest = max(n - 3, 0)  # so that one token and then two may follow
    first, second = (n_before + min(k * n // 3, latest) for k in (1, 2))
    y, v, u = (x.roll((shift, shift), (0, 1)) for shift in (1, 2, 3))
    y[:first], v[:second], u[:first] = x[:first], y[:second], v[:first]
    inputs = [(x, [0, t]), (y, sorted({first, min(first + 1, t - 1), t})), (v, [second, t])]
    if decoder.n_single_tokens:
        inputs.append((u, [*range(first, min(first + decoder.n_single_tokens, t)), t]))
    whole = whole_rows(lm, decoder, torch.cat([tokens for tokens, _ in inputs], dim=1))
    for (tokens, cuts), expected in zip(inputs, whole.split(N_TRIAL_INPUTS, dim=1), strict=True):
        decoder.rewind()
        with foreign_code():
            for begin, end in itertools.pairwise(cuts):
                hidden[begin:end] = decoder.run(tokens[begin:end], begin, kv)
            found = decoder.head(hidden).float().log_softmax(-1)
        # TF32 keeps as many bits as float16
        dtype = torch.float16 if multiplies_in_tf32(hidden) else hidden.dtype
        apart, most = distance(found, expected, dtype), MAX_DISTANCE[dtype]
        if not apart <= most:
            raise UnsupportedDecoder(
                f"evaluated in pieces it gives different outputs ({apart:.2g} apart, {most:g} "
                "allowed)"
            )


def whole_rows(lm: Any, decoder: TriedDecoder, tokens: torch.Tensor) -> torch.Tensor:
    """Return l of tokens, int64 [T, n], by the model's own forward pass: float32 [T, n, V].

    If its logits are not a linear map of the hidden state, the decoder gets the full head. Raises
    `UnsupportedDecoder` if the logits depend on more than the last hidden state.
    """
    with foreign_code():
        logits = lm(input_ids=tokens.T, use_cache=False).logits
        states = decoder.body(input_ids=tokens.T, use_cache=False).last_hidden_state
    if _gives(decoder, states, logits):
        decoder.head = output_head.without_gradient(lm)
    else:
        decoder.head = FullHead(lm, decoder.body)
        if not _gives(decoder, states, logits):
            raise UnsupportedDecoder("its logits depend on more than the last hidden state")
    rows: torch.Tensor = logits.float().log_softmax(-1).transpose(0, 1)
    return rows


def _gives(decoder: TriedDecoder, states: torch.Tensor, logits: torch.Tensor) -> bool:
    """Return whether the decoder's head turns hidden states into these logits."""
    try:
        with foreign_code():
            return torch.equal(logits, decoder.head(states))
    except ForeignError:  # such as sizes that do not fit
        return False


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
def make(
    lm: Any, n_positions: int, special: Sequence[int] = (), before: torch.Tensor | None = None
) -> TriedDecoder | None:
    """Return the model's decoder if its outputs equal the model's; else log why not, return None.

    The fallback, full forward passes, is as correct and about ten times slower. `special` are the
    tokens that the model may treat differently, `before` those that every sequence begins with,
    int64 [P]. A second try leaves the masks to the model: some models take positions from the mask,
    or combine it with another. Others carry states that are not keys and values.
    """
    if before is None or len(before) == n_positions:
        before = torch.zeros(0, dtype=torch.int64, device=lm.device)
    packed = packed_body(body_of(lm))  # once: weights may take gigabytes
    tries: list[Callable[[], TriedDecoder]] = [
        partial(HfDecoder, lm, n_positions, True, special, packed),
        partial(HfDecoder, lm, n_positions, False, special, packed),
        *(
            partial(StateDecoder, lm, n_positions, before, special, pieces, numbered)
            for pieces in (True, False)
            for numbered in (True, False)
        ),
    ]
    reasons: list[UnsupportedDecoder | ForeignError] = []
    for build in tries:
        try:
            decoder = build()
            try_out(decoder, lm, before)
        except (UnsupportedDecoder, ForeignError) as error:
            reasons.append(error)
            continue
        if isinstance(decoder, StateDecoder):
            log_detour(lm, "the sites before a proposal are evaluated again", reasons[1])
        return decoder
    log_refusal(lm, reasons[-1])
    return None


def log_refusal(lm: Any, reason: object) -> None:
    """Log why a model has no decoder with cached keys and values."""
    log_detour(lm, "whole inputs are evaluated in every move", reason)


def log_detour(lm: Any, what: str, reason: object) -> None:
    """Log why a model's evaluation takes longer.

    An error of the model is a warning: it may come from a change in transformers.
    """
    level = logging.WARNING if isinstance(reason, ForeignError) else logging.INFO
    log.log(level, "%s: %s: %s", type(lm).__name__, what, reason)
