"""The verb salvage: recover the rounds of a damaged run file. It also works without MPI."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from omniinput_hpc.cli import arguments, salvage
from omniinput_hpc.parallel.alone import Alone, Ranks


def command(world: Ranks, argv: Sequence[str] | None, program: str) -> int:
    """Parse the arguments, salvage, print the result, and return the exit code."""
    words = "Recover the rounds of a damaged run file with RUN.h5.checkpoint."
    example = "runs/toy.h5 runs/saved.h5"
    parser = arguments.new_parser(program, words, example, arguments.FINDINGS)
    parser.add_argument("run", type=Path, metavar="RUN.h5", help="the damaged file; it is kept")
    parser.add_argument("new", type=Path, metavar="NEW.h5", help="the new run file")
    args = world.together(lambda: arguments.parse(parser, world.rank, argv))
    return salvage.run(world, args.run, args.new)


def main(argv: list[str], program: str = "omniinput salvage") -> int:
    """Run the verb in one process without MPI."""
    return command(Alone(), argv, program)
