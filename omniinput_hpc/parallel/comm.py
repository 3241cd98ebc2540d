"""Communication between ranks: the only file that imports mpi4py.

Every wait polls with short sleeps. A blocking collective would not run Python's signal handlers
and would not yield its core when there are more ranks than cores.
"""

from __future__ import annotations

import ctypes
import datetime
import fcntl
import itertools
import json
import os
import socket
import stat
import sys
import termios
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NoReturn, TypeVar

import mpi4py

mpi4py.rc.thread_level = "funneled"

import numpy as np  # noqa: E402
from mpi4py import MPI  # noqa: E402
from numpy.typing import NDArray  # noqa: E402

from omniinput_hpc.errors import UserError  # noqa: E402
from omniinput_hpc.parallel.messages import Message, packed  # noqa: E402

T = TypeVar("T")

_FIRST_POLLS = ((50, 0.0), (50, 1e-4))
"""The number of polls, and the seconds of sleep after each."""
_SLEEP_SECONDS = 1e-3
_DATE = "\0date"
_SECONDS_FOR_READERS = 10.0
"""How long an aborting rank waits for the launcher to read its messages."""


class World:
    """All ranks of the run; `waited` is the time spent waiting for others so far, in seconds."""

    def __init__(self, comm: MPI.Comm | None = None) -> None:
        # A duplicate communicator keeps our messages apart from those of libraries.
        self.comm = (MPI.COMM_WORLD if comm is None else comm).Dup()
        self.rank: int = self.comm.Get_rank()
        self.size: int = self.comm.Get_size()
        self.waited = 0.0
        self._hosts: list[str] = []

    def split(self, color: int) -> World:
        """Return a world of the ranks that pass the same color, in the same order as here."""
        part = self.comm.Split(color, self.rank)
        try:
            return World(part)
        finally:
            part.Free()

    def _wait(self, *requests: MPI.Request) -> None:
        begin = time.perf_counter()
        for seconds in _polls():
            if MPI.Request.Testall(list(requests)):
                break
            time.sleep(seconds)
        self.waited += time.perf_counter() - begin

    def sum(self, values: NDArray[Any]) -> NDArray[Any]:
        """Return the elementwise sum over ranks (integers wrap around)."""
        return self._reduce(values, MPI.SUM)

    def sums(self, *arrays: NDArray[Any]) -> list[NDArray[Any]]:
        """Return the sums over ranks of several arrays, in one reduction.

        They have one type, or are signed and unsigned integers of the same size.
        """
        total = self.sum(packed(arrays).view(arrays[0].dtype))
        message = Message(total.view(np.uint8))
        return [message.take(array.shape, array.dtype) for array in arrays]

    def max(self, values: NDArray[Any]) -> NDArray[Any]:
        """Return the elementwise maximum over ranks."""
        return self._reduce(values, MPI.MAX)

    def _reduce(self, values: NDArray[Any], operation: MPI.Op) -> NDArray[Any]:
        result = np.empty_like(values)
        self._wait(self.comm.Iallreduce(np.ascontiguousarray(values), result, op=operation))
        return result

    def all(self, ok: bool) -> bool:
        """Return whether `ok` is true on all ranks."""
        return not self.max(np.array([not ok], dtype=np.int64))[0]

    def barrier(self) -> None:
        """Wait until all ranks have called this."""
        self._wait(self.comm.Ibarrier())

    def broadcast(self, value: T) -> T:
        """Return rank 0's value on every rank; it consists of what JSON and TOML files can hold."""
        text = json.dumps(value, default=_tagged) if self.rank == 0 else ""
        data = bytearray(text.encode())
        size = np.array([len(data)], dtype=np.int64)
        self._wait(self.comm.Ibcast(size, root=0))
        if self.rank != 0:
            data = bytearray(int(size[0]))
        self._wait(self.comm.Ibcast([data, MPI.BYTE], root=0))
        result: T = json.loads(data, object_hook=_untagged)
        return result

    def gather(self, values: NDArray[Any]) -> list[NDArray[Any]] | None:
        """Return the arrays of all ranks on rank 0, in the order of ranks; None on other ranks.

        The arrays may differ in length along the first axis; the other axes and the dtype must be
        the same on all ranks.
        """
        lengths = np.zeros(self.size, dtype=np.int64)
        lengths[self.rank] = values.shape[0]
        lengths = self.sum(lengths)
        if self.rank != 0:
            self._wait(self.comm.Isend([np.ascontiguousarray(values), MPI.BYTE], dest=0, tag=1))
            return None
        gathered = [np.ascontiguousarray(values)]
        for source in range(1, self.size):
            part = np.empty((int(lengths[source]), *values.shape[1:]), dtype=values.dtype)
            self._wait(self.comm.Irecv([part, MPI.BYTE], source=source, tag=1))
            gathered.append(part)
        return gathered

    def swap(
        self, outgoing: Mapping[int, tuple[int, NDArray[np.uint8]]]
    ) -> dict[int, NDArray[np.uint8]]:
        """Exchange messages of equal length with other ranks; return the received ones, by rung.

        outgoing : by rung, the rank that holds it and the message; at most one message per rank
        """
        received = {rung: np.empty_like(data) for rung, (_, data) in outgoing.items()}
        requests = []
        for rung, (partner, data) in outgoing.items():
            requests.append(self.comm.Irecv([received[rung], MPI.BYTE], source=partner, tag=2))
            requests.append(self.comm.Isend([data, MPI.BYTE], dest=partner, tag=2))
        self._wait(*requests)
        return received

    def texts(self, text: str) -> list[str]:
        """Return the texts of all ranks, in the order of ranks, on every rank."""
        parts = self.gather(np.frombuffer(text.encode(), dtype=np.uint8))
        return self.broadcast([bytes(part).decode() for part in parts] if parts is not None else [])

    def hosts(self) -> list[str]:
        """Return the host names of all ranks, on every rank."""
        self._hosts = self._hosts or self.texts(socket.gethostname())
        return self._hosts

    def local_rank(self) -> int:
        """Return the index of this rank among the ranks on the same host."""
        hosts = self.hosts()
        return hosts[: self.rank].count(hosts[self.rank])

    def on_rank_0(self, function: Callable[[], T]) -> T:
        """Call a function on rank 0; all ranks return its JSON value or raise its `UserError`."""
        outcome: list[Any] = [None, None]
        if self.rank == 0:
            try:
                outcome = [None, function()]
            except UserError as error:
                outcome = [str(error), None]
        message, value = self.broadcast(outcome)
        if message is not None:
            raise UserError(message)
        result: T = value
        return result

    def together(self, function: Callable[[], T]) -> T:
        """Call a function on every rank; if one raises a `UserError`, all ranks raise it."""
        message, value = "", None
        try:
            value = function()
        except UserError as error:
            message = str(error) or "bad input"
        if self.all(not message):
            return value  # type: ignore[return-value]
        raise UserError("\n".join(dict.fromkeys(text for text in self.texts(message) if text)))

    def one_a_host_first(self, function: Callable[[], T]) -> T:
        """Call a function on every rank like `together`, but on one rank per host first.

        The files that it reads are then in the host's cache for the other ranks.
        """
        leads = self.local_rank() == 0
        first = self.together(lambda: function() if leads else None)
        others = self.together(lambda: None if leads else function())
        return first if leads else others  # type: ignore[return-value]

    def abort(self, error: BaseException) -> NoReturn:
        """Print the traceback, with the rank in each line, and end all ranks by MPI_Abort."""
        head = f"[rank {self.rank} on {socket.gethostname()}] "
        lines = "".join(traceback.format_exception(error)).splitlines()
        sys.stderr.write("".join(f"{head}{line}\n" for line in lines))
        self.abort_quietly()

    def abort_quietly(self) -> NoReturn:
        """End all ranks by MPI_Abort, after the reason has been printed."""
        sys.stdout.flush()
        sys.stderr.flush()
        _wait_for_readers()
        _skip_handlers_of_exit()
        # Not self.comm: MPICH aborts a communicator other than COMM_WORLD by messages. A rank that
        # computes does not see them, and a waiting rank calls exit(). To abort COMM_WORLD, the
        # launcher kills all ranks with SIGKILL.
        MPI.COMM_WORLD.Abort(1)
        os._exit(1)  # MPI_Abort may return on some launchers


def _tagged(value: datetime.date | datetime.time) -> dict[str, str]:
    """Return a date or a time, which TOML has but JSON does not, in a form that JSON has."""
    return {_DATE: type(value).__name__, "text": value.isoformat()}


def _untagged(table: dict[str, Any]) -> Any:
    if _DATE not in table:
        return table
    return getattr(datetime, table[_DATE]).fromisoformat(table["text"])


def _skip_handlers_of_exit() -> None:
    """Make exit(), which MPICH calls in an aborting rank, end the process at once.

    HDF5's exit handler would close the parallel file, a collective call that crashes or hangs. The
    handler set here runs before it (last in, first out). Call this only when all ranks are certain
    to end: MPICH also has an exit handler, and without it mpirun takes a normal end for a crash.
    """
    library = ctypes.CDLL(None)
    if hasattr(library, "on_exit"):  # glibc
        library.on_exit(library._exit, None)


def _wait_for_readers() -> None:
    """Wait until the launcher has read this rank's output.

    MPICH's launcher drops the data left in its pipes when a rank aborts (1 traceback in 100).
    """
    pipes = [fd for fd in (1, 2) if _is_pipe(fd)]
    end = time.monotonic() + _SECONDS_FOR_READERS
    while any(_unread_bytes(fd) for fd in pipes) and time.monotonic() < end:
        time.sleep(_SLEEP_SECONDS)


def _is_pipe(fd: int) -> bool:
    try:
        return stat.S_ISFIFO(os.fstat(fd).st_mode)
    except OSError:  # closed
        return False


def _unread_bytes(fd: int) -> int:
    unread = bytearray(4)
    fcntl.ioctl(fd, termios.FIONREAD, unread)
    return int.from_bytes(unread, sys.byteorder)


def _polls() -> Iterator[float]:
    """Yield the seconds to sleep between polls: first 0, later a millisecond."""
    for times, seconds in _FIRST_POLLS:
        yield from itertools.repeat(seconds, times)
    yield from itertools.repeat(_SLEEP_SECONDS)


def connected() -> int:
    """Return the number of ranks in COMM_WORLD."""
    return int(MPI.COMM_WORLD.Get_size())


def library() -> str:
    """Return the name and version of the MPI library on one line."""
    return " ".join(MPI.Get_library_version().split("\n")[0].split()).rstrip("\0")
