"""How often intervals of averages hold the truth, and how far joint densities are off.

    OMP_NUM_THREADS=1 .venv/bin/python tests/benchmarks/observables.py [--runs 200] [--seed 0]

Worlds whose inputs are all enumerated: the Toy at five digits, by independent draws of its ladder,
with three observables; and the lattice of `interval_coverage`, with lanes correlated in time.
A row per observable: the share of 95% intervals of its mean that hold the truth, in bins of z and
over all inputs; then, of the cells of the joint density with 1,000 inputs or more, the share within
0.15 nats or 3 standard errors, and the rms of their error over its standard error. 92 to 98% of the
intervals are asked to hold (two standard errors allowed), and 99% of cells.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "helpers"))

from interval_coverage import EDGES, MODEL, synthetic_run
from small_toys import X_ID, drawn, model_of, number_of, table_of

from omniinput_hpc.estimators.density.density import density_of_run
from omniinput_hpc.estimators.density.wide_bins import in_width
from omniinput_hpc.estimators.observables import joint_density, means_or_shares, observe
from omniinput_hpc.results.observables import MAX_CELLS, MAX_SAMPLES, y_edges_of

ALLOWED, FEWEST, NEAR, FAR, WITHIN = (0.92, 0.98), 1000, 0.15, 3.0, 0.99
LATTICE_X = np.array(list(itertools.product(range(4), repeat=MODEL.n_sites)), dtype=np.uint8)


class World:
    """All inputs' z and y, and what draws a run, given a seed."""

    def __init__(
        self, x: np.ndarray, z: np.ndarray, draw: Callable[[int], Any], width: float,
        y_of: Callable[[np.ndarray], np.ndarray],
    ) -> None:  # fmt: skip
        self.z, self.y, self.draw, self.width, self.y_of = (
            z.astype(float),
            y_of(x),
            draw,
            width,
            y_of,
        )
        self.y_edges = y_edges_of(self.y, MAX_CELLS)

    def row(self, seeds: range) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Return whether intervals hold, by bin and over all inputs, and the cells' two errors."""
        held_b, held, off, scores = [], [], [], []
        for seed in seeds:
            run = self.draw(seed).record()
            density = in_width(density_of_run(run), self.width)
            seen = observe(run, density, lambda part: self.y_of(part.x_id), MAX_SAMPLES)
            a, joint = means_or_shares(seen), joint_density(seen, self.y_edges)
            n_b, sum_b = (np.histogram(self.z, a.edges, weights=w)[0] for w in (None, self.y))
            # where all inputs have y = 0 no share can be missed
            use = np.isfinite(a.low_b) & (sum_b > 0)
            true_b = sum_b[use] / n_b[use]
            held_b.append((a.low_b[use] <= true_b) & (true_b <= a.high_b[use]))
            held.append(a.whole.low <= self.y.mean() <= a.whole.high)
            true_bc = np.histogram2d(self.z, self.y, [a.edges, self.y_edges])[0]
            many = true_bc >= FEWEST
            error = joint.log_g_bc[many] - np.log(true_bc[many])
            off.append(np.abs(error))
            scores.append(error / joint.error_bc[many])
        parts = np.concatenate(held_b), np.array(held), np.concatenate(off), np.concatenate(scores)
        return parts


def worlds() -> dict[str, World]:
    """Return the worlds by what they are."""
    toy, worse = table_of(model_of("toy")), table_of(model_of("toy-worse"))

    def draw(seed: int) -> Any:
        return drawn(toy, seed)

    def of_toy(y_of: Callable[[np.ndarray], np.ndarray]) -> World:
        return World(X_ID, toy, draw, 0.5, y_of)

    lattice_z = MODEL.z(LATTICE_X)
    return {
        "Toy, sum of the digits": of_toy(lambda x: x.sum(axis=1).astype(float)),
        "Toy, z of the worse Toy": of_toy(lambda x: worse[number_of(x)].astype(float)),
        "Toy, share ending in 7": of_toy(lambda x: (x[:, -1] == 7).astype(float)),
        "lattice, number of ones": World(
            LATTICE_X, lattice_z, synthetic_run, 4 * (EDGES[1] - EDGES[0]),
            lambda x: (x == 1).sum(axis=1).astype(float),
        ),
    }  # fmt: skip


def is_allowed(held: np.ndarray) -> bool:
    """Return whether intervals hold as often as asked."""
    less, more = (2.0 * np.sqrt(p * (1.0 - p) / len(held)) for p in ALLOWED)
    return bool(ALLOWED[0] - less <= held.mean() <= ALLOWED[1] + more)


def main() -> int:
    """Print the table; 0 if all is as asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0, help="of the first run")
    options = parser.parse_args()
    runs, first = options.runs, options.seed
    begin, good = time.process_time(), True
    print(f"{f'{runs} runs':27s}{'bins':>7s}{'all':>7s}{'cells':>8s}{'within':>9s}{'rms':>7s}")
    for name, world in worlds().items():
        held_b, held, off, scores = world.row(range(first, first + runs))
        within = (off < NEAR) | (np.abs(scores) < FAR)
        shares = held_b.mean(), held.mean()
        bad = not all(is_allowed(each) for each in (held_b, held))
        bad |= within.mean() < WITHIN
        good &= not bad
        rms = np.sqrt(np.mean(scores**2))
        print(
            f"{name:27s}{shares[0]:7.3f}{shares[1]:7.3f}{len(off):8d}{within.mean():9.4f}"
            f"{rms:7.2f}{' <-' if bad else ''}", flush=True,
        )  # fmt: skip
    print(f"{time.process_time() - begin:.0f} CPU s; {'all as asked' if good else 'NOT all: <-'}")
    return 0 if good else 1


if __name__ == "__main__":
    raise SystemExit(main())
