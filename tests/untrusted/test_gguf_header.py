"""Headers of GGUF files: all that lie are refused before anything of their size is made."""

import struct

import numpy as np
import pytest
from gguf import GGUFWriter

from omniinput_hpc.errors import UserError
from omniinput_hpc.untrusted.gguf_header import StoredTensor, read_header

F32 = {0: (1, 4)}


@pytest.fixture
def path(tmp_path):
    writer = GGUFWriter(tmp_path / "a.gguf", "llama")
    writer.add_block_count(3)
    writer.add_token_list(["a", "b"])
    writer.add_array("numbers", [1, 2, 3])
    writer.add_tensor("x", np.ones((2, 16), np.float32))
    writer.add_tensor("y", np.ones(5, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return tmp_path / "a.gguf"


def test_a_header_is_read(path):
    header = read_header(path)
    assert header.settings["llama.block_count"] == 3
    assert header.settings["tokenizer.ggml.tokens"] == ["a", "b"]
    assert header.settings["numbers"] == [1, 2, 3]
    assert header.tensors == {"x": StoredTensor((2, 16), 0, 0), "y": StoredTensor((5,), 0, 128)}
    header.check_places(F32)


def claimed(path, data):
    path.write_bytes(data)
    with pytest.raises(UserError, match=r"a\.gguf cannot be loaded as GGUF") as caught:
        read_header(path).check_places(F32)
    return str(caught.value)


@pytest.mark.parametrize("place", [8, 16])
@pytest.mark.parametrize("number", [2**20, 2**40, 2**64 - 1])
def test_numbers_of_things_that_are_not_there(path, place, number):
    whole = path.read_bytes()
    claimed(path, whole[:place] + struct.pack("<Q", number) + whole[place + 8 :])


def test_any_number_of_the_header_may_lie_within_a_second(path):
    """Each eight bytes in turn are made huge: refused, or read as something else, never more."""
    whole, refusals = path.read_bytes(), 0
    for place in range(4, read_header(path).data_begin - 8):
        path.write_bytes(whole[:place] + b"\xff" * 8 + whole[place + 8 :])
        try:
            read_header(path).check_places(F32)
        except (UserError, ValueError):
            refusals += 1
    assert refusals > 100


@pytest.mark.parametrize("end", [0, 3, 8, 23, 24, 40, 100, 200])
def test_a_file_that_ends_early(path, end):
    claimed(path, path.read_bytes()[:end])


def test_places_of_tensors(path):
    header = read_header(path)
    with pytest.raises(ValueError, match="unknown type 0"):
        header.check_places({})
    with pytest.raises(ValueError, match="not a multiple of 3"):
        header.check_places({0: (3, 4)})
    with pytest.raises(ValueError, match="overlap"):
        header.check_places({0: (1, 2)})
    header.data_bytes -= 32
    with pytest.raises(ValueError, match="beyond the end"):
        header.check_places(F32)
    header.data_bytes += 64
    with pytest.raises(ValueError, match="32 bytes follow"):
        header.check_places(F32)


def test_not_gguf(path):
    assert "does not begin" in claimed(path, b"GGML" + path.read_bytes()[4:])
    whole = path.read_bytes()
    assert "version is 9" in claimed(path, b"GGUF" + struct.pack("<I", 9) + whole[8:])
