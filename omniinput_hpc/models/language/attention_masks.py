"""Causal masks that are made once, so that eager and captured passes attend in the same way.

A decoder that is given no mask chooses one itself, or leaves it to the attention's kernel; versions
5.13 to 5.17 of transformers chose otherwise while a CUDA graph was captured. A mask of four
dimensions is taken as it is. It is added to the scores, which spares each layer the conversion of a
boolean one.
"""

from __future__ import annotations

from typing import Any

import torch

ALIGNMENT = 8
"""Rows begin at multiples of so many numbers, as fused kernels for GPUs require; else each layer
copies the mask."""


class CausalMasks:
    """What n positions attend to, from `begin` on: all up to themselves.

    All masks are views of one tensor, so that nothing is allocated and addresses stay.

    Parameters
    ----------
    n_positions : T, of every sequence
    like : of the dtype and on the device of the keys
    """

    def __init__(self, n_positions: int, like: torch.Tensor) -> None:
        n_padded = -(-n_positions // ALIGNMENT) * ALIGNMENT
        hidden = torch.finfo(like.dtype).min
        mask = torch.full((n_positions, n_padded), hidden, device=like.device).triu_(1)
        self._mask = mask.to(like.dtype)[None, None]  # [1, 1, T, T'], T' >= T

    def of(self, begin: int, n: int) -> torch.Tensor:
        """Return the mask of n positions from `begin` on, [1, 1, n, begin + n]: 0 where they look.

        Elsewhere it is the lowest number.
        """
        return self._mask[:, :, begin : begin + n, : begin + n]


def narrowest_window(layers: list[Any]) -> int | None:
    """Return over how many positions a model's layers look back at least; None without a limit.

    Given are the layers of transformers' own cache of the model.
    """
    windows = [getattr(layer, "sliding_window", None) for layer in layers]
    return min((window for window in windows if window is not None), default=None)
