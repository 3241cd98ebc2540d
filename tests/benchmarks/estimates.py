"""How long `--check` says that a run will take, and how long it takes, on an idle machine.

    .venv/bin/python tests/benchmarks/estimates.py [INPUT.toml ...] [--seconds 60] [--ranks 2]

For each input file: its `--check`, as it stands, tells the time of a round. Then so many rounds are
run (burn-in and counted ones as in the file) that they should take SECONDS, and a row is printed:
the estimate for these rounds, their time by the run's own clock (without starting up, as the
estimate), and the ratio of the two. Ends with 1 where one is beyond a factor of 1.5.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
INPUTS = ("toy", "toy-worse", "english-25", "digits-mlp", "digits-cnn")
LIMIT = 1.5


def called(launcher: list[str], *arguments: str) -> str:
    """Run the program in the repository's folder; return what it wrote."""
    done = subprocess.run(
        [*launcher, sys.executable, "-m", "omniinput_hpc", *arguments],
        cwd=ROOT, text=True, capture_output=True, check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    text = done.stdout + done.stderr
    if done.returncode:
        raise RuntimeError(f"{' '.join(arguments)}: exit {done.returncode}\n{text[-2000:]}")
    return text


def number_in(text: str, pattern: str) -> float:
    """Return the number of a pattern's only group."""
    found = re.search(pattern, text)
    if found is None:
        raise RuntimeError(f"no {pattern!r} in:\n{text}")
    return float(found.group(1))


def seconds_of_a_round(text: str) -> float:
    """Return what `--check` says of a round."""
    if re.search(r"tried now: [\d.]+ s per round", text):
        return number_in(text, r"tried now: ([\d.]+) s per round")
    minutes = re.search(r"tried now: (\d+) min (?:(\d+) s )?per round", text)
    if minutes is None:
        raise RuntimeError(f"no time of a round in:\n{text}")
    return 60.0 * int(minutes.group(1)) + int(minutes.group(2) or 0)


def row(path: Path, launcher: list[str], seconds: float, folder: Path) -> tuple[str, float]:
    """Return an input's row, and the ratio of the run's time to the estimate."""
    settings = tomllib.loads(path.read_text())["run"]
    share = settings["burn_in"] / (settings["burn_in"] + settings["rounds"])
    output = f"run.output={folder / path.stem}.h5"
    a_round = seconds_of_a_round(called(launcher, str(path), "--check", "--set", output))
    rounds = max(4, round(seconds / a_round))
    burn_in = min(rounds - 2, max(2, round(share * rounds)))
    said = called(
        launcher, str(path), "--set", output, "--set", f"run.rounds={rounds - burn_in}",
        "--set", f"run.burn_in={burn_in}",
    )  # fmt: skip
    took, estimate = number_in(said, r"total +([\d.]+) s"), rounds * a_round
    ratio = took / estimate
    return f"| {path.stem} | {rounds} | {estimate:.0f} | {took:.0f} | {ratio:.2f} |", ratio


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("inputs", nargs="*", type=Path, metavar="INPUT.toml")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--ranks", type=int, default=2)
    options = parser.parse_args()
    mpirun = shutil.which("mpirun.mpich") or "mpirun"
    launcher = [mpirun, "-n", str(options.ranks)] if options.ranks > 1 else []
    paths = options.inputs or [ROOT / f"inputs/{name}.toml" for name in INPUTS]
    print("| input | rounds | estimated, s | took, s | ratio |\n| --- | --- | --- | --- | --- |")
    wrong = 0
    for path in paths:
        with tempfile.TemporaryDirectory() as folder:
            text, ratio = row(path.resolve(), launcher, options.seconds, Path(folder))
        print(text, flush=True)
        wrong += not 1 / LIMIT <= ratio <= LIMIT
    print(f"{wrong} of {len(paths)} are beyond a factor of {LIMIT}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
