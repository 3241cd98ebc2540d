"""How often intervals from a bank of labels hold the truth, and what pairing two models gains.

    OMP_NUM_THREADS=1 .venv/bin/python tests/benchmarks/bank_coverage.py [--runs 200]
        [--only WORD] [--seed 0]

Worlds: `model_pair` (4,096 inputs), and the Toy and the worse Toy (100,000 inputs: eight digits,
the first three fixed; right if the sum is divisible by 5, or by 3). Densities are estimated from
independent draws (20 take turns), labels are drawn anew for each run, 40 per bin.

First table: labels were made for one model or both, and give r, precision, recall and AUPR of a
model: the share of intervals that hold the truth, 92 to 98 % asked of those that are weighed, with
two standard errors. "not weighed" is wrong on purpose. Second table: the difference of the AUPRs,
each model by its own labels, and both by the bank of all of these labels; at least 2 times narrower
is asked of the Toys.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "helpers"))

from bank_worlds import QUANTITIES, coverage, paired, small_world, toy_world

ALLOWED, GAIN = (0.92, 0.98), 2.0
WORLDS = {
    "small": small_world,
    "Toys, sum by 5": lambda: toy_world(5),
    "Toys, sum by 3": lambda: toy_world(3),
}


def main() -> int:
    """Print the tables; 0 if all is as asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--only", default="", help="worlds whose names hold this")
    parser.add_argument("--seed", type=int, default=0, help="of the labels, first table")
    options = parser.parse_args()
    begin, good = time.process_time(), True
    less, more = (2.0 * np.sqrt(p * (1.0 - p) / options.runs) for p in ALLOWED)
    for title, make in WORLDS.items():
        if options.only not in title:
            continue
        world = make()
        one, two = world.z
        names = " ".join(f"{name:>9s}" for name in QUANTITIES)
        print(f"{f'{title}, {options.runs} runs a row':40s}| {names}", flush=True)
        rows = [([one], two, True), ([two], one, True), ([one, two], one, True),
                ([one, two], two, True), ([one], two, False)]  # fmt: skip
        for made_for, name, weighed in rows:
            seed = options.seed
            share = coverage(world, made_for, name, options.runs, weighed=weighed, seed=seed)
            bad = (share < ALLOWED[0] - less) | (share > ALLOWED[1] + more)
            good &= not weighed or not bad.any()
            what = f"{'+'.join(made_for)} for {name}{'' if weighed else ', not weighed'}"
            marks = " <-" if bad.any() else ""
            print(f"{what:40s}| {' '.join(f'{x:9.3f}' for x in share)}{marks}", flush=True)
        (own, own_width), (bank, bank_width) = paired(world, options.runs)
        gain = own_width / bank_width
        good &= bank >= ALLOWED[0] - less and (gain >= GAIN or title == "small")
        print(
            f"difference of the AUPRs: own labels hold {own:.3f}, width {own_width:.4f}; the bank "
            f"holds {bank:.3f}, width {bank_width:.4f}: {gain:.2f} times narrower\n", flush=True,
        )  # fmt: skip
    print(f"{time.process_time() - begin:.0f} CPU s; {'all as asked' if good else 'NOT all: <-'}")
    return 0 if good else 1


if __name__ == "__main__":
    raise SystemExit(main())
