"""Drawing from unnormalized log-weights, and their normalizers.

Scores are used in the type in which they come (float32 from models); sums are float64, because at
50,000 values a float32 sum would not agree with the distribution that is drawn from.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

BLOCK_SIZE = 64
"""Weights that are summed in their own type; sums of blocks are float64."""


def block_sums(scores: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return sums of exp(scores - largest) over blocks, [..., n_blocks], and largest, [...]."""
    largest = scores.amax(dim=-1)
    n = scores.shape[-1]
    weights = scores.new_empty((*scores.shape[:-1], n + -n % BLOCK_SIZE))
    weights[..., n:] = 0.0
    torch.sub(scores, largest[..., None], out=weights[..., :n]).exp_()
    return weights.unflatten(-1, (-1, BLOCK_SIZE)).sum(dim=-1), largest


def log_sum(scores: torch.Tensor) -> torch.Tensor:
    """Return ln of the sum of exp(scores) over the last dimension, float64 [...]."""
    sums, largest = block_sums(scores)
    return sums.sum(dim=-1, dtype=torch.float64).log() + largest


def draw_by_blocks(
    sums: torch.Tensor,
    largest: torch.Tensor,
    u: torch.Tensor,
    n: int,
    scores_at: Callable[[torch.Tensor], torch.Tensor],
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return what `draw` and `log_sum` return: draw a block of scores, then one score of it.

    Parameters
    ----------
    sums, largest : of each row, [R, n_blocks] and [R]; see `block_sums`
    u : float64 [R], uniform in [0, 1)
    n : how many scores a row has
    scores_at : returns the scores of each row at some indices, [R, BLOCK_SIZE] of int64 alike
    """
    cumulative = sums.cumsum(dim=-1, dtype=torch.float64)  # [R, n_blocks]
    total = cumulative[:, -1:]
    target = u[:, None] * total
    block = torch.searchsorted(cumulative, target, right=True)
    block = block.clamp_(max=cumulative.shape[-1] - 1)  # [R, 1]
    before = cumulative.gather(-1, block) - sums.gather(-1, block)
    index = block * BLOCK_SIZE + torch.arange(BLOCK_SIZE, device=u.device)  # [R, BLOCK_SIZE]
    inside = (scores_at(index.clamp(max=n - 1)) - largest[:, None]).exp_()
    inside.masked_fill_(index >= n, 0.0)
    within = inside.cumsum(dim=-1, dtype=torch.float64)
    last = BLOCK_SIZE - 1 - (inside > 0).flip(-1).int().argmax(dim=-1)  # for u within rounding of 1
    chosen = torch.searchsorted(within, target - before, right=True).squeeze(-1)
    value = block.squeeze(-1) * BLOCK_SIZE + torch.minimum(chosen, last)
    return value, total.squeeze(-1).log() + largest


def draw(scores: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
    """Draw one index per row, int64 [...], with probability proportional to exp(scores), [..., n].

    Scores of -inf are never drawn. The index does not decrease with u, float64 [...], uniform in
    [0, 1): the cumulative distribution is inverted.
    """
    p = (scores - scores.amax(dim=-1, keepdim=True)).exp_()
    cumulative = p.cumsum(dim=-1, dtype=torch.float64)
    target = u[..., None] * cumulative[..., -1:]
    index = torch.searchsorted(cumulative, target, right=True).squeeze(-1)
    return index.clamp_(max=scores.shape[-1] - 1)


def pick(rows: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    """Return rows[..., index], one number per row: [..., n] and int64 [...] give [...]."""
    return rows.gather(-1, index[..., None]).squeeze(-1)
