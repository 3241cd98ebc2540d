"""Recover the rounds of a damaged run file without MPI: `omniinput salvage OLD.h5 NEW.h5`."""

from __future__ import annotations

from omniinput_hpc.cli import arguments, salvage
from omniinput_hpc.parallel.alone import Alone


def main(argv: list[str], program: str = "omniinput salvage") -> int:
    """Salvage, print the result, and return the exit code."""
    options = arguments.parse_verb("salvage", program, 0, argv)
    return salvage.run(Alone(), options.input, options.salvage)
