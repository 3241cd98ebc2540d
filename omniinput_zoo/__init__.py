"""Models to train and make, with their benchmark and census.

Commands, input files and run files use the names `omniinput_hpc.zoo.NAME`.
"""

import argparse
import os
import sys
from pathlib import Path

from omniinput_hpc.errors import EXIT_BAD_INPUT
from omniinput_hpc.text import print_any_text


def new_parser(
    module: str, description: str | None, folder: str = "", replaces: bool = True
) -> argparse.ArgumentParser:
    """Return a parser with the options of all trainings; writes to inputs/models/`folder`.

    `replaces` is whether it has --replace (see `keep_existing`).
    """
    print_any_text()
    prog = f"python -m omniinput_hpc.zoo.{module}"
    parser = argparse.ArgumentParser(prog=prog, description=description)
    output = Path("inputs/models", folder)
    parser.add_argument("--output", type=Path, default=output, help=f"default: {output}")
    if replaces:
        again = "write over a model that is there"
        parser.add_argument("--replace", action="store_true", help=again)
    parser.add_argument("--seed", type=int, default=1)
    # Two threads that share a core wait for each other, and training takes four times as long.
    # macOS does not report which cores a process may use.
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    threads = min(2, cores or 1)
    parser.add_argument(
        "--threads",
        type=int,
        default=threads,
        help="threads of torch (default: 2, or 1 on one core)",
    )
    return parser


def keep_existing(args: argparse.Namespace, folder: Path) -> None:
    """End the program with exit code 2 if a model's folder holds files, unless with --replace."""
    if not args.replace and folder.is_dir() and any(folder.iterdir()):
        print(
            f"error: {folder} holds a model; choose another folder with --output, or replace it "
            "with --replace",
            file=sys.stderr,
        )
        raise SystemExit(EXIT_BAD_INPUT)
