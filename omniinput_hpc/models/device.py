"""The device of a rank, and the torch settings that reproducible numbers need."""

from __future__ import annotations

import os
from importlib import metadata

import torch

from omniinput_hpc.errors import UserError


def choose(wanted: str, local_rank: int, threads: int) -> str:
    """Return the device of this rank ("cpu", "cuda:2") and set torch's threads.

    Raises
    ------
    UserError
        A GPU is wanted where torch sees none.
    """
    torch.set_num_threads(threads)
    # use_deterministic_algorithms(True, warn_only=True) would import the compiler, for a second
    torch.set_deterministic_debug_mode("warn")
    if wanted == "cuda" and not torch.cuda.is_available():
        raise UserError('run.device = "cuda": torch sees no GPU on this host; use "auto" or "cpu"')
    if wanted == "cpu" or not torch.cuda.is_available():
        return "cpu"
    index = local_rank % torch.cuda.device_count()
    torch.cuda.set_device(index)
    return f"cuda:{index}"


def amount_free(device: str) -> int:
    """Return the free bytes of a device's memory; of the host's for "cpu"."""
    if device != "cpu":
        return int(torch.cuda.mem_get_info(device)[0])
    return int(os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))


def versions() -> dict[str, str]:
    """Return the versions of what computes the outputs."""
    # The import would take a third of a second, and a model of one's own does not need it
    return {"torch": str(torch.__version__), "transformers": metadata.version("transformers")}
