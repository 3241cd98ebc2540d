"""The parser of every command, and options that several commands share.

Imports neither MPI nor torch, so that help texts and usage errors appear at once.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import NoReturn

from omniinput_hpc.errors import UserError
from omniinput_hpc.text import __version__

EXIT_CODES = "Exit codes: 0 complete, 2 bad input, 75 stopped early (run again), 1 failure."
FINDINGS = "Exit codes: 0 nothing is wrong, 1 problems found (one line each), 2 bad input."


class RankParser(argparse.ArgumentParser):
    """An argument parser that raises `UserError`, so that only rank 0 prints the message."""

    def error(self, message: str) -> NoReturn:
        """Raise a `UserError` with the message and the usage."""
        raise UserError(f"{message}\n{self.format_usage().strip()}")


def new_parser(
    program: str,
    description: str | None,
    example: str,
    more: str = EXIT_CODES,
    kind: type[argparse.ArgumentParser] = RankParser,
) -> argparse.ArgumentParser:
    """Return a parser with --version; its help ends with `more` and an example.

    `program` is the command with its verb, or a script of analysis/. `example` holds the arguments
    of the example. `kind` is `argparse.ArgumentParser` for commands of one process.
    """
    example = f"example:\n  {called(program)} {example}"
    parser = kind(
        prog=program,
        description=description,
        epilog=f"{more}\n\n{example}" if more else example,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    version = f"omniinput_hpc {__version__}"
    parser.add_argument("--version", action="version", version=version, help="show it and exit")
    return parser


def called(program: str) -> str:
    """Return how a command is called: a script of analysis/ by its path."""
    return f"python analysis/{program}" if program.endswith(".py") else program


def parse(
    parser: argparse.ArgumentParser, rank: int, argv: Sequence[str] | None
) -> argparse.Namespace:
    """Parse the command line on every rank; only rank 0 prints help and version."""
    given = set(argv if argv is not None else sys.argv[1:])
    if rank != 0 and {"-h", "--help", "--version"} & given:
        raise SystemExit(0)
    return parser.parse_args(argv)


def count(text: str, least: int = 0) -> int:
    """Parse a whole number of at least `least` from the command line."""
    try:
        value = int(text)
    except ValueError:
        value = least - 1
    if value < least:
        problem = f"expected a whole number of at least {least}, found {text!r}"
        raise argparse.ArgumentTypeError(problem)
    return value


def positive_count(text: str) -> int:
    """Parse a whole number of at least 1 from the command line."""
    return count(text, 1)


def positive_seconds(text: str) -> float:
    """Return a positive number of seconds from the command line."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"expected a number of seconds above 0, found {text!r}")
    return value


def add_set(parser: argparse.ArgumentParser) -> None:
    """Add --set, which overrides a key of the input file."""
    words = "override a key of the input file (may be repeated)"
    parser.add_argument("--set", action="append", default=[], metavar="table.key=value", help=words)


def add_max_walltime(parser: argparse.ArgumentParser) -> None:
    """Add --max-walltime."""
    parser.add_argument(
        "--max-walltime",
        type=positive_seconds,
        metavar="SECONDS",
        help="stop in good order after this time (default: no limit)",
    )


def add_rescore(parser: argparse.ArgumentParser, words: str) -> None:
    """Add --rescore, the number of samples that the model evaluates again."""
    parser.add_argument("--rescore", type=positive_count, metavar="N", help=words)
