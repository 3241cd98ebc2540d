"""Time and memory of the multi-histogram equations.

    OMP_NUM_THREADS=1 .venv/bin/python tests/benchmarks/reweighting.py

Prints a table. Counts are drawn from the exact laws of a smooth density that spans 300 nats; each
size runs in a process of its own, whose largest resident memory is shown beside that of the input.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import time

import numpy as np
from scipy.special import logsumexp

from omniinput_hpc.estimators.density.wham import solve

SIZES = ((64, 5_000), (256, 5_000), (512, 20_000))
DRAWS = 10**6  # per rung


def problem(n_rungs: int, n_bins: int):
    """Return counts_kb and log_w_kb."""
    rng = np.random.default_rng(0)
    z_b = np.linspace(0.0, 12.0, n_bins)
    log_g_b = 300.0 * np.sin(z_b / 12.0 * np.pi) ** 0.7
    slope_b = np.gradient(log_g_b, z_b)
    beta_k = np.linspace(slope_b[int(0.9 * n_bins)], slope_b[int(0.08 * n_bins)], n_rungs)
    log_w_kb = -np.outer(beta_k, z_b)
    counts_kb = np.empty((n_rungs, n_bins), dtype=np.int64)
    for k in range(n_rungs):
        log_p_b = log_g_b + log_w_kb[k]
        counts_kb[k] = rng.multinomial(DRAWS, np.exp(log_p_b - logsumexp(log_p_b)))
    return counts_kb, log_w_kb


def peak() -> float:
    """Return the largest resident memory so far, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measure(n_rungs: int, n_bins: int) -> str:
    """Return a line of the table."""
    counts_kb, log_w_kb = problem(n_rungs, n_bins)
    size, before = (counts_kb.nbytes + log_w_kb.nbytes) / 2**20, peak()
    begin, cpu = time.perf_counter(), time.process_time()
    solution = solve(counts_kb, log_w_kb)
    wall, cpu, after = time.perf_counter() - begin, time.process_time() - cpu, peak()
    mixture_b = logsumexp(np.log(DRAWS) + solution.f_k[:, None] + log_w_kb, axis=0)
    with np.errstate(divide="ignore"):
        log_g_b = np.log(counts_kb.sum(axis=0)) - mixture_b
    residual = np.abs(solution.f_k + logsumexp(log_g_b + log_w_kb, axis=1)).max()
    return (
        f"{n_rungs:5d} {n_bins:7,d} {wall:10.2f} {cpu:8.2f} {solution.iterations:6d} "
        f"{residual:14.1e} {size:10.0f} {before:12.0f} {after:12.0f}"
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--one", nargs=2, type=int, metavar=("K", "B"), help="one size alone")
    options = parser.parse_args()
    if options.one:
        print(measure(*options.one))
        return
    print("    K       B   wall (s)  CPU (s)  steps  residual of f  input MiB", end="")
    print("  peak before   peak after", flush=True)
    for rungs, bins in SIZES:
        words = [sys.executable, __file__, "--one", str(rungs), str(bins)]
        subprocess.run(words, check=True)


if __name__ == "__main__":
    main()
