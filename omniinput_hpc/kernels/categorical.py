"""Drawing from unnormalized log-weights, and their normalizers.

Scores are used in the type in which they come (float32 from models); sums are float64, because at
50,000 values a float32 sum would not agree with the law that is drawn.
"""

from __future__ import annotations

import torch


def log_sum(scores: torch.Tensor) -> torch.Tensor:
    """Return ln of the sum of exp(scores) over the last dimension, float64 [...]."""
    largest = scores.amax(dim=-1, keepdim=True)
    total = (scores - largest).exp_().sum(dim=-1, dtype=torch.float64)
    return total.log() + largest.squeeze(-1)


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
