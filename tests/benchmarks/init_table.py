"""`init` on each of the repository's models: what its file costs, and whether the aim is met.

    .venv/bin/python tests/benchmarks/init_table.py [--models toy digits-cnn]
                                                       [--errors 0.2 | --hours 0.1] [--method M]

For each model: `init MODEL`, then the file that it wrote, unedited, on one rank, and a row of a
table: the time that init, and that `--check` estimated, the time of the run, the typical error of
ln g (the median over the bins that hold 99% of all counts), and the verdict. init's estimate is of
the processor's time, that of `--check` of the clock's; both are shown of the run.
"""

from __future__ import annotations

import argparse
import os
import re
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

from omniinput_hpc.estimators.density.density import density_of_run
from omniinput_hpc.pilot.settings import typical_error
from omniinput_hpc.runfile.reader import open_run

ROOT = Path(__file__).resolve().parents[2]
UNITS = {"s": 1, "min": 60, "h": 3600, "d": 86400}
PYTHON_MODEL = "omniinput_hpc.zoo.exact:lattice"


def called(folder: Path, *arguments: str) -> tuple[str, float]:
    """Run a command of the package in a folder; return what it wrote and its CPU seconds."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, "-m", *arguments],
        cwd=folder,
        text=True,
        capture_output=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    text = done.stdout + done.stderr
    if done.returncode:
        raise RuntimeError(f"{' '.join(arguments)}: exit {done.returncode}\n{text[-2000:]}")
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return text, seconds


def seconds_in(text: str, before: str) -> float:
    """Return the seconds of the first duration behind some words."""
    found = re.search(before + r"((?:\d+ (?:s|min|h|d) ?)+)", text)
    if found is None:
        return float("nan")
    parts = re.findall(r"(\d+) (s|min|h|d)", found.group(1))
    return float(sum(int(number) * UNITS[unit] for number, unit in parts))


def row(name: str, aim: list[str], seconds: float, folder: Path) -> str:
    """Return a model's row; `aim` holds init's own options."""
    model = PYTHON_MODEL if ":" in name else str(ROOT / "inputs/models" / name)
    stem = "python" if ":" in name else name
    text, pilot = called(
        folder, "omniinput_hpc.init", model, *aim,
        "--seconds", str(seconds), "--output", f"{stem}.toml",
    )  # fmt: skip
    by_init = seconds_in(text, r"Cost, estimated by the pilot: ")
    checked, _ = called(folder, "omniinput_hpc", f"{stem}.toml", "--check")
    by_check = seconds_in(checked, r"time +about ")
    said, cpu = called(folder, "omniinput_hpc", f"{stem}.toml")
    wall = seconds_in(said, r"complete: .*, ")
    with open_run(folder / f"runs/{stem}.h5") as run:
        density, n_rungs = density_of_run(run.data), len(run.beta_k)
    error = typical_error(density.log_g_error_b, density.count_b)
    verdict = "yes" if density.verdict.converged else "no: " + "; ".join(density.verdict.reasons)
    return (
        f"| {stem} | {n_rungs} | {pilot:.0f} | {by_init:.0f} | {by_check:.0f} | {cpu:.0f} | "
        f"{wall:.0f} | {error:.2g} | {verdict} |"
    )


def main() -> None:
    """Print the table, a row as soon as it is known."""
    parser = argparse.ArgumentParser(description=__doc__)
    models = sorted(path.name for path in (ROOT / "inputs/models").iterdir())
    parser.add_argument("--models", nargs="+", default=[*models, PYTHON_MODEL])
    parser.add_argument("--errors", type=float, default=0.2)
    parser.add_argument("--hours", type=float, help="in place of errors")
    parser.add_argument("--seconds", type=float, default=40.0, help="of each pilot")
    parser.add_argument("--method", help="init's option (default: left to the model)")
    options = parser.parse_args()
    aim = (
        ["--errors", str(options.errors)]
        if options.hours is None
        else ["--hours", str(options.hours)]
    )
    aim += ["--method", options.method] if options.method else []
    print(f"Aim: {' '.join(aim)}; pilots of {options.seconds:g} s.\n")
    print("| model | rungs | pilot, CPU s | by init, s | by --check, s | run, CPU s | run, s | "
          "error of ln g | converged |")  # fmt: skip
    print("| --- " * 9 + "|", flush=True)
    for name in options.models:
        with tempfile.TemporaryDirectory() as folder:
            try:
                print(row(name, aim, options.seconds, Path(folder)), flush=True)
            except RuntimeError as error:
                print(f"| {name} | failed: {error} |", flush=True)


if __name__ == "__main__":
    main()
