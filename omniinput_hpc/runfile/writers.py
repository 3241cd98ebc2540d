"""Committing rounds to the run file: by all ranks at once (MPI-IO), or gathered by rank 0.

Order of a commit: the slabs of all ranks are written and flushed; all ranks agree that this
succeeded; only then does rank 0 increment the counter of rounds and flush; all ranks agree again
before any rank writes the next slab. (A flush is not a barrier: without the first agreement, a
killed run could claim a round that it does not hold.) Data that a later round needs are kept in two
slabs that are written in turn.
"""

from __future__ import annotations

import logging
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import h5py
import numpy as np
from numpy.typing import NDArray

from omniinput_hpc.errors import StopRun, UserError
from omniinput_hpc.parallel import comm
from omniinput_hpc.parallel.comm import World
from omniinput_hpc.parallel.messages import Message, packed
from omniinput_hpc.runfile import changed_parts, checksums, untrusted_hdf5
from omniinput_hpc.runfile.changed_parts import LastWritten
from omniinput_hpc.runfile.fields import Field, shape_of, slab
from omniinput_hpc.runfile.layout import Geometry, layout
from omniinput_hpc.runfile.lock import LockLost, RunLock
from omniinput_hpc.runfile.open_file import FileLost, OpenFile

log = logging.getLogger("omniinput_hpc")

T = TypeVar("T")
Fields = Mapping[str, Field]

PARALLEL_SYSTEMS = {"lustre", "gpfs", "beegfs", "panfs", "pvfs2", "orangefs", "ceph", "wekafs"}
"""File systems that keep parallel writes from several nodes coherent."""


_OCTAL = re.compile(r"\\([0-7]{3})")  # escapes of spaces and the like in mountinfo


class WriteError(Exception):
    """A round could not be written (disk full, quota, I/O error)."""


class Writer(ABC):
    """Commits rounds; all ranks call every method together."""

    name: ClassVar[str]

    def __init__(
        self, path: Path, fields: Fields, n_rungs: int, rungs: range, world: World
    ) -> None:
        self._fields, self._n_rungs, self._rungs, self._world = fields, n_rungs, rungs, world
        self._file: Any = self._open(path)  # None where another rank writes
        # Datasets stay open, because HDF5 buffers small writes: if closing a dataset fails to
        # write them (a full disk), h5py only prints the error, while a flush raises it.
        self._datasets = {name: self._file[name] for name in fields} if self._file else {}
        self._last_written = LastWritten()

    @abstractmethod
    def _open(self, path: Path) -> h5py.File | None:
        """Open the file on the ranks that write."""

    def commit(self, round_: int, values: Mapping[str, NDArray[Any]], committed: int) -> None:
        """Write all ranks' slabs and, if the file has any, checksums; then count the round.

        Raises a WriteError on all ranks if one of them could not write.

        round_ : burn-in rounds are negative
        values : this rank's slab of the round for every dataset (see `fields.slab`)
        committed : the number of rounds, or of burn-in rounds, after this commit
        """
        values = checksums.with_sums(self._fields, round_, self._rungs, values)
        self._step(round_, self._prepared(round_, values))
        self._step(round_, lambda: self._count(round_, committed))

    @abstractmethod
    def _prepared(self, round_: int, values: Mapping[str, NDArray[Any]]) -> Callable[[], None]:
        """Return a function that writes the slabs of a round."""

    def _count(self, round_: int, committed: int) -> None:
        if self._world.rank == 0:
            name = "progress/" + ("burn_in_committed" if round_ < 0 else "rounds_committed")
            checksums.put_counter(self._datasets, name, committed)

    def _step(self, round_: int, write: Callable[[], None]) -> None:
        """Write and flush; if a rank failed, raise the first failure on all ranks."""
        failure = self._write(write)
        if self._world.all(failure is None):
            return
        message = next(text for text in self._world.texts(failure or "") if text)
        name = f"round {round_}" if round_ >= 0 else f"burn-in round {round_} (from the end)"
        raise WriteError(f"{name} could not be written: {message}")

    @abstractmethod
    def _write(self, write: Callable[[], None]) -> str | None:
        """Write and flush; return the message of a failure on this rank, or None."""

    def close(self) -> None:
        """Close the file."""
        self._datasets.clear()
        if self._file is not None:
            self._file.close()


class MpioWriter(Writer):
    """Every rank writes its own slab into one parallel HDF5 file."""

    name = "mpio"

    def _open(self, path: Path) -> h5py.File:
        name = mpio_name(path)
        if name is None:
            raise OSError(f"{comm.library()} reads the part of a name before a colon as a prefix")
        return h5py.File(name, "r+", driver="mpio", comm=self._world.comm)

    def _prepared(self, round_: int, values: Mapping[str, NDArray[Any]]) -> Callable[[], None]:
        def write() -> None:
            for name, field in self._fields.items():
                where = slab(field, round_, self._rungs, self._n_rungs)
                if where is None:
                    continue
                some = [(where, values[name])]
                if changed_parts.is_sparse(field, where):
                    runs = self._last_written.changed(name, round_, values[name])
                    some = changed_parts.parts(field, where, values[name], runs)
                for place, part in some:
                    self._datasets[name][place] = part

        return write

    def _write(self, write: Callable[[], None]) -> str | None:
        failure = _failure_of(write)  # a rank that cannot write still flushes
        return _failure_of(self._file.flush) or failure


class GatherWriter(Writer):
    """Rank 0 gathers the slabs of all ranks and writes them: for h5py without MPI, and for NFS."""

    name = "gather"

    def _open(self, path: Path) -> h5py.File | None:
        ends = np.array([[self._rungs.start, self._rungs.stop]], dtype=np.int64)
        gathered = self._world.gather(ends) or []
        self._rungs_of_ranks = [range(*map(int, part[0])) for part in gathered]
        return h5py.File(path, "r+", locking=False) if self._world.rank == 0 else None

    def _prepared(self, round_: int, values: Mapping[str, NDArray[Any]]) -> Callable[[], None]:
        mine: list[NDArray[Any]] = []
        for name, (field, where) in self._slabs(round_, self._rungs).items():
            part = values[name]
            if part.shape != shape_of(field, where):  # rank 0 would misplace all that follows
                raise ValueError(f"{name}: {part.shape} instead of {shape_of(field, where)}")
            if changed_parts.is_sparse(field, where):
                runs = self._last_written.changed(name, round_, part)
                mine += changed_parts.to_send(part, runs)
            else:
                mine.append(part)
        gathered = self._world.gather(packed(mine))

        def write() -> None:
            parts = [
                self._split(round_, rungs, Message(data))
                for rungs, data in zip(self._rungs_of_ranks, gathered or [], strict=True)
            ]
            for name, dataset in self._datasets.items():
                for where, part in (place for some in parts for place in some.get(name, ())):
                    dataset[where] = part

        return write

    def _slabs(self, round_: int, rungs: range) -> dict[str, tuple[Field, tuple[slice | int, ...]]]:
        """Return, by dataset, where the holder of some rungs writes in a round."""
        return {
            name: (field, where)
            for name, field in self._fields.items()
            if (where := slab(field, round_, rungs, self._n_rungs)) is not None
        }

    def _split(
        self, round_: int, rungs: range, message: Message
    ) -> dict[str, list[tuple[tuple[slice | int, ...], NDArray[Any]]]]:
        """Return the slabs in a message of the rank that holds `rungs`, each with its place."""
        parts: dict[str, list[tuple[tuple[slice | int, ...], NDArray[Any]]]] = {}
        for name, (field, where) in self._slabs(round_, rungs).items():
            if changed_parts.is_sparse(field, where):
                parts[name] = changed_parts.received(field, where, message)
            else:
                parts[name] = [(where, message.take(shape_of(field, where), field.dtype))]
        return parts

    def _write(self, write: Callable[[], None]) -> str | None:
        if self._file is None:
            return None
        return _failure_of(write) or _failure_of(self._flush)

    def _flush(self) -> None:
        self._file.flush()
        # HDF5's serial driver only passes the data to the kernel; fsync brings them to the disk.
        os.fsync(self._file.id.get_vfd_handle())


class GuardedWriter:
    """Checks before each commit that the run holds its lock and that its file is in place.

    file : the file that `writer` writes, opened before it was read
    """

    def __init__(self, writer: Writer, lock: RunLock, file: OpenFile, world: World) -> None:
        self.name = writer.name
        self._writer, self._lock, self._file, self._world = writer, lock, file, world

    def commit(self, round_: int, values: Mapping[str, NDArray[Any]], committed: int) -> None:
        """Check the lock and the file, then commit like `Writer`."""
        self.check()
        self._writer.commit(round_, values, committed)
        self._file.committed(round_, committed)

    def check(self) -> None:
        """Renew the lock and check that the path leads to the open file.

        Raises a LockLost or a FileLost on all ranks.
        """
        lost = self._file.what_happened()
        # If the file is gone, `keep` must not make its lock again.
        held = not self._lock.is_taken() if lost else self._lock.keep()
        if self._world.all(held and not lost):
            return
        if not self._world.all(held):
            raise self._lock.lost()
        raise FileLost(next(text for text in self._world.texts(lost) if text))

    def close(self) -> None:
        """Close the file."""
        self._writer.close()
        self._file.close()

    @contextmanager
    def or_end(self, file: str) -> Iterator[None]:
        """Log one line on rank 0, which begins with `file`, and end all ranks if a commit fails.

        The file is also checked at the end of the block and on a StopRun: both promise that it is
        in place.
        """
        try:
            try:
                yield
            except StopRun:
                self.check()
                raise
            self.check()
        except WriteError as error:
            words = f"{file}: {error}; no committed round is lost: free some space and run again"
            self._end(self._file.what_happened() or words)
        except FileLost as error:
            self._end(str(error))
        except LockLost as error:
            self._end(str(error), release=False)

    def _end(self, words: str, release: bool = True) -> None:
        if self._world.rank == 0:
            log.error("%s", words)
        if release:
            self._lock.release()
        self._world.barrier()  # until rank 0 has logged it
        self._world.abort_quietly()


def open_writer(
    kind: str, path: Path, g: Geometry, rungs: range, world: World, fields: Fields | None = None
) -> Writer:
    """Open a file for writing on all ranks; `kind` is "mpio" or "gather".

    `fields` are the datasets of a file other than a run file (see `rescored`), including the
    counters of committed rounds. Raises a UserError on all ranks if the file cannot be opened.
    """
    writer = MpioWriter if kind == "mpio" else GatherWriter
    names = layout(g) if fields is None else fields

    def agreed(function: Callable[[], T]) -> Callable[[], T]:
        def call() -> T:
            try:
                return function()
            except OSError as error:  # the file is gone since it was last checked
                raise untrusted_hdf5.unwritable(path, error) from None

        return call

    world.on_rank_0(agreed(lambda: checksums.settle_file(path)))
    return world.together(agreed(lambda: writer(path, names, g.n_rungs, rungs, world)))


def mpio_name(path: Path) -> str | None:
    """Return the name by which MPI-IO opens a file; None if this MPI library cannot.

    MPI-IO takes the part of a name before a colon for the prefix of a file system. ROMIO (MPICH and
    its derivatives) accepts the prefix "ufs:" for POSIX access; Open MPI's own MPI-IO does not.
    """
    if ":" not in os.fspath(path):
        return os.fspath(path)
    return None if comm.library().startswith("Open MPI") else f"ufs:{path.absolute()}"


def choose_writer(requested: str, path: Path, n_nodes: int) -> tuple[str, str]:
    """Return the writer to use and why, given ``[run] writer`` and the path of the output.

    MPI-IO is used if h5py supports it, except on NFS, across nodes on a file system that is not
    known to keep parallel writes coherent, and for names that the MPI library cannot open. Raises a
    UserError if MPI-IO is requested and h5py has none.
    """
    folder = path.parent
    if requested == "mpio" and not h5py.get_config().mpi:
        raise UserError('run.writer = "mpio", but h5py is built without MPI here: leave it out')
    if requested != "gather" and mpio_name(path) is None:
        return "gather", "this MPI library reads the part of the name before its colon as a prefix"
    if requested != "auto":
        return requested, "set by [run] writer"
    if not h5py.get_config().mpi:
        return "gather", "h5py has no MPI"
    kind = file_system(folder)
    if kind.startswith("nfs") or (n_nodes > 1 and kind not in PARALLEL_SYSTEMS):
        return "gather", f"{n_nodes} nodes on a file system of type {kind}"
    return "mpio", f"parallel HDF5, file system {kind}"


def file_system(folder: Path) -> str:
    """Return the type of a folder's file system, or "unknown"."""
    try:
        lines = Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return "unknown"
    target, best, kind = str(folder.resolve()), "", "unknown"
    for line in lines:
        left, _, right = line.partition(" - ")
        mount = _OCTAL.sub(lambda found: chr(int(found[1], 8)), left.split()[4])
        inside = target == mount or target.startswith(mount.rstrip("/") + "/")
        if inside and len(mount) >= len(best):
            best, kind = mount, right.split()[0]
    return kind


def _failure_of(action: Callable[[], Any]) -> str | None:
    try:
        action()
    except (OSError, RuntimeError) as error:  # h5py raises either for errors of HDF5
        return " ".join(str(error).split()) or type(error).__name__
    return None


def libraries() -> dict[str, str]:
    """Return the versions of h5py and HDF5, and whether both can write in parallel (MPI)."""
    mpi = "yes" if h5py.get_config().mpi else "no"
    return {"h5py": h5py.__version__, "hdf5": h5py.version.hdf5_version, "parallel": mpi}
