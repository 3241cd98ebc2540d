"""Causal masks that are made once, so that eager and captured passes attend in the same way.

A decoder without a mask chooses one itself, or leaves the choice to the attention kernel;
transformers 5.13 to 5.17 chose differently while a CUDA graph was captured. A mask of four
dimensions is used unchanged. It holds numbers to be added to the scores, which saves each layer the
conversion of a boolean mask.
"""

from __future__ import annotations

from typing import Any

import torch

ALIGNMENT = 8
"""Rows begin at multiples of this many numbers, as fused GPU kernels require; otherwise each layer
copies the mask."""


class CausalMasks:
    """Masks by which each of n positions, from `begin` on, attends to itself and those before it.

    All masks are views of one tensor, so that nothing is allocated and addresses do not change.

    Parameters
    ----------
    n_positions : T, of every sequence
    like : a tensor with the dtype and device of the keys
    """

    def __init__(self, n_positions: int, like: torch.Tensor) -> None:
        n_padded = -(-n_positions // ALIGNMENT) * ALIGNMENT
        hidden = torch.finfo(like.dtype).min
        mask = torch.full((n_positions, n_padded), hidden, device=like.device).triu_(1)
        self._mask = mask.to(like.dtype)[None, None]  # [1, 1, T, T'], T' >= T

    def of(self, begin: int, n: int) -> torch.Tensor:
        """Return the mask of n positions, [1, 1, n, begin + n]: 0 if visible, else the minimum."""
        return self._mask[:, :, begin : begin + n, : begin + n]


def narrowest_window(layers: list[Any]) -> int | None:
    """Return the smallest sliding window among layers of transformers' cache; None without one."""
    windows = [getattr(layer, "sliding_window", None) for layer in layers]
    return min((window for window in windows if window is not None), default=None)
