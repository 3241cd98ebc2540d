"""Sample a model's whole input space and compute its precision-recall curve (OmniInput).

``import omniinput_hpc as oi; run = oi.open("runs/toy.h5")``: see docs/python-api.md. Importing this
package imports neither torch nor MPI nor h5py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from omniinput_hpc.text import __version__

if TYPE_CHECKING:
    from pathlib import Path

    from omniinput_hpc.api.estimates import JoinedRuns
    from omniinput_hpc.api.run import Run

__all__ = ["__version__", "join", "open"]


def open(path: str | Path, damaged: bool = False) -> Run:
    """Open a run file for reading, also while the run is live.

    With `damaged`, data that do not match their checksums cause a warning and are read anyway.

    Raises
    ------
    UserError
        The file does not exist, or is not a complete run file.
    """
    from omniinput_hpc.api.run import Run

    return Run(path, damaged)


def join(*runs: Run) -> JoinedRuns:
    """Join opened runs of one model, with different seeds or rungs, into one density and curve.

    Raises
    ------
    UserError
        No run is given.
    """
    from omniinput_hpc.api.estimates import JoinedRuns
    from omniinput_hpc.errors import UserError

    if not runs:
        raise UserError("join takes opened runs: join(run, other)")
    return JoinedRuns([run.reader for run in runs])
