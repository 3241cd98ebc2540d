"""Checks of untrusted HDF5 files before any data are read.

A file may link to other files, declare arrays larger than itself, decompress to any size, or link
to itself in circles. All of this is refused: a dataset must be in this file under hard links,
contiguous and within the file's size, and hold plain numbers.
"""

from __future__ import annotations

import math
import os
import stat
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, Self

import h5py
import numpy as np

from omniinput_hpc.errors import UserError
from omniinput_hpc.runfile import hdf5_trial
from omniinput_hpc.text import first_line
from omniinput_hpc.untrusted.files import open_regular

MAX_ATTRIBUTE_BYTES = 1 << 20
"""Ample: the longest attribute is the stored input file, a few kilobytes."""

ERRORS = (
    LookupError,
    ValueError,
    TypeError,
    AttributeError,
    OSError,
    OverflowError,
    RuntimeError,
    MemoryError,
)
"""Exceptions that h5py and numpy raise on broken files."""


class NotHdf5(UserError):
    """A file that HDF5 does not recognize: it has another format or a damaged header."""


class UntrustedFile(ABC):
    """An HDF5 file opened for reading, with its header checked, as a context manager.

    `tried` says that HDF5 is known not to crash on the file (see `hdf5_trial`): rank 0 tests each
    file once, for all ranks.

    Raises a UserError if the file is missing, unreadable, not HDF5 (`NotHdf5`) or damaged
    (`DAMAGED`).
    """

    NAME: ClassVar[str]
    DAMAGED: ClassVar[type[UserError]] = UserError

    def __init__(self, path: Path, tried: bool = False) -> None:
        self.path = path
        crash = None if tried else hdf5_trial.crash_on(path)
        if crash is not None:
            raise self.DAMAGED(f"{path} is damaged: the HDF5 library {crash} when it reads it")
        if os.path.isdir(path):
            raise UserError(f"{path} is a folder; expected a {self.NAME}")
        if not is_file(path):
            raise UserError(f"{path}: no such {self.NAME}")
        try:
            open_regular(path).close()  # its errors say more than h5py's
            self._file = h5py.File(path, "r", locking=False)
        except OSError as error:
            if error.errno:
                raise unreadable(path, error) from None
            raise NotHdf5(f"{path} is not a readable HDF5 file") from None
        try:
            with self._damage_as_user_error():
                self._read_header()
        except UserError:
            self._file.close()
            raise

    @abstractmethod
    def _read_header(self) -> None:
        """Read and check everything that later reads rely on."""

    @contextmanager
    def _damage_as_user_error(self) -> Iterator[None]:
        try:
            yield
        except ERRORS as error:
            words = f"{self.path} is not a valid {self.NAME}: {first_line(error)}"
            raise self.DAMAGED(words) from None

    def attributes(self) -> dict[str, Any]:
        """Return the attributes of the file: texts, numbers, arrays of numbers."""
        found = {}
        for name in self._file.attrs:
            try:
                found[name] = attribute(self._file, name)
            except ERRORS:
                continue  # no run writes such an attribute
        return found

    def _number_or(self, name: str, default: int) -> int:
        """Return an attribute of at least `default`; older files, which lack it, have `default`."""
        if name not in self._file.attrs:
            return default
        with self._damage_as_user_error():
            return whole_number(self._file, name, default)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def is_file(path: Path) -> bool:
    """Return whether there is a regular file. Raise a UserError if that cannot be determined."""
    try:
        return stat.S_ISREG(os.stat(path).st_mode)
    except (FileNotFoundError, NotADirectoryError, ValueError):  # a zero byte in the name
        return False
    except OSError as error:
        raise unreadable(path, error) from None


def unreadable(path: Path, error: OSError) -> UserError:
    """Return the error for a file that the operating system cannot read."""
    return UserError(f"{path} cannot be read: {_reason(error)}")


def unwritable(path: Path, error: OSError) -> UserError:
    """Return the error for a file that cannot be opened for writing."""
    return UserError(f"{path} cannot be opened for writing: {_reason(error)}")


def _reason(error: OSError) -> str:
    return os.strerror(error.errno) if error.errno else first_line(error)


def require(file: h5py.File, kind: str, versions: tuple[int, ...], name: str) -> int:
    """Return the format version of a file.

    Raises a `UserError` unless it has the given format and version; `name` is for messages.
    """
    if "format" not in file.attrs or attribute(file, "format") != kind:
        raise UserError(f"{file.filename} is an HDF5 file, but not {name}")
    found = attribute(file, "format_version")
    if np.ndim(found) or found not in versions:
        readable = " and ".join(map(str, versions))
        raise UserError(
            f"{file.filename} has format version {found}; this program reads version {readable}"
        )
    return int(found)


def dataset(file: h5py.File, name: str) -> h5py.Dataset:
    """Return a contiguous dataset of numbers.

    Raises a ValueError if it is missing or of another kind.
    """
    place: Any = file
    for part in name.split("/"):
        link = place.get(part, getlink=True) if isinstance(place, h5py.Group) else None
        if link is None:
            raise ValueError(f"dataset {name} is missing")
        if not isinstance(link, h5py.HardLink):
            raise ValueError(f"dataset {name} is not a hard link")
        place = place[part]
    if not isinstance(place, h5py.Dataset):
        raise ValueError(f"{name} is not a dataset")
    if place.id.get_type().get_class() not in (h5py.h5t.INTEGER, h5py.h5t.FLOAT):
        raise ValueError(f"dataset {name} has the wrong type: it does not hold plain numbers")
    if place.shape is None:
        raise ValueError(f"dataset {name} is empty")
    creation = place.id.get_create_plist()
    contiguous = creation.get_layout() == h5py.h5d.CONTIGUOUS
    n_bytes = math.prod(place.shape) * place.dtype.itemsize
    offset = place.id.get_offset() if contiguous else None
    if not contiguous or creation.get_external_count() or (n_bytes and offset is None):
        raise ValueError(f"{name} is not contiguous in this file")
    if (offset or 0) + n_bytes > file.id.get_filesize():
        raise ValueError(f"dataset {name} is larger than the file")
    return place


def attribute(file: h5py.File, name: str) -> Any:
    """Return an attribute: a str, an int, a float, or an array of numbers.

    Raises a ValueError if it is missing, too long, or of another kind.
    """
    if name not in file.attrs:
        raise ValueError(f"attribute {name} is missing")
    attr = file.attrs.get_id(name)
    kind, size = attr.get_type(), attr.get_storage_size()
    plain = kind.get_class() in (h5py.h5t.INTEGER, h5py.h5t.FLOAT, h5py.h5t.STRING)
    text = kind.get_class() == h5py.h5t.STRING
    if not plain or size > MAX_ATTRIBUTE_BYTES or (text and attr.shape != ()):
        raise ValueError(f"attribute {name} is neither a number nor a short text")
    value = file.attrs[name]
    if isinstance(value, bytes):
        value = value.decode()
    if isinstance(value, str) and len(value) > MAX_ATTRIBUTE_BYTES:
        raise ValueError(f"attribute {name} is neither a number nor a short text")
    return value


def text(file: h5py.File, name: str) -> str:
    """Return a text attribute (see `attribute`)."""
    value = attribute(file, name)
    if not isinstance(value, str):
        raise ValueError(f"attribute {name} is not a text")
    return value


def whole_number(file: h5py.File, name: str, minimum: int) -> int:
    """Return an integer attribute of at least `minimum` (see `attribute`)."""
    value = attribute(file, name)
    if not isinstance(value, (int, np.integer)) or int(value) < minimum:
        raise ValueError(f"attribute {name} is not a whole number of at least {minimum}")
    return int(value)
