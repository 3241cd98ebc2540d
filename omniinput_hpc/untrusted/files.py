"""Opening untrusted files: regular files only, without waiting, and up to a maximum size.

A named pipe instead of a file would make a reader wait forever, opening a device may have side
effects, and /dev/zero has no end.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO

from omniinput_hpc.errors import UserError
from omniinput_hpc.untrusted import texts

_KINDS = {
    stat.S_IFIFO: "a named pipe",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
}

_LFS_POINTER, _LFS_MOST = b"version https://git-lfs.github.com/spec/", 1024
"""The first bytes and the maximum size of a file that Git LFS leaves in place of a large one."""


def open_regular(path: Path) -> BinaryIO:
    """Open a regular file for reading, without waiting; links are followed.

    Raises an OSError if the file is missing, unreadable, a directory, a pipe, a device or a socket,
    and a UserError if it is a pointer of Git LFS.
    """
    _check(path, os.stat(path).st_mode)  # first, since opening a device may have side effects
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    with contextlib.ExitStack() as closed_unless_regular:
        closed_unless_regular.callback(os.close, descriptor)
        about = os.fstat(descriptor)
        _check(path, about.st_mode)  # it may have been replaced in between
        small = about.st_size <= _LFS_MOST
        if small and os.pread(descriptor, len(_LFS_POINTER), 0) == _LFS_POINTER:
            raise UserError(
                f"{path} is a Git LFS pointer, not the file itself; fetch it with: git lfs pull "
                f"(in the folder {path.parent})"
            )
        file = os.fdopen(descriptor, "rb")
        closed_unless_regular.pop_all()
    return file


def read_bytes(path: Path, what: str, limit: int) -> bytes:
    """Return the bytes of a regular file.

    Parameters
    ----------
    what : the kind of file, for messages
    limit : the maximum size in bytes

    Raises
    ------
    UserError
        The file is missing, unreadable, not a regular file, or too large.
    """
    try:
        with open_regular(path) as file:
            if os.fstat(file.fileno()).st_size <= limit:
                data = file.read(limit + 1)
                if len(data) <= limit:
                    return data
    except (FileNotFoundError, NotADirectoryError):
        raise UserError(f"{path}: no such file (expected {_a(what)})") from None
    except (OSError, ValueError) as error:  # ValueError: a zero byte in the name
        raise UserError(f"{path} cannot be read: {_reason(error)}") from None
    raise UserError(f"{path} is larger than {limit:,} bytes, too large for {_a(what)}")


def read_text(path: Path, what: str, limit: int) -> str:
    """Return the text of a file, its lines ending with line feeds (see `texts.decode`).

    Raises a `UserError` if it is not text, or as `read_bytes` does.
    """
    return texts.with_line_feeds(texts.decode(read_bytes(path, what, limit), path), path)


def irregular(path: Path) -> str | None:
    """Return in words what is at a path, if it is a pipe, a device or a socket; else None.

    A dangling link also gives None: opening it raises an error.
    """
    try:
        return _KINDS.get(stat.S_IFMT(os.stat(path).st_mode))
    except (OSError, ValueError):
        return None


def _check(path: Path, mode: int) -> None:
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, "it is a directory", str(path))
    if not stat.S_ISREG(mode):
        what = _KINDS.get(stat.S_IFMT(mode), "something else")
        raise OSError(errno.EINVAL, f"it is {what}, not a regular file", str(path))


def _a(what: str) -> str:
    return f"{'an' if what[0] in 'aeiouAEIOU' else 'a'} {what}"


def _reason(error: OSError | ValueError) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
