"""HDF5 files from strangers: what is looked at before anything in them is read.

A file may name other files, declare arrays larger than itself, unpack to any size, or refer to
itself in circles. Nothing of that is followed: a dataset counts when it lies in this file, under
plain links, in one piece that fits into the file, and holds plain numbers.
"""

from __future__ import annotations

import math
from typing import Any

import h5py
import numpy as np

from omniinput_hpc.errors import UserError

LARGEST_ATTRIBUTE = 1 << 20
"""Bytes; the stored input file is the longest one, a few kilobytes."""

ERRORS = (
    KeyError,
    IndexError,
    ValueError,
    TypeError,
    AttributeError,
    OSError,
    OverflowError,
    RuntimeError,
    MemoryError,
)
"""What h5py and numpy raise on broken files."""


def require(file: h5py.File, kind: str, version: int, what: str) -> None:
    """Refuse a file whose attributes say that it is of another kind or version.

    Parameters
    ----------
    kind, version : what its `format` and `format_version` must be
    what : a file of that kind, for a person

    Raises
    ------
    UserError
    """
    if "format" not in file.attrs or attribute(file, "format") != kind:
        raise UserError(f"{file.filename} is an HDF5 file, but not {what}")
    found = attribute(file, "format_version")
    if found != version:
        raise UserError(
            f"{file.filename} has format version {found}; this program reads version {version}"
        )


def dataset(file: h5py.File, name: str) -> h5py.Dataset:
    """Return a dataset of numbers that lies in this file in one piece.

    Raises
    ------
    ValueError
        It is missing, or is anything else; the text says what.
    """
    place: Any = file
    for part in name.split("/"):
        link = place.get(part, getlink=True) if isinstance(place, h5py.Group) else None
        if link is None:
            raise ValueError(f"dataset {name} is missing")
        if not isinstance(link, h5py.HardLink):
            raise ValueError(f"dataset {name} is a link to elsewhere")
        place = place[part]
    if not isinstance(place, h5py.Dataset):
        raise ValueError(f"{name} is not a dataset")
    if place.id.get_type().get_class() not in (h5py.h5t.INTEGER, h5py.h5t.FLOAT):
        raise ValueError(f"dataset {name} has another shape or type: it holds no plain numbers")
    if place.shape is None:
        raise ValueError(f"dataset {name} is empty")
    creation = place.id.get_create_plist()
    in_one_piece = creation.get_layout() == h5py.h5d.CONTIGUOUS
    n_bytes = math.prod(place.shape) * place.dtype.itemsize
    offset = place.id.get_offset() if in_one_piece else None
    if not in_one_piece or creation.get_external_count() or (n_bytes and offset is None):
        raise ValueError(f"{name} is not stored in one piece in this file")
    if (offset or 0) + n_bytes > file.id.get_filesize():
        raise ValueError(f"dataset {name} is larger than the file")
    return place


def attribute(file: h5py.File, name: str) -> Any:
    """Return an attribute: a str, an int, a float, or an array of numbers.

    Raises
    ------
    ValueError
        It is missing, too long, or anything else.
    """
    if name not in file.attrs:
        raise ValueError(f"attribute {name} is missing")
    attr = file.attrs.get_id(name)
    kind, size = attr.get_type(), attr.get_storage_size()
    plain = kind.get_class() in (h5py.h5t.INTEGER, h5py.h5t.FLOAT, h5py.h5t.STRING)
    text = kind.get_class() == h5py.h5t.STRING
    if not plain or size > LARGEST_ATTRIBUTE or (text and attr.shape != ()):
        raise ValueError(f"attribute {name} is no number, nor a short text")
    value = file.attrs[name]
    if isinstance(value, bytes):
        value = value.decode()
    if isinstance(value, str) and len(value) > LARGEST_ATTRIBUTE:
        raise ValueError(f"attribute {name} is no number, nor a short text")
    return value


def text(file: h5py.File, name: str) -> str:
    """Return an attribute that is a text (see `attribute`)."""
    value = attribute(file, name)
    if not isinstance(value, str):
        raise ValueError(f"attribute {name} is no text")
    return value


def whole_number(file: h5py.File, name: str, least: int) -> int:
    """Return an attribute that is a whole number of at least `least` (see `attribute`)."""
    value = attribute(file, name)
    if not isinstance(value, (int, np.integer)) or int(value) < least:
        raise ValueError(f"attribute {name} is no whole number of at least {least}")
    return int(value)
