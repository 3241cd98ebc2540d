"""The ladder's arithmetic: placement, pairs, exact acceptance, round trips."""

import itertools

import numpy as np
import pytest

from omniinput_hpc.tempering import ladder
from omniinput_hpc.tempering.ensembles import Canonical


def test_placement_shares_neighbouring_rungs():
    for n_ranks in (1, 2, 4, 8):
        held = [k for rank in range(n_ranks) for k in ladder.placement(8, n_ranks, rank)]
        assert held == list(range(8))
    with pytest.raises(ValueError, match="do not divide"):
        ladder.placement(8, 3, 0)


@pytest.mark.parametrize(("n_rungs", "n_blocks"), [(4, 4), (1, 6), (6, 4), (5, 1), (3, 8)])
def test_a_grid_of_ranks_holds_every_block_once(n_rungs, n_blocks):
    for n_ranks in range(1, n_rungs * n_blocks + 1):
        if n_rungs * n_blocks % n_ranks:
            with pytest.raises(ValueError, match="do not divide"):
                ladder.Grid(n_rungs, n_blocks, n_ranks)
            continue
        grid, held = ladder.Grid(n_rungs, n_blocks, n_ranks), []
        for rank in range(n_ranks):
            mine = list(itertools.product(grid.rungs(rank), grid.blocks(rank)))
            assert len(mine) == n_rungs * n_blocks // n_ranks
            held += mine
            for k in range(n_rungs):
                other = grid.owner(k, rank)
                assert k in grid.rungs(other) and grid.blocks(other) == grid.blocks(rank)
                assert (other == rank) == (k in grid.rungs(rank))
            assert all(0 in grid.blocks(rank) for _ in grid.written(rank))
        assert sorted(held) == list(itertools.product(range(n_rungs), range(n_blocks)))
        written = [k for rank in range(n_ranks) for k in grid.written(rank)]
        assert written == list(range(n_rungs)) and 0 in grid.rungs(0)


def test_a_grid_without_blocks_is_the_placement():
    for n_ranks in (1, 2, 4, 8):
        grid = ladder.Grid(8, 1, n_ranks)
        for rank in range(n_ranks):
            assert grid.rungs(rank) == grid.written(rank) == ladder.placement(8, n_ranks, rank)


def test_blocks_cut_the_lanes():
    lanes = [w for b in range(3) for w in ladder.Block(5, b, 3).lanes(12)]
    assert lanes == list(range(12))
    assert ladder.Block(5).lanes(12) == range(12)
    assert ladder.Block(5).key == () and ladder.Block(5, 2, 3).key == (2,)


def test_pairs_alternate_and_never_overlap():
    for n_rungs in range(1, 9):
        even, odd = ladder.pairs(n_rungs, 4), ladder.pairs(n_rungs, 7)
        assert sorted([*even, *odd]) == list(range(n_rungs - 1))
        for some in (even, odd):
            rungs = [r for k in some for r in (k, k + 1)]
            assert len(rungs) == len(set(rungs))


def test_a_holders_pairs_are_those_that_it_takes_part_in():
    for n_rungs, exchange in itertools.product(range(1, 9), range(2)):
        for start, stop in itertools.combinations(range(n_rungs + 1), 2):
            wanted = [
                k
                for k in ladder.pairs(n_rungs, exchange)
                if start <= k < stop or start <= k + 1 < stop
            ]
            assert list(ladder.pairs_of(range(start, stop), n_rungs, exchange)) == wanted


def swap_matrix(accept, lower, upper, z):
    """Return the exact transition of (x, y) in two rungs, by bisection on u."""
    n = len(z)
    p = np.eye(n * n)
    pairs = list(itertools.product(range(n), repeat=2))
    x, y = (np.array([z[p[i]] for p in pairs], dtype=np.float32) for i in range(2))
    low, high = np.zeros(n * n), np.ones(n * n)
    for _ in range(60):
        middle = (low + high) / 2
        accepted = accept(lower, upper, x, y, middle)
        low, high = np.where(accepted, middle, low), np.where(accepted, high, middle)
    for index, (i, j) in enumerate(pairs):
        swapped = pairs.index((j, i))
        if swapped != index:
            p[index, index], p[index, swapped] = 1 - low[index], low[index]
    return p


def check_swaps(accept):
    z = np.array([0.5, -1.25, 3.0, 0.75, 2.5])
    lower, upper = Canonical(-0.5), Canonical(1.5)
    p = swap_matrix(accept, lower, upper, z)
    weight = np.exp(lower.log_weight(z)[:, None] + upper.log_weight(z)[None, :]).ravel()
    pi = weight / weight.sum()
    assert 0.5 * np.abs(pi @ p - pi).sum() < 1e-10
    assert np.trace(p) < len(p) - 1


def test_swaps_leave_the_product_of_the_ensembles_invariant():
    check_swaps(ladder.accept_swaps)


def wrong_sign(lower, upper, x, y, u):
    return ladder.accept_swaps(lower, upper, y, x, u)


def always(lower, upper, x, y, u):
    return np.ones(len(u), dtype=bool)


def never(lower, upper, x, y, u):
    return np.zeros(len(u), dtype=bool)


@pytest.mark.parametrize("wrong", [wrong_sign, always, never])
def test_wrong_swaps_fail(wrong):
    with pytest.raises(AssertionError):
        check_swaps(wrong)


def test_a_round_trip_is_bottom_top_bottom():
    trips = np.zeros(2, dtype=np.int64)
    walker = np.array([0, 1], dtype=np.int32)
    direction = np.zeros(2, dtype=np.int8)

    def visit(at_bottom):
        return ladder.count_round_trips(direction, walker, at_bottom, trips)

    direction = visit(False)
    assert direction.tolist() == [0, 0]  # the top counts only after the bottom
    direction = visit(True)
    direction = visit(True)
    assert trips.tolist() == [0, 0]
    direction = visit(False)
    direction = visit(False)
    direction = visit(True)
    assert trips.tolist() == [1, 1]
