"""A first look at an HDF5 file in a process of its own.

The HDF5 library itself crashes on some damaged files (4 of 800 with one flipped bit), and would
take the program, and with it all ranks, along. This file is also that process's script: it needs
nothing but h5py.
"""

from __future__ import annotations

import os
import resource
import signal
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


_fine: set[tuple[int, int, int]] = set()  # files on which HDF5 did not crash


def crash_on(path: Path) -> str | None:
    """Return how a process ends that reads a file's structure; None where it ends by itself.

    A file is looked at once, until something writes to it. What HDF5 refuses is no crash: whoever
    opens the file then is told.
    """
    stat = os.stat(path)
    file = stat.st_dev, stat.st_ino, stat.st_mtime_ns
    if file in _fine:
        return None
    environment = {k: v for k, v in os.environ.items() if not k.startswith(LAUNCHERS)}
    try:
        done = subprocess.run(
            [sys.executable, __file__, str(path)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=environment,
            timeout=SECONDS,
        )
    except subprocess.TimeoutExpired:
        return f"does not end within {SECONDS:g} s"
    except OSError:  # no more processes here: as if there were no such look
        return None
    if done.returncode == -signal.SIGXCPU:
        return f"does not end within {CPU_SECONDS} s"
    if done.returncode < 0:
        return f"crashes (signal {-done.returncode})"
    _fine.add(file)
    return None


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
    with suppress(ImportError):
        import mpi4py

        mpi4py.rc.initialize = False  # which h5py's import would do
    import h5py

    spent = int(sum(resource.getrusage(resource.RUSAGE_SELF)[:2]))
    resource.setrlimit(resource.RLIMIT_CPU, (spent + CPU_SECONDS, spent + CPU_SECONDS + 1))
    with suppress(Exception), h5py.File(path, "r", locking=False) as file:
        _look_at("/", file)
        file.visititems(_look_at)


if __name__ == "__main__":
    # This file's folder, the first on the path, has modules that are not meant to be found there.
    sys.path.pop(0)
    _main(sys.argv[1])
