"""Reading an untrusted .npy file: no pickles, and the header must match the file's size."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from omniinput_hpc.errors import UserError
from omniinput_hpc.untrusted.files import open_regular

_BROKEN = (OSError, ValueError, TypeError, SyntaxError, RecursionError, MemoryError, EOFError)


def read_array(path: Path, named: str) -> NDArray[Any]:
    """Return the array in a .npy file. Raise a `UserError`, beginning with `named`, on failure."""
    try:
        with open_regular(path) as file:
            version = np.lib.format.read_magic(file)
            read = {(1, 0): np.lib.format.read_array_header_1_0}.get(
                version, np.lib.format.read_array_header_2_0
            )
            shape, _, dtype = read(file)
            n_bytes = math.prod(shape) * dtype.itemsize
            if dtype.hasobject or n_bytes != os.fstat(file.fileno()).st_size - file.tell():
                raise ValueError("its header does not match its size")
            file.seek(0)
            array: NDArray[Any] = np.load(file, allow_pickle=False)
            return array
    except _BROKEN as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise UserError(f"{named} cannot be read: {reason}") from None
