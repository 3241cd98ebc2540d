"""Rows of an autoregressive model's conditionals, raised to a power b: sums and draws."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch

from omniinput_hpc.kernels.look_ahead.twist import Twist
from omniinput_hpc.kernels.parts.categorical import BLOCK_SIZE, block_sums, draw_by_blocks, log_sum

CPU_CHUNK_ELEMENTS = 1 << 17
"""Elements that are processed at once on a CPU: half a megabyte in float32."""


def needs_mask(b: torch.Tensor) -> bool:
    """Return whether b l must be set to -inf explicitly at l = -inf, as for b <= 0; b is [W].

    Always true on a GPU, since reading b would synchronize.
    """
    return not b.is_cpu or bool((b <= 0).any())


def scaled_scores(rows: torch.Tensor, b: torch.Tensor, mask: bool) -> torch.Tensor:
    """Return b l, [R, n], given rows of l [R, n] and b [R]; `mask` is that of `needs_mask`."""
    scores = rows * b.to(rows.dtype)[:, None]
    return scores.masked_fill_(rows == -torch.inf, -torch.inf) if mask else scores


def log_sums(rows: torch.Tensor, b: torch.Tensor, twist: Twist | None = None) -> torch.Tensor:
    """Return ln of the sum of exp(b l) over values, float64 [..., W], of rows l [..., W, V].

    With a `twist` of these rows, the sum is over exp(b l) psi.
    """
    flat, mask = rows.reshape(-1, rows.shape[-1]), needs_mask(b)
    b = b.expand(rows.shape[:-1]).reshape(-1)
    parts = [log_sum(_scores(flat, b, mask, twist, some)) for some in _slices(flat)]
    return torch.cat(parts).view(rows.shape[:-1])


def log_sums_of_powers(row: torch.Tensor, b_k: torch.Tensor) -> torch.Tensor:
    """Return ln of the sum of exp(b_k l) over values, float64 [W, K], of rows l [W, V], b_k [K]."""
    if not row.is_cpu:  # whose powers cannot be told apart without waiting
        return torch.stack([log_sums(row, b.expand(len(row))) for b in b_k], dim=1)
    # all powers of some rows, while these are in the CPU's cache
    return torch.cat([_sums_of_powers(row[some], b_k) for some in _slices(row)])


def _sums_of_powers(part: torch.Tensor, b_k: torch.Tensor) -> torch.Tensor:
    """Return the sums of `log_sums_of_powers` of rows on a CPU."""
    n = part.shape[1]
    largest = part.amax(dim=1, keepdim=True)  # of l, and so of b l for b > 0
    below = part.new_full((len(part), n + -n % BLOCK_SIZE), -torch.inf)
    torch.sub(part, largest, out=below[:, :n])
    weights, sums = torch.empty_like(below), []
    for b in b_k:
        if b < 0:
            sums.append(log_sum(scaled_scores(part, b.expand(len(part)), True)))
            continue
        if b > 0:
            # exp2 takes less than half the time of exp
            torch.mul(below, float(b) / math.log(2.0), out=weights).exp2_()
        else:
            torch.gt(below, -torch.inf, out=weights)
        blocks = weights.unflatten(1, (-1, BLOCK_SIZE)).sum(dim=2)
        sums.append(blocks.sum(dim=1, dtype=torch.float64).log() + b * largest[:, 0])
    return torch.stack(sums, dim=1)


def draw_scaled(
    row: torch.Tensor, b: torch.Tensor, u: torch.Tensor, twist: Twist | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Draw values from exp(b l) / Z; return them, int64 [W], and ln Z, float64 [W].

    With a `twist` of the rows, the draws are from exp(b l) psi / Z'.
    """
    mask = needs_mask(b)
    kept: list[torch.Tensor] = []

    def sums_of(some: slice) -> tuple[torch.Tensor, torch.Tensor]:
        scores = _scores(row, b, mask, twist, some)
        if twist is not None:
            kept.append(scores)
        return block_sums(scores)

    sums, largest = (torch.cat(p) for p in zip(*map(sums_of, _slices(row)), strict=True))

    def scores_at(index: torch.Tensor) -> torch.Tensor:
        if twist is not None:
            return torch.cat(kept).gather(1, index)
        return scaled_scores(row.gather(1, index), b, mask)

    return draw_by_blocks(sums, largest, u, row.shape[1], scores_at)


def _scores(
    rows: torch.Tensor, b: torch.Tensor, mask: bool, twist: Twist | None, some: slice
) -> torch.Tensor:
    """Return b l, or b l + ln psi with a twist, of some rows."""
    scores = scaled_scores(rows[some], b[some], mask)
    return scores if twist is None else twist.rows(some).add_to(scores)


def _slices(rows: torch.Tensor) -> Iterator[slice]:
    """Yield slices of rows [n, V] that stay in the CPU's cache from one operation to the next."""
    n, n_values = rows.shape
    width = max(1, CPU_CHUNK_ELEMENTS // n_values) if rows.is_cpu else n
    for begin in range(0, n, width):
        yield slice(begin, begin + width)
