"""Two Toy-like models on real runs: normalizations and AUPR difference beside their exact values.

    mpirun -n 4 .venv/bin/python -m omniinput_hpc inputs/toy.toml           # and toy-worse.toml
    mpirun -n 4 .venv/bin/python -m omniinput_hpc.rescore runs/toy.h5 inputs/toy-worse.toml
    mpirun -n 4 .venv/bin/python -m omniinput_hpc.rescore runs/toy-worse.h5 inputs/toy.toml
    .venv/bin/python tests/benchmarks/toy_pair.py

Prints a table: ln of how many times more inputs the first model puts in Z, by every normalization,
and both AUPRs and their difference over the common range of recall, each with its 95% interval and
the exact value from inputs/exact (all 100,000,000 inputs of both). 0 if all intervals hold it.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from scipy.special import logsumexp

from omniinput_hpc.estimators.comparison.models import compare_models
from omniinput_hpc.estimators.comparison.normalization import normalize
from omniinput_hpc.estimators.comparison.to_exact import Exact
from omniinput_hpc.estimators.density.density import density_of_run
from omniinput_hpc.estimators.precision_recall.curves import (
    accumulate,
    area,
    common_range,
    curve_range,
)
from omniinput_hpc.estimators.precision_recall.from_rule import rule_curve, sum_scores
from omniinput_hpc.plugins import load_function
from omniinput_hpc.results.normalization import read_pairs
from omniinput_hpc.results.run_groups import require_one_space
from omniinput_hpc.results.tables import read_exact
from omniinput_hpc.runfile.reader import open_run
from omniinput_hpc.text import range_words

ROOT = Path(__file__).resolve().parents[2]
LINE = "{:34s}{:>11s}  {:25s}{:>11s}  {}"


def log_count(exact: Exact, edges: np.ndarray, low: float, high: float) -> float:
    """Return ln of the exact number of inputs with output in Z, whose ends are edges of bins."""
    near = 1e-9
    inside = (edges[:-1] >= low - near) & (edges[1:] <= high + near)
    if not (np.abs(edges - low).min() < near and np.abs(edges - high).min() < near):
        raise SystemExit("error: the ends of --range must be edges of bins")
    return float(logsumexp(exact.log_g_b[inside]))


def exact_curve(exact: Exact) -> tuple[np.ndarray, np.ndarray]:
    """Return precision and log recall."""
    bins = np.flatnonzero(np.isfinite(exact.log_g_b))
    return accumulate(exact.log_g_b[bins], exact.r_b[bins], "low")


def row(name: str, value: float, low: float, high: float, exact: float) -> bool:
    """Print a line of the table; return whether the interval holds the exact value."""
    held = low <= exact <= high
    interval = f"{low:.6f} to {high:.6f}"
    words = ("held" if held else "NOT HELD", f"{value:.6f}", f"{exact:.6f}")
    print(LINE.format(name, words[1], interval, words[2], words[0]))
    return held


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    names = ("toy", "toy-worse")
    parser.add_argument("--runs", type=Path, nargs=2, default=[f"runs/{n}.h5" for n in names])
    truth = [ROOT / "inputs" / "exact" / f"{name}.csv" for name in names]
    parser.add_argument("--exact", type=Path, nargs=2, default=truth)
    parser.add_argument("--rule", default="omniinput_hpc.zoo.toy:is_valid")
    parser.add_argument("--range", type=float, nargs=2, default=[1.6, 2.2])
    options = parser.parse_args()
    rule, (low, high) = load_function(options.rule, "--rule"), options.range
    with open_run(Path(options.runs[0])) as run_a, open_run(Path(options.runs[1])) as run_b:
        require_one_space([run_a, run_b])
        runs = (run_a, run_b)
        a, b = (density_of_run(run.data) for run in runs)
        pairs_a, _ = read_pairs(run_a, run_b, a)
        pairs_b, _ = read_pairs(run_b, run_a, b)
        exact = [read_exact(path, a.edges, ["r"]) for path in options.exact]
        curves = [
            rule_curve(density, sum_scores(run.data, density, rule), whole=True)
            for run, density in zip(runs, (a, b), strict=True)
        ]
    found = normalize(a, b, pairs_a, pairs_b, low, high)
    both = compare_models(curves[0], curves[1], 0.0, 0.0)

    print(LINE.format("", "found", "95% interval", "exact", "").rstrip())
    print(f"ln ratio of inputs in Z = [{low:g}, {high:g}]")
    ratio = log_count(exact[0], a.edges, low, high) - log_count(exact[1], a.edges, low, high)
    good = True
    for line in found.rows:
        if line.ratio is None:
            print(f"  {line.name}: refused: {line.refused}")
            good = False
        else:
            r = line.ratio
            good &= row(f"  {line.name}", float(r.value), float(r.low), float(r.high), ratio)
    print(f"AUPR over recall {range_words((both.lower, both.upper))}, which both reach")
    true = [exact_curve(e) for e in exact]
    auprs = [area(*curve, both.lower, both.upper) for curve in true]
    for name, part, value in (
        ("first model", both.aupr_a, auprs[0]),
        ("second model", both.aupr_b, auprs[1]),
        ("difference", both.aupr_difference, auprs[0] - auprs[1]),
        ("ratio", both.aupr_ratio, auprs[0] / auprs[1]),
    ):
        good &= row(f"  {name}", float(part.value), float(part.low), float(part.high), value)
    ends = common_range(*(curve_range(*curve) for curve in true))
    own = [area(*curve, *ends) for curve in true]
    print(f"exact difference over the exact curves' own common range, {ends[0]:.3f} to ", end="")
    print(f"{ends[1]:.3f}: {own[0] - own[1]:.6f}")
    print("every interval holds the exact value" if good else "NOT every interval holds it")
    return 0 if good else 1


if __name__ == "__main__":
    raise SystemExit(main())
