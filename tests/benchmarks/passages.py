"""Planted passages: today's moves and those that look ahead, against the exact density.

    .venv/bin/python tests/benchmarks/passages.py [--enter-bits 5 10 15] [--seeds 1 2 3]
        [--b 0 1 1.1 1.2] [--passages 20] [--rare 1] [--values 64]

The model is `planted_passages`: 20 passages among 64 values, 25 sites, each entered with
probability 2^-enter_bits. Colder than b of about 1.1 inputs are passages, with a first-order
transition from ordinary text. A row is a run of a canonical ladder: the bins that are compared,
those of them below z = 2.5 and how many bins with inputs there are below, how many of the compared
ones the run has nothing in, the largest deviation from the exact density in standard errors and in
nats, the rms of the deviations in standard errors, whether the run says that it has converged, and
its floor if it names one, and how many passages no lane, 1 to 3 lanes and more lanes were in.

Compared are the bins of which the exact density says that a run of this length has at least 10
effective counts in them, not those in which it happens to have them: bins that are chosen for
their counts hold more than they should.
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
import torch
from scipy.special import logsumexp

from omniinput_hpc.cli import run as program
from omniinput_hpc.estimators.density.density import density_of_run
from omniinput_hpc.runfile.reader import open_run

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "helpers"))  # also for the factory
from planted_passages import planted_passages

KERNELS = {
    "today": {"name": "lm-conditional", "look_ahead": False},
    "ahead": {"name": "lm-conditional", "look_ahead": True},
}
WIDTH = 0.02
B = [0.0, 0.5, 0.85, 1.0, 1.06, 1.12, 1.18, 1.25]
"""Exponents of the ladder, beta / 24, where `--b` gives no others."""
MIN_EFFECTIVE = 10
"""Expected effective counts of the bins that are compared."""
SURE_STEPS = 4
"""So many steps past the rare ones a text counts as one of a passage."""
LOW = 2.5
"""Outputs below it are passages, or partly so."""


def model_options(options, enter_bits):
    """Return the arguments of `planted_passages`."""
    return {
        "enter_bits": enter_bits,
        "n_rare": options.rare,
        "n_values": options.values,
        "n_passages": options.passages,
    }


def tables(kernel, options, output, seed, enter_bits):
    """Return the input file's tables."""
    model = model_options(options, enter_bits)
    return {
        "run": {"output": str(output), "seed": seed, "rounds": options.rounds,
                "burn_in": options.burn_in},
        "model": {"kind": "python", "factory": "planted_passages:planted_passages",
                  "options": model},
        "sampler": {"walkers": options.walkers, "steps": options.steps, "exchanges": 6},
        "ladder": {"betas": [24 * b for b in options.b]},
        "kernel": KERNELS[kernel],
        "bins": {"lower": -0.0123, "upper": -0.0123 + 500 * WIDTH, "width": WIDTH},
        "samples": {"every": options.steps},
    }  # fmt: skip


def expected_counts(run, density, exact_model):
    """Return the effective counts that bins are expected to have, float64 [B].

    By the exact shares of bins on each rung. How many counts are worth an effective one is the
    run's own number, the median of bins with passages that have enough.
    """
    z_l, log_count_l = exact_model.log_count()
    moves_k = run.counts_kb().sum(axis=1)
    log_w_kl = log_count_l - run.beta_k[:, None] * z_l
    share_kl = np.exp(log_w_kl - logsumexp(log_w_kl, axis=1, keepdims=True))
    share_kb = np.stack([np.histogram(z_l, density.edges, weights=row)[0] for row in share_kl])
    use = (density.effective_b >= MIN_EFFECTIVE) & (density.edges[:-1] < LOW)
    if not use.any():
        use = density.effective_b >= MIN_EFFECTIVE
    worth = np.median(density.effective_b[use] / density.count_b[use])
    return worth * (moves_k @ share_kb)


def lanes_in_passages(run, model):
    """Return how many lanes were recorded in each passage past its rare steps, int64 [n]."""
    n_places = model.n_sites - 1
    been = np.zeros((model.n_passages, run.walkers), dtype=bool)
    for x_ksd, _ in run.samples():
        x = torch.from_numpy(x_ksd.astype(np.int64).reshape(-1, model.n_sites))
        place = model.states(x).numpy() - model.n_values  # [n, places]
        lane = np.arange(len(x)) % run.walkers
        sure = (place >= 0) & (place % n_places >= model.n_rare + SURE_STEPS)
        been[place[sure] // n_places, lane[np.nonzero(sure)[0]]] = True
    return been.sum(axis=1)


def report(path, exact_model):
    """Return a run's row: what the table's columns show, and the scores, float64 [bins]."""
    with open_run(path) as run:
        lanes = lanes_in_passages(run, exact_model)
        density = density_of_run(run.data)
        expected_b = expected_counts(run, density, exact_model)
    exact_b = exact_model.log_g(density.edges)
    compared_b = (expected_b >= MIN_EFFECTIVE) & np.isfinite(exact_b)
    use = compared_b & np.isfinite(density.log_g_b) & (density.log_g_error_b > 0)
    nats = density.log_g_b[use] - exact_b[use]
    z = nats / density.log_g_error_b[use]
    low_b = density.edges[:-1] < LOW
    return {
        "bins": int(compared_b.sum()),
        "low": int((compared_b & low_b).sum()),
        "there": int((np.isfinite(exact_b) & low_b).sum()),
        "empty": int((compared_b & ~use).sum()),
        "worst": float(np.abs(z).max(initial=0.0)),
        "nats": float(np.abs(nats).max(initial=0.0)),
        "z": z,
        "yes": bool(density.verdict.converged),
        "floor": float(density.floor),
        "lanes": lanes,
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
    add("--passages", type=int, default=20)
    add("--walkers", type=int, default=32)
    add("--rounds", type=int, default=48)
    add("--burn-in", type=int, default=12)
    add("--steps", type=int, default=5)
    add("--keep", type=Path, help="the folder in which runs are kept")
    add("--b", type=float, nargs="+", default=B, help="exponents of the ladder, beta / 24")
    options = parser.parse_args()
    if 0.0 not in options.b:
        parser.error("--b must hold 0: without it the density has no absolute scale to compare")
    logging.disable(logging.INFO)
    print(
        "   enter  kernel seed bins  low of empty  worst z  nats  rms z  converged  floor  seconds"
        "  passages that 0, 1 to 3 and more lanes were in"
    )
    scores = []
    for bits in options.enter_bits:
        exact = planted_passages("cpu", **model_options(options, bits))
        for kernel in options.kernels:
            for seed in options.seeds:
                with tempfile.TemporaryDirectory() as folder:
                    begin, name = time.process_time(), f"run-{bits}-{kernel}-{seed}.h5"
                    path = (options.keep or Path(folder)) / name
                    words = tables(kernel, options, path, seed, bits)
                    (Path(folder) / "input.toml").write_text(tomli_w.dumps(words))
                    assert program.main([str(Path(folder) / "input.toml")]) == 0
                    row = report(path, exact)
                scores.append(row["z"])
                print(
                    f"{2.0**-bits:8.2g} {kernel:>7} {seed:4d} {row['bins']:4d} {row['low']:4d}"
                    f" {row['there']:2d} {row['empty']:5d}"
                    f" {row['worst']:8.2f} {row['nats']:5.2f} {rms(row['z']):6.2f}"
                    f" {'yes' if row['yes'] else 'no':>10} {row['floor']:6.2f}"
                    f" {time.process_time() - begin:8.0f}"
                    f"  {np.bincount(np.digitize(row['lanes'], [1, 4]), minlength=3)}"
                    f"  {row['why'][:150]}",
                    flush=True,
                )
    every = np.concatenate(scores)
    beyond = int((np.abs(every) > 3).sum())
    print(f"all: {len(every)} bins, rms z {rms(every):.2f}, {beyond} beyond 3 standard errors")


def rms(z):
    """Return the root of the mean square."""
    return np.sqrt(np.mean(z**2)) if len(z) else np.nan


if __name__ == "__main__":
    main()
