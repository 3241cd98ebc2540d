"""The output z of a classifier: what is taken of the logits of its classes, and of which class."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

BATCH = 256
"""Inputs whose class is computed at once."""
Which = int | Literal["any"]
"""A class, counted from 0, or whichever has the largest output."""


@torch.no_grad()
def likeliest(logits_of: Callable[[torch.Tensor], torch.Tensor], x: NDArray[Any]) -> NDArray[Any]:
    """Return the class of each input of integers x [n, D], int64 [n]; on the CPU.

    A single logit is that of class 1 against class 0.
    """
    parts = torch.from_numpy(x.astype(np.int64)).split(BATCH)
    logits = torch.cat([logits_of(part) for part in parts])
    found = logits.argmax(1) if logits.shape[1] > 1 else (logits[:, 0] > 0).long()
    return np.asarray(found.numpy())


def of(logits: torch.Tensor, how: str, which: Which) -> torch.Tensor:
    """Return z, float32 [W], of the logits of C classes, float32 [W, C].

    how : "log-softmax"; "log-odds", ln of a class's probability over that of all others;
        "difference" of two logits; anything else: the logit itself
    """
    if how == "log-softmax":
        logits = logits.log_softmax(1)
    elif how == "difference":
        logits = logits - logits.flip(1)
    if how != "log-odds":
        return logits.amax(1) if which == "any" else logits[:, which]
    chosen = logits.argmax(1) if which == "any" else logits.new_full((len(logits),), which).long()
    others = logits.scatter(1, chosen[:, None], -torch.inf)
    return logits.gather(1, chosen[:, None])[:, 0] - others.logsumexp(1)
