"""What no run writes is found, and what a run can write is not."""

import numpy as np
import pytest

from omniinput_hpc.config.space import Space
from omniinput_hpc.runfile import consistency

NAN, INF = np.nan, np.inf


@pytest.mark.parametrize(("beta_k", "flat", "ascending", "words"), [
    ([-1.0, 0.0, 2.0], False, True, None),
    ([2.0], False, True, None),
    ([NAN, NAN, 0.0, 1.0], True, True, None),
    ([NAN], True, True, None),
    ([0.0, 1.0, 1.0], False, False, None),  # Gaussian rungs
    ([0.0, 1.0, 1.0], False, True, "1 on rung 1, 1 on rung 2"),
    ([0.0, 2.0, 1.0], False, True, "2 on rung 1, 1 on rung 2"),
    ([NAN, 2.0, 1.0], True, True, "2 on rung 1, 1 on rung 2"),
    ([NAN, 1.0], False, True, "not finite"),
    ([0.0, INF], False, True, "not finite"),
    ([0.0, NAN, 1.0], True, True, "not finite"),  # flat rungs come first
])  # fmt: skip
def test_betas(beta_k, flat, ascending, words):
    found = list(consistency.betas(np.array(beta_k), flat, ascending))
    assert (found == []) == (words is None)
    assert words is None or words in found[0]


def test_edges():
    assert not list(consistency.edges(np.arange(4.0)))
    for wrong in ([0.0, 0.0, 1.0], [0.0, NAN, 1.0], [0.0, INF], [1.0, 0.0]):
        assert list(consistency.edges(np.array(wrong)))


def test_inputs_and_outputs():
    x = np.array([[0, 3]], dtype=np.uint8)
    assert not list(consistency.inputs(x, Space(4)))
    assert not list(consistency.inputs(x[:0], Space(4)))
    assert list(consistency.inputs(x, Space(3))) == ["a value of x is 3, not below 3"]
    assert not list(consistency.inputs(x + np.uint8(252), Space(256)))
    assert not list(consistency.outputs(np.zeros(3, np.float32)))
    bad = np.array([0.0, NAN, INF], np.float32)
    assert list(consistency.outputs(bad)) == ["2 outputs are not finite"]


def test_numbers_and_counts():
    walker = np.array([0, 7], np.int32)
    assert not list(consistency.walkers(walker, 8)) and not list(consistency.walkers(walker[:0], 8))
    assert list(consistency.walkers(walker, 7)) and list(consistency.walkers(walker - 1, 8))
    counts = np.array([0, 3])
    assert not list(consistency.not_negative(counts))
    assert list(consistency.not_negative(counts - 1)) == ["a count is -1"]


def test_counts_add_up():
    counts_kb, outside_k2 = np.array([[3, 4], [5, 0]], np.uint32), np.array([[0, 1], [2, 1]])
    assert not list(consistency.counted(counts_kb, outside_k2, 8))
    outside_k2[1] += 1
    assert list(consistency.counted(counts_kb, outside_k2, 8)) == [(1, "10 counts for 8 moves")]


def test_no_more_is_accepted_than_attempted():
    attempted, accepted = np.array([[5, 5], [5, 0], [5, 5]]), np.array([[5, 0], [5, 1], [-1, 2]])
    assert [k for k, _ in consistency.accepted(attempted, accepted)] == [1, 2]
    assert [k for k, _ in consistency.accepted(attempted[:, 0], accepted[:, 0])] == [2]


def test_means_lie_in_their_bins():
    edges, counts_kb = np.array([0.0, 1.0, 2.0]), np.array([[2, 2], [0, 3]])
    z_sum_kb = np.array([[1.0, 4.0], [0.0, 3.0]])
    assert not list(consistency.sums_of_z(z_sum_kb, counts_kb, edges))
    for wrong in (NAN, INF, -0.1, 2.1):
        z_sum_kb[0, 0] = wrong
        assert [k for k, _ in consistency.sums_of_z(z_sum_kb, counts_kb, edges)] == [0]
