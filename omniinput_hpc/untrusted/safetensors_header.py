"""Reading the header of a safetensors file and checking it against the file's size."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omniinput_hpc.errors import UserError
from omniinput_hpc.untrusted.files import open_regular
from omniinput_hpc.untrusted.parsing import parse_json

MAX_HEADER_BYTES = 1 << 25
"""Ample: 100 bytes per tensor; the largest models, with 100,000 tensors, use many files."""
MAX_AXES = 16
_LENGTH_BYTES = 8
_BITS = {
    "BOOL": 8, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8,
    "F8_E5M2FNUZ": 8, "I16": 16, "U16": 16, "F16": 16, "BF16": 16, "I32": 32, "U32": 32, "F32": 32,
    "C64": 64, "F64": 64, "I64": 64, "U64": 64, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6,
}  # fmt: skip


@dataclass(frozen=True)
class Tensor:
    """The entry of one tensor in the header: its type (such as "F32") and its shape."""

    dtype: str
    shape: tuple[int, ...]

    @property
    def n_numbers(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)


def read_header(path: Path) -> dict[str, Tensor]:
    """Return the tensors of a safetensors file by name.

    The tensors must fill the file after the header without holes, and each must have the size that
    its shape and type imply. Raises a `UserError` if the file is invalid or unreadable.
    """
    try:
        with open_regular(path) as file:
            size = os.fstat(file.fileno()).st_size
            length = int.from_bytes(file.read(_LENGTH_BYTES), "little")
            if not 2 <= length <= min(MAX_HEADER_BYTES, size - _LENGTH_BYTES):
                raise ValueError("the header's length is out of range")
            header = parse_json(file.read(length), unique_keys=True)
        return _tensors(header, size - _LENGTH_BYTES - length)
    except OSError as error:
        reason = error.strerror or str(error)
    except ValueError as error:
        reason = str(error)
    raise UserError(f"{path} cannot be loaded as safetensors: {reason}; is it complete?")


def _tensors(header: Any, n_bytes: int) -> dict[str, Tensor]:
    if not isinstance(header, dict):
        raise ValueError("the header is not a JSON object")
    metadata = header.pop("__metadata__", None) or {}
    texts = isinstance(metadata, dict) and all(isinstance(v, str) for v in metadata.values())
    if not texts:
        raise ValueError("the header's __metadata__ holds values other than text")
    found, parts = {}, []
    for name, entry in header.items():
        found[name], begin, end = _tensor(name, entry)
        parts.append((begin, end))
    place = 0
    for begin, end in sorted(parts):
        if begin != place:
            raise ValueError("its tensors overlap, or leave holes")
        place = end
    if place != n_bytes:
        raise ValueError(f"its tensors need {place:,} bytes, but it holds {n_bytes:,} for them")
    return found


def _tensor(name: str, entry: Any) -> tuple[Tensor, int, int]:
    """Return a tensor and the offsets of its first byte and of its end, counted from the header."""
    shown = repr(name[:60])
    if not isinstance(entry, dict):
        raise ValueError(f"the header's entry {shown} is not a JSON object")
    dtype: Any = entry.get("dtype")
    shape: Any = entry.get("shape")
    place: Any = entry.get("data_offsets")
    if not isinstance(dtype, str) or dtype not in _BITS:
        raise ValueError(f"tensor {shown} has no known dtype")
    if not _are_sizes(shape) or len(shape) > MAX_AXES:
        raise ValueError(f"tensor {shown} has no usable shape")
    if not _are_sizes(place) or len(place) != 2:
        raise ValueError(f"tensor {shown} has no usable data_offsets")
    tensor = Tensor(dtype, tuple(shape))
    n_bits = tensor.n_numbers * _BITS[dtype]
    if n_bits % 8 or place[1] - place[0] != n_bits // 8:
        raise ValueError(f"tensor {shown} has data_offsets that do not fit its shape and dtype")
    return tensor, place[0], place[1]


def _are_sizes(value: Any) -> bool:
    return isinstance(value, list) and all(type(v) is int and 0 <= v < 2**63 for v in value)
