"""Slabs: who writes what of a dataset in a round (test_layout.py tiles every dataset by them)."""

import pytest

from omniinput_hpc.runfile.fields import Field, entry_of, shape_of, slab

ALL = range(4)


@pytest.mark.parametrize(("per", "over", "round_", "rungs", "expected"), [
    ("round", "rung", 3, range(2, 4), (3, slice(2, 4))),
    ("round", "rung", -1, ALL, None),
    ("round", "pair", 3, ALL, (3, slice(0, 3))),
    ("round", "pair", 3, range(3, 4), None),
    ("round", "bottom", 3, range(2), (3,)),
    ("round", "bottom", 3, range(2, 4), None),
    ("parity", "rung", -3, ALL, (1, slice(0, 4))),
    ("parity", "rung", 4, ALL, (0, slice(0, 4))),
    ("counted parity", "rung", -1, ALL, None),
    ("counted parity", "rung", 5, ALL, (1, slice(0, 4))),
    ("burn-in", "rung", -1, range(1, 2), (slice(1, 2),)),
    ("burn-in", "rung", 0, ALL, None),
    ("once", "rung", 0, ALL, None),
    ("round", "rung", 3, range(0), None),
    ("round", "bottom", 3, range(0), None),
    ("burn-in", "rung", -1, range(0), None),
])  # fmt: skip
def test_slabs(per, over, round_, rungs, expected):
    assert slab(Field((9, 4, 5), "f8", per, over), round_, rungs, 4) == expected


@pytest.mark.parametrize(("round_", "expected"), [
    (0, None), (2, None), (3, (0, slice(1, 3))), (4, None), (7, (1, slice(1, 3))),
    (9, (2, slice(1, 3))), (-1, None), (-4, None),
])  # fmt: skip
def test_slabs_of_blocks_are_written_at_their_end_or_the_runs(round_, expected):
    field = Field((3, 4, 5), "f8", "block", rounds_per_block=4, rounds=10)
    assert slab(field, round_, range(1, 3), 4) == expected
    assert entry_of(field, 6) == 1 and entry_of(Field((9, 4), "f8", "parity"), 6) == 0


def test_shapes_of_slabs():
    field = Field((9, 4, 5), "f8", "round")
    assert shape_of(field, (3, slice(1, 3))) == (2, 5)
    assert shape_of(field, (3,)) == (4, 5)
    assert shape_of(field, (slice(2, 30),)) == (7, 4, 5)
