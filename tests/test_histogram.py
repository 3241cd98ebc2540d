"""The histogram of z: edges, groups of lanes, sums; every move counts once."""

import numpy as np
import pytest

from omniinput_hpc.histogram import Histogram, bin_of, groups_of, lane_groups

EDGES = 0.0 + np.arange(11) * 0.1


def test_bins_are_half_open_and_the_last_one_closed():
    z = np.array([-1e-9, 0.0, 0.1, np.nextafter(0.1, 0), EDGES[3], EDGES[-1], 1.1])
    assert bin_of(z, EDGES).tolist() == [-1, 0, 1, 0, 3, 9, 10]


@pytest.mark.parametrize(
    "edges",
    [
        np.linspace(-2.03125, 2.03125, 66), np.linspace(0.0, 12.0, 1201), np.linspace(-1e3, 3.0, 9),
        0.1 + 0.3 * np.arange(5), np.array([0.0, 1.0, 5.0, 5.5, 9.0]), np.array([-1.0, 2.0]),
    ],
)  # fmt: skip
def test_a_bin_is_what_a_search_finds(edges):
    random = np.random.default_rng(2)
    z = random.normal(edges.mean(), np.ptp(edges), 5000)
    near = random.choice(edges, 300)
    extreme = [np.inf, -np.inf, np.nan, 1e308, -1e308, -0.0]
    z = np.concatenate([z, near, np.nextafter(near, -np.inf), np.nextafter(near, np.inf), extreme])
    found = np.searchsorted(edges, z, side="right") - 1
    np.testing.assert_array_equal(bin_of(z, edges), np.where(z == edges[-1], len(edges) - 2, found))
    assert bin_of(z.reshape(2, -1), edges).shape == (2, len(z) // 2)
    assert bin_of(z[:0], edges).shape == (0,)


def test_float32_outputs_are_binned_in_float64():
    z = np.float32(0.3)  # 0.30000001192..., above the edge 0.30000000000000004
    assert bin_of(np.array([z], dtype=np.float64), EDGES)[0] == 3


@pytest.mark.parametrize("n_walkers", [1, 5, 16, 20, 64])
def test_groups_of_lanes(n_walkers):
    group = lane_groups(n_walkers)
    n_groups = min(16, n_walkers)
    assert group.tolist() == [w * n_groups // n_walkers for w in range(n_walkers)]
    assert set(group) == set(range(n_groups))


def test_counts_agree_with_numpy():
    random = np.random.default_rng(1)
    z = random.uniform(-0.2, 1.3, size=(50, 20)).astype(np.float32)
    histogram = Histogram(EDGES, 20)
    histogram.add(z[:30])
    histogram.add(z[30:])
    z64 = z.astype(np.float64)
    inside = (z64 >= EDGES[0]) & (z64 <= EDGES[-1])
    np.testing.assert_array_equal(histogram.counts_b, np.histogram(z64, EDGES)[0])
    np.testing.assert_array_equal(histogram.outside, [(z64 < 0).sum(), (z64 > EDGES[-1]).sum()])
    np.testing.assert_allclose(histogram.z_sum_b.sum(), z64[inside].sum(), rtol=1e-12)
    for group in range(16):
        lanes = lane_groups(20) == group
        expected = np.histogram(z64[:, lanes], EDGES)[0]
        np.testing.assert_array_equal(histogram.lane_counts_gb[group], expected)
    histogram.clear_round()
    assert histogram.counts_b.sum() == 0
    assert histogram.lane_counts_gb.sum() == inside.sum()
    histogram.clear_all()
    assert histogram.lane_counts_gb.sum() == histogram.z_sum_b.sum() == 0


def spread(random, shape):
    """Return outputs of many magnitudes, so that sums depend on the order, float32."""
    return np.exp(random.uniform(-30.0, 0.0, size=shape)).astype(np.float32)


@pytest.mark.parametrize(("n_walkers", "n_blocks"), [(12, 3), (48, 3), (64, 32), (20, 4)])
def test_blocks_of_lanes_count_what_the_rung_does(n_walkers, n_blocks):
    """Also where a group of lanes is in two blocks, or several blocks are in one group."""
    z_tw = spread(np.random.default_rng(2), (9, n_walkers))
    whole, width = Histogram(EDGES, n_walkers), n_walkers // n_blocks
    whole.add(z_tw)
    lane_counts_gb, counts_b = np.zeros_like(whole.lane_counts_gb), 0
    for begin in range(0, n_walkers, width):
        lanes = range(begin, begin + width)
        block, groups = Histogram(EDGES, n_walkers, lanes), groups_of(lanes, n_walkers)
        assert sorted(set(lane_groups(n_walkers)[begin : begin + width])) == list(groups)
        block.add(z_tw[:, begin : begin + width])
        lane_counts_gb[groups.start : groups.stop] += block.lane_counts_gb
        counts_b += block.counts_b
    np.testing.assert_array_equal(lane_counts_gb, whole.lane_counts_gb)
    np.testing.assert_array_equal(counts_b, whole.counts_b)


@pytest.mark.parametrize("n_walkers", [1, 5, 64])
@pytest.mark.parametrize("outside", [0.0, 0.3, 1.0])
def test_many_bins_are_counted_with_the_same_bits(monkeypatch, n_walkers, outside):
    edges, found = np.linspace(0.0, 1.0, 5001), []
    for most in (0, 10**9):  # only the cells met, and all of them
        monkeypatch.setattr("omniinput_hpc.histogram.SPARSE_FROM", most)
        random, histogram = np.random.default_rng(3), Histogram(edges, n_walkers)
        for _ in range(4):
            z = spread(random, (50, n_walkers))
            z[random.random(z.shape) < outside] = 1.5
            histogram.add(z)
        found.append(histogram)
    for name in ("counts_b", "outside", "lane_counts_gb", "z_sum_b", "moments", "extremes"):
        one, other = (getattr(histogram, name) for histogram in found)
        assert one.tobytes() == other.tobytes(), name
    assert found[0].counts_b.sum() + found[0].outside.sum() == 200 * n_walkers
    assert (found[0].counts_b > 1).any() or outside == 1.0
    assert found[0].lane_counts_gb.sum() == found[0].counts_b.sum()


def test_sums_in_another_order_have_other_bits():
    """What the test above would see: partial sums of a segment count, not each output alone."""
    z = spread(np.random.default_rng(3), (500, 3))
    histogram = Histogram(np.linspace(0.0, 1.0, 5), 3)
    at_once = np.zeros(4)
    for part in z.reshape(5, 100, 3):
        histogram.add(part)
        each = part.astype(np.float64)[::-1].reshape(-1)
        np.add.at(at_once, bin_of(each, np.linspace(0.0, 1.0, 5)), each)
    np.testing.assert_allclose(histogram.z_sum_b, at_once, rtol=1e-12)
    assert histogram.z_sum_b.tobytes() != at_once.tobytes()


@pytest.mark.parametrize("edges", [EDGES, np.array([0.0, 0.1, 0.5, 0.55, 1.0])])
def test_compiled_code_counts_the_same(edges):
    random = np.random.default_rng(1)
    z = random.uniform(-0.2, 1.3, size=(50, 20)).astype(np.float32)
    z[:8, 0], z[8, 1] = random.choice(edges, 8), edges[-1]
    plain, compiled = Histogram(edges, 20), Histogram(edges, 20)
    compiled.compile()
    for histogram in (plain, compiled):
        histogram.add(z[:30])
        histogram.add(z[30:])
    for name in ("counts_b", "outside", "lane_counts_gb", "extremes"):
        np.testing.assert_array_equal(getattr(plain, name), getattr(compiled, name))
        assert getattr(plain, name).dtype == getattr(compiled, name).dtype
    for name in ("z_sum_b", "moments"):
        np.testing.assert_allclose(getattr(plain, name), getattr(compiled, name), rtol=1e-12)
