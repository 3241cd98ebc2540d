"""Seconds until commands say or do something.

    .venv/bin/python tests/benchmarks/start_up.py [--ranks 16] [--repeats 3]

`--help` and `reweight` of a small file are timed in seconds of the CPU and of the clock (medians).
Then so many ranks run inputs/english-25.toml, which loads a GPT-2, as far as the first line and the
first move: a round of one move.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from bench_tools import ROOT, launch, run_tools

TOY = ["inputs/toy.toml", "--set", "run.rounds=4"]
ONE_MOVE = [
    "run.rounds=1", "run.burn_in=0", "sampler.walkers=4", "sampler.steps=1", "sampler.exchanges=1",
    "samples.every=1", "ladder.tune=false", "ladder.betas={betas}", "run.output={output}",
]  # fmt: skip


def seconds_of(words: list[str]) -> tuple[float, float]:
    """Return the seconds of the CPU, and of the clock, of an offline command."""
    before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    command = [str(Path(sys.executable).with_name("omniinput")), *words]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return cpu, time.perf_counter() - begin


def until(ranks: int, output: Path) -> tuple[float, float]:
    """Return the seconds of the clock to a run's first line and to its first move."""
    betas = [24.0 * k / (ranks - 1) for k in range(ranks)]
    words = [word.format(betas=betas, output=output) for word in ONE_MOVE]
    program = [sys.executable, "-m", "omniinput_hpc", "inputs/english-25.toml"]
    begin, first, move = time.perf_counter(), 0.0, 0.0
    with subprocess.Popen(
        [*run_tools.mpirun(ranks), *program, *(w for word in words for w in ("--set", word))],
        cwd=ROOT, env={**run_tools.environment(), "OMP_NUM_THREADS": "1"}, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    ) as run:  # fmt: skip
        assert run.stdout is not None
        for line in run.stdout:
            first = first or time.perf_counter() - begin
            if "round 1 of" in line:
                move = time.perf_counter() - begin
    if not move:
        raise RuntimeError("the run made no move")
    return first, move


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--ranks", type=int, default=16)
    parser.add_argument("--repeats", type=int, default=3)
    o = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        small = str(Path(folder) / "small.h5")
        launch([*TOY, "--set", f"run.output={small}"], 1)
        print("| command | CPU s | s |")
        print("| --- | --- | --- |")
        for words in (["reweight", "--help"], ["reweight", small]):
            cpu, wall = (
                median(found)
                for found in zip(*(seconds_of(words) for _ in range(o.repeats)), strict=True)
            )
            shown = "reweight of a small file" if small in words else "reweight --help"
            print(f"| {shown} | {cpu:.2f} | {wall:.2f} |", flush=True)
        first, move = until(o.ranks, Path(folder) / "first.h5")
        print(f"| {o.ranks} ranks, the first line | | {first:.1f} |")
        print(f"| {o.ranks} ranks, the first move | | {move:.1f} |")


if __name__ == "__main__":
    main()
