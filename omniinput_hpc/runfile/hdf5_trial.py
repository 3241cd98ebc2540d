"""Opening an HDF5 file in a separate process first, to see whether the HDF5 library crashes.

The library crashes on some damaged files (4 of 800 with one flipped bit) and would take the
program and all ranks down with it. This file is also the script of that process, so it imports
only h5py.
"""

from __future__ import annotations

import os
import resource
import signal
import stat
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

CPU_SECONDS = 5
"""CPU time limit of the trial; the largest file in the tests takes 0.01 s."""
SECONDS = 60.0
"""Wall-clock limit of the trial process: Python starts slowly from some file systems."""
LAUNCHERS = ("PMI", "PMIX_", "OMPI_", "MPI_", "SLURM_", "HYDI_", "HYDRA_")
"""Prefixes of environment variables that would make MPI take the trial process for a rank."""
CRASHES = {
    signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGFPE, signal.SIGILL, signal.SIGXCPU,
}  # fmt: skip
"""Signals that a process causes itself; others come from outside (a stop, lack of memory)."""

_BEGUN = b"begun"  # the trial process prints this just before it opens the file
_NOT_LISTED = 3  # its exit code if the file opened but its contents could not be listed

_fine: set[tuple[int, int, int]] = set()  # files on which HDF5 did not crash


def crash_on(path: Path) -> str | None:
    """Return how reading a file's structure crashes HDF5; None if it does not, or if unknown.

    A file is tried once, and again after it was modified. It is not a crash if HDF5 refuses to
    open a file, but it is one if a file opens and cannot be listed: the same bytes crash the
    library on other machines. The result is unknown if there is no such regular file, or if the
    trial process is ended from outside, times out, or crashes before it opens the file.
    """
    try:
        about = os.stat(path)
    except (OSError, ValueError):
        return None
    file = about.st_dev, about.st_ino, about.st_mtime_ns
    if file in _fine or not stat.S_ISREG(about.st_mode):
        return None
    environment = {k: v for k, v in os.environ.items() if not k.startswith(LAUNCHERS)}
    environment["MPI4PY_RC_INITIALIZE"] = "false"  # importing h5py would initialize MPI
    # With this, glibc overwrites new and freed memory, so that reading it crashes here reliably.
    environment["MALLOC_PERTURB_"] = "165"
    try:
        done = subprocess.run(
            [sys.executable, __file__, str(path)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
            timeout=SECONDS,
            start_new_session=True,  # a keyboard interrupt must not reach it
        )
    except (OSError, subprocess.TimeoutExpired):  # process limit, or a slow file system
        return None
    if done.returncode == 0:
        _fine.add(file)
    if done.returncode == _NOT_LISTED:
        return f"fails ({done.stdout.removeprefix(_BEGUN).decode(errors='replace').strip()})"
    if -done.returncode not in CRASHES or not done.stdout.startswith(_BEGUN):
        return None
    if done.returncode == -signal.SIGXCPU:
        return f"does not end within {CPU_SECONDS} s"
    return f"crashes (signal {-done.returncode})"


def _look_at(name: str, item: Any) -> None:
    import h5py

    for attribute in item.attrs:
        with suppress(Exception):
            item.attrs[attribute]
    if isinstance(item, h5py.Dataset):  # not its data, which may be in any other file
        with suppress(Exception):
            item.id.get_offset(), item.shape, item.dtype, item.chunks, item.external


def _main(path: str) -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    import h5py

    spent = int(sum(resource.getrusage(resource.RUSAGE_SELF)[:2]))
    resource.setrlimit(resource.RLIMIT_CPU, (spent + CPU_SECONDS, spent + CPU_SECONDS + 1))
    os.write(sys.stdout.fileno(), _BEGUN)
    try:
        file = h5py.File(path, "r", locking=False)
    except Exception:  # not HDF5, or a damaged superblock: the program gets the same error
        return
    try:
        _look_at("/", file)
        file.visititems(_look_at)
    except Exception as error:
        if not getattr(error, "errno", None):  # with an errno, the disk failed, not HDF5
            os.write(sys.stdout.fileno(), b" " + " ".join(str(error).split()).encode()[:300])
            raise SystemExit(_NOT_LISTED) from None


if __name__ == "__main__":
    # The first entry of the path is this file's folder; its modules could shadow others.
    sys.path.pop(0)
    _main(sys.argv[1])
