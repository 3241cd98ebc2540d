"""The output layer of a language model: logits in float32, from weights of any precision."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from omniinput_hpc.models.language.packed import Linear


def gives_float32(weight: torch.Tensor) -> bool:
    """Return whether torch can multiply these half-precision weights and keep sums in float32.

    CUDA's libraries can, from torch 2.8 on; elsewhere a product is rounded to half precision.
    """
    half = weight.dtype in (torch.bfloat16, torch.float16)
    return half and on_cuda(weight) and "dtype" in torch.ops.aten.mm.overloads()


def on_cuda(weight: torch.Tensor) -> bool:
    """Return whether a tensor is on an NVIDIA GPU."""
    return weight.is_cuda and torch.version.cuda is not None


class Float32Head:
    """Logits, float32 [..., V], of hidden states [..., E], by weights [V, E] of half precision.

    In bfloat16, logits of 8 to 16 are spaced by 1/16; here they are never rounded to that. It
    requires weights for which `gives_float32` is true.
    """

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None) -> None:
        self._weight = weight.detach()
        self._bias = None if bias is None else bias.detach()

    def __call__(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return the logits."""
        flat = hidden.reshape(-1, hidden.shape[-1])
        logits = torch.mm(flat, self._weight.T, out_dtype=torch.float32)  # [., V]
        if self._bias is not None:
            logits += self._bias
        return logits.view(*hidden.shape[:-1], -1)


def head_of(lm: Any) -> Callable[[torch.Tensor], torch.Tensor]:
    """Return the map from hidden states to logits: a `Float32Head`, or the model's own layer.

    The model's own layer rounds logits to the dtype of its weights.
    """
    layer = lm.get_output_embeddings()
    if type(layer) is torch.nn.Linear and gives_float32(layer.weight):
        return Float32Head(layer.weight, layer.bias)
    own: Callable[[torch.Tensor], torch.Tensor] = layer
    return own


def without_gradient(lm: Any) -> Callable[[torch.Tensor], torch.Tensor]:
    """Return the same map, which need not compute gradients: on a CPU with packed weights."""
    head = head_of(lm)
    return Linear(head.weight, head.bias) if type(head) is torch.nn.Linear else head
