"""Arrays as bytes: what was packed comes back, and a message that is cut off is noticed."""

import numpy as np
import pytest

from omniinput_hpc.parallel.messages import Message, packed

WALKER = np.dtype([("x", np.uint16, (3,)), ("z", np.float32), ("direction", np.int8)])
ARRAYS = [
    np.arange(6, dtype=np.uint8).reshape(2, 3),
    np.array(1.5),
    np.zeros((0, 4), dtype=np.int64),
    np.arange(12.0).reshape(3, 4)[:, ::2],  # not contiguous
    np.array([((1, 2, 3), 0.5, -1), ((4, 5, 6), np.nan, 1)], dtype=WALKER),
]


def test_arrays_come_back():
    message = Message(packed(ARRAYS))
    for array in ARRAYS:
        found = message.take(array.shape, array.dtype)
        assert found.dtype == array.dtype
        assert found.shape == array.shape and found.tobytes() == array.tobytes()
        found[...] = array  # it can be written
    assert message.left == 0


def test_a_message_without_arrays_is_empty():
    assert packed([]).shape == (0,)


def test_a_message_that_is_too_short_is_noticed():
    data = packed(ARRAYS)
    with pytest.raises(ValueError, match=r"size|reshape|divis"):
        Message(data[:5]).take((2, 3), np.uint8)
