"""Reading the header of a safetensors file and checking it against the file's size."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from safetensors import SafetensorError, safe_open

from omniinput_hpc.errors import UserError
from omniinput_hpc.untrusted.files import open_regular

MAX_AXES = 16


@dataclass(frozen=True)
class Tensor:
    """The entry of one tensor in the header: its type (such as "F32") and its shape."""

    dtype: str
    shape: tuple[int, ...]

    @property
    def n_numbers(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)


def read_header(path: Path) -> dict[str, Tensor]:
    """Return the tensors of a safetensors file by name.

    The library checks that the tensors fill the file after the header without holes, and that each
    has the size that its shape and type imply. Raises a `UserError` if the file is invalid or
    unreadable.
    """
    found = {}
    try:
        open_regular(path).close()  # the library would wait for a pipe
        with safe_open(path, "numpy") as file:
            for name in file.keys():  # noqa: SIM118  # not a mapping
                part = file.get_slice(name)
                found[name] = Tensor(part.get_dtype(), tuple(part.get_shape()))
                if len(found[name].shape) > MAX_AXES:
                    raise ValueError(f"tensor {name[:60]!r} has more than {MAX_AXES} axes")
        return found
    except OSError as error:
        reason = error.strerror or str(error)
    except (ValueError, SafetensorError) as error:
        reason = str(error)
    raise UserError(f"{path} cannot be loaded as safetensors: {reason}; is it complete?")
