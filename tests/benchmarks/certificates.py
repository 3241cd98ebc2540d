"""How often certified bounds on the number of inputs up to z hold, and how wide they are.

    OMP_NUM_THREADS=1 .venv/bin/python tests/benchmarks/certificates.py [--runs 1000]

The models are Markov chains of 24 tokens of 8 values with exact numbers; the runs are drawn by
numpy from tempered conditionals, whose weights are uneven. A row per threshold: ln of the exact
number of inputs up to it; the share of 95% bounds that hold it, lower and upper together, and of
intervals by the normal law (estimate and spread of the groups), which takes the draws that are
missing for draws that do not exist; the mean of the bounds' distances from the exact value.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "helpers"))

from normalized_chain import NormalizedChain, by_the_normal_law

from omniinput_hpc.estimators.density.certified import certify

BETAS = (0.0, 0.5, 1.0, 1.2)
N_THRESHOLDS = 12


def main() -> int:
    """Print the table; 0 if all bounds hold in 95%, less two standard errors of the share."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    begin, good = time.perf_counter(), True
    model = NormalizedChain(0, sharpness=1.5, spread=0.5)
    z_t = model.thresholds(N_THRESHOLDS)
    exact_t = model.log_up_to(z_t)
    held, normal, apart = np.zeros((3, len(z_t))), np.zeros(len(z_t)), np.zeros((2, len(z_t)))
    for i in range(options.runs):
        run = model.ancestral_run(BETAS, options.seed + i)
        found = certify(run, model.n_predicted, z_t=z_t)
        below, above = found.low_t <= exact_t, exact_t <= found.high_t
        held += np.stack([below & above, below, above])
        apart += np.stack([np.maximum(exact_t - found.low_t, -9.0), found.high_t - exact_t])
        low_t, high_t = by_the_normal_law(run, z_t)
        normal += (low_t <= exact_t) & (exact_t <= high_t)
    n = options.runs
    print(f"{n} runs of {found.n_groups} groups of {len(BETAS)} draws, betas m times {BETAS}")
    print(f"{'z':>6s} {'ln n':>6s} | {'both':>6s} {'lower':>6s} {'upper':>6s} {'normal':>6s} | "
          f"{'below':>6s} {'above':>6s}")  # fmt: skip
    for t, z in enumerate(z_t):
        print(f"{z:6.2f} {exact_t[t]:6.1f} | {held[0, t] / n:6.3f} {held[1, t] / n:6.3f} "
              f"{held[2, t] / n:6.3f} {normal[t] / n:6.3f} | {apart[0, t] / n:6.2f} "
              f"{apart[1, t] / n:6.2f}")  # fmt: skip
    good = (held[0] / n >= 0.95 - 2.0 * np.sqrt(0.95 * 0.05 / n)).all()
    print(f"{time.perf_counter() - begin:.0f} s")
    print("all bounds hold in 95%" if good else "NOT all bounds hold in 95%")
    return 0 if good else 1


if __name__ == "__main__":
    raise SystemExit(main())
