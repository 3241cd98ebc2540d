"""What a kernel carries on, and what it reports."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class State:
    """Walkers of one rung. The ensemble is no part of it, so that a swap invalidates nothing.

    Attributes
    ----------
    x : int64 [W, D]
    z : float32 [W], the model's output of x
    """

    x: torch.Tensor
    z: torch.Tensor


@dataclass(frozen=True)
class Info:
    """What one move did.

    Attributes
    ----------
    accepted : bool [W]
    """

    accepted: torch.Tensor
