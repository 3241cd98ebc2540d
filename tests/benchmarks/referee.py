"""What the verdict says of runs whose density is known: models that are hard in different ways.

    OMP_NUM_THREADS=1 .venv/bin/python tests/benchmarks/referee.py --folder /tmp/referee
        [--run [SHARE]] [--seeds 2] [--only NAME ...] [--reasons]

`--run` makes the run files that are missing, each some seconds; a SHARE such as 0/2 makes every
other one, so that two processes can share the work. Without it the runs that are there are judged.
A run is *wrong* if a bin with an error of its own (no upper bound, 50 effective counts) is off by
more than 0.3 nats and 5 errors, if a bin is missing that rungs in equilibrium would have counted
more than 50 effective times, or if the root mean square of (estimate - truth) / error is above 3.
It was *visited* if a recorded move was in a bin that is wrong, or if none is missing.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from scipy.special import logsumexp

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "helpers"))

import hard_models

from omniinput_hpc.histogram import bin_of


@dataclass(frozen=True)
class Case:
    """A model with its bins and its ladder; `options` of the model."""

    name: str
    model: str
    bins: tuple[float, float, float]
    betas: tuple[float, float, int]
    options: dict = field(default_factory=dict)
    wang_landau: bool = True

    def input_text(self, output, seed, setup, method):
        walkers, steps, exchanges, rounds, burn_in = SETUPS[setup]
        low, high, number = self.betas
        betas = sorted({0.0, *np.round(np.linspace(low, high, number), 4).tolist()})
        lower, upper, width = self.bins
        options = ", ".join(f"{k} = {v}" for k, v in self.options.items())
        if method == "wl":
            rounds, burn_in, steps = rounds // 2, rounds // 2, 2 * steps
        ladder = (
            f"[ladder]\nbetas = {betas}\ntune = true"
            if method == "pt"
            else "[wang_landau]\nln_f_last = 0.003"
        )
        chosen = "" if method == "pt" else 'method = "wang-landau"\n'
        return f"""[run]
output = "{output}"
seed = {seed}
rounds = {rounds}
burn_in = {burn_in}
[model]
kind = "python"
factory = "hard_models:make_{self.model}"
options = {{ {options} }}
[sampler]
{chosen}walkers = {walkers}
steps = {steps}
exchanges = {exchanges}
{ladder}
[bins]
lower = {lower}
upper = {upper}
width = {width}
[samples]
every = {steps}
"""


SETUPS = {"hurry": (16, 10, 6, 24, 4), "hand": (32, 20, 8, 32, 8), "long": (32, 20, 16, 60, 16)}
"""Walkers, steps, exchanges, rounds, burn-in."""

CASES = [
    Case("hidden10", "hidden", (-0.125, 34.125, 0.25), (0.0, 3.0, 10), {"key": 10, "rest": 24}),
    Case("hidden16", "hidden", (-0.125, 40.125, 0.25), (0.0, 3.0, 10), {"key": 16, "rest": 24}),
    Case("hiddenbig", "hidden", (-0.125, 58.125, 0.25), (0.0, 2.5, 12), {"key": 10, "rest": 48}),
    Case("twophases", "two_phases", (-0.0625, 24.0625, 0.125), (0.0, 4.0, 10)),
    Case("twophases-high", "two_phases", (-0.0625, 32.0625, 0.125), (0.0, 4.0, 10),
         {"barrier": 14.0, "shift": 0.5}),
    Case("convex", "convex", (-60.03125, 0.03125, 0.0625), (0.0, 1.6, 10)),
    Case("convex-steep", "convex", (-80.03125, 0.03125, 0.0625), (0.0, 1.6, 12),
         {"n": 80, "power": 8.0}),
    Case("heavy", "heavy", (-3000.0, 0.0, 2.0), (0.0, 0.02, 6), wang_landau=False),
    Case("longrange", "long_range", (-34.015625, 0.109375, 0.03125), (0.0, 2.0, 10)),
    Case("twoends", "two_ends", (-0.5, 12.5, 1.0), (0.0, 4.0, 8)),
    Case("lattice", "lattice", (0.0, 3.4, 0.1), (0.0, 6.0, 8), {"n": 11}),
    Case("aniso", "aniso", (-0.0078125, 31.9921875, 0.015625), (0.0, 4.0, 8), wang_landau=False),
    Case("chain", "chain", (-0.5, 47.5, 1.0), (0.0, 5.0, 10)),
    Case("glass", "glass", (-120.5, 120.5, 1.0), (-0.6, 0.6, 11)),
    Case("deceptive", "deceptive", (-0.25, 24.25, 0.5), (0.0, 4.0, 8)),
    Case("constrained", "constrained", (-0.125, 40.125, 0.25), (0.0, 4.0, 8)),
    Case("outliers", "outliers", (-0.5, 64.5, 1.0), (-1.0, 2.0, 10)),
]  # fmt: skip


@dataclass(frozen=True)
class Judged:
    """What a run's verdict says, and how far its density is from the truth."""

    name: str
    says: str
    right: bool
    visited: bool
    nats: float
    errors: float
    rms: float
    covered: int
    n_judged: int
    violated: int
    bounded: int
    missing: int
    failed: tuple[str, ...]
    trips: float
    times: float
    reasons: tuple[str, ...]


def make_run(case: Case, path: Path, seed: int, setup: str, method: str) -> float:
    from omniinput_hpc.cli import run as launch

    toml = path.with_suffix(".toml")
    toml.write_text(case.input_text(path, seed, setup, method))
    begin, disabled = time.perf_counter(), logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        code = launch.main([str(toml)])
    finally:
        logging.disable(disabled)
    if code != 0:
        raise RuntimeError(f"{toml} failed")
    return time.perf_counter() - begin


def judge(case: Case, path: Path) -> Judged:
    from omniinput_hpc.estimators.density.density import MIN_EFFECTIVE_COUNT, density_of_run
    from omniinput_hpc.runfile.reader import open_run

    z, log_count = hard_models.make(case.model, **case.options).truth()
    with open_run(path) as run:
        density = density_of_run(run.data)
        edges, n_k = run.edges, run.counts_kb().sum(axis=1) + run.outside_k2().sum(axis=1)
        log_w_kl = run.data.weights.at(z)
        trips, rounds = float(run.round_trips_v().sum()) / run.walkers, run.rounds
    z = z.astype(np.float32).astype(float)
    bin_l, n_bins = bin_of(z, edges), len(edges) - 1
    inside = (bin_l >= 0) & (bin_l < n_bins)
    true_b = np.full(n_bins, -np.inf)
    np.logaddexp.at(true_b, bin_l[inside], log_count[inside])
    log_g_b, error_b, upper_b = density.log_g_b, density.log_g_error_b, density.log_g_upper_b
    few_b = density.effective_b < MIN_EFFECTIVE_COUNT
    judged_b = np.isfinite(error_b) & ~few_b & (density.count_b > 0)
    judged_b &= ~np.isfinite(upper_b)
    if not density.absolute and judged_b.any():
        shift = np.average(
            (log_g_b - true_b)[judged_b], weights=1 / np.maximum(error_b[judged_b], 1e-9) ** 2
        )
        log_g_b, upper_b = log_g_b - shift, upper_b - shift
    off = (log_g_b - true_b)[judged_b]
    errors = off / np.maximum(error_b[judged_b], 1e-12)
    bad = (np.abs(off) > 0.3) & (np.abs(errors) > 5)
    expected_b = np.zeros(n_bins)
    for k, log_w_l in enumerate(log_w_kl):
        log_p_l = log_count + log_w_l
        p_l = np.exp(log_p_l - logsumexp(log_p_l)) * n_k[k]
        np.add.at(expected_b, bin_l[inside], p_l[inside])
    spread = 1.0
    if judged_b.any():
        spread = float(np.quantile((density.count_b / density.effective_b)[judged_b], 0.9))
    missing_b = np.isfinite(true_b) & (density.count_b == 0)
    missing_b &= expected_b > 50 * max(1.0, spread)
    bounded_b = np.isfinite(upper_b) & (density.count_b > 0)
    rms = float(np.sqrt(np.mean(errors**2))) if len(errors) else np.nan
    right = not bad.any() and not missing_b.any() and not rms > 3
    from omniinput_hpc.estimators.errors.jackknife import t_quantile

    half = t_quantile(len(density.lanes_g))
    verdict = density.verdict
    return Judged(
        path.stem, "yes" if verdict.converged else "no", right,
        bool(bad.any() or rms > 3) or not missing_b.any(),
        float(np.abs(off).max(initial=0)), float(np.abs(errors).max(initial=0)), rms,
        int((np.abs(errors) <= half).sum()), len(errors),
        int((true_b > upper_b + 1e-9)[bounded_b].sum()), int(bounded_b.sum()), int(missing_b.sum()),
        tuple(dict.fromkeys(c.name for c in verdict.checks if not c.passed)),
        trips, rounds / float(np.nanmax(verdict.tau_k)), tuple(verdict.reasons),
    )  # fmt: skip


def all_runs(folder: Path, n_seeds: int, only: list[str]):
    for case in CASES:
        if only and case.name not in only:
            continue
        for method in ("pt", "wl") if case.wang_landau else ("pt",):
            for setup in SETUPS:
                for seed in range(1, n_seeds + 1):
                    path = folder / f"{case.name}-{method}-{setup}-{seed}.h5"
                    yield case, path, seed, setup, method


def line(found: Judged) -> str:
    wrong = found.says == "yes" and not found.right
    return (
        f"{found.name:28s} {found.says:3s} {'right' if found.right else 'WRONG':5s} "
        f"{found.nats:6.2f} nats {found.errors:6.1f} errors, rms {found.rms:5.2f}, covered "
        f"{found.covered}/{found.n_judged}, bounds violated {found.violated}/{found.bounded}, "
        f"missing {found.missing}, trips a lane {found.trips:.1f}"
        f"{'  <- FALSE' if wrong else ''}{'  (unseen)' if wrong and not found.visited else ''}"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--run", nargs="?", const="0/1")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--method", choices=("pt", "wl"))
    parser.add_argument("--reasons", action="store_true")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    runs = list(all_runs(options.folder, options.seeds, options.only))
    runs = [run for run in runs if options.method in (None, run[4])]
    if options.run:
        part, of = map(int, options.run.split("/"))
        for case, path, seed, setup, method in runs[part::of]:
            if not path.exists():
                try:
                    seconds = make_run(case, path, seed, setup, method)
                    print(f"{path.stem}: {seconds:.0f} s", flush=True)
                except (RuntimeError, SystemExit) as error:
                    print(f"{path.stem}: {error}", flush=True)
        return 0
    found = []
    for case, path, *_ in runs:
        if path.exists():
            found.append(judge(case, path))
            print(line(found[-1]), flush=True)
            if options.reasons:
                print("".join(f"      {r[:230]}\n" for r in found[-1].reasons), end="", flush=True)
    print_summary(found)
    return int(any(f.says == "yes" and not f.right and f.visited for f in found))


def print_summary(found: list[Judged]) -> None:
    """Print the shares that the issue of verdicts asks for, and what each check finds."""
    wrong = [f for f in found if not f.right]
    false = [f for f in wrong if f.says == "yes"]
    seen = [f for f in wrong if f.visited]
    right = [f for f in found if f.right]
    long = [f for f in right if f.times >= 50 and f.trips >= 20]
    sound = [f for f in right if f.says == "yes"]
    refused = sum(f.says == "no" for f in long)
    print(
        f"{len(found)} runs, {len(right)} right, {len(wrong)} wrong ({len(seen)} of these visited)"
    )
    print(f"yes and wrong: {len(false)}, visited {sum(f.visited for f in false)}")
    print(
        f"no and right, of 50 autocorrelation times and 20 trips a lane: {refused} of {len(long)}"
    )
    print(f"bounds that hold: {_share([(f.bounded - f.violated, f.bounded) for f in found])}")
    print(f"intervals of sound runs that hold: {_share([(f.covered, f.n_judged) for f in sound])}")
    names = sorted({name for f in found for name in f.failed})
    print(f"{'check':44s}  wrong  alone  right  alone")
    for name in names:
        counts = [
            sum(name in f.failed and (f.failed == (name,) or not alone) for f in some)
            for some in (seen, right)
            for alone in (False, True)
        ]
        print(f"{name:44s}" + "".join(f"{count:7d}" for count in counts))


def _share(pairs: list[tuple[int, int]]) -> str:
    part, whole = (sum(column) for column in zip(*pairs, strict=True)) if pairs else (0, 0)
    return f"{part} of {whole}" + (f" ({part / whole:.1%})" if whole else "")


if __name__ == "__main__":
    sys.exit(main())
