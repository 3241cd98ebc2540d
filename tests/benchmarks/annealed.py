"""The annealed method on planted passages: Z, the density and its errors against exact values.

    OMP_NUM_THREADS=1 .venv/bin/python tests/benchmarks/annealed.py [--enter-bits N] [--seeds N]

The model is `planted_passages` (25 sites, 64 values, 20 passages). Per run: bins of at
least 50 effective counts above the floor, how many of them hold passages (z below 2.5), rms and
largest deviation of ln g in standard errors, the share of 95 % intervals that hold the exact value,
whether the run says that it has converged, and its floor. Per rung, over all runs: the mean of
Z / exact and how many standard errors that is from 1, populations being the units, and what the
populations' weights are worth.
"""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import tomli_w
from scipy.special import logsumexp

from omniinput_hpc.cli import run as program
from omniinput_hpc.estimators.density.density import MIN_EFFECTIVE_COUNT, density_of_run
from omniinput_hpc.estimators.errors.jackknife import t_quantile
from omniinput_hpc.estimators.populations import constants_of
from omniinput_hpc.runfile.reader import open_run

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "helpers"))  # also for the factory
from planted_passages import planted_passages

M = 24
LOW = 2.5
"""Outputs below it are passages, or partly so."""
WIDTH = 0.02


def tables(output: Path, seed: int, options: argparse.Namespace) -> dict[str, object]:
    """Return the input file's tables."""
    b_k = np.linspace(1.0, options.coldest, options.rungs)
    return {
        "run": {"output": str(output), "seed": seed, "rounds": options.rounds,
                "burn_in": options.burn_in},
        "model": {"kind": "python", "factory": "planted_passages:planted_passages",
                  "options": {"enter_bits": options.enter_bits}},
        "sampler": {"method": "annealed", "walkers": options.walkers, "steps": options.steps,
                    "exchanges": options.exchanges},
        "ladder": {"betas": [float(M * b) for b in b_k]},
        "kernel": {"name": "lm-conditional", "look_ahead": options.burn_in > 0},
        "bins": {"lower": -0.0123, "upper": -0.0123 + 500 * WIDTH, "width": WIDTH},
        "samples": {"every": 1},
    }  # fmt: skip


def scores(density, exact_b):
    """Return deviations in standard errors [B], NaN where no error is known or few counts."""
    use_b = density.believed_b & (density.effective_b >= MIN_EFFECTIVE_COUNT)
    use_b &= np.isfinite(density.log_g_error_b) & np.isfinite(density.log_g_b)
    with np.errstate(invalid="ignore"):
        return np.where(use_b, (density.log_g_b - exact_b) / density.log_g_error_b, np.nan)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--enter-bits", type=int, default=5)
    add("--seeds", type=int, default=10)
    add("--first-seed", type=int, default=1)
    add("--rungs", type=int, default=9)
    add("--coldest", type=float, default=1.24, help="b of the last rung")
    add("--walkers", type=int, default=256)
    add("--rounds", type=int, default=24)
    add("--burn-in", type=int, default=0, help="rounds, at least 4, for moves that look ahead")
    add("--steps", type=int, default=3)
    add("--exchanges", type=int, default=1)
    options = parser.parse_args()
    logging.disable(logging.INFO)
    model = planted_passages("cpu", enter_bits=options.enter_bits)
    z_l, log_count_l = model.log_count()
    pooled, ratios, inside = [], [], []
    print(" seed bins  low  rms z  worst  95 %  converged  floor  seconds")
    for seed in range(options.first_seed, options.first_seed + options.seeds):
        with tempfile.TemporaryDirectory() as folder:
            path, begin = Path(folder) / "run.h5", time.process_time()
            toml = Path(folder) / "input.toml"
            toml.write_text(tomli_w.dumps(tables(path, seed, options)))
            assert program.main([str(toml)]) == 0
            seconds = time.process_time() - begin
            with open_run(path) as run:
                density, found, beta_k = (
                    density_of_run(run.data),
                    constants_of(run.data),
                    run.beta_k,
                )
        exact_b = model.log_g(density.edges)
        z_b = scores(density, exact_b)
        ratios.append(found.log_z_nk - logsumexp(log_count_l[:, None] - np.outer(z_l, beta_k), 0))
        own = z_b[np.isfinite(z_b)]
        within = np.abs(own) < t_quantile(len(density.lanes_g))
        pooled.append(z_b)
        inside.append(within.mean())
        low = int(np.isfinite(z_b[density.edges[:-1] < LOW]).sum())
        print(
            f"{seed:5d} {len(own):4d} {low:4d} {np.sqrt(np.mean(own**2)):6.2f} "
            f"{np.abs(own).max():6.2f} {within.mean():5.2f} "
            f"{'yes' if density.verdict.converged else 'no':>10} {density.floor:6.2f} "
            f"{seconds:8.0f}  {'; '.join(density.verdict.reasons)[:120]}",
            flush=True,
        )
    every = np.stack(pooled)
    low_b = density.edges[:-1] < LOW
    for name, some in (("all bins", every), ("bins below z = 2.5", every[:, low_b])):
        some = some[np.isfinite(some)]
        if not some.size:
            continue
        rms = np.sqrt(np.mean(some**2))
        covered = np.mean(np.abs(some) < t_quantile(16))
        print(f"{name}: {len(some)} scores, rms {rms:.2f}, 95 % intervals hold {covered:.1%}")
    log_ratio_nk = np.concatenate(ratios)
    n = len(log_ratio_nk)
    for k, beta in enumerate(beta_k):
        ratio = np.exp(log_ratio_nk[:, k])
        error = ratio.std(ddof=1) / np.sqrt(n)
        worth = ratio.sum() ** 2 / (ratio**2).sum()
        print(
            f"b = {beta / M:.3f}: Z / exact = {ratio.mean():.4f} +- {error:.4f} "
            f"({(ratio.mean() - 1) / max(error, 1e-5):+.2f}); {n} populations, worth {worth:.0f}"
        )


if __name__ == "__main__":
    main()
