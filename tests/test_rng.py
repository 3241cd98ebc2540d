"""Random streams: a key decides what is drawn, and nothing else does."""

import itertools

import numpy as np
import pytest

from omniinput_hpc import rng

KEYS = [
    (seed, purpose, *indices)
    for seed, purpose, indices in itertools.product(
        (0, 1, 2**32 - 1), ("start", "moves", "exchange"), ((), (0,), (0, 0), (0, 1), (1, 0))
    )
]


def draw(key, n=8):
    return rng.generator(*key).random(n)


def test_equal_keys_give_equal_streams():
    for key in KEYS:
        np.testing.assert_array_equal(draw(key), draw(key))


def test_different_keys_give_different_streams():
    drawn = {key: draw(key) for key in KEYS}
    for one, other in itertools.combinations(KEYS, 2):
        assert not np.isin(drawn[one], drawn[other]).any(), (one, other)


def test_streams_do_not_depend_on_the_order_of_calls():
    expected = {key: draw(key) for key in KEYS}
    streams = {key: rng.generator(*key) for key in reversed(KEYS)}
    drawn = {key: [] for key in KEYS}
    for _ in range(8):  # one number of each stream in turn
        for key in KEYS:
            drawn[key].append(streams[key].random())
    for key in KEYS:
        np.testing.assert_array_equal(drawn[key], expected[key])


def test_streams_of_neighbouring_keys_are_uncorrelated():
    n = 20_000
    draws = np.stack([draw((1, "moves", rung, 0), n) for rung in range(8)])
    correlation = np.corrcoef(draws)[np.triu_indices(8, 1)]
    assert np.abs(correlation).max() < 5 / np.sqrt(n)


def test_known_numbers():
    """A change of these would change every run's bits."""
    np.testing.assert_array_equal(
        rng.generator(1, "moves", 2, 3).integers(2**63, size=3),
        [3956912527376319614, 655160225260486678, 557286803239220009],
    )


def test_an_unknown_purpose_is_refused():
    with pytest.raises(KeyError):
        rng.generator(1, "luck")


@pytest.mark.parametrize("n_indices", [0, 1, 3, 4])
def test_keys_found_at_once_are_those_of_the_streams(n_indices):
    indices = np.random.default_rng(n_indices).integers(2**32, size=(7, n_indices))
    streams = rng.Streams()
    for seed, purpose in itertools.product((0, 1, 2**32 - 1), ("moves", "exchange", "trial")):
        for row, key in zip(indices.tolist(), rng.keys(seed, purpose, indices), strict=True):
            stream, expected = streams.at(key), rng.generator(seed, purpose, *row)
            for n in (3, 8, 1):  # a key begins anew, whatever was left of the last one
                np.testing.assert_array_equal(stream.random(n), expected.random(n))
