"""The time that checksums take, beside that of a round's moves, a commit's writing, and reading.

    .venv/bin/python tests/benchmarks/checksums.py [--folder DIR]

What a rank holds of a round is hashed (`checksums.with_sums`), written by the gathering writer and
read again with all checks. A round of a language model on a GPU takes seconds to minutes.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from bench_tools import machine

from omniinput_hpc.parallel.comm import World
from omniinput_hpc.runfile import checksums, layout, writers
from omniinput_hpc.runfile.reader import open_run

SHAPES = {
    "a language model, 25 tokens": (1, 64, 600, 20, 25, 50257),
    "the same, 16 rungs on a rank": (16, 64, 600, 20, 25, 50257),
    "pictures, 28 x 28": (1, 256, 400, 10, 784, 256),
    "the Toy": (8, 64, 300, 20, 8, 10),
}
"""Rungs, walkers, bins, samples of a walker and round, sites, values."""
ROUNDS = 20
TOML = '[run]\noutput = "a.h5"\nseed = 1\nrounds = 20\n'


def best(function: Callable[[], object], repeats: int = 20) -> float:
    """Return the shortest of some times, in milliseconds."""
    times = []
    for _ in range(repeats):
        begin = time.perf_counter()
        function()
        times.append(time.perf_counter() - begin)
    return 1e3 * min(times)


def measure(shape: tuple[int, ...], folder: Path) -> tuple[float, float, float, float]:
    """Return MB of a round, and milliseconds to hash it, to write it and to read it checked."""
    k, w, b, samples, sites, values = shape
    g = layout.Geometry(ROUNDS, k, w, b, samples * w, sites, values, 1, checksums=True)
    fields, random = layout.layout(g), np.random.default_rng(1)
    slabs = {}
    for name, field in fields.items():
        where = layout.slab(field, 0, range(k), k)
        shape_of_slab = layout.shape_of(field, where) if where is not None else (0,)
        slabs[name] = random.integers(2, size=shape_of_slab).astype(field.dtype)
    hashing = best(lambda: checksums.with_sums(fields, 0, range(k), slabs))
    path, first = folder / "a.h5", layout.first_values(np.arange(float(k)), np.arange(b + 1.0))
    layout.create(path, g, first, {"config": TOML, "model_fingerprint": "none"})
    writer = writers.open_writer("gather", path, g, range(k), World())
    rounds = iter(range(ROUNDS))

    def commit() -> None:
        round_ = next(rounds)
        writer.commit(round_, slabs, round_ + 1)

    writing = best(commit, ROUNDS)
    writer.close()
    with open_run(path) as run:
        reading = best(lambda: run.check_round(3))
    return sum(slab.nbytes for slab in slabs.values()) / 1e6, hashing, writing, reading


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", help="where files are written (default: temporary)")
    options = parser.parse_args()
    print(machine())
    print("| a rank's part | MB a round | hashing (ms) | writing, with it (ms) | reading (ms) |")
    print("| --- | --- | --- | --- | --- |")
    for name, shape in SHAPES.items():
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            size, hashing, writing, reading = measure(shape, Path(folder))
        print(
            f"| {name} | {size:.2f} | {hashing:.2f} | {writing:.1f} | {reading:.1f} |", flush=True
        )


if __name__ == "__main__":
    main()
