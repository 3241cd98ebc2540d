"""The verb verify: check that a run file is consistent. It also works without MPI."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from omniinput_hpc.cli import arguments, verify
from omniinput_hpc.cli.scripts import with_extra
from omniinput_hpc.parallel.alone import Alone, Ranks


def command(world: Ranks, argv: Sequence[str] | None, program: str) -> int:
    """Parse the arguments, verify, print the findings, and return the exit code."""
    words = "Check that a whole run file is consistent."
    parser = arguments.new_parser(program, words, "runs/toy.h5 --rescore 1000", arguments.FINDINGS)
    parser.add_argument("run", type=Path, metavar="RUN.h5", help="the run file")
    again = "let the model evaluate N recorded samples again (default: none)"
    arguments.add_rescore(parser, again)
    arguments.add_set(parser)
    args = world.together(lambda: arguments.parse(parser, world.rank, argv))
    return verify.run(world, args.run, args.rescore or 0, args.set)


def main(argv: list[str], program: str = "omniinput verify") -> int:
    """Run the verb in one process without MPI."""
    with with_extra("run"):  # --rescore builds the model
        return command(Alone(), argv, program)
