"""Drawing from unnormalized log-weights, and their normalizers.

Scores are used in the type in which they come (float32 from models); sums are float64, because at
50,000 values a float32 sum would not agree with the law that is drawn.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F

BLOCK = 64
"""Weights that are summed in their own type; sums of blocks are float64."""


def _blocks(scores: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return exp(scores - largest) in blocks, [..., n_blocks, BLOCK], and largest, [...]."""
    largest = scores.amax(dim=-1)
    n = scores.shape[-1]
    weights = scores.new_empty((*scores.shape[:-1], n + -n % BLOCK))
    weights[..., n:] = 0.0
    torch.sub(scores, largest[..., None], out=weights[..., :n]).exp_()
    return weights.unflatten(-1, (-1, BLOCK)), largest


def log_sum(scores: torch.Tensor) -> torch.Tensor:
    """Return ln of the sum of exp(scores) over the last dimension, float64 [...]."""
    weights, largest = _blocks(scores)
    return weights.sum(dim=-1).sum(dim=-1, dtype=torch.float64).log() + largest


def draw_and_sum(scores: torch.Tensor, u: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Do what `draw` and `log_sum` do, in one pass: first a block is drawn, then one of it.

    Returns
    -------
    int64 [...], nondecreasing in u; float64 [...]
    """
    weights, largest = _blocks(scores)
    cumulative = weights.sum(dim=-1).cumsum(dim=-1, dtype=torch.float64)  # [..., n_blocks]
    total = cumulative[..., -1]
    target = (u * total)[..., None]
    block = torch.searchsorted(cumulative, target, right=True)
    block = block.clamp_(max=cumulative.shape[-1] - 1)  # [..., 1]
    before = F.pad(cumulative, (1, 0)).gather(-1, block)
    inside = weights.take_along_dim(block[..., None], dim=-2).squeeze(-2)  # [..., BLOCK]
    within = inside.cumsum(dim=-1, dtype=torch.float64)
    last = BLOCK - 1 - (inside > 0).flip(-1).int().argmax(dim=-1)  # u within rounding of its end
    index = torch.searchsorted(within, target - before, right=True).squeeze(-1)
    index = torch.minimum(index, last)
    return block.squeeze(-1) * BLOCK + index, total.log() + largest


def draw(scores: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
    """Draw one index per row with probability proportional to exp(scores).

    Parameters
    ----------
    scores : [..., n]; -inf is never drawn
    u : float64 [...], uniform in [0, 1)

    Returns
    -------
    int64 [...], nondecreasing in u (the inverse of the cumulative distribution)
    """
    p = (scores - scores.amax(dim=-1, keepdim=True)).exp_()
    cumulative = p.cumsum(dim=-1, dtype=torch.float64)
    target = u[..., None] * cumulative[..., -1:]
    index = torch.searchsorted(cumulative, target, right=True).squeeze(-1)
    return index.clamp_(max=scores.shape[-1] - 1)


def pick(rows: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    """Return rows[..., index], one number per row: [..., n] and int64 [...] give [...]."""
    return rows.gather(-1, index[..., None]).squeeze(-1)
