"""Check that a run file is consistent without MPI: `omniinput verify RUN.h5`."""

from __future__ import annotations

from omniinput_hpc.cli import arguments, verify
from omniinput_hpc.cli.scripts import with_extra
from omniinput_hpc.parallel.alone import Alone


def main(argv: list[str], program: str = "omniinput verify") -> int:
    """Verify, print the findings, and return the exit code."""
    options = arguments.parse_verb("verify", program, 0, argv)
    with with_extra("run"):  # --rescore builds the model
        return verify.run(Alone(), options.input, options.rescore or 0, options.set)
