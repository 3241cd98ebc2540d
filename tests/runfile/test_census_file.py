"""The file of a census: what is read is what was written; anything else is refused in a line."""

import numpy as np
import pytest

from omniinput_hpc.errors import UserError
from omniinput_hpc.runfile import census_file
from omniinput_hpc.runfile.census_file import NUMBERS, TEXTS, StoredCensus


def stored(**changed):
    numbers = {name: 1.0 for name in NUMBERS} | {"n_sites": 3.0, "n_values": 5.0}
    arrays = {
        "found/x": np.ones((4, 3), np.uint8), "found/z": np.ones(4, np.float32),
        "counts/inputs": np.arange(4), "bins/edges": np.arange(3.0),
        "open/x": np.zeros((0, 3), np.uint8), "open/depth": np.zeros(0, np.int64),
        "open/loss": np.zeros(0),
    }  # fmt: skip
    return StoredCensus({name: "text" for name in TEXTS}, numbers, arrays | changed)


def test_what_is_written_is_read(tmp_path):
    path = tmp_path / "a.census.h5"
    census_file.write(path, stored())
    found = census_file.read(path)
    assert found.texts == stored().texts and found.numbers == stored().numbers
    for name, array in stored().arrays.items():
        np.testing.assert_array_equal(found.arrays[name], array)
    assert [file.name for file in tmp_path.iterdir()] == ["a.census.h5"]


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"found/x": np.full((4, 3), 5, np.uint8)}, "values that no census writes"),
        ({"found/z": np.full(4, np.nan, np.float32)}, "values that no census writes"),
        ({"counts/inputs": np.array([-1, 0, 0, 0])}, "values that no census writes"),
        ({"found/x": np.ones((3, 3), np.uint8)}, "wrong shape"),
        ({"found/x": np.ones((4, 3), np.int64)}, "wrong type"),
    ],
)
def test_what_no_census_writes_is_refused(tmp_path, changed, words):
    path = tmp_path / "a.census.h5"
    census_file.write(path, stored(**changed))
    with pytest.raises(UserError, match=words):
        census_file.read(path)


def test_a_changed_byte_and_a_cut_file_are_refused(tmp_path):
    path = tmp_path / "a.census.h5"
    census_file.write(path, stored(**{"found/z": np.full(4, 1.25, np.float32)}))
    data = bytearray(path.read_bytes())
    at = data.index(np.full(4, 1.25, np.float32).tobytes())
    data[at] ^= 1
    path.write_bytes(data)
    with pytest.raises(UserError, match="does not match its checksum"):
        census_file.read(path)
    path.write_bytes(data[: len(data) // 2])
    with pytest.raises(UserError):
        census_file.read(path)


def test_another_file_is_no_census(tmp_path):
    with pytest.raises(UserError, match="no such census"):
        census_file.read(tmp_path / "a.census.h5")
    (tmp_path / "a.census.h5").write_text("text")
    with pytest.raises(UserError, match="not a readable HDF5 file"):
        census_file.read(tmp_path / "a.census.h5")
