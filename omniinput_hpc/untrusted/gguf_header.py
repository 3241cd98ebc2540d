"""Reading the header of a GGUF file (llama.cpp's format) and checking it against the file's size.

A header is a table of settings (including the tokenizer) and a list of tensors. All counts and
lengths in it are compared with the remaining bytes before anything of that size is allocated.
"""

from __future__ import annotations

import math
import os
import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from omniinput_hpc.errors import UserError
from omniinput_hpc.untrusted.files import open_regular

MAGIC = b"GGUF"
VERSIONS = (2, 3)
MAX_HEADER_BYTES = 1 << 28
"""Ample: a vocabulary of 260,000 tokens with its merges takes about 15 MB."""
MAX_SETTINGS = 1 << 14
MAX_TENSORS = 100_000
MAX_NAME_BYTES = 1 << 12
MAX_AXES = 4
MAX_ALIGNMENT = 1 << 16
_DEFAULT_ALIGNMENT = 32
_STRING, _ARRAY, _BOOL = 8, 9, 7
_NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "B", 10: "Q", 11: "q",
            12: "d"}  # fmt: skip


@dataclass(frozen=True)
class StoredTensor:
    """The entry of one tensor in the header."""

    shape: tuple[int, ...]  # the fastest axis last
    type_number: int  # GGML's number of the type
    offset: int  # in bytes, from `GgufHeader.data_begin`

    @property
    def n_numbers(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)


@dataclass
class GgufHeader:
    """The content of a header.

    Attributes
    ----------
    settings : by name, e.g. "llama.block_count"; arrays are lists
    tensors : by name
    data_begin, data_bytes : offset of the tensor data in the file, and their size
    alignment : of the tensors' offsets, in bytes
    """

    settings: dict[str, Any] = field(default_factory=dict)
    tensors: dict[str, StoredTensor] = field(default_factory=dict)
    data_begin: int = 0
    data_bytes: int = 0
    alignment: int = _DEFAULT_ALIGNMENT

    def check_places(self, block_of_type: dict[int, tuple[int, int]]) -> None:
        """Raise a ValueError unless the tensors fill the data of the file without holes.

        block_of_type : for each type, the elements per block and the bytes per block
        """
        place = 0
        for name, tensor in sorted(self.tensors.items(), key=lambda item: item[1].offset):
            shown = repr(name[:60])
            if tensor.type_number not in block_of_type:
                raise ValueError(f"tensor {shown} has the unknown type {tensor.type_number}")
            numbers, n_bytes = block_of_type[tensor.type_number]
            if tensor.shape[-1] % numbers:
                raise ValueError(f"the row length of tensor {shown} is not a multiple of {numbers}")
            if tensor.offset != place:
                raise ValueError("its tensors overlap, or leave holes")
            end = tensor.offset + tensor.n_numbers // numbers * n_bytes
            if end > self.data_bytes:
                raise ValueError(f"tensor {shown} ends beyond the end of the file")
            place = _aligned(end, self.alignment)
        if place < self.data_bytes:
            raise ValueError(f"{self.data_bytes - place:,} bytes follow its last tensor")


def read_header(path: Path) -> GgufHeader:
    """Return the header of a GGUF file. Raise a `UserError` if it is invalid or unreadable."""
    try:
        with open_regular(path) as file:
            return _Reader(file).header()
    except OSError as error:
        reason = error.strerror or str(error)
    except ValueError as error:
        reason = str(error)
    raise refusal(path, reason)


def refusal(path: Path, reason: str) -> UserError:
    """Return the error for a file that cannot be used."""
    return UserError(f"{path} cannot be loaded as GGUF: {reason}; is it complete?")


class _Reader:
    """Reads the parts of a header in order; raises a ValueError if the header is invalid."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._size = os.fstat(file.fileno()).st_size
        self._left = min(self._size, MAX_HEADER_BYTES)

    def header(self) -> GgufHeader:
        """Return the whole header."""
        if self._bytes(4) != MAGIC:
            raise ValueError("it does not begin like a GGUF file")
        version = self._number("I")
        if version not in VERSIONS:
            raise ValueError(
                f"its version is {version}, but only {VERSIONS[0]} and {VERSIONS[1]} are supported"
            )
        n_tensors = self._count(MAX_TENSORS, "tensors")
        n_settings = self._count(MAX_SETTINGS, "settings")
        found = GgufHeader()
        for _ in range(n_settings):
            key = self._string(MAX_NAME_BYTES)
            if key in found.settings:
                raise ValueError(f"its setting {key[:60]!r} occurs twice")
            found.settings[key] = self._value(self._number("I"), nested=False)
        for _ in range(n_tensors):
            name = self._string(MAX_NAME_BYTES)
            if name in found.tensors:
                raise ValueError(f"its tensor {name[:60]!r} occurs twice")
            found.tensors[name] = self._tensor(name)
        alignment = found.settings.get("general.alignment", _DEFAULT_ALIGNMENT)
        if type(alignment) is not int or not 1 <= alignment <= MAX_ALIGNMENT or alignment % 8:
            raise ValueError("its general.alignment is not a usable number")
        found.alignment = alignment
        found.data_begin = _aligned(self._file.tell(), alignment)
        found.data_bytes = max(self._size - found.data_begin, 0)
        return found

    def _tensor(self, name: str) -> StoredTensor:
        n_axes = self._number("I")
        if not 1 <= n_axes <= MAX_AXES:
            raise ValueError(f"its tensor {name[:60]!r} has {n_axes} axes")
        shape = tuple(self._number("Q") for _ in range(n_axes))[::-1]
        if not all(0 < size < 2**40 for size in shape) or math.prod(shape) > 2**44:
            raise ValueError(f"its tensor {name[:60]!r} has no usable shape")
        type_number = self._number("I")
        return StoredTensor(shape, type_number, self._number("Q"))

    def _value(self, kind: int, nested: bool) -> Any:
        if kind == _STRING:
            return self._string(self._left)
        if kind in _NUMBERS:
            number = self._number(_NUMBERS[kind])
            return bool(number) if kind == _BOOL else number
        if kind != _ARRAY or nested:
            raise ValueError(f"a setting has the unknown type {kind}")
        element, count = self._number("I"), self._number("Q")
        if element == _STRING:
            if 8 * count > self._left:
                raise ValueError("the file ends inside its header")
            return [self._string(self._left) for _ in range(count)]
        if element not in _NUMBERS:
            raise ValueError(f"an array of settings has the unknown type {element}")
        letter = _NUMBERS[element]
        if count > self._left:  # before a list of that length is allocated
            raise ValueError("the file ends inside its header")
        data = self._bytes(count * struct.calcsize(f"<{letter}"))
        return list(struct.unpack(f"<{count}{letter}", data))

    def _count(self, most: int, what: str) -> int:
        count: int = self._number("Q")
        if count > most:
            raise ValueError(f"it claims to hold {count:,} {what}")
        return count

    def _string(self, most: int) -> str:
        length = self._number("Q")
        if length > most:
            raise ValueError("the file ends inside its header, or a name in it is too long")
        # Tokens need not be valid UTF-8: llama.cpp writes their raw bytes.
        return self._bytes(length).decode("utf-8", errors="replace")

    def _number(self, letter: str) -> Any:
        (number,) = struct.unpack(f"<{letter}", self._bytes(struct.calcsize(f"<{letter}")))
        return number

    def _bytes(self, n: int) -> bytes:
        if n > self._left:
            raise ValueError("the file ends inside its header, or the header is too long")
        data = self._file.read(n)
        if len(data) != n:
            raise ValueError("the file ends inside its header")
        self._left -= n
        return data


def _aligned(place: int, alignment: int) -> int:
    return -(-place // alignment) * alignment
