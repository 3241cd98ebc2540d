"""Open prefixes and found inputs: the limits, and what is said of all beyond them."""

import numpy as np
import pytest

from omniinput_zoo.census.found import Found
from omniinput_zoo.census.frontier import Frontier, Nodes, batches_of, lowest


def nodes(depth, loss, n_sites=4):
    depth = np.array(depth, dtype=np.int64)
    x = np.zeros((len(depth), n_sites), dtype=np.uint8)
    x[:, 0] = np.arange(len(depth))
    return Nodes(x, depth, np.array(loss, dtype=np.float64))


@pytest.mark.parametrize("n", [0, 1, 3, 4, 9])
def test_the_lowest_are_found_also_among_equal_ones(n):
    loss = np.array([2.0, 1.0, 1.0, 1.0, 0.5, 3.0])
    keep = lowest(loss, n)
    assert keep.sum() == min(n, 6)
    assert sorted(loss[keep]) == sorted(loss)[:n]


def test_beyond_the_limit_the_highest_are_dropped_and_counted():
    frontier = Frontier(nodes([], []), 3, n_values=4, n_free=1)
    frontier.add(nodes([1, 2, 2, 3, 1], [0.0, 5.0, 1.0, 2.0, 4.0]))
    assert sorted(frontier.nodes.loss) == [0.0, 1.0, 2.0]
    assert frontier.lost_mass == pytest.approx(np.exp(-4.0) + np.exp(-5.0))
    assert (frontier.least_lost, frontier.least) == (4.0, 0.0)
    assert frontier.open_mass == pytest.approx(np.exp([-0.0, -1, -2, -4, -5]).sum())


def test_a_prefix_without_its_free_sites_stands_for_all_their_values():
    assert Frontier(nodes([0], [0.0]), 9, n_values=4, n_free=2).open_mass == pytest.approx(16.0)


@pytest.mark.parametrize("n", [1, 2, 3, 5, 6, 7])
def test_pop_takes_the_lowest_or_the_longest(n):
    depth, loss = [1, 3, 2, 3, 1, 2], [0.0, 3.0, 1.0, 2.0, 0.5, 4.0]
    best, deep = (Frontier(nodes(depth, loss), 9, 4, 1) for _ in range(2))
    assert sorted(best.pop(n, True).loss) == sorted(loss)[:n]
    popped = deep.pop(n, False)
    order = sorted(zip(depth, loss, strict=True), key=lambda pair: (-pair[0], pair[1]))
    assert sorted(zip(popped.depth, popped.loss, strict=True)) == sorted(order[:n])
    assert len(popped) + len(deep.nodes) == 6


def test_batches_are_of_one_length_and_hold_all():
    all_nodes = nodes([1, 3, 1, 3, 1, 2], np.arange(6.0))
    found = batches_of(all_nodes, 2)
    assert [set(batch.depth) for batch in found] == [{1}, {1}, {2}, {3}]
    assert sorted(np.concatenate([batch.loss for batch in found])) == list(range(6))


def test_parts_of_some_lengths_become_nodes():
    none = Nodes.empty(3, 300)
    joined = none.of_parts([(np.array([[7]]), np.array([0.5])), (np.zeros((1, 0), int), [0.0])])
    assert joined.x.tolist() == [[7, 0, 0], [0, 0, 0]] and joined.x.dtype == np.uint16
    assert joined.depth.tolist() == [1, 0]


def test_all_are_counted_and_the_lowest_listed():
    random = np.random.default_rng(1)
    found = Found(np.linspace(0.2, 0.8, 7), np.zeros((0, 3), dtype=np.uint8), limit=10)
    z = random.random(100).astype(np.float32)
    z[50:60] = z[0]  # equal ones are listed together, or not at all
    x = random.integers(0, 5, (100, 3)).astype(np.uint8)
    for some in range(0, 100, 20):
        found.add(x[some : some + 20], z[some : some + 20])
    found.sort()
    assert found.count_b.sum() == 100
    assert found.count_b[-2] == (z < 0.2).sum()
    listed = np.sort(z[z < found.least_unlisted])
    np.testing.assert_array_equal(found.z, listed)
    assert 0 < len(listed) <= 10
    assert found.n_up_to(float(listed[3])) == 4
