"""Models to train and make, with their benchmark and census; `omniinput_hpc` never imports them.

Commands, input files and run files use the names `omniinput_hpc.zoo.NAME`.
"""

import argparse
import os
from pathlib import Path

from omniinput_hpc.text import print_any_text


def new_parser(module: str, description: str | None, folder: str = "") -> argparse.ArgumentParser:
    """Return a parser with the options of all trainings; writes to inputs/models/`folder`."""
    print_any_text()
    prog = f"python -m omniinput_hpc.zoo.{module}"
    parser = argparse.ArgumentParser(prog=prog, description=description)
    output = Path("inputs/models", folder)
    parser.add_argument("--output", type=Path, default=output, help=f"default: {output}")
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
