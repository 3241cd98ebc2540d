"""How honest the errors of bins of independent draws are, by their number of effective draws.

    OMP_NUM_THREADS=1 .venv/bin/python tests/benchmarks/ancestral_coverage.py [--runs N] [--only K]

The models are Markov chains of 24 tokens of 8 values with exact densities; the runs are drawn by
numpy from tempered conditionals, few rungs, uneven weights. A row per class of bins: rms, mean,
lowest and highest z-score, (log g - exact) / error; the mean deviation in nats; the share of the
95% intervals that hold the exact value; the share of the 95% upper bounds that do. "plain" is the
jackknife over lanes with effective counts of the bin's own draws alone, "pooled" is what the
program does: see `omniinput_hpc.estimators.density.pooled_spread`. Bins of bounds alone (below 50
effective draws) have intervals here, too; those whose error is not known have none.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from itertools import pairwise
from pathlib import Path
from unittest.mock import patch

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "helpers"))

from decoder_chain import DecoderChain

from omniinput_hpc.estimators.density import result, terms
from omniinput_hpc.estimators.density.density import Density, density_of_runs
from omniinput_hpc.estimators.density.wide_bins import coarsen
from omniinput_hpc.estimators.errors.jackknife import t_quantile

CLASSES = (0.0, 5.0, 20.0, 50.0, np.inf)
"""Limits of the classes, in effective draws."""
WORLDS = {
    "b = 0.5, 2.5": ([0.5, 2.5], 1.0, 0.7, 8),
    "b = 0, 1, 2, 3": ([0.0, 1.0, 2.0, 3.0], 1.0, 0.7, 8),
    "b = 0.5": ([0.5], 1.5, 0.5, 8),
    "b = 0, 2": ([0.0, 2.0], 1.5, 0.5, 8),
    "b = 0.5, 2.5, five times the draws": ([0.5, 2.5], 1.0, 0.7, 40),
    "b = 0, 2, five times the draws": ([0.0, 2.0], 1.5, 0.5, 40),
}
"""Betas of the rungs (in units of the model's own), the table's sharpness and spread, rounds."""
MODELS = 2
JOINED = {"draws": "", "two runs": "two", "chains": "chains", "wide bins": "wide"}
LIMITS = {"rms z": (0.7, 1.15), "cover": (0.92, 0.995), "bounds": (0.92, 1.0)}
"""What is asked of every class of "pooled", shares up to two standard errors of their own."""


@contextmanager
def plain_jackknife() -> Iterator[None]:
    """Take effective counts from the bin's own draws, and leave the jackknife as it is."""

    def own(number_b, log_first_b, log_second_b, log_sum_b):
        with np.errstate(divide="ignore", invalid="ignore"):
            uneven_b = np.exp(np.log(number_b) + log_second_b - 2.0 * log_first_b)
        return np.where(number_b > 0, uneven_b, 1.0)

    still = property(lambda self: np.zeros_like(self.first_pb))
    with (
        patch.object(terms, "unevenness", own),
        patch.object(terms.DrawTerms, "_moved_pb", still),
        patch.object(result, "least_errors", lambda observed, effective_b: 0.0 * effective_b),
    ):
        yield


def runs_of(model: DecoderChain, world: str, kind: str, seed: int) -> list:
    """Return the runs that one density is made of."""
    betas, *_, rounds = WORLDS[world]
    runs = [model.ancestral_run(betas, seed, rounds=rounds)]
    if kind == "two":
        runs.append(model.ancestral_run([b + 0.25 for b in betas], 10**6 + seed, rounds=rounds))
    if kind == "chains":
        runs.append(model.chain_run([0.2, 0.4, 0.6, 0.8, 1.0], seed, rounds=2))
    return runs


def judge(found: Density, exact_b: np.ndarray) -> np.ndarray:
    """Return effective draws, z-score, deviation, and whether the bound holds [4, bins seen]."""
    seen = np.isfinite(found.log_g_b) & np.isfinite(exact_b)
    delta = found.log_g_b[seen] - exact_b[seen]
    error = found.log_g_error_b[seen]
    # also of runs too short to be called converged, which print no bounds
    n_groups = len(found.lanes_g)
    upper = result.upper_bounds(found.log_g_b, found.log_g_error_b, found.effective_b, n_groups)
    upper = upper[seen]
    known = np.isfinite(error) & (error > 0)
    score = np.where(known, delta / np.where(known, error, 1.0), np.nan)
    held = np.where(np.isnan(upper), np.nan, upper >= exact_b[seen])
    return np.stack([found.effective_b[seen], score, delta, held])


def campaign(world: str, kind: str, n_runs: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return what `judge` found of all runs, by the plain jackknife and pooled [4, n] each."""
    _, sharpness, spread, _ = WORLDS[world]
    found: tuple[list, list] = ([], [])
    for m in range(MODELS):
        model = DecoderChain(m, sharpness=sharpness, spread=spread)
        exact_b, edges = model.log_g_b, model.edges[::4]
        if kind == "wide":
            exact_b = np.logaddexp.reduceat(exact_b, np.arange(0, len(exact_b), 4))
        for i in range(-(-n_runs // MODELS)):
            runs = runs_of(model, world, kind, seed + i)
            for part, pooled in zip(found, (False, True), strict=True):
                with nullcontext() if pooled else plain_jackknife():
                    estimate = density_of_runs(runs)
                    if kind == "wide":
                        estimate = coarsen(estimate, edges)
                part.append(judge(estimate, exact_b))
    return np.concatenate(found[0], axis=1), np.concatenate(found[1], axis=1)


def summary(found: np.ndarray, low: float, high: float) -> dict[str, float]:
    """Return the columns of a row: bins with `low` to `high` effective draws."""
    effective, score, delta, held = found[:, (found[0] >= low) & (found[0] < high)]
    known = np.isfinite(score)
    score, bounds = score[known], held[np.isfinite(held)]
    if len(score) < 2:
        return {"bins": float(len(effective))}
    return {
        "bins": float(len(effective)),
        "rms z": float(np.sqrt(np.mean(score**2))),
        "mean z": float(score.mean()),
        "lowest": float(score.min()),
        "highest": float(score.max()),
        "nats": float(delta.mean()),
        "cover": float((np.abs(score) <= t_quantile(16)).mean()),
        "bounds": float(bounds.mean()) if len(bounds) else np.nan,
    }


def is_honest(row: dict[str, float]) -> bool:
    """Return whether a row is within the limits; rows of fewer than 50 bins tell nothing."""
    if row["bins"] < 50:
        return True
    slack = 2.0 * np.sqrt(0.05 * 0.95 / row["bins"])
    for name, (low, high) in LIMITS.items():
        more = 0.0 if name == "rms z" else slack
        if not (np.isnan(row[name]) or low - more <= row[name] <= high + more):
            return False
    return True


def print_rows(title: str, pair: tuple[np.ndarray, np.ndarray]) -> bool:
    """Print a table; return whether all pooled rows are honest."""
    names = ("bins", "rms z", "mean z", "lowest", "highest", "nats", "cover", "bounds")
    print(f"{title:26s}" + "".join(f"{name:>10s}" for name in names))
    good = True
    for low, high in pairwise(CLASSES):
        for label, found in zip(("plain", "pooled"), pair, strict=True):
            row = summary(found, low, high)
            words = f"{low:.0f} to {high:.0f} effective" if high < np.inf else f"over {low:.0f}"
            honest = label == "plain" or is_honest(row)
            good &= honest
            cells = "".join(
                f"{row.get(name, np.nan):10.3g}" if name != "bins" else f"{row['bins']:10.0f}"
                for name in names
            )
            print(f"  {words:17s} {label:6s}{cells}{'' if honest else '  <-'}", flush=True)
    return good


def main() -> int:
    """Print the tables; 0 if every class of pooled bins is honest."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=240, help="of each world")
    parser.add_argument("--only", default="", help="kinds of densities whose names hold this")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--worlds", action="store_true", help="a table for each world, too")
    options = parser.parse_args()
    begin, good = time.perf_counter(), True
    for name, kind in JOINED.items():
        if options.only not in name:
            continue
        pairs = []
        for world in WORLDS:
            pairs.append(campaign(world, kind, options.runs, options.seed))
            if options.worlds:
                print_rows(f"{name}, {world}", pairs[-1])
        both = tuple(np.concatenate([pair[i] for pair in pairs], axis=1) for i in (0, 1))
        good &= print_rows(f"{name}: {options.runs} x {len(WORLDS)} runs", (both[0], both[1]))
    print(f"{time.perf_counter() - begin:.0f} s")
    print("every class is honest" if good else "NOT every class is honest: see the arrows")
    return 0 if good else 1


if __name__ == "__main__":
    raise SystemExit(main())
