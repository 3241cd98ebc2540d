"""What the launcher tells this process in its environment, before MPI is imported."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

RANK_NAMES = ("PMI_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "SLURM_PROCID")
"""Variables that hold this process's rank. SLURM's is last, because under `mpirun` in a job all
ranks of a node inherit that of the process which starts them."""
SIZE_NAMES = ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS")
"""Variables that hold the number of ranks, in the same order."""
QUICK = {"-h", "--help", "--version"}


def rank() -> int:
    """Return this process's rank; 0 if no launcher states one."""
    return next((number for _, number in _numbers(RANK_NAMES)), 0)


def sizes() -> dict[str, int]:
    """Return the number of ranks, by the variable that states it."""
    return dict(_numbers(SIZE_NAMES))


def announce_imports(arguments: Sequence[str] | None = None) -> None:
    """Print a line on rank 0; call this before torch and mpi4py are imported.

    Many ranks that import them from a shared file system print nothing for minutes otherwise.
    `arguments` are those of the command; help texts and versions need no line.
    """
    given = sys.argv[1:] if arguments is None else arguments
    if rank() == 0 and not QUICK & set(given):
        n_ranks = next(iter(sizes().values()), 1)
        who = f"{n_ranks} ranks start" if n_ranks > 1 else "starting"
        print(f"[rank 0] {who}: importing libraries", file=sys.stderr, flush=True)


def _numbers(names: Sequence[str]) -> list[tuple[str, int]]:
    found = [(name, os.environ.get(name, "")) for name in names]
    return [(name, int(text)) for name, text in found if text.isdecimal()]
