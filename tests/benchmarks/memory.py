"""Resident memory of runs, against walkers, length and vocabulary, and over many rounds.

    .venv/bin/python tests/benchmarks/memory.py [--only cases|rounds] [--rounds 10000] [--json FILE]

First table: the largest resident memory (VmHWM) of whole runs on one rank, each in a process of its
own, less that of a run of a model of a few numbers (the libraries), beside what `--check` says by
its formula (weights, records, three [W, D, V] arrays) and what it measures by trial moves.
Models are GPT-2s of 64 numbers a token and two layers, random weights. Second table: a run of
`--rounds` rounds of a lattice model, its resident memory sampled from outside while it goes on.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bench_tools import SHAPES, input_text, launch, machine, save_gpt2, write_json
from run_tools import LATTICE, ROOT, command, environment

MB = 1e6
UNITS = {"B": 1.0, "kB": 1e3, "MB": 1e6, "GB": 1e9}
BASE = {"walkers": 16, "length": 25, "vocab": 500}
CASES: list[tuple[str, dict[str, int]]] = [
    *(("metropolis", {"walkers": w}) for w in (16, 256, 1024)),
    *(("metropolis", {"length": d}) for d in (100, 400)),
    *(("metropolis", {"vocab": v}) for v in (8000, 50257)),
    ("metropolis", {"walkers": 256, "vocab": 50257}),
    ("lm-conditional", {}),
    ("lm-conditional", {"walkers": 256}),
    ("lm-conditional", {"walkers": 64, "vocab": 50257}),
    ("gibbs-with-gradients", {}),
    ("gibbs-with-gradients", {"walkers": 256}),
    ("gibbs-with-gradients", {"vocab": 50257}),
    ("discrete-langevin", {"vocab": 50257}),
]
SAMPLES = 12


def status(pid: int | str, key: str) -> float:
    """Return an entry of a process's status, in bytes; 0 where it is gone."""
    try:
        text = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    found = re.search(rf"^{key}:\s+(\d+) kB", text, re.MULTILINE)
    return 1024.0 * float(found.group(1)) if found else 0.0


def inside(words: list[str]) -> int:
    """Run the program here and print its largest resident memory."""
    from omniinput_hpc.cli import run as program

    code = program.main(words)
    print(f"largest {status('self', 'VmHWM'):.0f}")
    return code


def largest(words: list[str]) -> float:
    """Return the largest resident memory of a run, in bytes."""
    done = launch(["--inside", *words], 1, script=__file__)
    return float(done.stdout.split("largest ")[1])


def predicted(words: list[str]) -> list[float]:
    """Return what `--check` says of the host's peak, in bytes.

    By formula, without the libraries; and by trial moves, with them.
    """
    text = launch([*words, "--check"], 1).stderr
    patterns = (r"at peak ([\d.e+]+) (\w+) of memory", r"moves, ([\d.e+]+) (\w+) of a host")
    found = [re.search(pattern, text) for pattern in patterns]
    return [float(one.group(1)) * UNITS[one.group(2)] for one in found if one is not None]


def measure(folder: Path, kernel: str, changes: dict[str, int], libraries: float) -> dict[str, Any]:
    """Run one case."""
    case = {**BASE, **changes}
    shape = {**SHAPES["tiny"], "vocab_size": case["vocab"]}
    save_gpt2(folder / "model", case["length"], **shape)
    output = folder / "run.h5"
    text = input_text(
        output=output, path=folder / "model", kernel=kernel, rungs=2, rounds=1,
        walkers=case["walkers"], length=case["length"], steps=3, exchanges=2, every=2,
    )  # fmt: skip
    (folder / "input.toml").write_text(text)
    words = [str(folder / "input.toml")]
    formula, trial = predicted(words)
    found = largest(words) - libraries
    output.unlink()
    return {"kernel": kernel, **case, "formula": formula, "trial": trial - libraries,
            "largest": found}  # fmt: skip


def lattice(folder: Path, rounds: int) -> Path:
    """Write the input file of a lattice model's run."""
    path = folder / "lattice.toml"
    text = LATTICE.format(output=folder / "lattice.h5").replace(
        "rounds = 5", f"rounds = {rounds}", 1
    )
    path.write_text(text)
    return path


def over_rounds(folder: Path, rounds: int) -> list[dict[str, float]]:
    """Sample the resident memory of a run over time."""
    path = lattice(folder, rounds)
    output = folder / "lattice.h5"
    with open(folder / "log", "w") as log:
        process = subprocess.Popen(
            command(path), cwd=ROOT, env=environment(), stdout=log, stderr=log
        )
    rows: list[dict[str, float]] = []
    done = 0
    while process.poll() is None:
        time.sleep(0.5)
        if not output.exists():
            continue
        done = committed(output)
        if done >= (len(rows) + 0.5) * rounds / SAMPLES:
            held = status(process.pid, "VmRSS")
            if held:
                rows.append({"rounds": done, "resident": held})
    if process.returncode:
        raise RuntimeError((folder / "log").read_text())
    output.unlink()
    return rows


def committed(path: Path) -> int:
    """Return the rounds that a run file holds."""
    from omniinput_hpc.runfile.reader import open_run

    with open_run(path) as run:
        return run.rounds


def main() -> None:
    """Print the tables."""
    if sys.argv[1:2] == ["--inside"]:
        raise SystemExit(inside(sys.argv[2:]))
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=["cases", "rounds"], help="one of the two tables")
    parser.add_argument("--rounds", type=int, default=10_000)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    print(machine())
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        cases = print_cases(folder) if options.only != "rounds" else []
        rounds = print_rounds(folder, options.rounds) if options.only != "cases" else []
    write_json(options.json, {"machine": machine(), "cases": cases, "rounds": rounds})


def print_cases(folder: Path) -> list[dict[str, Any]]:
    """Print the first table."""
    rows, libraries = [], of_libraries(folder)
    print(
        f"libraries and a model of a few numbers: {libraries / MB:.0f} MB\n"
        "| kernel | W | D | V | --check: formula, trial moves, MB | the run, MB |\n"
        "| --- | --- | --- | --- | --- | --- |"
    )
    for kernel, changes in CASES:
        row = measure(folder, kernel, changes, libraries)
        rows.append(row)
        print(
            f"| {kernel} | {row['walkers']} | {row['length']} | {row['vocab']:,} | "
            f"{row['formula'] / MB:,.0f}, {row['trial'] / MB:,.0f} | {row['largest'] / MB:,.0f} |",
            flush=True,
        )
    return rows


def print_rounds(folder: Path, rounds: int) -> list[dict[str, float]]:
    """Print the second table."""
    samples = over_rounds(folder, rounds)
    print(f"a run of {rounds:,} rounds: resident memory, MB, after some rounds")
    for sample in samples:
        print(f"{sample['rounds']:>8,.0f} {sample['resident'] / MB:10.2f}")
    return samples


def of_libraries(folder: Path) -> float:
    """Return the largest resident memory of a run whose model is next to nothing."""
    save_gpt2(folder / "model", 2, n_embd=8, n_layer=1, n_head=1, vocab_size=4)
    text = input_text(
        output=folder / "run.h5", path=folder / "model", rungs=2, rounds=1, walkers=1, length=2,
        steps=3, exchanges=2, every=2,
    )  # fmt: skip
    (folder / "input.toml").write_text(text)
    found = largest([str(folder / "input.toml")])
    (folder / "run.h5").unlink()
    return found


if __name__ == "__main__":
    main()
