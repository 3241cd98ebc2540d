"""Sample a model's whole input space and compute its precision-recall curve (OmniInput).

``import omniinput_hpc as oi; run = oi.open("runs/toy.h5")``: see docs/python-api.md. Importing this
imports neither torch nor MPI nor h5py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from omniinput_hpc.api.run import Run

__version__ = "0.1.0"
__all__ = ["__version__", "open"]


def open(path: str | Path, damaged: bool = False) -> Run:
    """Open a run file for reading, also while the run goes on.

    With `damaged`, what does not fit its checksum is warned of, and read all the same.

    Raises
    ------
    UserError
        There is no such file, or it is not a whole run file.
    """
    from omniinput_hpc.api.run import Run

    return Run(path, damaged)
