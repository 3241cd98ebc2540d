"""Sums of few weights have the bits of a row that zeros fill up, and draws follow the weights."""

import platform

import pytest
import torch

from omniinput_hpc.kernels.parts.categorical import (
    BLOCK_SIZE,
    block_sums,
    draw,
    draw_by_blocks,
    log_sum,
    pick,
)

SIZES = range(1, BLOCK_SIZE + 1)
SAME_ORDER = pytest.mark.skipif(
    platform.machine() not in ("x86_64", "AMD64"), reason="torch adds in another order here"
)


def scores_of(n, shape=(7, 40), forbidden=True):
    """Return float32 scores, one value of each row forbidden where there are two or more."""
    generator = torch.Generator().manual_seed(n)
    scores = torch.randn((*shape, n), generator=generator) * 3
    if forbidden and n > 1:
        site = torch.randint(n, (*shape, 1), generator=generator)
        scores.scatter_(-1, site, -torch.inf)
    return scores


def padded_sums(scores):
    """Return the same sums from rows that are filled up with zeros, [..., 1]."""
    weights = scores.new_zeros((*scores.shape[:-1], BLOCK_SIZE))
    weights[..., : scores.shape[-1]] = (scores - scores.amax(-1, keepdim=True)).exp()
    return weights.unflatten(-1, (-1, BLOCK_SIZE)).sum(-1)


@SAME_ORDER
@pytest.mark.parametrize("n", SIZES)
def test_sums_of_few_weights_have_the_bits_of_padded_rows(n):
    scores = scores_of(n)
    before = scores.clone()
    sums, largest = block_sums(scores)
    assert torch.equal(scores, before)  # what is asked about is not written to
    assert sums.dtype == torch.float32
    assert torch.equal(sums, padded_sums(scores))
    assert torch.equal(largest, scores.amax(-1))


@SAME_ORDER
def test_another_order_of_additions_has_other_bits():
    plain = [
        (s - s.amax(-1, keepdim=True)).exp().sum(-1, keepdim=True) for s in map(scores_of, SIZES)
    ]
    same = [torch.equal(a, padded_sums(scores_of(n))) for a, n in zip(plain, SIZES, strict=True)]
    assert sum(same) < 20


@pytest.mark.parametrize("n", [*SIZES, 65, 128, 200])
def test_sums_are_right(n):
    scores = scores_of(n)
    exact = scores.double().logsumexp(-1)
    assert (log_sum(scores) - exact).abs().max() < 3e-7


@pytest.mark.parametrize("n", [1, 2, 9, 33, 64, 65, 200])
def test_a_draw_by_blocks_inverts_the_cumulative_distribution(n):
    scores = scores_of(n, (64,))
    u = torch.linspace(0, 1, 64, dtype=torch.float64).clamp(max=1 - 2**-53)
    sums, largest = block_sums(scores)
    index, log_z = draw_by_blocks(sums, largest, u, n, lambda i: scores.gather(1, i))
    assert torch.equal(index, draw(scores, u))
    assert (pick(scores, index) > -torch.inf).all()
    assert torch.equal(log_z, log_sum(scores))
