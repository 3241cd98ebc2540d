"""What a kernel carries on, and what it reports."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True)
class State:
    """Walkers of one rung. The ensemble is no part of it, so that a swap invalidates nothing.

    Attributes
    ----------
    x : int64 [W, D]
    z : float32 [W], the model's output of x
    cache : what else the kernel computed from x alone (a gradient, say); `Kernel.start` makes it
    """

    x: torch.Tensor
    z: torch.Tensor
    cache: Any = None


@dataclass(frozen=True)
class Info:
    """What one move did.

    Attributes
    ----------
    accepted : bool [W]
    part : which of the kernel's `parts` moved, the same one for all walkers
    """

    accepted: torch.Tensor
    part: int = 0
