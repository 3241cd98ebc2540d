"""A first look at an HDF5 file in a process of its own.

The HDF5 library itself crashes on some damaged files (4 of 800 with one flipped bit), and would
take the program, and with it all ranks, along. This file is also that process's script: it needs
nothing but h5py.
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
"""Of the look; the largest file of all tests takes 0.01 s."""
SECONDS = 60.0
"""Of its process: Python starts slowly from some file systems."""
LAUNCHERS = ("PMI", "PMIX_", "OMPI_", "MPI_", "SLURM_", "HYDI_", "HYDRA_")
"""What the variables begin with by which MPI would take that process for a rank."""
CRASHES = {
    signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGFPE, signal.SIGILL, signal.SIGXCPU,
}  # fmt: skip
"""Signals that a process brings upon itself; others come from outside: a stop, lack of memory."""

_BEGUN = b"begun"  # what that process says just before it opens the file
_NOT_LISTED = 3  # its exit code where the file was opened, and what is in it could not be listed

_fine: set[tuple[int, int, int]] = set()  # files on which HDF5 did not crash


def crash_on(path: Path) -> str | None:
    """Return how a process ends that reads a file's structure; None where that succeeds.

    A file is looked at once, until something writes to it. What HDF5 refuses to open is no crash:
    whoever opens it then is told. What it opens, and then cannot list, is: elsewhere the same bytes
    crash the library. None, too, where nothing is learnt: there is no such regular file,
    or that process is ended from outside, waits, or crashes before it opens the file.
    """
    try:
        about = os.stat(path)
    except (OSError, ValueError):
        return None
    file = about.st_dev, about.st_ino, about.st_mtime_ns
    if file in _fine or not stat.S_ISREG(about.st_mode):
        return None
    environment = {k: v for k, v in os.environ.items() if not k.startswith(LAUNCHERS)}
    environment["MPI4PY_RC_INITIALIZE"] = "false"  # h5py's import would begin MPI
    # glibc fills memory that is not set, or free again: what reads it crashes here, and not by luck
    environment["MALLOC_PERTURB_"] = "165"
    try:
        done = subprocess.run(
            [sys.executable, __file__, str(path)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
            timeout=SECONDS,
            start_new_session=True,  # an interrupt from the keyboard is for the program alone
        )
    except (OSError, subprocess.TimeoutExpired):  # no more processes here, or a slow file system
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
    if isinstance(item, h5py.Dataset):  # not its data: they may lie in any other file
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
    except Exception:  # not HDF5, or a superblock that is damaged: opening it again says so
        return
    try:
        _look_at("/", file)
        file.visititems(_look_at)
    except Exception as error:
        if not getattr(error, "errno", None):  # else it is the disk's
            os.write(sys.stdout.fileno(), b" " + " ".join(str(error).split()).encode()[:300])
            raise SystemExit(_NOT_LISTED) from None


if __name__ == "__main__":
    # This file's folder, the first on the path, has modules that are not meant to be found there.
    sys.path.pop(0)
    _main(sys.argv[1])
