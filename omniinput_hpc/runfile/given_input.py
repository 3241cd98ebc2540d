"""The input that a command line names: an input file, or a run file, which holds its own."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from omniinput_hpc.config import Config, input_file
from omniinput_hpc.runfile import reader

RUN_FILES = (".h5", ".hdf5")


def load(path: Path, assignments: Sequence[str] = ()) -> Config:
    """Return the input of a file; `assignments` are ``table.key=value``, applied in order.

    A run file's input names that file as its output, wherever it is now. Raises a UserError that
    says what is wrong with the file, its input or an assignment.
    """
    if path.suffix not in RUN_FILES:
        return input_file.load(path, assignments)
    with reader.open_run(path) as run:
        return input_file.parse(run.config_toml, f"{path} (stored input)", assignments, path)
