"""What tests need of the machine beyond Python packages; a test is skipped where it is missing.

The last line of jobscripts/test.sh says what was skipped and why. There only what a machine's owner
decides may be missing (`MAY_BE_MISSING` of tests/mpi/check_counts.py).
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess

import h5py
import pytest

needs_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler (cc) here")
needs_parallel_hdf5 = pytest.mark.skipif(
    not h5py.get_config().mpi, reason="h5py was built without MPI"
)
WRITERS = ["gather", pytest.param("mpio", marks=needs_parallel_hdf5)]
"""Values of [run] writer."""


@functools.cache
def may_mount():
    """Return whether this process may mount file systems."""
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        return False
    words = ["unshare", "--mount", "mount", "-t", "tmpfs", "tmpfs", "/mnt"]
    return subprocess.run(words, capture_output=True).returncode == 0


@functools.cache
def may_overlay():
    """Return whether this process may mount one folder over another, as containers do."""
    script = "mount -t tmpfs tmpfs /mnt && cd /mnt && mkdir low up own seen && "
    script += "mount -t overlay overlay -o lowerdir=low,upperdir=up,workdir=own seen"
    words = ["unshare", "--mount", "sh", "-c", script]
    return may_mount() and subprocess.run(words, capture_output=True).returncode == 0


needs_overlay = pytest.mark.skipif(not may_overlay(), reason="no overlay file system here")
needs_mount = pytest.mark.skipif(not may_mount(), reason="no right to mount a file system here")
