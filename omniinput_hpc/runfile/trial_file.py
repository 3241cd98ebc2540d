"""A small run file of random bytes, by which the doctor tries creating, committing and reading."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from omniinput_hpc.parallel.comm import World
from omniinput_hpc.runfile import layout, writers
from omniinput_hpc.runfile.reader import open_run

N_ROUNDS, BYTES_PER_ROUND, N_SITES = 32, 8_000_000, 250


def geometry(n_ranks: int) -> layout.Geometry:
    """Return the shapes of a trial file: a rung per rank, 8 MB of samples per round in all."""
    n_samples = max(1, BYTES_PER_ROUND // (N_SITES * n_ranks))
    return layout.Geometry(N_ROUNDS, n_ranks, 1, 1, n_samples, N_SITES, 256, 1)


def bytes_per_round(g: layout.Geometry) -> int:
    """Return the bytes of samples that all ranks commit in a round."""
    return g.n_rungs * g.samples_per_round * g.n_sites


def create(path: Path, g: layout.Geometry) -> None:
    """Create the file as a run does (see `layout.create`)."""
    attributes = {"config": "[run]\n", "model_fingerprint": "none"}
    first = layout.first_values(np.arange(float(g.n_rungs)), np.array([0.0, 1.0]))
    layout.create(path, g, first, attributes)


def commit_rounds(
    world: World, path: Path, g: layout.Geometry, writer_kind: str, seconds: float
) -> tuple[int, float]:
    """Commit rounds for some seconds, at least two; return how many, and how long they took."""
    rungs = range(world.rank, world.rank + 1)
    values = {name: _zeros(field, rungs, g) for name, field in layout.layout(g).items()}
    writer = writers.open_writer(writer_kind, path, g, rungs, world)
    n, elapsed = 0, 0.0
    while n < 2 or (n < g.rounds and elapsed < seconds):
        values["samples/x"] = _samples(n, world.rank, values["samples/x"].shape)
        world.barrier()
        begin = time.perf_counter()
        writer.commit(n, values, n + 1)
        elapsed += float(world.max(np.array([time.perf_counter() - begin]))[0])
        n += 1
    writer.close()
    world.barrier()
    return n, elapsed


def check(path: Path, n_rounds: int, rung: int) -> None:
    """Read the samples of a rung, and compare them with what its rank committed.

    Raises
    ------
    OSError
        The file holds something else.
    """
    with open_run(path) as run:
        if run.rounds != n_rounds:
            raise OSError(f"{run.rounds} rounds in the file, {n_rounds} were committed")
        for round_ in range(n_rounds):
            x = run.round(round_, range(rung, rung + 1)).samples_x
            if not np.array_equal(x, _samples(round_, rung, x.shape)):
                raise OSError(f"round {round_} of rung {rung} is not what was written")


def _zeros(field: layout.Field, rungs: range, g: layout.Geometry) -> NDArray[Any]:
    where = layout.slab(field, 0, rungs, g.n_rungs)
    zero = np.zeros((), dtype=field.dtype)
    return np.broadcast_to(zero, field.shape)[where].copy() if where else np.zeros(0, field.dtype)


def _samples(round_: int, rung: int, shape: tuple[int, ...]) -> NDArray[np.uint8]:
    """Return random bytes, the same for the same round and rung."""
    first = np.random.default_rng([round_, rung]).integers(256, size=N_SITES, dtype=np.uint8)
    return np.broadcast_to(first, shape).copy()
