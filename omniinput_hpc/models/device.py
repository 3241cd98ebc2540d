"""The device of a rank, and the torch settings that reproducible results need."""

from __future__ import annotations

import gc
import os
import re
from collections.abc import Sequence
from contextlib import suppress
from importlib import metadata
from pathlib import Path

import torch

from omniinput_hpc.config import Precision
from omniinput_hpc.errors import UserError


def choose(requested: str, local_rank: int, threads: int, precision: Precision = "highest") -> str:
    """Return the device of this rank ("cpu", "cuda:2"), and set torch's threads and precision.

    With `precision` "tf32" a GPU multiplies and convolves float32 in TF32; a CPU never does.

    Raises `UserError` if torch sees no GPU, and either "cuda" is requested, or "auto" on a host
    that has a GPU: the run would silently take a hundred times as long on the CPU.
    """
    torch.set_num_threads(threads)
    # use_deterministic_algorithms(True, warn_only=True) would import the compiler: one second
    torch.set_deterministic_debug_mode("warn")
    # otherwise deterministic mode fills every new tensor with NaN
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    if requested == "cuda" and not torch.cuda.is_available():
        raise UserError('run.device = "cuda": torch sees no GPU on this host; use "auto" or "cpu"')
    if requested == "auto" and not torch.cuda.is_available() and (gpu := unseen_gpu()):
        raise UserError(
            f'run.device = "auto": this host has a GPU ({gpu}) that torch does not see; install '
            "torch with CUDA for its driver (omniinput doctor checks the machine), or set "
            'run.device = "cpu" to run on the CPU'
        )
    if requested == "cpu" or not torch.cuda.is_available():
        return "cpu"
    torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
    torch.backends.cudnn.allow_tf32 = precision == "tf32"  # convolutions; True by default
    index = local_rank % torch.cuda.device_count()
    torch.cuda.set_device(index)
    return f"cuda:{index}"


def multiplies_in_tf32(like: torch.Tensor) -> bool:
    """Return whether matrix products of this tensor's type and device are computed in TF32."""
    is_float32 = like.is_cuda and like.dtype == torch.float32
    return is_float32 and torch.backends.cuda.matmul.allow_tf32


def unseen_gpu() -> str:
    """Return the path that shows an NVIDIA GPU if torch does not see one; otherwise "".

    A GPU that CUDA_VISIBLE_DEVICES hides from every program ("" or "-1") does not count.
    """
    if torch.cuda.is_available() or os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1"):
        return ""
    found = [path for folder, name in _GPU_NODES for path in sorted(Path(folder).glob(name))]
    return str(found[0]) if found else ""


_GPU_NODES = [("/dev", "nvidia[0-9]*"), ("/proc/driver/nvidia/gpus", "*")]
"""Folders, and the names in them, that show the driver's GPUs."""


def check_alike(device_r: Sequence[str], host_r: Sequence[str]) -> None:
    """Raise a `UserError` if only some ranks have a GPU: the others would set the pace."""
    on_cpu = [device == "cpu" for device in device_r]
    if any(on_cpu) and not all(on_cpu):
        rank = on_cpu.index(True)
        raise UserError(
            f'run.device = "auto": rank {rank} on host {host_r[rank]} has no GPU, and '
            f"{on_cpu.count(False)} of {len(on_cpu)} ranks have one; give each rank a GPU, or set "
            'run.device = "cpu" to run them all on CPUs'
        )


def try_out(local_rank: int) -> tuple[str, str, str]:
    """Sum numbers on the device of a rank (`ArithmeticError` if wrong), and describe the device.

    Returns its name; its identity if it is a GPU, otherwise ""; and "unseen" if the host has a GPU
    that torch does not see, otherwise "".
    """
    unseen = "unseen" if unseen_gpu() else ""
    name, gpu = choose("cpu" if unseen else "auto", local_rank, 1), ""
    total = float(torch.arange(1000, dtype=torch.float32, device=name).sum())
    if total != 499500.0:
        raise ArithmeticError(f"{name} computes {total} instead of 499500")
    if name != "cpu":
        name, gpu = size(name), identity(name)
    return name, gpu, unseen


def identity(device: str) -> str:
    """Return what distinguishes a GPU from others of its host, on any rank; "" for "cpu"."""
    if device == "cpu":
        return ""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES") or ""
    # torch before 2.5, and devices by other makers than NVIDIA, may have no uuid
    uuid = getattr(torch.cuda.get_device_properties(device), "uuid", None)
    return str(uuid or f"{visible}/{device}")


def free_bytes(device: str) -> int:
    """Return the free memory of a device in bytes; for "cpu" that of the host.

    On a host, memory that only caches files counts as free. Limits of the process's control groups
    (a SLURM job's share) apply, if they can be read.
    """
    if device != "cpu":
        return int(torch.cuda.mem_get_info(device)[0])
    free = _kilobytes("/proc/meminfo", "MemAvailable") * 1024
    return min([free, *_left_in_control_groups()])


def held_bytes(device: str) -> int:
    """Return the bytes that this process holds on a device now."""
    if device != "cpu":
        return int(torch.cuda.memory_allocated(device))
    return _kilobytes("/proc/self/status", "VmRSS") * 1024


def peak_bytes(device: str) -> int:
    """Return the most bytes that this process has held since `reset_peak`, or since its start."""
    if device != "cpu":
        return int(torch.cuda.max_memory_reserved(device))
    return _kilobytes("/proc/self/status", "VmHWM") * 1024


def outside_bytes(device: str) -> int:
    """Return the bytes in use on a GPU outside torch's allocator; 0 for a CPU.

    They belong to the driver (recorded graphs, libraries) and to other processes.
    """
    if device == "cpu":
        return 0
    free, total = torch.cuda.mem_get_info(device)
    return int(total - free - torch.cuda.memory_reserved(device))


def release_unused() -> None:
    """Give memory that nothing refers to back to the system or the driver."""
    gc.collect()  # a KV cache and its graphs form a reference cycle
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()


def reset_peak(device: str) -> None:
    """Release unused memory, and let `peak_bytes` count from now on."""
    release_unused()
    if device != "cpu":
        torch.cuda.reset_peak_memory_stats(device)
    else:
        with suppress(OSError):  # if not permitted, earlier peaks count, too
            Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def _kilobytes(path: str, key: str) -> int:
    text = Path(path).read_text(encoding="ascii", errors="replace")
    return int(re.findall(rf"^{key}:\s*(\d+) kB", text, re.MULTILINE)[0])


def _left_in_control_groups() -> list[int]:
    """Return the memory left within each limit of this process's control groups, in bytes.

    Their use includes the file cache, which the system frees on demand.
    """
    left = []
    for line in Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines():
        _, kinds, name = line.split(":", 2)
        if kinds == "":  # version 2
            root, most, now, kept = "/sys/fs/cgroup", "memory.max", "memory.current", ""
        elif "memory" in kinds.split(","):
            root, most, now, kept = "/sys/fs/cgroup/memory", *_VERSION_1, "total_"
        else:
            continue
        folder = Path(root + name)
        for group in (folder, *folder.parents):
            with suppress(OSError, ValueError):  # "max", or no such limit here
                limit, used = (int((group / file).read_text()) for file in (most, now))
                used -= _cached_bytes(group / "memory.stat", kept)
                left.append(min(max(limit - used, 0), limit))
    return left


def _cached_bytes(file: Path, prefix: str) -> int:
    """Return the bytes that only cache files, of a control group's statistics; 0 if unknown."""
    with suppress(OSError):
        keys = rf"^{prefix}(?:in)?active_file (\d+)$"
        text = file.read_text(encoding="ascii", errors="replace")
        return sum(map(int, re.findall(keys, text, re.MULTILINE)))
    return 0


_VERSION_1 = ("memory.limit_in_bytes", "memory.usage_in_bytes")


def versions() -> dict[str, str]:
    """Return the versions of the packages that compute outputs."""
    # Not imported: it takes a third of a second, and a custom model does not need it
    return {"torch": str(torch.__version__), "transformers": metadata.version("transformers")}


def size(device: str) -> str:
    """Return a device's name and what limits runs on it: GPU, or the host's cores and memory."""
    if device != "cpu":
        about = torch.cuda.get_device_properties(device)
        return f"{about.name} ({about.total_memory / 2**30:.0f} GiB)"
    n_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return f"cpu, {os.cpu_count()} cores, {n_bytes / 2**30:.0f} GiB"


def gpu(device: str) -> dict[str, str]:
    """Return what may change a GPU's last bits: name, driver, cuDNN ({"gpu": "none"} on a CPU)."""
    if device == "cpu":
        return {"gpu": "none"}
    found = {"gpu": str(torch.cuda.get_device_properties(device).name)}
    cudnn = torch.backends.cudnn.version()
    if cudnn is not None:
        found["cudnn"] = str(cudnn)
    with suppress(OSError, IndexError):  # other systems: the name must suffice
        text = Path(_DRIVER).read_text(encoding="ascii", errors="replace")
        found["gpu_driver"] = re.findall(r"\b\d+\.\d+(?:\.\d+)*\b", text)[0]
    return found


_DRIVER = "/proc/driver/nvidia/version"
