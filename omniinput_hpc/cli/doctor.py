"""Is this machine fit for a run: ``[mpirun -n R] python -m omniinput_hpc --doctor [FOLDER]``.

One line for each thing that a run needs, with a remedy where something is wrong; exit code 0 if
nothing is, else 1. FOLDER is where the run file will be (default: the current directory). Start it
as the run will be started: same launcher, same number of ranks, same nodes.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from omniinput_hpc import __version__
from omniinput_hpc.errors import EXIT_COMPLETE, EXIT_FAILURE, UserError
from omniinput_hpc.parallel import comm
from omniinput_hpc.parallel.comm import World
from omniinput_hpc.runfile import layout, writers
from omniinput_hpc.sampling import plan
from omniinput_hpc.text import amount, first_line

T = TypeVar("T")

PACKAGES = ("numpy", "scipy", "h5py", "mpi4py", "torch", "transformers", "safetensors", "pydantic")
IN_MEMORY = ("tmpfs", "ramfs")
PROBE_BYTES = 1 << 20
SECONDS_TO_APPEAR = 10.0
"""How long a file of rank 0 may take to be seen by another host (NFS looks every few seconds)."""


@dataclass(frozen=True)
class Line:
    """What is said of one thing; a remedy without `wrong` is a hint."""

    name: str
    text: str
    remedy: str = ""
    wrong: bool = False

    def __str__(self) -> str:
        """Return the line as it is printed."""
        state = "WRONG" if self.wrong else "ok"
        return f"{state:<6} {self.name:<9} {self.text}{' -> ' if self.remedy else ''}{self.remedy}"


def run(world: World, folder: Path, seconds: float = 1.0) -> int:
    """Print a line for each check on rank 0, and return the exit code.

    Parameters
    ----------
    seconds : how long the exchange test and the write test take, each

    Raises
    ------
    UserError
        There is no such folder.
    """
    from omniinput_hpc.cli import trials

    world.on_rank_0(lambda: _check_folder(folder))
    hosts = world.hosts()
    kind, reason = writers.choose_writer("auto", folder, len(set(hosts)))
    kind, reason = world.broadcast([kind, reason])
    n_wrong = 0

    def show(line: Line) -> None:
        nonlocal n_wrong
        n_wrong += line.wrong
        if world.rank == 0:
            print(line, flush=True)

    for line in (lambda: packages(world), mpi_library, lambda: ranks(world, hosts)):
        show(line())
    show(hdf5(kind, reason))
    show(devices(world, hosts))
    show(trials.exchanges(world, seconds))
    with Scratch(world, folder) as scratch:
        show(file_system(world, folder, scratch))
        if scratch.path is not None:
            show(durable(world, hosts, scratch.path))
            show(trials.writing(world, scratch.path, kind, seconds))
    if world.rank == 0:
        print(f"{n_wrong} thing(s) wrong" if n_wrong else "nothing wrong", flush=True)
    return EXIT_COMPLETE if world.all(n_wrong == 0) else EXIT_FAILURE


def _check_folder(folder: Path) -> None:
    if not folder.is_dir():
        raise UserError(f"--doctor {folder}: no such folder; give that of run.output")


def attempt(world: World, action: Callable[[], T]) -> tuple[T | None, str]:
    """Call a function on every rank; return its value, and the first failure's words ("": none).

    A function in which ranks wait for each other must fail on all of them alike.
    """
    value, words = None, ""
    try:
        value = action()
    except Exception as error:
        words = f"rank {world.rank} on {platform.node()}: {first_line(error)}"
    if world.all(not words):
        return value, ""
    return value, next(text for text in world.texts(words) if text)


def packages(world: World) -> Line:
    """Say which versions run, and whether they are the same on all ranks."""
    import h5py

    versions, missing = [], []
    for name in PACKAGES:
        try:
            versions.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            missing.append(name)
    text = (
        f"Python {platform.python_version()}, omniinput_hpc {__version__}, "
        f"{', '.join(versions)}, HDF5 {h5py.version.hdf5_version}"
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
    """Name the MPI library, and say whether it fits the launcher."""
    try:
        plan.check_launch(comm.connected())
    except UserError as error:
        return Line("MPI", comm.library(), str(error), wrong=True)
    return Line("MPI", comm.library())


def ranks(world: World, hosts: list[str]) -> Line:
    """Say how many ranks run on which hosts, and whether there are cores for them."""
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
                "let the launcher give each rank a core of its own (srun --cpus-per-task=1, "
                "mpirun --bind-to core)",
                wrong=True,
            )
        if usable < n:
            return Line("ranks", text, f"{n} ranks share the {usable} cores of {host}: slow")
    return Line("ranks", text)


def hdf5(kind: str, reason: str) -> Line:
    """Say how run files will be written, and why so."""
    import h5py

    parallel = bool(h5py.get_config().mpi)
    text = f"{'parallel' if parallel else 'serial'} HDF5; writer {kind} ({reason})"
    hint = "" if parallel else "rank 0 writes for all; for many ranks build h5py with parallel HDF5"
    return Line("HDF5", text, hint)


def devices(world: World, hosts: list[str]) -> Line:
    """Say on which device each rank evaluates the model, and whether it computes."""
    local = world.local_rank()
    words, failure = attempt(world, lambda: _try_device(local))
    if failure:
        remedy = "install torch for this host's driver, or set [run] device"
        return Line("torch", failure, remedy, wrong=True)
    parts_r = [text.split("|") for text in world.texts(words or "||")]
    names = Counter(name for name, _, _ in parts_r)
    text = ", ".join(f"{n} rank(s) on {name}" for name, n in names.items())
    unseen = [r for r, (_, _, problem) in enumerate(parts_r) if problem]
    if unseen:
        return Line(
            "torch",
            f"{text}; host {hosts[unseen[0]]} has a GPU that torch does not see",
            "install torch with CUDA for this driver; look at nvidia-smi and CUDA_VISIBLE_DEVICES",
            wrong=True,
        )
    users = Counter((host, gpu) for host, (_, gpu, _) in zip(hosts, parts_r, strict=True) if gpu)
    hint = ""
    if users and max(users.values()) > 1:
        hint = f"up to {max(users.values())} ranks share a GPU: start one rank per GPU"
    return Line("torch", text, hint)


def _try_device(local_rank: int) -> str:
    """Return "name|which GPU|problem" of this rank's device, after a small sum on it."""
    import torch

    from omniinput_hpc.models import device

    name, gpu, problem = device.choose("auto", local_rank, 1), "", ""
    total = float(torch.arange(1000, dtype=torch.float32, device=name).sum())
    if total != 499500.0:
        raise ArithmeticError(f"{name} computes {total} where 499500 is right")
    if name != "cpu":
        about = torch.cuda.get_device_properties(name)
        visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
        gpu = str(getattr(about, "uuid", f"{visible}/{name}"))
        name = f"{about.name} ({about.total_memory / 2**30:.0f} GiB)"
    elif os.environ.get("CUDA_VISIBLE_DEVICES", "all") not in ("", "-1"):
        problem = "unseen" if any(Path("/dev").glob("nvidia[0-9]*")) else ""
    return f"{name}|{gpu}|{problem}"


class Scratch:
    """A folder of the doctor's own inside another, gone after the ``with`` block of all ranks.

    Attributes
    ----------
    path : None where it could not be made; `failure` then says why
    """

    def __init__(self, world: World, folder: Path) -> None:
        self._world, self._folder = world, folder
        self.path: Path | None = None
        self.failure = ""

    def __enter__(self) -> Scratch:
        """Make the folder."""
        made, self.failure = self._world.on_rank_0(self._make)
        self.path = Path(made) if made else None
        return self

    def _make(self) -> list[str]:
        try:
            return [tempfile.mkdtemp(prefix=".omniinput-doctor-", dir=self._folder.absolute()), ""]
        except OSError as error:
            return ["", error.strerror or str(error)]

    def __exit__(self, *exception: object) -> None:
        """Remove it, once all ranks are done with it."""
        if exception[0] is None:
            self._world.barrier()
        if self._world.rank == 0 and self.path is not None:
            shutil.rmtree(self.path, ignore_errors=True)


def file_system(world: World, folder: Path, scratch: Scratch) -> Line:
    """Say what the output's folder is on."""
    kind = world.texts(writers.file_system(folder))[0]
    free = amount(layout.free_bytes(folder))
    text = f"{folder.absolute()} is on {kind}, {free} free"
    if scratch.path is None:
        remedy = "choose a folder that you may write to"
        return Line("folder", f"{text}; nothing can be made there: {scratch.failure}", remedy, True)
    if kind in IN_MEMORY:
        return Line("folder", f"{text}: in memory, gone after a restart", "choose a disk", True)
    return Line("folder", text)


def durable(world: World, hosts: list[str], scratch: Path) -> Line:
    """Write and fsync on rank 0, and read back on all ranks."""
    path, data = scratch / "probe", bytes(range(256)) * (PROBE_BYTES // 256)
    seconds, failure = attempt(world, lambda: _write(path, data) if world.rank == 0 else 0.0)
    if failure:
        remedy = "look for quotas, full disks and broken mounts"
        return Line("fsync", f"what is written cannot be kept: {failure}", remedy, wrong=True)
    _, failure = attempt(world, lambda: _read_back(path, data))
    if failure:
        remedy = "choose a folder that all hosts share"
        return Line("fsync", f"what rank 0 wrote is not there: {failure}", remedy, wrong=True)
    readers = f"read back by {world.size} rank(s) on {len(set(hosts))} host(s)"
    return Line("fsync", f"1 MB kept after {1e3 * (seconds or 0):.0f} ms, {readers}")


def _write(path: Path, data: bytes) -> float:
    begin = time.perf_counter()
    with open(path, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    layout.sync(path.parent)
    return time.perf_counter() - begin


def _read_back(path: Path, data: bytes) -> None:
    end = time.monotonic() + SECONDS_TO_APPEAR
    while not path.exists() and time.monotonic() < end:
        time.sleep(0.2)
    if path.read_bytes() != data:
        raise OSError(f"{path} has another content than was written")
