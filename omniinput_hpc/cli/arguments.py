"""Command lines of a run: ``python -m omniinput_hpc`` and the verbs that replace its options.

Imports neither MPI nor torch, so that help texts and usage errors appear at once.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from omniinput_hpc.cli.scripts import add_version
from omniinput_hpc.cli.scripts import positive_count as positive_count
from omniinput_hpc.errors import UserError

EXIT_CODES = "Exit codes: 0 complete, 2 bad input, 75 stopped early (run again), 1 failure."
FINDINGS = "Exit codes: 0 nothing is wrong, 1 problems found (one line each), 2 bad input."
PROGRAM = "python -m omniinput_hpc"


class Parser(argparse.ArgumentParser):
    """An argument parser that raises `UserError`, so that only rank 0 prints the message."""

    def error(self, message: str) -> NoReturn:
        """Raise a `UserError` with the message and the usage."""
        raise UserError(f"{message}\n{self.format_usage().strip()}")


def new_parser(program: str, description: str, example: str, more: str = EXIT_CODES) -> Parser:
    """Return a parser with --version; its help ends with `more` and an example command."""
    parser = Parser(
        prog=program,
        description=description,
        epilog=f"{more}\n\nexample:\n  {program} {example}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_version(parser)
    return parser


def parse(parser: Parser, rank: int, argv: Sequence[str] | None) -> argparse.Namespace:
    """Parse the command line on every rank; only rank 0 prints help and version."""
    given = set(argv if argv is not None else sys.argv[1:])
    if rank != 0 and {"-h", "--help", "--version"} & given:
        raise SystemExit(0)
    return parser.parse_args(argv)


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


def _add_restart(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--restart",
        choices=("auto", "never", "require"),
        default="auto",
        help="auto: resume if the run file exists; never: refuse if it exists; require: refuse if "
        "it does not (default: %(default)s)",
    )


def _add_rescore(parser: argparse.ArgumentParser, words: str) -> None:
    parser.add_argument("--rescore", type=positive_count, metavar="N", help=words)


def parse_arguments(rank: int, argv: Sequence[str] | None) -> argparse.Namespace:
    """Parse the command line of ``python -m omniinput_hpc``."""
    words = "Sample a model's whole input space as described in an input file."
    more = f"{EXIT_CODES}\nVerbs work, too ({PROGRAM} reweight RUN.h5): see omniinput --help."
    parser = new_parser(PROGRAM, words, "inputs/toy.toml --check", more)
    parser.add_argument("input", type=Path, nargs="?", metavar="INPUT.toml")
    instead = parser.add_mutually_exclusive_group()
    instead.add_argument(
        "--check", action="store_true", help="check everything, print the plan, and exit"
    )
    instead.add_argument(
        "--doctor", action="store_true", help="check this machine and a folder, and exit"
    )
    instead.add_argument(
        "--verify", action="store_true", help="check a run file (instead of INPUT.toml), and exit"
    )
    instead.add_argument(
        "--salvage",
        type=Path,
        metavar="NEW.h5",
        help="recover the rounds of a damaged run file (instead of INPUT.toml) into a new "
        "one, with the help of its side file RUN.h5.checkpoint, and exit",
    )
    _add_rescore(parser, "with --verify: evaluate N samples again")
    add_set(parser)
    _add_restart(parser)
    add_max_walltime(parser)
    args = parse(parser, rank, argv)
    if args.input is None and not args.doctor:
        what = "RUN.h5" if args.verify or args.salvage else "INPUT.toml"
        parser.error(f"the following arguments are required: {what}")
    if args.rescore and not args.verify:
        parser.error("--rescore requires --verify")
    return args


def _run(parser: Parser) -> None:
    words = "the input file, or a run file, to continue with its stored input"
    parser.add_argument("input", type=Path, metavar="INPUT.toml", help=words)
    add_set(parser)
    _add_restart(parser)
    add_max_walltime(parser)


def _check(parser: Parser) -> None:
    parser.add_argument("input", type=Path, metavar="INPUT.toml", help="the input file")
    add_set(parser)
    _add_restart(parser)
    parser.set_defaults(check=True)


def _doctor(parser: Parser) -> None:
    words = "folder where the run file will be (default: the current folder)"
    parser.add_argument("input", type=Path, nargs="?", metavar="FOLDER", help=words)
    parser.set_defaults(doctor=True)


def _verify(parser: Parser) -> None:
    parser.add_argument("input", type=Path, metavar="RUN.h5", help="the run file")
    _add_rescore(parser, "let the model evaluate N recorded samples again (default: none)")
    add_set(parser)
    parser.set_defaults(verify=True)


def _salvage(parser: Parser) -> None:
    parser.add_argument("input", type=Path, metavar="RUN.h5", help="the damaged file; it is kept")
    parser.add_argument("salvage", type=Path, metavar="NEW.h5", help="the new run file")


VERBS: dict[str, Any] = {
    "run": (_run, "Sample a model's whole input space as described in an input file.",
            "inputs/toy.toml --set run.output=runs/look.h5 --set run.rounds=4", EXIT_CODES),
    "check": (_check, "Check an input file, try its model, and print the plan, without a run.",
              "inputs/toy.toml", EXIT_CODES),
    "doctor": (_doctor, "Check this machine and a folder before a run; print one line per check.",
               "runs", FINDINGS),
    "verify": (_verify, "Check that a whole run file is consistent.",
               "runs/toy.h5 --rescore 1000", FINDINGS),
    "salvage": (_salvage, "Recover the rounds of a damaged run file with RUN.h5.checkpoint.",
                "runs/toy.h5 runs/saved.h5", FINDINGS),
}  # fmt: skip
"""For each verb: the function that adds its arguments, a description, an example, exit codes."""


def parse_verb(
    verb: str, program: str, rank: int, argv: Sequence[str] | None
) -> argparse.Namespace:
    """Parse a verb's command line into the same attributes as `parse_arguments`.

    The verb "" stands for ``python -m omniinput_hpc`` itself.
    """
    if not verb:
        return parse_arguments(rank, argv)
    add, words, example, more = VERBS[verb]
    parser = new_parser(program, words, example, more)
    parser.set_defaults(
        input=None, check=False, doctor=False, verify=False, salvage=None, rescore=None, set=[],
        restart="auto", max_walltime=None,
    )  # fmt: skip
    add(parser)
    return parse(parser, rank, argv)
