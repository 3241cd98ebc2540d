"""Moves per second on one core, and what part of them is the model's forward.

    .venv/bin/python tests/benchmarks/moves.py [INPUT.toml] [--moves 100]

Prints a table. It times the same forwards alone and inside moves, in turn, so that a drift of the
machine's speed cancels.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from omniinput_hpc import input_file, kernels, models, streams
from omniinput_hpc.config import Config
from omniinput_hpc.ensembles import Canonical
from omniinput_hpc.kernels.batch import Batch
from omniinput_hpc.models.checked import CheckedModel
from omniinput_hpc.plan import geometry_of

REPEATS = 7


def seconds_of_moves(batch: Batch, steps: int, round_: int) -> float:
    """Time a segment of moves with its recording."""
    begin = time.perf_counter()
    own, shared = (streams.generator(0, purpose, round_) for purpose in ("moves", "choices"))
    batch.begin_segment(own, shared, 0)
    for _ in range(steps):
        batch.step()
    batch.collect()
    return time.perf_counter() - begin


def seconds_of_forwards(model: models.Model, x: torch.Tensor, steps: int) -> float:
    """Time the model's forward alone, equally often, on inputs that change."""
    begin = time.perf_counter()
    for step in range(steps):
        model.output(x.roll(step, 0))
    return time.perf_counter() - begin


def measure(config: Config, walkers: int, steps: int) -> tuple[float, float]:
    """Return the median seconds per move of W walkers, and per forward alone."""
    model = models.build(config, "cpu")
    g = geometry_of(config, model.n_values, model.n_sites)
    kernel = kernels.build(config.kernel, CheckedModel(model, "model"), walkers)
    batch = Batch(
        kernel, CheckedModel(model, "model"), Canonical(1.0), torch.device("cpu"), steps, 10,
        g.x_dtype,
    )  # fmt: skip
    x = streams.generator(0, "start").integers(model.n_values, size=(walkers, model.n_sites))
    batch.place(x, batch.evaluate(x))
    tensor = torch.from_numpy(x)
    seconds_of_moves(batch, steps, 0)
    pairs = [
        (seconds_of_moves(batch, steps, r), seconds_of_forwards(model, tensor, steps))
        for r in range(REPEATS)
    ]
    moves, forwards = (sorted(column)[REPEATS // 2] / steps for column in zip(*pairs, strict=True))
    return moves, forwards


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("input", type=Path, nargs="?", default=Path("inputs/toy.toml"))
    parser.add_argument("--moves", type=int, default=30, help="of all walkers, per timing")
    options = parser.parse_args()
    torch.set_num_threads(1)
    config = input_file.load(options.input)
    print(f"{options.input}, one core, median of {REPEATS}")
    print("walkers   ms per move   moves/s   forward's share")
    for walkers in (16, 32, 64, 128, 256):
        move, forward = measure(config, walkers, options.moves)
        print(
            f"{walkers:7d} {1e3 * move:13.3f} {walkers / move:9,.0f} {min(forward / move, 1):16.1%}"
        )


if __name__ == "__main__":
    main()
