"""Linear layers whose weights are stored as oneDNN multiplies fastest, on a CPU."""

from __future__ import annotations

import copy
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn

from omniinput_hpc.models.language.foreign_code import ForeignError, as_close

PACKED_ROWS = 1024
"""Number of rows for which the layout of packed weights is optimized; any number works."""
MAX_BYTES = 4 << 30
"""Largest size of layers that `packed_body` packs, since both copies of the weights are kept."""


class Linear:
    """A linear map x W^T + b, W [out, in]; on a CPU oneDNN fuses it with the next operation.

    Attributes
    ----------
    n_bytes : memory of the packed weights; 0 if they are not packed
    """

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None) -> None:
        self.weight, self.bias = weight.detach(), None if bias is None else bias.detach()
        self._packed = packs(weight)
        self.n_bytes = self.weight.nbytes if self._packed else 0
        if self._packed:
            reorder = torch.ops.mkldnn._reorder_linear_weight
            self.weight = reorder(self.weight.contiguous(), PACKED_ROWS)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Return x W^T + b."""
        if not self._packed:
            return F.linear(x, self.weight, self.bias)
        return self._onednn(x, "none", "")

    def gelu(self, x: torch.Tensor, kind: str) -> torch.Tensor:
        """Return gelu(x W^T + b), `kind` "tanh" or "none" (exact)."""
        if not self._packed:
            return F.gelu(F.linear(x, self.weight, self.bias), approximate=kind)
        return self._onednn(x, "gelu", kind)

    def plus(self, x: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        """Return x W^T + b + other."""
        if not self._packed:
            return F.linear(x, self.weight, self.bias).add_(other)
        fused = torch.ops.mkldnn._linear_pointwise.binary
        y: torch.Tensor = fused(x, other, self.weight, self.bias, "add")
        return y

    def _onednn(self, x: torch.Tensor, after: str, kind: str) -> torch.Tensor:
        fused = torch.ops.mkldnn._linear_pointwise
        y: torch.Tensor = fused(x, self.weight, self.bias, after, [], kind)
        return y


def packs(weight: torch.Tensor) -> bool:
    """Return whether oneDNN has kernels for these weights."""
    if weight.device.type != "cpu" or not torch.backends.mkldnn.is_available():
        return False
    if weight.dtype == torch.bfloat16:
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    return weight.dtype == torch.float32


def packed_body(body: nn.Module) -> nn.Module:
    """Return a copy of a module whose linear layers are packed; the module itself if none can be.

    The copy shares everything else with the module, and computes no gradients.
    """
    layers = {layer for layer in body.modules() if type(layer) is nn.Linear and packs(layer.weight)}
    n_bytes = sum(layer.weight.nbytes for layer in layers)
    return _copy(body, {}) if 0 < n_bytes <= MAX_BYTES else body


def packed_if_same(lm: nn.Module, evaluate: Callable[[nn.Module], list[torch.Tensor]]) -> nn.Module:
    """Return the packed copy of a model if `evaluate` returns the same; else the model itself."""
    other = packed_body(lm)
    if other is lm:
        return lm
    try:
        with torch.no_grad():
            pairs = zip(evaluate(other), evaluate(lm), strict=True)
            same = all(as_close(*pair, next(lm.parameters()).dtype) for pair in pairs)
    except ForeignError:  # a model whose parts hold on to each other cannot be copied this way
        return lm
    return other if same else lm


def packed_bytes(body: nn.Module) -> int:
    """Return the memory of the packed weights of a module that `packed_body` returned."""
    found = (vars(module).get("forward") for module in body.modules())
    return sum(linear.n_bytes for linear in found if isinstance(linear, Linear))


def _copy(module: nn.Module, copies: dict[nn.Module, nn.Module]) -> nn.Module:
    if module not in copies:
        copies[module] = copied = copy.copy(module)
        if type(module) is nn.Linear and packs(module.weight):
            copied.forward = Linear(module.weight, module.bias)
        copied._modules = {
            name: None if child is None else _copy(child, copies)
            for name, child in module._modules.items()
        }
    return copies[module]
