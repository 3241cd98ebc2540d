"""Decoders with cached keys and values: the protocol, and GPT-2 written for speed on a CPU.

A decoder evaluates positions ``begin`` to ``begin + n - 1`` of W sequences, given the keys and
values of the positions before them, and stores their own. The bits of GPT-2's decoder depend
neither on n nor on the other walkers. `hf_decoder` serves all other architectures.
"""

from __future__ import annotations

import math
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from transformers import GPT2LMHeadModel

from omniinput_hpc.models.language import output_head
from omniinput_hpc.models.language.packed import Linear

GELU_KINDS = {"gelu_new": "tanh", "gelu_pytorch_tanh": "tanh", "gelu": "none"}
MAX_TINY_HEAD, MAX_TINY_LENGTH = 16, 16
"""Up to these sizes attention is computed with walkers as the last, vectorized dimension."""
MIN_ROWS, MIN_PRODUCTS = 4, 400
"""Matrix products with fewer rows, or fewer multiplications, are summed in another order on most
processors; `min_rows` measures the limit on the present one."""
MAX_ROWS_MEASURED = 128
"""`min_rows` measures up to this many rows: its time grows with their number and with T squared."""


class Decoder(Protocol):
    """The interface that `KVCache` requires of a decoder.

    Attributes
    ----------
    walker_dim : dimension of the walkers in keys and values, where dimension 2 is the position
    n_vocab : V, the number of all tokens
    state_bytes : memory per walker besides what `allocate` returns
    without_graphs : why a GPU cannot record runs as CUDA graphs; "" if it can
    """

    walker_dim: int
    n_vocab: int
    state_bytes: int

    without_graphs: str

    @property
    def packed_bytes(self) -> int:
        """Memory of packed weights, which it holds besides the model's own."""
        ...

    def head(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return the logits, [..., V], of hidden states [..., E]."""
        ...

    def allocate(self, n_walkers: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return empty keys and values, [., ., T, ...], and hidden states, [T, W, E]."""
        ...

    def rewind(self) -> None:
        """Prepare for a run that does not go on where the last one ended."""
        ...

    def run(self, tokens: torch.Tensor, begin: int, kv: torch.Tensor) -> torch.Tensor:
        """Return the hidden states [n, W, E] of tokens, int64 [n, W], at positions from `begin` on.

        kv holds the keys and values of all positions: those before `begin` are read, and those of
        the tokens are written.
        """
        ...


def min_rows(n_positions: int, head_size: int, like: torch.Tensor) -> int:
    """Return the number of rows from which on attention is rounded alike, whatever the number.

    Libraries choose another order of summation for few rows, and the threshold depends on the
    processor. On a CPU it is measured, by comparing n rows with all T rows; T is returned if
    `MAX_ROWS_MEASURED` rows are not enough.
    """
    rows = max(MIN_ROWS, -(-MIN_PRODUCTS // (n_positions * head_size)))
    if like.device.type != "cpu":
        return rows
    random = torch.Generator().manual_seed(0)
    # Strided as in `_attend`, from [T, 12, d]; the mask hides nothing, but is added as there.
    qkv = torch.randn((3, n_positions, 12, head_size), generator=random).to(like.dtype)
    q, v = qkv[0].transpose(0, 1), qkv[2].transpose(0, 1)  # [12, T, d]
    k, mask = qkv[1].permute(1, 2, 0), like.new_zeros((n_positions, n_positions))  # [12, d, T]
    scale = 1.0 / math.sqrt(head_size)
    share = torch.rand((12, n_positions, n_positions), generator=random).to(like.dtype)

    def attend(n: int) -> tuple[torch.Tensor, torch.Tensor]:
        scores = torch.baddbmm(mask[:n], q[:, :n], k, alpha=scale)
        return scores, torch.bmm(share[:, :n].contiguous(), v)

    scores, mixed = attend(n_positions)
    most = min(n_positions - 1, MAX_ROWS_MEASURED)
    for n in range(most, rows - 1, -1):
        some_scores, some_mixed = attend(n)
        same = torch.equal(some_scores, scores[:, :n]) and torch.equal(some_mixed, mixed[:, :n])
        if not same:
            return n + 1 if n < most else n_positions
    return rows


class Gpt2Decoder:
    """GPT-2's layers (Radford et al. 2019), pre-normalized, with learned positions.

    Parameters
    ----------
    lm : transformers' model; see `is_gpt2`
    n_positions : T, of every sequence
    """

    state_bytes = 0
    without_graphs = ""

    def __init__(self, lm: GPT2LMHeadModel, n_positions: int) -> None:
        body: Any = lm.transformer
        self._n_positions, self._n_heads = n_positions, lm.config.n_head
        self._tokens, self._positions = body.wte.weight, body.wpe.weight[:n_positions, None]
        self._norm = body.ln_f
        self._gelu = GELU_KINDS[lm.config.activation_function]
        self._layers = [Layer(block) for block in body.h]
        self.head = output_head.without_gradient(lm)
        self.n_vocab = len(lm.lm_head.weight)
        n_embedded = self._tokens.shape[1]
        self._head_size = n_embedded // self._n_heads
        self._min_rows = min_rows(n_positions, self._head_size, self._tokens)
        self._scale = 1.0 / math.sqrt(self._head_size)
        self._tiny = self._head_size <= MAX_TINY_HEAD and n_positions <= MAX_TINY_LENGTH
        self.walker_dim = 4 if self._tiny else 3
        mask = torch.full((n_positions, n_positions), -torch.inf, device=self._tokens.device)
        self._mask = mask.triu_(1).to(self._tokens.dtype)
        parts = [*(part for layer in self._layers for part in vars(layer).values()), self.head]
        self.packed_bytes = sum(part.n_bytes for part in parts if isinstance(part, Linear))

    def allocate(self, n_walkers: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return keys and values [layers, 2, T, W, E], or with tiny heads [layers, 2, T, E, W]."""
        t, n_layers, e = self._n_positions, len(self._layers), self._tokens.shape[1]
        last = (e, n_walkers) if self._tiny else (n_walkers, e)
        like = self._tokens
        return like.new_zeros((n_layers, 2, t, *last)), like.new_zeros((t, n_walkers, e))

    def rewind(self) -> None:
        """Do nothing: keys and values of earlier positions are kept."""

    def run(self, tokens: torch.Tensor, begin: int, kv: torch.Tensor) -> torch.Tensor:
        """Evaluate some positions (see `Decoder.run`)."""
        end = begin + len(tokens)
        x = F.embedding(tokens, self._tokens) + self._positions[begin:end]  # [n, W, E]
        attend = self._attend_tiny if self._tiny else self._attend
        for index, layer in enumerate(self._layers):
            a = _normalize(x, layer.norm_1)
            mixed = attend(layer.to_qkv(a), begin, kv[index])
            x = layer.from_heads.plus(mixed, x)
            inner = layer.up.gelu(_normalize(x, layer.norm_2), self._gelu)
            x = layer.down.plus(inner, x)
        return _normalize(x, self._norm)

    def _attend(self, qkv: torch.Tensor, begin: int, kv: torch.Tensor) -> torch.Tensor:
        """Attend from qkv [n, W, 3 E] to kv [2, T, W, E]: [n, W, E]."""
        # Attend to all T positions under a mask, so that the order of sums does not depend on n
        n, n_walkers, e = qkv.shape[0], qkv.shape[1], kv.shape[-1]
        kv[0, begin : begin + n] = qkv[..., e : 2 * e]
        kv[1, begin : begin + n] = qkv[..., 2 * e :]
        heads = (n_walkers * self._n_heads, self._head_size)
        q, mask = qkv[..., :e], self._mask[begin : begin + n]
        more = self._min_rows - n
        if more > 0:
            q = torch.cat([q, q[-1:].expand(more, -1, -1)])
            mask = torch.cat([mask, mask[-1:].expand(more, -1)])
        q = q.reshape(len(q), *heads).transpose(0, 1)  # [W H, n, d]
        k = kv[0].view(-1, *heads).permute(1, 2, 0)  # [W H, d, T]
        v = kv[1].view(-1, *heads).transpose(0, 1)  # [W H, T, d]
        share = torch.baddbmm(mask, q, k, alpha=self._scale).softmax(-1)  # [W H, n, T]
        mixed = torch.bmm(share, v)[:, :n].transpose(0, 1)  # [n, W H, d]
        return mixed.reshape(n, n_walkers, e)

    def _attend_tiny(self, qkv: torch.Tensor, begin: int, kv: torch.Tensor) -> torch.Tensor:
        """Attend with kv [2, T, E, W]; for tiny heads, matrix products are mostly call overhead."""
        n, n_walkers, e = qkv.shape[0], qkv.shape[1], kv.shape[-2]
        across = qkv.view(n, n_walkers, 3, e).permute(0, 2, 3, 1)  # [n, 3, E, W]
        kv[:, begin : begin + n] = across[:, 1:].transpose(0, 1)
        heads = (self._n_heads, self._head_size, n_walkers)
        q = (across[:, 0] * self._scale).contiguous().view(n, *heads)
        k, v = kv[0].unflatten(1, heads[:2]), kv[1].unflatten(1, heads[:2])  # [T, H, d, W]
        mixed = q.new_empty((n, *heads))
        for i in range(n):
            seen = begin + i + 1
            share = (q[i] * k[:seen]).sum(2).softmax(0)  # [seen, H, W]
            torch.sum(share[:, :, None] * v[:seen], 0, out=mixed[i])
        return mixed.view(n, e, n_walkers).transpose(1, 2).contiguous()


class Layer:
    """One of GPT-2's layers: its norms and linear maps."""

    def __init__(self, block: Any) -> None:
        self.norm_1, self.norm_2 = block.ln_1, block.ln_2
        self.to_qkv, self.from_heads, self.up, self.down = (
            Linear(conv.weight.T, conv.bias)
            for conv in (block.attn.c_attn, block.attn.c_proj, block.mlp.c_fc, block.mlp.c_proj)
        )


def _normalize(x: torch.Tensor, norm: Any) -> torch.Tensor:
    return F.layer_norm(x, norm.normalized_shape, norm.weight, norm.bias, norm.eps)


def is_gpt2(lm: Any) -> bool:
    """Return whether `Gpt2Decoder` can evaluate this model: a GPT-2 without its rarer options."""
    config = lm.config
    return (
        type(lm) is GPT2LMHeadModel
        and config.activation_function in ("gelu_new", "gelu_pytorch_tanh", "gelu")
        and config.scale_attn_weights
        and not config.scale_attn_by_inverse_layer_idx
        and not config.add_cross_attention
    )
