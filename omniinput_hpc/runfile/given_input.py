"""Loading the input that a command line names: an input file, or the one stored in a run file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from omniinput_hpc.config import Config, input_file
from omniinput_hpc.runfile import reader

RUN_FILES = (".h5", ".hdf5")


def load(path: Path, assignments: Sequence[str] = ()) -> Config:
    """Return the input of a file; `assignments` are ``table.key=value``, applied in order.

    The input of a run file names that file as its output, even if the file has been moved. Raises
    a UserError if the file, its input or an assignment is invalid.
    """
    if path.suffix not in RUN_FILES:
        return input_file.load(path, assignments)
    with reader.open_run(path) as run:
        return input_file.parse(run.config_toml, f"{path} (stored input)", assignments, path)
