"""What each method yields as a whole run: round trips, and effective samples at the cold end.

    .venv/bin/python tests/benchmarks/method_table.py [--models toy english] [--seconds 60]

Runs the program itself on one rank and one thread for some seconds a case, and prints a table for
each model: moves per second, effective samples of z per second at b = 1 and at the coldest rung
whose lanes agree (R-hat up to 1.05; flat rungs count as they are), round trips per hour, and their
share of the ideal rate. Seconds are of the CPU, without those of starting up and of burn-in (one
round, 15 of Wang-Landau, 60 with two windows).
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from omniinput_hpc.config import input_file
from omniinput_hpc.estimators.errors.chains import MAX_RHAT, lanes_disagree
from omniinput_hpc.results.diagnosis import diagnose
from omniinput_hpc.runfile.reader import open_run

ROOT = Path(__file__).resolve().parents[2]
MOST_ROUNDS = 2000
LADDERS = {
    "toy": [0.0, 0.1, 0.22, 0.35, 0.5, 0.65, 0.9, 1.4, 2.2, 3.3, 4.8, 7.0],
    "english": [0.0, 1.4, 3.0, 4.9, 7.3, 10.0, 12.6, 14.8, 17.0, 19.5, 22.0, 24.0, 25.2, 26.4],
}
WINDOWS: dict[str, list[list[float]]] = {
    "toy": [[1.5, 6.5], [5.0, 9.6]],
    "english": [[3.0, 9.5], [7.5, 10.5]],
}
INPUTS = {"toy": "inputs/toy.toml", "english": "inputs/english-25.toml"}
PREDICTED = {"toy": 7, "english": 24}


@dataclass(frozen=True)
class Case:
    """A method with a kernel."""

    name: str
    kernel: str
    method: str = "parallel-tempering"
    anchors: bool = False
    n_windows: int = 0
    burn_in: int = 1
    more: tuple[str, ...] = field(default=())

    def settings(self, model: str) -> list[str]:
        """Return the words of `--set` that make a model's input file this case."""
        betas = LADDERS[model]
        words = [f"kernel.name={self.kernel}", f"sampler.method={self.method}",
                 "sampler.exchanges=2"]  # fmt: skip
        if self.n_windows:
            windows = WINDOWS[model]
            if self.n_windows == 1:
                windows = [[windows[0][0], windows[-1][1]]]
            words += [f"wang_landau.windows={windows}", "wang_landau.ln_f_last=0.001",
                      "wang_landau.ln_f_first=0.005"]  # fmt: skip
            betas = [0.0]
        words.append(f"ladder.betas={betas}")
        if self.kernel == "lm-conditional":  # the page compares moves without it
            words.append("kernel.look_ahead=false")
        if self.method == "parallel-tempering":
            words += ["ladder.tune=false", f"ladder.anchors={str(self.anchors).lower()}"]
        elif model == "english":
            words.append("ladder.tune=false")
        return [*words, *self.more]


CASES = [
    Case("parallel tempering", "metropolis"),
    Case("parallel tempering", "gibbs-with-gradients"),
    Case("parallel tempering", "discrete-langevin"),
    Case("parallel tempering", "lm-conditional"),
    Case("the same with anchors", "lm-conditional", anchors=True),
    Case("the same, 40 moves a swap", "lm-conditional", anchors=True, more=("sampler.steps=40",)),
    Case("ancestral", "lm-conditional", "ancestral", burn_in=0, more=("samples.every=1",)),
    Case("Wang-Landau", "metropolis", "wang-landau", n_windows=1, burn_in=15),
    Case("gradient Wang-Landau", "gibbs-with-gradients", "wang-landau", n_windows=1, burn_in=15),
    Case("replica-exchange Wang-Landau", "metropolis", "wang-landau", n_windows=2, burn_in=60),
]


def child_seconds() -> float:
    """Return the CPU seconds of all finished children."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def program(model: str, case: Case, *words: str) -> tuple[float, str]:
    """Run the program; return its CPU seconds and what it said.

    Raises
    ------
    RuntimeError
        It failed.
    """
    settings = [word for setting in case.settings(model) for word in ("--set", setting)]
    before = child_seconds()
    done = subprocess.run(
        [sys.executable, "-m", "omniinput_hpc", INPUTS[model], *settings, *words],
        cwd=ROOT, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    if done.returncode not in (0, 75):
        raise RuntimeError(done.stdout + done.stderr)
    return child_seconds() - before, done.stdout + done.stderr


def measure(model: str, case: Case, seconds: float, folder: Path) -> dict[str, Any]:
    """Run one case and read its file."""
    path = folder / "run.h5"
    output = ("--set", f"run.output={path}")
    starting, _ = program(model, case, *output, "--check")
    length = ("--set", f"run.rounds={MOST_ROUNDS}", "--set", f"run.burn_in={case.burn_in}")
    used, said = program(
        model, case, *output, *length, "--max-walltime", f"{seconds + starting:.0f}"
    )
    with open_run(path) as run:
        row = {"method": case.name, "kernel": case.kernel, "rounds": run.rounds}
        if run.rounds >= 2:
            sampler = input_file.parse(run.config_toml, str(path)).sampler
            share = run.rounds / (run.rounds + case.burn_in)
            counted = max(used - starting, 1e-3) * share
            d = diagnose(run)
            n_moves = run.rounds * sampler.moves_per_round * d.beta_k.size * run.walkers
            row |= cold(model, d, counted, case.method == "ancestral")
            row["moves_per_s"] = n_moves / counted
            row["trips_per_h"] = 3600 * d.trips_v.sum() / counted
            row["of_ideal"] = d.trip_rate / d.ideal_rate
    path.unlink()
    late = re.findall(r"did not reach ln_f_last", said)
    return {**row, "late": bool(late)}


def cold(model: str, d: Any, seconds: float, drawn: bool) -> dict[str, Any]:
    """Return effective samples per second at b = 1 and at the coldest rung whose lanes agree.

    Ancestral draws have the law of an ensemble at b = 1 only; elsewhere they bring weights.
    """
    b_k = d.beta_k / PREDICTED[model]
    apart_k = lanes_disagree(d.rhat_k, len(d.trips_v) // len(d.beta_k))
    good = np.flatnonzero(~apart_k & np.isfinite(d.ess_k))
    found: dict[str, Any] = {}
    own = np.flatnonzero(np.isclose(b_k, 1.0))
    if own.size and np.isfinite(d.ess_k[own[0]]):
        found |= {"ess_own": d.ess_k[own[0]] / seconds, "agrees": bool(own[0] in good)}
    flat = np.flatnonzero(np.isnan(b_k))
    coldest = flat if flat.size else good[-1:]
    if coldest.size and not drawn:
        k = int(coldest[np.argmin(d.z_mean_k[coldest])])
        found |= {"coldest": "flat" if np.isnan(b_k[k]) else f"{b_k[k]:.3g}",
                  "ess_coldest": d.ess_k[k] / seconds, "rhat": d.rhat_k[k]}  # fmt: skip
    return found


def line(row: dict[str, Any]) -> str:
    """Return a row of the table."""
    if "moves_per_s" not in row:
        return f"| {row['method']}, {row['kernel']} | no counted round | | | | |"
    own = f"{'' if row['agrees'] else '< '}{row['ess_own']:.3g}" if "ess_own" in row else "-"
    coldest = f"{row['coldest']}: {row['ess_coldest']:.3g}" if "coldest" in row else "none"
    if row.get("rhat", 0.0) > MAX_RHAT:
        coldest += f" (R-hat {row['rhat']:.2f})"
    trips = "-" if np.isnan(row["of_ideal"]) else f"{row['trips_per_h']:,.0f}"
    share = "-" if np.isnan(row["of_ideal"]) else f"{row['of_ideal']:.0%}"
    late = " (S not learnt to its end)" if row["late"] else ""
    return (
        f"| {row['method']}, {row['kernel']}{late} | {row['moves_per_s']:,.0f} | {own} | {coldest} "
        f"| {trips} | {share} |"
    )


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="+", choices=sorted(INPUTS), default=["toy", "english"])
    parser.add_argument("--seconds", type=float, default=60.0, help="of each case")
    parser.add_argument("--only", help="part of a case's name or kernel")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rows: dict[str, list[dict[str, Any]]] = {}
    for model in options.models:
        print(f"\n{model}: {options.seconds:g} s a case, {len(LADDERS[model])} rungs")
        print(
            "| method, kernel | moves/s | effective/s, b = 1 | coldest b whose lanes agree: "
            "effective/s | round trips/h | of the ideal |\n| --- | --- | --- | --- | --- | --- |"
        )
        for case in CASES:
            if options.only and options.only not in f"{case.name} {case.kernel}":
                continue
            with tempfile.TemporaryDirectory() as folder:
                row = measure(model, case, options.seconds, Path(folder))
            rows.setdefault(model, []).append(row)
            print(line(row), flush=True)
    if options.json is not None:
        options.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
