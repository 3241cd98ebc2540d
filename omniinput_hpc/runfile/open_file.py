"""Checking that the path of a run file still leads to the file that the run has open.

A file can be deleted, renamed, replaced, truncated or unmounted during a run. Writing to the open
file still succeeds, but the data are lost. Rank 0 therefore checks before every commit and at the
end.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
import time
from contextlib import suppress
from pathlib import Path

import h5py

from omniinput_hpc.errors import UserError
from omniinput_hpc.text import amount

LOOKS = 3
SECONDS_BETWEEN_LOOKS = 0.5
"""One check is not enough: NFS errors may be transient, and a file may be renamed and back."""

_NOT_THERE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)
_DELETED_WHILE_OPEN = (".nfs", ".fuse_hidden")
"""Prefixes by which NFS and FUSE name a deleted file until it is closed."""


class FileLost(Exception):
    """The path no longer leads to the open file; the text says what happened and where it is."""


class OpenFile:
    """A file that a run writes, kept open on rank 0 as long as the run writes it.

    Parameters
    ----------
    path : the file; the datasets of its group ``progress`` count committed rounds
    acting : whether this rank checks the file (rank 0)

    Raises a UserError if the file cannot be opened.
    """

    def __init__(self, path: Path, acting: bool = True) -> None:
        self._path, self._acting = Path(os.path.abspath(path)), acting
        self._offsets: dict[str, int] = {}  # of the counters, in bytes
        self._counters: dict[str, int] = {}  # as this run wrote them
        self._descriptor = -1
        if not acting:
            return
        try:
            # For writing: on an overlay file system, reading may open a different file.
            self._descriptor = os.open(self._path, os.O_RDWR)
            self._size = os.fstat(self._descriptor).st_size
            self._real = os.path.realpath(self._path)
            with h5py.File(self._path, "r", locking=False) as file:
                for name, dataset in file["progress"].items():
                    self._offsets[name] = dataset.id.get_offset()
                    self._counters[name] = self._counter(name)
        except OSError as error:
            self.close()
            raise UserError(f"{path} cannot be opened: {error.strerror or error}") from None

    def committed(self, round_: int, rounds: int) -> None:
        """Record that the run has counted a round; burn-in rounds are negative."""
        self._counters["burn_in_committed" if round_ < 0 else "rounds_committed"] = rounds

    def what_happened(self) -> str:
        """Return what happened to the file and where its rounds are; "" if it is in place."""
        trouble = ""
        for look in range(LOOKS if self._acting else 0):
            if look:
                time.sleep(SECONDS_BETWEEN_LOOKS)
            trouble = self._look()
            if not trouble:
                break
        return trouble

    def close(self) -> None:
        """Close the file."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor = -1

    def _look(self) -> str:
        try:
            mine = os.fstat(self._descriptor)
        except OSError as error:  # ESTALE: deleted on another host (NFS)
            return (
                f"{self._path} is gone ({error.strerror}): it was deleted on another host, or its "
                "server is gone; the rounds committed to it are lost unless the file reappears"
            )
        there = None
        try:
            there = _stat(self._path)
            if (there.st_dev, there.st_ino) == (mine.st_dev, mine.st_ino):
                return self._change_of_content(there.st_size)
        except OSError as error:
            if error.errno not in _NOT_THERE:
                return (
                    f"{self._path} can no longer be reached ({error.strerror}), so the run "
                    "cannot tell whether its committed rounds are still there"
                )
        place = self._place(mine)
        deleted = mine.st_nlink == 0 or os.path.basename(place).startswith(_DELETED_WHILE_OPEN)
        unmounted = not place and not deleted and self._is_unmounted(mine)
        event = "is no longer there" if there is None else self._replacement(there)
        if unmounted:
            event = f"is out of reach: its file system is no longer mounted at {self._path.parent}"
        if deleted:
            rounds = (
                "the run's file has been deleted, or moved to another file system, and the rounds "
                "committed to it are lost (except those in a copy)"
            )
        elif place:
            rounds = (
                f"the run's file, with all committed rounds, is now at {place}: put it back and "
                "run the same command again"
            )
        elif unmounted:
            rounds = (
                "it holds all committed rounds: mount it there again and run the same command "
                "again (if it was in memory, such as a tmpfs, the rounds are lost)"
            )
        else:
            rounds = (
                "the run's file, with all committed rounds, is in an unknown place: "
                f"find it (find FOLDER -xdev -inum {mine.st_ino}) and put it back"
            )
        return f"{self._path} {event}; {rounds}"

    def _change_of_content(self, size: int) -> str:
        """Return what happened to the content of the file, which is in its place; "" if nothing."""
        if size < self._size:
            return (
                f"{self._path} has been truncated: it was {amount(self._size)} and is now "
                f"{amount(size)}; the rounds in the part that was cut off are lost"
            )
        if size > self._size:
            return (
                f"{self._path} has grown from {self._size} to {size} bytes: something else is "
                "writing to it; check it with omniinput verify before you resume the run"
            )
        for name, expected in self._counters.items():
            if (found := self._counter(name)) != expected:
                return (
                    f"{self._path} has been overwritten by something else: progress/{name} is "
                    f"{found}, but this run wrote {expected}; the rounds written since are lost; "
                    "check the file with omniinput verify before you resume the run"
                )
        return ""

    def _replacement(self, there: os.stat_result) -> str:
        if (real := os.path.realpath(self._path)) != self._real:
            return f"now leads to {real}, to which nothing was written"
        if not stat.S_ISREG(there.st_mode):
            return "has been replaced by something that is not a file"
        return "has been replaced by another file, to which nothing was written"

    def _place(self, mine: os.stat_result) -> str:
        """Return the current path of the open file; "" if it has none or it is unknown."""
        try:
            place = os.readlink(f"/proc/self/fd/{self._descriptor}")
            found = os.stat(place)
        except OSError:
            return ""
        return place if (found.st_dev, found.st_ino) == (mine.st_dev, mine.st_ino) else ""

    def _is_unmounted(self, mine: os.stat_result) -> bool:
        folder = self._path.parent
        with suppress(OSError):
            while not os.path.exists(folder):
                folder = folder.parent
            return os.stat(folder).st_dev != mine.st_dev
        return False

    def _counter(self, name: str) -> int:
        return int.from_bytes(os.pread(self._descriptor, 8, self._offsets[name]), sys.byteorder)


def _stat(path: Path) -> os.stat_result:
    """Return the current attributes of a path.

    NFS answers a `stat` from a cache that may be a minute old, but an `open` asks the server.
    """
    found = os.stat(path)
    if not stat.S_ISREG(found.st_mode):
        return found
    # Closing it drops this process's POSIX locks on the file; ROMIO holds its locks for one write.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        return os.fstat(descriptor)
    finally:
        os.close(descriptor)
