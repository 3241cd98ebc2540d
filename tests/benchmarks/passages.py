"""Planted passages: today's moves and those that look ahead, against the exact density.

    .venv/bin/python tests/benchmarks/passages.py [--enter-bits 5 10 15] [--seeds 1 2 3]
        [--b 0 1 1.1 1.2]

The model is `omniinput_hpc.zoo.passages`: 20 passages among 64 values, 25 sites, each entered with
probability 2^-enter_bits. Colder than b of about 1.1 inputs are passages, with a first-order
transition from ordinary text. A row is a run of a canonical ladder: its bins of at least 10
effective counts, those of them below z = 2.5 and how many bins with inputs there are below, the
largest deviation from the exact density in standard errors and in nats, the rms of the deviations
in standard errors, whether the run says that it has converged, and its floor if it names one.
"""

from __future__ import annotations

import argparse
import logging
import tempfile
import time
from pathlib import Path

import numpy as np
import tomli_w

from omniinput_hpc.cli import run as program
from omniinput_hpc.estimators.density.density import density_of_run
from omniinput_hpc.runfile.reader import open_run
from omniinput_hpc.zoo.passages import planted_passages

KERNELS = {
    "today": {"name": "lm-conditional"},
    "ahead": {"name": "lm-conditional", "look_ahead": True},
}
WIDTH = 0.02
B = [0.0, 0.5, 0.85, 1.0, 1.06, 1.12, 1.18, 1.25]
"""Exponents of the ladder, beta / 24, where `--b` gives no others."""
MIN_EFFECTIVE = 10
"""Effective counts of the bins that are compared."""
LOW = 2.5
"""Outputs below it are passages, or partly so."""


def tables(kernel, options, output, seed, enter_bits):
    """Return the input file's tables."""
    model = {"enter_bits": enter_bits, "n_rare": options.rare, "n_values": options.values}
    return {
        "run": {"output": str(output), "seed": seed, "rounds": options.rounds,
                "burn_in": options.burn_in},
        "model": {"kind": "python", "factory": "omniinput_hpc.zoo.passages:planted_passages",
                  "options": model},
        "sampler": {"walkers": options.walkers, "steps": options.steps, "exchanges": 6},
        "ladder": {"betas": [24 * b for b in options.b]},
        "kernel": KERNELS[kernel],
        "bins": {"lower": -0.0123, "upper": -0.0123 + 500 * WIDTH, "width": WIDTH},
        "samples": {"every": options.steps},
    }  # fmt: skip


def report(path, exact_model):
    """Return a run's row: bins, bins there, worst z, worst nats, rms z, converged, floor."""
    with open_run(path) as run:
        density = density_of_run(run)
    exact_b = exact_model.log_g(density.edges)
    use = density.effective_b >= MIN_EFFECTIVE
    use &= np.isfinite(density.log_g_b)
    nats_b = density.log_g_b - np.where(np.isfinite(exact_b), exact_b, np.nan)
    error_b = np.where(density.log_g_error_b > 0, density.log_g_error_b, np.nan)
    z_b = (nats_b / error_b)[use]
    z_b = z_b[np.isfinite(z_b)]
    low_b = density.edges[:-1] < LOW
    return {
        "bins": int(use.sum()),
        "low": int((use & low_b).sum()),
        "there": int((np.isfinite(exact_b) & low_b).sum()),
        "worst": float(np.abs(z_b).max(initial=0.0)),
        "nats": float(np.abs(nats_b[use]).max(initial=0.0)),
        "rms": float(np.sqrt(np.mean(z_b**2))) if z_b.size else np.nan,
        "yes": bool(density.verdict.converged),
        "floor": float(density.floor),
        "why": "; ".join(density.verdict.reasons),
    }


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--enter-bits", type=int, nargs="+", default=[5, 10, 15])
    add("--kernels", nargs="+", choices=KERNELS, default=list(KERNELS))
    add("--seeds", type=int, nargs="+", default=[1, 2, 3])
    add("--rare", type=int, default=1, help="steps that are rare")
    add("--values", type=int, default=64)
    add("--walkers", type=int, default=32)
    add("--rounds", type=int, default=48)
    add("--burn-in", type=int, default=12)
    add("--steps", type=int, default=5)
    add("--b", type=float, nargs="+", default=B, help="exponents of the ladder, beta / 24")
    options = parser.parse_args()
    if 0.0 not in options.b:
        parser.error("--b must hold 0: without it the density has no absolute scale to compare")
    logging.disable(logging.INFO)
    print("   enter  kernel seed bins  low of  worst z  nats  rms z  converged  floor  seconds")
    for bits in options.enter_bits:
        exact = planted_passages(
            "cpu", enter_bits=bits, n_rare=options.rare, n_values=options.values
        )
        for kernel in options.kernels:
            for seed in options.seeds:
                with tempfile.TemporaryDirectory() as folder:
                    path, begin = Path(folder) / "run.h5", time.process_time()
                    words = tables(kernel, options, path, seed, bits)
                    (Path(folder) / "input.toml").write_text(tomli_w.dumps(words))
                    assert program.main([str(Path(folder) / "input.toml")]) == 0
                    row = report(path, exact)
                print(
                    f"{2.0**-bits:8.2g} {kernel:>7} {seed:4d} {row['bins']:4d} {row['low']:4d}"
                    f" {row['there']:2d}"
                    f" {row['worst']:8.2f} {row['nats']:5.2f} {row['rms']:6.2f}"
                    f" {'yes' if row['yes'] else 'no':>10} {row['floor']:6.2f}"
                    f" {time.process_time() - begin:8.0f}  {row['why'][:150]}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
