"""Check a machine before a run: ``[mpirun -n R] omniinput doctor [FOLDER]``.

Prints one line for each thing that a run needs, with a remedy if something is wrong. The exit code
is 0 if nothing is wrong, else 1. FOLDER is where the run file will be (default: the current
directory). Start it like the run itself: with the same launcher, number of ranks and nodes.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from omniinput_hpc.cli import arguments
from omniinput_hpc.errors import EXIT_COMPLETE, EXIT_FAILURE, UserError
from omniinput_hpc.parallel import comm
from omniinput_hpc.parallel.comm import World
from omniinput_hpc.runfile import layout, reader, writers
from omniinput_hpc.sampling import shapes
from omniinput_hpc.text import __version__, amount, first_line, sync

T = TypeVar("T")

PACKAGES = ("numpy", "scipy", "h5py", "mpi4py", "torch", "transformers", "safetensors", "pydantic")
IN_MEMORY = ("tmpfs", "ramfs")
PROBE_BYTES = 1 << 20
SECONDS_TO_APPEAR = 10.0
"""Longest time for a file of rank 0 to appear on another host (NFS caches for seconds)."""
SMALL_MESSAGE, LARGE_MESSAGE = 1_000, 1_000_000
SLOW_EXCHANGE = 0.1
"""Seconds per exchange of a small message above which exchanges count as slow."""
SLOW_WRITE = 1e6
"""Bytes per second below which writing counts as slow."""
TRIAL_ROUNDS, TRIAL_BYTES, TRIAL_SITES = 32, 8_000_000, 250
"""The trial file: rounds, bytes of samples per round over all ranks, sites."""


@dataclass(frozen=True)
class Line:
    """The result of one check; a remedy without `wrong` is a hint."""

    name: str
    text: str
    remedy: str = ""
    wrong: bool = False

    def __str__(self) -> str:
        """Return the line as it is printed."""
        state = "WRONG" if self.wrong else "ok"
        return f"{state:<6} {self.name:<9} {self.text}{' -> ' if self.remedy else ''}{self.remedy}"


def command(world: World, argv: Sequence[str] | None, program: str) -> int:
    """Run the verb: parse its arguments, check, and return the exit code."""
    words = "Check this machine and a folder before a run; print one line per check."
    parser = arguments.new_parser(program, words, "runs", arguments.FINDINGS)
    help_ = "folder where the run file will be (default: the current folder)"
    parser.add_argument("folder", type=Path, nargs="?", metavar="FOLDER", help=help_)
    args = world.together(lambda: arguments.parse(parser, world.rank, argv))
    return run(world, args.folder or Path())


def run(world: World, folder: Path, seconds: float = 1.0) -> int:
    """Print a line for each check on rank 0, and return the exit code.

    The exchange test and the write test take `seconds` each. Raises a UserError if the folder does
    not exist.
    """
    world.on_rank_0(lambda: _check_folder(folder))
    hosts = world.hosts()
    kind, reason = writers.choose_writer("auto", folder / "trial.h5", len(set(hosts)))
    kind, reason = world.broadcast([kind, reason])
    n_wrong = 0

    def show(line: Line) -> None:
        nonlocal n_wrong
        n_wrong += line.wrong
        if world.rank == 0:
            print(line, flush=True)

    show(packages(world))
    show(mpi_library())
    show(ranks(world, hosts))
    show(hdf5(kind, reason))
    show(devices(world, hosts))
    show(exchanges(world, seconds))
    with scratch(world, folder) as (path, failure):
        show(file_system(world, folder, failure))
        if path is not None:
            show(durable(world, hosts, path))
            show(writing(world, path, kind, seconds))
    if world.rank == 0:
        print(f"{n_wrong} problem(s) found" if n_wrong else "nothing wrong", flush=True)
    return EXIT_COMPLETE if world.all(n_wrong == 0) else EXIT_FAILURE


def _check_folder(folder: Path) -> None:
    if not os.path.isdir(folder):
        raise UserError(f"{folder}: no such folder; give the folder of run.output")


def attempt(world: World, action: Callable[[], T]) -> tuple[T | None, str]:
    """Call a function on every rank; return its value and the first failure's message ("": none).

    A function that synchronizes ranks must fail on all of them or on none.
    """
    value, message = None, ""
    try:
        value = action()
    except Exception as error:
        message = f"rank {world.rank} on {platform.node()}: {first_line(error)}"
    if world.all(not message):
        return value, ""
    return value, next(text for text in world.texts(message) if text)


def packages(world: World) -> Line:
    """Report the versions of packages, and whether they are the same on all ranks."""
    versions, missing = [], []
    for name in PACKAGES:
        try:
            versions.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            missing.append(name)
    text = (
        f"Python {platform.python_version()}, omniinput_hpc {__version__}, "
        f"{', '.join(versions)}, HDF5 {writers.libraries()['hdf5']}"
    )
    texts = world.texts(text + (f"; missing: {', '.join(missing)}" if missing else ""))
    different = sorted(set(texts), key=texts.index)
    if len(different) > 1:
        rank = texts.index(different[1])
        both = f"{different[0]}, but on rank {rank} {different[1]}"
        return Line("versions", both, "use one environment on all hosts", wrong=True)
    remedy = f"pip install {' '.join(missing)} in this environment" if missing else ""
    return Line("versions", texts[0], remedy, wrong=bool(missing))


def mpi_library() -> Line:
    """Report the MPI library, and whether it fits the launcher."""
    try:
        shapes.check_launch(comm.connected())
    except UserError as error:
        return Line("MPI", comm.library(), str(error), wrong=True)
    return Line("MPI", comm.library())


def ranks(world: World, hosts: list[str]) -> Line:
    """Report how many ranks run on which hosts, and whether there are enough cores."""
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    cores_r = world.texts(" ".join(map(str, cores)))
    total_r = world.texts(str(os.cpu_count() or 1))
    count = Counter(hosts)
    shown = ", ".join(f"{n} on {host}" for host, n in list(count.items())[:8])
    more = f", ... ({len(count)} hosts)" if len(count) > 8 else ""
    text = f"{world.size} rank(s): {shown}{more}"
    for host, n in count.items():
        here = [r for r, name in enumerate(hosts) if name == host]
        total = int(total_r[here[0]])
        usable = len({core for r in here for core in cores_r[r].split()}) or total
        if usable < n and usable < total:
            return Line(
                "ranks",
                f"{text}; {n} ranks on {host} share {usable} of its {total} cores",
                "let the launcher give each rank its own core (srun --cpus-per-task=1, "
                "mpirun --bind-to core)",
                wrong=True,
            )
        if usable < n:
            return Line("ranks", text, f"{n} ranks share the {usable} cores of {host}: slow")
    return Line("ranks", text)


def hdf5(kind: str, reason: str) -> Line:
    """Report how run files will be written, and why."""
    parallel = writers.libraries()["parallel"] == "yes"
    text = f"{'parallel' if parallel else 'serial'} HDF5; writer {kind} ({reason})"
    hint = "" if parallel else "rank 0 writes for all; for many ranks build h5py with parallel HDF5"
    return Line("HDF5", text, hint)


def devices(world: World, hosts: list[str]) -> Line:
    """Report the device on which each rank evaluates the model, and whether it works."""
    local = world.local_rank()
    found, failure = attempt(world, lambda: _try_device(local))
    if failure:
        remedy = "install torch for this host's driver, or set [run] device"
        return Line("torch", failure, remedy, wrong=True)
    name_r, gpu_r, unseen_r = (world.texts(text) for text in found or ("", "", ""))
    text = ", ".join(f"{n} rank(s) on {name}" for name, n in Counter(name_r).items())
    if any(unseen_r):
        host = hosts[next(r for r, unseen in enumerate(unseen_r) if unseen)]
        return Line(
            "torch",
            f"{text}; host {host} has a GPU that torch does not see",
            "install torch with CUDA for this driver; check nvidia-smi and CUDA_VISIBLE_DEVICES",
            wrong=True,
        )
    users = Counter((host, gpu) for host, gpu in zip(hosts, gpu_r, strict=True) if gpu)
    hint = ""
    if users and max(users.values()) > 1:
        hint = f"up to {max(users.values())} ranks share a GPU: start one rank per GPU"
    return Line("torch", text, hint)


def _try_device(local_rank: int) -> tuple[str, str, str]:
    from omniinput_hpc.models import device  # imports torch

    return device.try_out(local_rank)


@contextmanager
def scratch(world: World, folder: Path) -> Iterator[tuple[Path | None, str]]:
    """Make a temporary folder inside another, for a ``with`` block that all ranks enter.

    Yields its path and "", or None and the reason if it cannot be made.
    """

    def make() -> list[str]:
        try:
            return [tempfile.mkdtemp(prefix=".omniinput-doctor-", dir=folder.absolute()), ""]
        except OSError as error:
            return ["", error.strerror or str(error)]

    made, failure = world.on_rank_0(make)
    try:
        yield Path(made) if made else None, failure
        world.barrier()  # no rank needs it any more
    finally:
        if world.rank == 0 and made:
            shutil.rmtree(made, ignore_errors=True)


def file_system(world: World, folder: Path, failure: str) -> Line:
    """Report the file system of the output folder, its free space, and whether it is writable."""
    kind = world.texts(writers.file_system(folder))[0]
    free = amount(layout.free_bytes(folder))
    text = f"{folder.absolute()} is on {kind}, {free} free"
    if failure:
        remedy = "choose a folder that you may write to"
        return Line("folder", f"{text}; nothing can be created there: {failure}", remedy, True)
    if kind in IN_MEMORY:
        return Line("folder", f"{text}: in memory, lost at a restart", "choose a disk", True)
    return Line("folder", text)


def durable(world: World, hosts: list[str], scratch: Path) -> Line:
    """Write and fsync a file on rank 0, then read it on all ranks."""
    path, data = scratch / "probe", bytes(range(256)) * (PROBE_BYTES // 256)
    seconds, failure = attempt(world, lambda: _write(path, data) if world.rank == 0 else 0.0)
    if failure:
        remedy = "check for quotas, full disks and broken mounts"
        return Line("fsync", f"a file cannot be stored: {failure}", remedy, wrong=True)
    _, failure = attempt(world, lambda: _read_back(path, data))
    if failure:
        remedy = "choose a folder that all hosts share"
        return Line("fsync", f"rank 0's file is missing or differs: {failure}", remedy, wrong=True)
    readers = f"read back by {world.size} rank(s) on {len(set(hosts))} host(s)"
    return Line("fsync", f"1 MB stored in {1e3 * (seconds or 0):.0f} ms, {readers}")


def _write(path: Path, data: bytes) -> float:
    begin = time.perf_counter()
    with open(path, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    sync(path.parent)
    return time.perf_counter() - begin


def _read_back(path: Path, data: bytes) -> None:
    end = time.monotonic() + SECONDS_TO_APPEAR
    while not path.exists() and time.monotonic() < end:
        time.sleep(0.2)
    if path.read_bytes() != data:
        raise OSError(f"{path} differs from what was written")


def exchanges(world: World, seconds: float) -> Line:
    """Swap bytes with neighbouring ranks, as a run does, and check that they arrive unchanged."""
    if world.size == 1:
        return Line("exchange", "one rank, nothing to exchange")
    _exchange(world, SMALL_MESSAGE, 1, 0.0)  # the first message opens the connection
    small, small_intact = _exchange(world, SMALL_MESSAGE, 20_000, seconds / 2)
    large, large_intact = _exchange(world, LARGE_MESSAGE, 2_000, seconds / 2)
    text = (
        f"1 kB between neighbours takes {1e6 * small:,.0f} us ({1 / small:,.0f} exchanges/s), "
        f"1 MB {amount(LARGE_MESSAGE / large)}/s each way"
    )
    if not (small_intact and large_intact):
        remedy = "the MPI library or the network is broken: try another one"
        return Line("exchange", "bytes arrive changed", remedy, wrong=True)
    if small > SLOW_EXCHANGE:
        remedy = "use fewer ranks than cores, and an MPI library that uses the fast network"
        return Line("exchange", f"{text}: slow", remedy, wrong=True)
    return Line("exchange", text)


def _exchange(world: World, n_bytes: int, n_max: int, seconds: float) -> tuple[float, bool]:
    """Return the slowest rank's mean seconds per exchange, and whether all bytes were intact."""
    data = random_bytes(world.rank, n_bytes)
    neighbours = [r for r in (world.rank - 1, world.rank + 1) if 0 <= r < world.size]
    expected = {r: random_bytes(r, n_bytes) for r in neighbours}

    def swap(parity: int) -> bool:
        other = world.rank + 1 if world.rank % 2 == parity else world.rank - 1
        if not 0 <= other < world.size:
            return True
        received = world.swap({other: (other, data)})[other]
        return bool(np.array_equal(received, expected[other]))

    intact, n = True, 4
    while True:
        world.barrier()
        begin = time.perf_counter()
        for i in range(n):
            intact &= swap(i % 2)
        each = float(world.max(np.array([(time.perf_counter() - begin) / n]))[0])
        n_in_time = min(n_max, int(seconds / each))
        if n >= n_in_time or n > 4:
            return each, world.all(intact)
        n = n_in_time


def random_bytes(seed: int | list[int], n: int) -> NDArray[np.uint8]:
    """Return n reproducible random bytes, uint8 [n]."""
    return np.random.default_rng(seed).integers(256, size=n, dtype=np.uint8)


def writing(world: World, folder: Path, kind: str, seconds: float) -> Line:
    """Commit rounds to a small run file; each rank then reads what its neighbour wrote."""
    n_samples = max(1, TRIAL_BYTES // (TRIAL_SITES * world.size))
    g = layout.Geometry(
        TRIAL_ROUNDS, world.size, 1, 1, n_samples, TRIAL_SITES, 256, 1, checksums=True
    )
    need = 2 * layout.size_in_bytes(g)
    if need > layout.free_bytes(folder):
        remedy = f"free {amount(need)}"
        return Line("writing", "not tried: too little free space", remedy, wrong=True)
    path = folder / "trial.h5"
    remedy = f'set [run] writer = "{"gather" if kind == "mpio" else "mpio"}", or use another folder'
    _, failure = attempt(world, lambda: _create_trial(path, g) if world.rank == 0 else None)
    if not failure:
        outcome, failure = attempt(world, lambda: _commit_rounds(world, path, g, kind, seconds))
    if failure or outcome is None:
        return Line("writing", f"writer {kind} fails: {failure}", remedy, wrong=True)
    n_rounds, elapsed = outcome
    other = (world.rank + 1) % world.size
    _, failure = attempt(world, lambda: _check_trial(path, n_rounds, other))
    if failure:
        return Line("writing", f"writer {kind} loses data: {failure}", remedy, wrong=True)
    rate = n_rounds * world.size * n_samples * TRIAL_SITES / elapsed
    text = (
        f"writer {kind}, {world.size} rank(s): {amount(rate)}/s, "
        f"{1e3 * elapsed / n_rounds:.0f} ms per round; read back as written"
    )
    if rate < SLOW_WRITE:
        return Line("writing", f"{text}: slow", "choose a faster file system", wrong=True)
    return Line("writing", text)


def _create_trial(path: Path, g: layout.Geometry) -> None:
    first = layout.first_values(np.arange(float(g.n_rungs)), np.array([0.0, 1.0]))
    layout.create(path, g, first, {"config": "[run]\n", "model_fingerprint": "none"})


def _commit_rounds(
    world: World, path: Path, g: layout.Geometry, writer_kind: str, seconds: float
) -> tuple[int, float]:
    """Commit at least two rounds, for about `seconds`; return their number and the time taken."""
    rungs = range(world.rank, world.rank + 1)
    values = {}
    for name, field in layout.layout(g).items():
        where = layout.slab(field, 0, rungs, g.n_rungs)
        values[name] = np.zeros(layout.shape_of(field, where) if where else 0, field.dtype)
    writer = writers.open_writer(writer_kind, path, g, rungs, world)
    n, elapsed = 0, 0.0
    while n < 2 or (n < g.rounds and elapsed < seconds):
        values["samples/x"] = _trial_samples(n, world.rank, values["samples/x"].shape)
        world.barrier()
        begin = time.perf_counter()
        writer.commit(n, values, n + 1)
        elapsed += float(world.max(np.array([time.perf_counter() - begin]))[0])
        n += 1
    writer.close()
    world.barrier()
    return n, elapsed


def _check_trial(path: Path, n_rounds: int, rung: int) -> None:
    """Raise an OSError if the file lacks samples that the rank of a rung committed."""
    with reader.open_run(path, tried=True) as run:
        if run.rounds != n_rounds:
            raise OSError(f"{run.rounds} rounds are in the file, but {n_rounds} were committed")
        for round_ in range(n_rounds):
            x = run.round(round_, range(rung, rung + 1)).samples_x
            if not np.array_equal(x, _trial_samples(round_, rung, x.shape)):
                raise OSError(f"round {round_} of rung {rung} is not what was written")


def _trial_samples(round_: int, rung: int, shape: tuple[int, ...]) -> NDArray[np.uint8]:
    return np.broadcast_to(random_bytes([round_, rung], TRIAL_SITES), shape).copy()
