"""A .npy file is read whole or refused in one sentence."""

import io

import numpy as np
import pytest

from omniinput_hpc.errors import UserError
from omniinput_hpc.untrusted.npy import read_array


def test_an_array_comes_back(tmp_path):
    array = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
    np.save(tmp_path / "a.npy", array)
    np.testing.assert_array_equal(read_array(tmp_path / "a.npy", "a"), array)


def huge():
    """Return a file whose header speaks of a million million numbers, and which holds one."""
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        file, {"descr": "<f8", "fortran_order": False, "shape": (10**12,)}
    )
    return file.getvalue() + bytes(8)


def pickled():
    file = io.BytesIO()
    np.save(file, np.array([{"a": 1}], dtype=object))
    return file.getvalue()


@pytest.mark.parametrize(
    "content", [b"", b"\x93NUMPY", huge(), pickled(), b"PK\x03\x04" + bytes(9)]
)
def test_what_is_no_such_file(tmp_path, content):
    (tmp_path / "a.npy").write_bytes(content)
    with pytest.raises(UserError, match="--thing cannot be read: "):
        read_array(tmp_path / "a.npy", "--thing")
