"""Draws from unnormalized log-weights (scores), and their normalizers.

Scores keep their dtype (float32 from models). Sums are float64, because with 50,000 values a
float32 sum would not agree with the distribution that is drawn from.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

BLOCK_SIZE = 64
"""Number of weights that are summed in their own dtype; block sums are added in float64."""
LANES = 8
"""Number of partial sums that torch keeps when it sums a row on x86; see `short_row_sum`."""


def block_sums(scores: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return sums of exp(scores - largest) over blocks, [..., n_blocks], and largest, [...]."""
    largest = scores.amax(dim=-1)
    n = scores.shape[-1]
    if n <= BLOCK_SIZE and not scores.is_cuda:
        return short_row_sum((scores - largest[..., None]).exp_())[..., None], largest
    weights = scores.new_empty((*scores.shape[:-1], n + -n % BLOCK_SIZE))
    weights[..., n:] = 0.0
    torch.sub(scores, largest[..., None], out=weights[..., :n]).exp_()
    return weights.unflatten(-1, (-1, BLOCK_SIZE)).sum(dim=-1), largest


def short_row_sum(weights: torch.Tensor) -> torch.Tensor:
    """Return sums of rows of at most BLOCK_SIZE weights, [..., n] to [...]; overwrites `weights`.

    The order of additions is that of torch for a row padded with zeros to BLOCK_SIZE, so the bits
    are the same. Without the zeros it takes a fraction of the time.
    """
    n = weights.shape[-1]
    if n <= LANES:  # each lane holds one weight, and the lanes are added in order
        total = weights[..., 0].clone()
        for i in range(1, n):
            total += weights[..., i]
        return total
    half = 4 * LANES
    if n > half:
        weights[..., : n - half] += weights[..., half:]
    for begin in range(LANES, min(n, half), LANES):
        part = weights[..., begin : min(begin + LANES, half, n)]
        weights[..., : part.shape[-1]] += part
    return weights[..., :LANES].sum(dim=-1)


def log_sum(scores: torch.Tensor) -> torch.Tensor:
    """Return ln of the sum of exp(scores) over the last axis, float64 [...]."""
    sums, largest = block_sums(scores)
    return sums.sum(dim=-1, dtype=torch.float64).log() + largest


def draw_by_blocks(
    sums: torch.Tensor,
    largest: torch.Tensor,
    u: torch.Tensor,
    n: int,
    scores_at: Callable[[torch.Tensor], torch.Tensor],
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the results of `draw` and `log_sum`: draw a block of scores, then a score in it.

    Parameters
    ----------
    sums, largest : results of `block_sums`, [R, n_blocks] and [R]
    u : float64 [R], uniform in [0, 1)
    n : number of scores in a row
    scores_at : returns the scores of each row at the given indices, both [R, min(BLOCK_SIZE, n)]
    """
    cumulative = sums.cumsum(dim=-1, dtype=torch.float64)  # [R, n_blocks]
    total = cumulative[:, -1:]
    target = u[:, None] * total
    block = torch.searchsorted(cumulative, target, right=True)
    block = block.clamp_(max=cumulative.shape[-1] - 1)  # [R, 1]
    before = cumulative.gather(-1, block) - sums.gather(-1, block)
    size = min(BLOCK_SIZE, n)
    index = block * BLOCK_SIZE + torch.arange(size, device=u.device)  # [R, size]
    inside = (scores_at(index.clamp(max=n - 1)) - largest[:, None]).exp_()
    inside.masked_fill_(index >= n, 0.0)
    within = inside.cumsum(dim=-1, dtype=torch.float64)
    last = size - 1 - (inside > 0).flip(-1).int().argmax(dim=-1)  # in case u is 1 within rounding
    chosen = torch.searchsorted(within, target - before, right=True).squeeze(-1)
    value = block.squeeze(-1) * BLOCK_SIZE + torch.minimum(chosen, last)
    return value, total.squeeze(-1).log() + largest


def draw(scores: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
    """Draw one index per row, int64 [...], with probability proportional to exp(scores), [..., n].

    Inverts the cumulative distribution at u, float64 [...], uniform in [0, 1), so the index never
    decreases with u. Scores of -inf are never drawn.
    """
    p = (scores - scores.amax(dim=-1, keepdim=True)).exp_()
    cumulative = p.cumsum(dim=-1, dtype=torch.float64)
    target = u[..., None] * cumulative[..., -1:]
    index = torch.searchsorted(cumulative, target, right=True).squeeze(-1)
    return index.clamp_(max=scores.shape[-1] - 1)


def pick(rows: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    """Return rows[..., index], one number per row, [...], of rows [..., n] and int64 [...]."""
    return rows.gather(-1, index[..., None]).squeeze(-1)
