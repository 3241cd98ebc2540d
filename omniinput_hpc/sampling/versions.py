"""What runs here: versions of the interpreter and the libraries, and the CPU."""

from __future__ import annotations

import platform
from pathlib import Path

import numpy as np

from omniinput_hpc.parallel import comm


def here() -> dict[str, str]:
    """Return the versions of what a result's last bits may depend on; torch's are the device's."""
    import h5py

    return {
        "python": platform.python_version(),
        "numpy": np.__version__,
        "h5py": h5py.__version__,
        "mpi": comm.library(),
        "cpu": _cpu(),
    }


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
