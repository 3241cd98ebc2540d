"""How often `compare.py` calls two correct runs of one model different: 100 pairs of every method.

    OMP_NUM_THREADS=1 .venv/bin/python tests/benchmarks/agreeing_pairs.py [--pairs 100] [--only W]

Runs of the sampler itself, in this process, of a Markov chain of 6 tokens of 5 values, and
independent draws of uneven weights by numpy (a chain of 24 tokens of 8 values). Lanes are
independent copies of the whole ladder, so that one run file of 40 times 16 lanes is split into 40
virtual runs; those of Wang-Landau share their frozen weights, whose errors do not matter.

A row per method: the share of pairs whose p-value is below 5% by Hotelling's T^2 over groups of
bins (wanted: 2 to 8%); the share whose largest difference of a range of bins has a chance below 5%
among as many ("ranges"); of the inputs found ("inputs": Bonferroni's, at most 5%); the share that
`compare.py` says DISAGREE (either p below 1%); the smallest effective counts of a judged range. A
last row compares runs of which one is wrong: its z is 12% too far from the mean.
"""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "helpers"))

from decoder_chain import DecoderChain
from lattice import ArrayRun
from run_tools import LATTICE

from omniinput_hpc.estimators.comparison import samplers
from omniinput_hpc.estimators.density.density import density_of_run
from omniinput_hpc.estimators.density.wide_bins import joined_effective

LANES, AT_ONCE = 16, 40
UNEVEN = ([0.0, 0.5, 1.5], [0.0, 0.8, 2.5])
FEW = ([0.5, 2.5], [0.0, 2.0])
"""Ladders of two runs, b for each rung: of `FEW`, most bins have few effective draws."""
BOUNDS = (0.02, 0.08)
WRONG = 1.12  # of the wrong runs' z, around the mean
MODEL = [
    "model.factory=markov_model:markov", "samples.every=1", "bins.lower=0.0", "bins.upper=8.0",
    "bins.width=0.25", f"sampler.walkers={LANES * AT_ONCE}",
]  # fmt: skip
TEMPERED = "ladder.betas=[-4.0, 0.0, 2.5, 5.0]"  # 5 is the model's own
METHODS = {
    "parallel tempering": [
        TEMPERED, "run.rounds=20", "run.burn_in=4", "sampler.steps=6", "sampler.exchanges=2",
    ],
    "Gaussian rungs": [
        "ladder.betas=[-4.0, 0.0, 2.5, 5.0]", "ladder.kappa=[0.0, 0.0, 2.0, 0.0]",
        "ladder.z0=[0.0, 0.0, 1.5, 0.0]", "run.rounds=20", "run.burn_in=4", "sampler.steps=6",
        "sampler.exchanges=2",
    ],
    "ancestral": [
        TEMPERED, "sampler.method=ancestral", "run.rounds=12", "run.burn_in=0",
        "sampler.steps=6", "sampler.exchanges=1",
    ],
    "Wang-Landau": [
        "sampler.method=wang-landau", "ladder.betas=[0.0]", "run.burn_in=24",
        "wang_landau.ln_f_last=0.01", "run.rounds=20", "sampler.steps=12", "sampler.exchanges=4",
        "bins.lower=0.5", "bins.upper=4.0",
    ],
}  # fmt: skip


def sampled(settings: list[str], first_seed: int) -> Iterator[ArrayRun]:
    """Yield virtual runs of 16 lanes of the sampler's own run files, one after another."""
    from omniinput_hpc.cli import run as launch
    from omniinput_hpc.runfile.reader import open_run

    logging.disable(logging.WARNING)
    seed = first_seed
    while True:
        with tempfile.TemporaryDirectory() as folder:
            toml, output = Path(folder) / "input.toml", Path(folder) / "run.h5"
            toml.write_text(LATTICE.format(output=output))
            changes = [*MODEL, *settings, f"run.seed={seed}"]
            if launch.main([str(toml), *(w for c in changes for w in ("--set", c))]) != 0:
                raise RuntimeError("a run failed")
            with open_run(output) as run:
                yield from _split(run)
        seed += 1


def _split(run) -> Iterator[ArrayRun]:
    x_rksd, z_rks = (np.stack(part) for part in zip(*run.samples(), strict=True))
    log_q = run.samples_log_q()
    log_q_rksj = None if log_q is None else np.stack(list(log_q))
    lane_s = np.arange(z_rks.shape[2]) % run.walkers  # time-major
    for i in range(AT_ONCE):
        own = lane_s // LANES == i
        part = ArrayRun(
            x_rksd[:, :, own], z_rks[:, :, own], LANES, run.beta_k, run.edges, run.n_values
        )
        part.kappa, part.z0, part.log_w_kb = run.kappa_k(), run.z0_k(), run.log_weight_kb()
        part.log_q = None if log_q_rksj is None else log_q_rksj[:, :, own]
        yield part


def uneven(
    first_seed: int, ladders: Sequence[list[float]] = UNEVEN, scale: float = 1.0
) -> Iterator[ArrayRun]:
    """Yield runs of draws of uneven weights, of two ladders in turn; z of the first is scaled."""
    model = DecoderChain(0)
    seed = first_seed
    while True:
        run = model.ancestral_run(ladders[0], seed, rounds=32)
        if scale != 1.0:
            mean, log_q = run.z_rks.mean(), run.log_q
            z = (mean + scale * (run.z_rks - mean)).astype(np.float32)
            run = ArrayRun(run.x_rksd, z, LANES, run.beta_k, run.edges, run.n_values)
            run.log_q = log_q
        yield run
        yield model.ancestral_run(ladders[1], 10**6 + seed, rounds=32)
        seed += 1


def compare(one: ArrayRun, other: ArrayRun) -> list[float]:
    """Return three p-values, whether they are said to disagree, and the least effective counts."""
    densities = (density_of_run(one), density_of_run(other))
    found = samplers.compare_samplers(*densities)
    inputs_p, *_ = samplers.compare_inputs(([one], [other]), densities, found)
    spans = [slice(i, j) for i, j in zip(found.first_r, found.stop_r, strict=True)]
    least = min(joined_effective(d, spans).min() for d in densities)
    p_values = (found.p, samplers.largest_chance(found), inputs_p)
    disagree = np.nanmin([found.p, inputs_p]) < samplers.MIN_P_VALUE
    return [*p_values, float(disagree), least]


def campaign(runs: Iterator[ArrayRun], n_pairs: int) -> np.ndarray:
    """Return what `compare` found of pairs of runs that follow one another [n, 5]."""
    return np.array([compare(next(runs), next(runs)) for _ in range(n_pairs)])


def print_row(name: str, found: np.ndarray, seconds: float, wrong: bool = False) -> bool:
    """Print a row; return whether the share of false alarms is what it should be."""
    below = (found[:, :3] < 0.05).mean(axis=0)
    # the bounds are of the true share: so few pairs scatter by more
    slack = 2.0 * np.sqrt(0.05 * 0.95 / len(found)) if len(found) < 100 else 0.0
    good = BOUNDS[0] - slack <= below[0] <= BOUNDS[1] + slack
    good = bool(below[0] > 0.9 if wrong else good and below[2] <= BOUNDS[1] + slack)
    cells = " ".join(f"{share:9.1%}" for share in (*below, found[:, 3].mean()))
    print(
        f"{name:22s}{len(found):6d} {cells}{found[:, 4].min():10.0f}{seconds:8.0f} s"
        f"{'' if good else '  <-'}",
        flush=True,
    )
    return good


def main() -> int:
    """Print the table; 0 if false alarms are between 2 and 8% and the wrong run is found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=100)
    parser.add_argument("--only", default="", help="methods whose names hold this")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    rows = {name: sampled(settings, options.seed) for name, settings in METHODS.items()}
    rows |= {
        "uneven draws": uneven(options.seed),
        "few effective draws": uneven(options.seed, FEW),
        "one is wrong": uneven(options.seed, scale=WRONG),
    }
    heads = ("T^2", "ranges", "inputs", "DISAGREE")
    print(f"{'':22s}{'pairs':>6s} {' '.join(f'{h:>9s}' for h in heads)}{'least':>10s}")
    good = True
    for name, runs in rows.items():
        if options.only in name:
            begin = time.perf_counter()
            found = campaign(runs, options.pairs)
            seconds = time.perf_counter() - begin
            good &= print_row(name, found, seconds, wrong=name == "one is wrong")
    print("false alarms are as they should be" if good else "NOT as they should be: see the arrows")
    return 0 if good else 1


if __name__ == "__main__":
    raise SystemExit(main())
