"""The command line of ``python -m omniinput_hpc``."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from omniinput_hpc.cli import common
from omniinput_hpc.parallel.comm import World


def parse(world: World, argv: Sequence[str] | None) -> argparse.Namespace:
    """Parse the command line."""
    parser = common.Parser(
        prog="python -m omniinput_hpc",
        description="Sample a model's whole input space as an input file says.",
        epilog="Exit codes: 0 complete, 2 bad input, 75 stopped early (run again), 1 failure.",
    )
    parser.add_argument("input", type=Path, nargs="?", metavar="INPUT.toml")
    instead = parser.add_mutually_exclusive_group()
    instead.add_argument(
        "--check", action="store_true", help="check everything, print the plan, exit"
    )
    instead.add_argument(
        "--doctor",
        action="store_true",
        help="check this machine and a folder, exit",
    )
    instead.add_argument(
        "--verify", action="store_true", help="check a run file (in the place of INPUT.toml), exit"
    )
    parser.add_argument(
        "--rescore", type=_count, metavar="N", help="with --verify: evaluate N samples again"
    )
    parser.add_argument(
        "--set", action="append", default=[], metavar="table.key=value", help="override a key"
    )
    parser.add_argument(
        "--restart",
        choices=("auto", "never", "require"),
        default="auto",
        help="go on with an existing run file: where there is one, never, or insist on one",
    )
    parser.add_argument(
        "--max-walltime", type=seconds, metavar="SECONDS", help="stop in good order"
    )
    args = common.parse(parser, world.rank, argv)
    if args.input is None and not args.doctor:
        what = "RUN.h5" if args.verify else "INPUT.toml"
        parser.error(f"the following arguments are required: {what}")
    if args.rescore and not args.verify:
        parser.error("--rescore belongs to --verify")
    return args


def _count(text: str) -> int:
    if int(text) < 1:
        raise ValueError
    return int(text)


def seconds(text: str) -> float:
    """Return a positive number of seconds from the command line."""
    value = float(text)
    if not 0 < value < float("inf"):
        raise ValueError
    return value
