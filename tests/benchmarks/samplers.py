"""All that the samplers cost and yield, by one command: `kernel_table.py`, then `method_table.py`.

    .venv/bin/python tests/benchmarks/samplers.py [--models toy english] [--kernel-seconds 4]
        [--method-seconds 60]

The first prints each kernel's forwards and backwards a move, moves per second, effective samples
per second and time from random inputs; the second each method's whole runs, with round trips per
hour and effective samples at the coldest rung whose lanes agree.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent


def main() -> None:
    """Print both tables of each model."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="+", default=["toy", "english"])
    parser.add_argument("--kernel-seconds", type=float, default=4.0, help="of each measurement")
    parser.add_argument("--method-seconds", type=float, default=60.0, help="of each run")
    options = parser.parse_args()
    for table, seconds in (
        ("kernel_table.py", options.kernel_seconds),
        ("method_table.py", options.method_seconds),
    ):
        words = ["--models", *options.models, "--seconds", str(seconds)]
        subprocess.run([sys.executable, str(HERE / table), *words], check=True)


if __name__ == "__main__":
    main()
