"""The doctor's trials: exchanges between neighbours, and rounds committed to a run file."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from omniinput_hpc.cli.doctor import Line, attempt
from omniinput_hpc.parallel.comm import World
from omniinput_hpc.runfile import layout, writers
from omniinput_hpc.runfile.reader import open_run
from omniinput_hpc.text import amount

SMALL, LARGE = 1_000, 1_000_000
SLOW_EXCHANGE = 0.1
SLOW_WRITE = 1e6
N_ROUNDS, BYTES_PER_ROUND, N_SITES = 32, 8_000_000, 250


def exchanges(world: World, seconds: float) -> Line:
    """Swap bytes with the neighbours, as a run does, and check what arrives."""
    if world.size == 1:
        return Line("exchange", "one rank, nothing to exchange")
    _exchange(world, SMALL, 1, 0.0)  # connects
    small, right = _exchange(world, SMALL, 20_000, seconds / 2)
    large, also = _exchange(world, LARGE, 2_000, seconds / 2)
    text = (
        f"1 kB between neighbours takes {1e6 * small:,.0f} us ({1 / small:,.0f} exchanges/s), "
        f"1 MB {amount(LARGE / large)}/s each way"
    )
    if not (right and also):
        remedy = "the MPI library or the network is broken: try another one"
        return Line("exchange", "bytes arrive changed", remedy, wrong=True)
    if small > SLOW_EXCHANGE:
        remedy = "fewer ranks than cores, and an MPI library that uses the fast network"
        return Line("exchange", f"{text}: slow", remedy, wrong=True)
    return Line("exchange", text)


def _exchange(world: World, n_bytes: int, most: int, seconds: float) -> tuple[float, bool]:
    """Return the slowest rank's mean time of an exchange, and whether the bytes were right."""
    data = _bytes(world.rank, n_bytes)

    def swap(parity: int) -> bool:
        other = world.rank + 1 if world.rank % 2 == parity else world.rank - 1
        if not 0 <= other < world.size:
            return True
        received = world.swap({other: (other, data)})[other]
        return bool(np.array_equal(received, expected[other]))

    near = [r for r in (world.rank - 1, world.rank + 1) if 0 <= r < world.size]
    expected = {r: _bytes(r, n_bytes) for r in near}
    right, n = True, 4
    while True:
        world.barrier()
        begin = time.perf_counter()
        for i in range(n):
            right &= swap(i % 2)
        each = float(world.max(np.array([(time.perf_counter() - begin) / n]))[0])
        wanted = min(most, int(seconds / each))
        if n >= wanted or n > 4:
            return each, world.all(right)
        n = wanted


def _bytes(seed: int, n: int) -> NDArray[np.uint8]:
    return np.random.default_rng(seed).integers(256, size=n, dtype=np.uint8)


def writing(world: World, folder: Path, kind: str, seconds: float) -> Line:
    """Commit rounds to a run file of the doctor's own, and read back what the neighbour wrote."""
    n_samples = max(1, BYTES_PER_ROUND // (N_SITES * world.size))
    g = layout.Geometry(N_ROUNDS, world.size, 1, 1, n_samples, N_SITES, 256, 1)
    if 2 * layout.size_in_bytes(g) > layout.free_bytes(folder):
        need = amount(2 * layout.size_in_bytes(g))
        return Line("writing", "not tried: too little room", f"make {need} free", wrong=True)
    path = folder / "trial.h5"
    remedy = f'set [run] writer = "{"gather" if kind == "mpio" else "mpio"}", or another folder'
    _, failure = attempt(world, lambda: _create(path, g) if world.rank == 0 else None)
    if not failure:
        outcome, failure = attempt(world, lambda: _commit_rounds(world, path, g, kind, seconds))
    if failure or outcome is None:
        return Line("writing", f"writer {kind} fails: {failure}", remedy, wrong=True)
    n_rounds, elapsed = outcome
    other = (world.rank + 1) % world.size
    _, failure = attempt(world, lambda: _read_back(path, n_rounds, other))
    if failure:
        return Line("writing", f"writer {kind} does not keep: {failure}", remedy, wrong=True)
    rate = n_rounds * world.size * n_samples * N_SITES / elapsed
    text = (
        f"writer {kind}, {world.size} rank(s): {amount(rate)}/s, "
        f"{1e3 * elapsed / n_rounds:.0f} ms a round; read back as written"
    )
    if rate < SLOW_WRITE:
        return Line("writing", f"{text}: slow", "choose a faster file system", wrong=True)
    return Line("writing", text)


def _create(path: Path, g: layout.Geometry) -> None:
    attributes = {"config": "[run]\n", "model_fingerprint": "none"}
    first = layout.first_values(np.arange(float(g.n_rungs)), np.array([0.0, 1.0]))
    layout.create(path, g, first, attributes)


def _commit_rounds(
    world: World, path: Path, g: layout.Geometry, kind: str, seconds: float
) -> tuple[int, float]:
    """Commit rounds for some seconds; return how many, and how long it took."""
    rungs = range(world.rank, world.rank + 1)
    values = {name: _zeros(field, rungs, g) for name, field in layout.layout(g).items()}
    writer = writers.open_writer(kind, path, g, rungs, world)
    n, elapsed = 0, 0.0
    while n < 2 or (n < g.rounds and elapsed < seconds):
        values["samples/x"] = _slab(n, world.rank, values["samples/x"].shape)
        world.barrier()
        begin = time.perf_counter()
        writer.commit(n, values, n + 1)
        elapsed += float(world.max(np.array([time.perf_counter() - begin]))[0])
        n += 1
    writer.close()
    world.barrier()
    return n, elapsed


def _zeros(field: layout.Field, rungs: range, g: layout.Geometry) -> NDArray[Any]:
    where = layout.slab(field, 0, rungs, g.n_rungs)
    zero = np.zeros((), dtype=field.dtype)
    return np.broadcast_to(zero, field.shape)[where].copy() if where else np.zeros(0, field.dtype)


def _slab(round_: int, rung: int, shape: tuple[int, ...]) -> NDArray[np.uint8]:
    """Return what a rank writes: bytes that tell round and rung."""
    first = np.random.default_rng([round_, rung]).integers(256, size=N_SITES, dtype=np.uint8)
    return np.broadcast_to(first, shape).copy()


def _read_back(path: Path, n_rounds: int, rung: int) -> None:
    with open_run(path) as run:
        if run.rounds != n_rounds:
            raise OSError(f"{run.rounds} rounds in the file, {n_rounds} were committed")
        for round_ in range(n_rounds):
            x = run.slab("samples/x", round_, range(rung, rung + 1))
            if not np.array_equal(x, _slab(round_, rung, x.shape)):
                raise OSError(f"round {round_} of rung {rung} is not what was written")
