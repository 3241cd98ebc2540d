"""How often the 95% intervals from people's scores hold the truth, beside those of another law.

    OMP_NUM_THREADS=1 .venv/bin/python tests/benchmarks/score_coverage.py [--runs 200] [--only WORD]
    OMP_NUM_THREADS=1 .venv/bin/python tests/benchmarks/score_coverage.py --rule [--runs 400] ...
    OMP_NUM_THREADS=1 .venv/bin/python tests/benchmarks/score_coverage.py --judge [--runs 200] ...

A row per kind of scores: the share of runs whose 95% intervals hold the true r (of all bins),
precision and log recall (of all thresholds) and AUPR (over the curve's own ends), by half a right
and half a wrong score in every bin ("in every bin": what the program did before) and as the program
does it ("now"); then the shares of these that are one-sided bounds, where nothing right or nothing
wrong was seen; and what the mid-p interval of a binomial count covers, exactly, of as many scores
("binomial"). With few right scores expected no interval of a count covers 95%: it jumps with the
count. So 92% is asked of every share, and 98%, or the binomial's, is the most; two standard errors
of the share are allowed. Densities are estimated anew for each run.

With --rule the scores are those of a rule, of all samples of correlated lanes. Beside the program's
shares are those of the AUPR's intervals by two wrong laws: the jackknife's, and symmetric draws of
arcsin(sqrt(r)), clipped to the estimate. 92 to 99% are asked of the AUPR's.

With --judge a judge scores 100 (or 300) inputs of each of 12 bins, a person 25 to 50 (60) of them.
Beside the shares: how many times more scores the person would have to give without the judge for
intervals of r, and of the AUPR, of the same mean width.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "helpers"))

import rule_worlds
from score_worlds import (
    JUDGES,
    N_LEVELS,
    QUANTITIES,
    World,
    coverage,
    judged_coverage,
    without_judge,
)

ALLOWED = (0.92, 0.98)
CONSTANT = (0.005, 0.02, 0.1, 0.5, 0.9, 0.98, 0.99)


def logistic(steepness: float) -> np.ndarray:
    """Return r falling (or rising) over the levels, between 0.02 and 0.98."""
    x = steepness * (np.arange(N_LEVELS) - 23.5) / 23.5
    return 0.02 + 0.96 / (1.0 + np.exp(x))


def worlds() -> dict[str, World]:
    """Return the rows."""
    rows = {f"r {r:g} everywhere": np.full(N_LEVELS, r) for r in CONSTANT}
    rows |= {
        "r falls": logistic(4.0),
        "r rises": logistic(-4.0),
        "r falls at an edge": np.where(np.arange(N_LEVELS) < 24, 0.95, 0.05),
        "r in waves": 0.5 + 0.45 * np.sin(np.arange(N_LEVELS) / 4.0),
        "r 0.002 to 0.05": 0.002 * 25.0 ** (np.arange(N_LEVELS) / 47.0),
        "r 0.02 to 0.06": 0.02 * 3.0 ** (np.arange(N_LEVELS) / 47.0),
        "r 0.2 to 0.1": 0.2 - 0.1 * np.arange(N_LEVELS) / 47.0,
    }
    found = {f"{name}, 24 bins": World(r_l) for name, r_l in rows.items()}
    for name, r_l in rows.items():
        found[f"{name}, 12 bins, uniform, 3 a."] = World(r_l, 12, law="uniform", annotators=3)
        found[f"{name}, 48 bins, 5 a."] = World(r_l, 48, annotators=5)
    for r in (0.02, 0.98):
        world = World(np.full(N_LEVELS, r))
        for n in (10, 50):
            found[f"r {r:g}, {n} scores in each bin"] = replace(world, per_bin=(n, n))
        found[f"r {r:g}, lanes alike"] = replace(world, alike=0.5)
    return found


def by_judge(n_runs: int, only: str, seed: int) -> None:
    """Print the table of intervals by a person's scores of some inputs and a judge's of all."""
    names = " ".join(f"{name:>9s}" for name in (*QUANTITIES, "times: r", "AUPR"))
    print(f"{f'{n_runs} runs a row':46s}| {names}", flush=True)
    falling = World(np.linspace(0.95, 0.05, N_LEVELS), n_bins=12)
    for judged, people in ((100, (25, 50)), (300, (60, 60))):
        world = replace(falling, per_bin=(judged, judged))
        for judge in JUDGES:
            name = f"{judge}, {people[0]} to {people[1]} of {judged}"
            if only in name:
                share, width = judged_coverage(world, judge, people, n_runs, seed=seed)
                _, alone = judged_coverage(world, judge, people, n_runs, without_judge, seed)
                cells = " ".join(f"{x:9.3f}" for x in (*share, *(alone / width) ** 2))
                print(f"{name:46s}| {cells}", flush=True)


def by_rule(n_runs: int, only: str) -> bool:
    """Print the table of a rule's intervals; return whether the AUPR's shares are allowed."""
    names = " ".join(f"{name:>9s}" for name in (*QUANTITIES, "jackknife", "arcsin", "one-sided"))
    print(f"{f'{n_runs} runs a row':28s}| {names}", flush=True)
    good, scatter = True, 2.0 * np.sqrt(0.05 * 0.95 / n_runs)
    for name, world in rule_worlds.worlds().items():
        if only in name:
            share, old, one_sided = rule_worlds.coverage(world, n_runs)
            low, high = rule_worlds.ALLOWED
            bad = not low <= share[3] <= high + scatter
            good &= not bad
            cells = " ".join(f"{x:9.3f}" for x in (*share, *old, one_sided))
            print(f"{name:28s}| {cells}{'  <- AUPR' if bad else ''}", flush=True)
    return good


def main() -> int:
    """Print the table; 0 if every share is allowed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--only", default="", help="rows whose names hold this")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rule", action="store_true", help="scores by a rule, of all samples")
    parser.add_argument("--judge", action="store_true", help="scores by a person and a judge")
    options = parser.parse_args()
    begin, good = time.perf_counter(), True
    if options.judge:
        by_judge(options.runs, options.only, options.seed)
        return 0
    if options.rule:
        return 0 if by_rule(options.runs, options.only) else 1
    ends = " ".join(f"{name:>9s}" for name in QUANTITIES)
    kinds = " | ".join(f"{kind:^39s}" for kind in ("in every bin", "now", "one-sided", "binomial"))
    print(f"{'':38s}| {kinds}")
    print(f"{f'{options.runs} runs a row':38s}| {' | '.join([ends] * 4)}", flush=True)
    scatter = 2.0 * np.sqrt(ALLOWED[1] * (1.0 - ALLOWED[1]) / options.runs)
    for name, world in worlds().items():
        if options.only not in name:
            continue
        found = coverage(world, options.runs, options.seed)
        more = found[1] > np.maximum(ALLOWED[1], found[3]) + scatter
        bad = (found[1] < ALLOWED[0]) | more
        good &= not bad.any()
        cells = [" ".join(f"{x:9.3f}" for x in row) for row in found]
        marks = ", ".join(np.array(QUANTITIES)[bad])
        print(f"{name:38s}| {' | '.join(cells)}  {marks and '<- ' + marks}", flush=True)
    print(f"{time.perf_counter() - begin:.0f} s")
    print("all cover 92% to 98%, or as much as the binomial" if good else "NOT all: see the arrows")
    return 0 if good else 1


if __name__ == "__main__":
    raise SystemExit(main())
