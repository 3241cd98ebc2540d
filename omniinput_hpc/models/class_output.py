"""The output z of a classifier: what is taken of the logits of its classes, and of which class."""

from __future__ import annotations

from typing import Literal

import torch

Which = int | Literal["any"]
"""A class, counted from 0, or whichever has the largest output."""


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
