"""Headers of safetensors: all that lie are refused before any tensor is read."""

import json
import os

import numpy as np
import pytest
from safetensors.numpy import save_file

from omniinput_hpc.errors import UserError
from omniinput_hpc.untrusted.safetensors_header import Tensor, read_header

MAX_HEADER_BYTES = 100_000_000  # of the library safetensors
TENSORS = {"a": np.ones((2, 3), np.float32), "b": np.ones(5, np.int8), "c": np.ones((), np.int64)}


@pytest.fixture
def path(tmp_path):
    save_file(TENSORS, tmp_path / "model.safetensors", metadata={"format": "pt"})
    return tmp_path / "model.safetensors"


def parts(path):
    whole = path.read_bytes()
    n = int.from_bytes(whole[:8], "little")
    return json.loads(whole[8 : 8 + n]), whole[8 + n :]


def write(path, header, data):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


def test_a_header_is_read(path):
    assert read_header(path) == {
        "a": Tensor("F32", (2, 3)), "b": Tensor("I8", (5,)), "c": Tensor("I64", ())
    }  # fmt: skip
    assert {t.n_numbers for t in read_header(path).values()} == {6, 5, 1}
    save_file({}, path)
    assert read_header(path) == {}
    save_file({"empty": np.ones((0, 4), np.float32), **TENSORS}, path)
    assert read_header(path)["empty"].n_numbers == 0


def entry(**changes):
    def change(header):
        header["a"] |= changes

    return change


def put(name, value):
    def change(header):
        header[name] = value

    return change


def holes(header):
    for name in "ab":
        header[name]["data_offsets"] = [n + 8 for n in header[name]["data_offsets"]]


def overlap(header):
    header["d"] = dict(header["a"])


CHANGES = {
    "an entry that is a list": put("a", [1]),
    "an entry that is null": put("a", None),
    "metadata that is no object": put("__metadata__", "pt"),
    "metadata of numbers": put("__metadata__", {"format": 1}),
    "no dtype": entry(dtype=None),
    "an unknown dtype": entry(dtype="F31"),
    "a dtype that is a list": entry(dtype=["F32"]),
    "a shape that is a number": entry(shape=6),
    "a negative shape": entry(shape=[-2, -3]),
    "a shape of floats": entry(shape=[2.0, 3.0]),
    "a shape of true": entry(shape=[True, 6]),
    "a huge shape": entry(shape=[2**62, 2**62]),
    "a shape beyond 64 bits": entry(shape=[10**25]),
    "a shape of 1,000 axes": entry(shape=[1] * 1000),
    "offsets of floats": entry(data_offsets=[0.0, 24.0]),
    "offsets upside down": entry(data_offsets=[24, 0]),
    "offsets of one": entry(data_offsets=[0]),
    "offsets beyond the file": entry(data_offsets=[10**15, 10**15 + 24]),
    "offsets that do not fit the shape": entry(data_offsets=[0, 23]),
    "a shape that does not fit the offsets": entry(shape=[2, 4]),
    "a dtype that does not fit the offsets": entry(dtype="F64"),
    "holes": holes,
    "tensors over each other": overlap,
}


def refused(path):
    with pytest.raises(UserError) as caught:
        read_header(path)
    assert "cannot be loaded as safetensors" in str(caught.value) and len(str(caught.value)) < 600
    return str(caught.value)


@pytest.mark.parametrize("name", CHANGES)
def test_a_header_that_lies_is_refused(path, name):
    header, data = parts(path)
    CHANGES[name](header)
    write(path, header, data)
    refused(path)


@pytest.mark.timeout(120)
def test_files_that_are_no_safetensors_are_refused(path):
    header, data = parts(path)
    write(path, header, data + b"\0")
    assert "file not fully covered" in refused(path)
    write(path, header, data[:-1])
    refused(path)
    for text in (b"[]", b"1", b"{", b"\xff\xff", b"{" * 100_000, b'{"a": 1, "a": 2}', b"NaN"):
        write(path, text, b"")
        refused(path)
    twice = json.dumps(header).encode().replace(b'"b"', b'"a"')
    write(path, twice, data)
    refused(path)
    for length in (0, 1, MAX_HEADER_BYTES + 1, 2**63, 2**64 - 1):
        path.write_bytes(length.to_bytes(8, "little") + b"{}")
        refused(path)
    with path.open("wb") as file:  # a header of all that is allowed, in a file of holes
        file.write(MAX_HEADER_BYTES.to_bytes(8, "little"))
        file.truncate(1 << 40)
    refused(path)
    path.write_bytes(b"")
    refused(path)
    path.unlink()
    os.mkfifo(path)
    assert "it is a named pipe" in refused(path)
