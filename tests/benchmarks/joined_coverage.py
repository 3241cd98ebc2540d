"""How often the 95% intervals of two joined runs' curve cover the truth, and a wrong pooling's.

    OMP_NUM_THREADS=1 .venv/bin/python tests/benchmarks/joined_coverage.py [--runs 400]

Pairs of runs of the exactly solvable lattice, drawn by numpy: a hot run and a cold one, of other
numbers of lanes and rounds; chains beside draws whose probabilities are no function of z. By the
rule "site 0 has value 0": r in the bins, ln recall up to a bin, and the AUPR. The wrong variants
give all samples the weights of the first run's rungs, or one weight. In bins of one level chains
have equal weights, so that nothing of that can go wrong; in bins of four r alone is judged, since
the density of bins as wide is biased (and says so).
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from unittest.mock import patch

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "helpers"))

from lattice import MODEL, ancestral_run, first_is_zero, independent_run

from omniinput_hpc.estimators.density.density import Density, density_of_runs
from omniinput_hpc.estimators.precision_recall.curves import accumulate, area
from omniinput_hpc.estimators.precision_recall.from_rule import rule_curve, sum_scores_of_runs

LEVELS = (np.arange(len(MODEL.z_l()) + 1) - 0.5) * MODEL.unit
WIDE = np.append(LEVELS[:-1:4], LEVELS[-1] + 0.75)  # four levels a bin
UP_TO = 2.9  # of z: ln recall up to it, and r in the bins below
HOT, COLD = np.array([-1.5, 0.0, 1.0]), np.array([2.0, 4.0])
TILTS = np.outer([2.0, 4.0], [2.0, *np.linspace(0.8, 1.2, MODEL.n_sites - 1)])
NAMES = ("r", "ln recall", "AUPR")
ALLOWED = (0.92, 0.99)


def hot_and_cold(seed: int, edges: np.ndarray = LEVELS, moves: int = 8) -> list:
    """Return a hot run of 16 lanes and a cold one of 12, half as long."""
    hot = independent_run(MODEL, HOT, edges, rounds=8, walkers=16, moves=moves, seed=2 * seed)
    cold = independent_run(MODEL, COLD, edges, rounds=4, walkers=12, moves=moves, seed=2 * seed + 1)
    return [hot, cold]


def in_wide_bins(seed: int) -> list:
    """Return such runs, longer ones, in bins of four levels."""
    return hot_and_cold(seed, WIDE, 60)


def chains_and_draws(seed: int) -> list:
    """Return a run without beta = 0 and independent draws, whose sites have tilts of their own."""
    beta_k = np.array([-1.0, 1.0])
    chains = independent_run(MODEL, beta_k, LEVELS, rounds=8, walkers=16, moves=8, seed=2 * seed)
    draws = ancestral_run(MODEL, TILTS, LEVELS, rounds=4, walkers=16, moves=8, seed=2 * seed + 1)
    return [chains, draws]


KINDS: dict[str, tuple[Callable[[int], list], int, bool]] = {
    "hot and cold": (hot_and_cold, 3, False),
    "hot and cold, wide bins": (in_wide_bins, 1, True),
    "chains and draws": (chains_and_draws, 3, True),
}
"""What makes the runs, how many of `NAMES` are judged, and whether wrong weights must fail."""
right_weights = Density.log_mixture


def by_the_first(self, z_i, log_q_ik=None, number=None):
    """Return the weights of the first run's rungs, whichever run samples are of."""
    return right_weights(self, z_i, None, 0)


def all_alike(self, z_i, log_q_ik=None, number=None):
    """Return one weight for all samples of a bin."""
    from omniinput_hpc.histogram import bin_of

    bin_i = bin_of(z_i, self.edges)
    return np.log(np.maximum(self.count_b, 1))[bin_i] - self.log_g_b[bin_i]


WRONG = {"weights of the first run": by_the_first, "one weight for all": all_alike}


def held(runs: list, wrong: Callable | None = None) -> list[float]:
    """Return the shares of the intervals of `NAMES` that hold the truth, and AUPR's deviation."""
    edges = runs[0].edges
    g_b, right_b = (MODEL.bin_sums(edges, v) for v in (MODEL.count_l(), MODEL.right_l()))
    density = density_of_runs(runs)
    with patch.object(Density, "log_mixture", wrong) if wrong else nullcontext():
        sums = sum_scores_of_runs(runs, density, first_is_zero)
    curve = rule_curve(density, sums, whole=True)
    seen = np.flatnonzero(g_b)
    precision, log_recall = accumulate(np.log(g_b[seen]), right_b[seen] / g_b[seen], "low")
    bins = np.flatnonzero(edges[1:] <= UP_TO)
    r_b = right_b[bins] / g_b[bins]
    inside_b = (curve.r_low_b[bins] <= r_b) & (r_b <= curve.r_high_b[bins])
    t = int(np.flatnonzero(curve.bin_t == bins[-1])[0])
    low, high = curve.bands.low.log_recall_t[t], curve.bands.high.log_recall_t[t]
    aupr = area(precision, log_recall)
    return [
        float(inside_b.mean()),
        float(low <= log_recall[seen == bins[-1]][0] <= high),
        float(curve.aupr_low <= aupr <= curve.aupr_high),
        float(curve.aupr - aupr),
    ]


def campaign(kind: str, n: int, seed: int = 1, wrong: Callable | None = None) -> np.ndarray:
    """Return the shares of `NAMES` over n pairs of runs, and the AUPR's mean deviation [4]."""
    make = KINDS[kind][0]
    return np.mean([held(make(seed + i), wrong) for i in range(n)], axis=0)


def is_honest(kind: str, found: np.ndarray, n: int) -> bool:
    """Return whether the judged shares are within `ALLOWED`, up to two standard errors."""
    judged, slack = found[: KINDS[kind][1]], 2.0 * np.sqrt(0.05 * 0.95 / n)
    return bool(np.all((judged >= ALLOWED[0] - slack) & (judged <= ALLOWED[1] + slack)))


def main() -> int:
    """Print the table; 0 if the program's intervals are honest and the wrong variants' are not."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=400, help="pairs of runs of each kind")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    good = True
    print(f"{'':54s}" + "".join(f"{name:>11s}" for name in NAMES) + "  AUPR's mean deviation")
    for kind, (_, judged, must_fail) in KINDS.items():
        for name, wrong in {"the program": None, **(WRONG if must_fail else {})}.items():
            begin = time.perf_counter()
            found = campaign(kind, options.runs, options.seed, wrong)
            good &= is_honest(kind, found, options.runs) == (wrong is None)
            shares = [f"{share:11.1%}" for share in found[:judged]] + ["          -"] * (3 - judged)
            seconds, deviation = time.perf_counter() - begin, found[3] if judged == 3 else np.nan
            print(f"{kind:26s}{name:28s}{''.join(shares)}{deviation:14.5f}   ({seconds:.0f} s)")
    print("as it should be" if good else "NOT as it should be")
    return 0 if good else 1


if __name__ == "__main__":
    raise SystemExit(main())
