"""Ranks that leave, by an abort or in good order, and show whether the C library's `exit` ran.

    mpirun -n R python -m leaving FOLDER HOW

makes a file FOLDER/RANK on each rank, which a handler of `exit` removes, as HDF5's own handler
would close files. HOW is one of `WAYS`.
"""

from __future__ import annotations

import ctypes
import signal
import sys
import time
from pathlib import Path

import numpy as np

from omniinput_hpc.cli import common

WAYS = ("one of them aborts", "all abort", "in good order")
ASLEEP = 900.0
"""Seconds that rank 0 computes, without a call of MPI, when another rank aborts."""


def remove_at_exit(path):
    """Have `exit` remove a file: by a function of C, since Python has ended before `exit`."""
    library = ctypes.CDLL(None)
    library.strdup.restype = ctypes.c_void_p
    name = ctypes.c_void_p(library.strdup(str(path).encode()))
    library.__cxa_atexit(library.unlink, name, None)


def command(world, arguments):
    folder, how = Path(arguments[0]), arguments[1]
    mark = folder / str(world.rank)
    mark.touch()
    remove_at_exit(mark)
    world.barrier()
    if how == "in good order":
        return 0
    if how == "all abort" or world.rank == world.size - 1:
        raise RuntimeError("as it was told to")
    if world.rank == 0:
        time.sleep(ASLEEP)
    if world.rank == 1:
        world.comm.Barrier()  # inside the library
    while True:  # as ranks wait for each other
        world.sum(np.zeros(1))


def check(how, done, folder, seconds):
    """Assert that four ranks left as they must; `done` is the launcher's finished process."""
    left = [path.name for path in folder.iterdir()]
    if how == "in good order":
        assert (done.returncode, left) == (0, []), done.stderr
        return
    assert done.returncode in (1, 1 | signal.SIGKILL), done.stderr  # MPICH ors in its own kill
    assert sorted(left) == ["0", "1", "2", "3"]
    assert seconds < ASLEEP


if __name__ == "__main__":
    raise SystemExit(common.main(command, sys.argv[1:]))
