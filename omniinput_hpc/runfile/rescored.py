"""The side file of a rescored run: another model's outputs of a run's recorded samples.

``RUN.rescored.NAME.h5`` beside ``RUN.h5``; NAME is the other model's input file. It is created,
committed and read like a run file (see `layout` and `writers`): it appears when it is complete, and
readers see committed rounds only, also while it is written. Reading needs only numpy and h5py.

    attrs                        format = "omniinput-rescored", format_version, config (of the other
                                 model, TOML), model_fingerprint, run_created and run_fingerprint
                                 (of the run), package_version, created
    samples/z                    float32 [rounds, K, S], as the run's samples/z
    progress/rounds_committed    int64 [1]
"""

from __future__ import annotations

import glob
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from omniinput_hpc.errors import UserError
from omniinput_hpc.runfile import untrusted_hdf5
from omniinput_hpc.runfile.layout import Attribute, Field, Geometry, grow_file, make_file
from omniinput_hpc.runfile.reader import RunReader
from omniinput_hpc.untrusted.parsing import parse_toml

FORMAT = "omniinput-rescored"
FORMAT_VERSION = 1


def path_of(run_path: Path, name: str) -> Path:
    """Return the side file's path: ``runs/a.h5`` and ``b`` give ``runs/a.rescored.b.h5``."""
    return run_path.with_name(f"{run_path.stem}.rescored.{name}.h5")


def fields_of(g: Geometry) -> dict[str, Field]:
    """Return every dataset of the side file, given the run's geometry."""
    return {
        "samples/z": Field((g.rounds, g.n_rungs, g.samples_per_round), np.float32, "round"),
        "progress/rounds_committed": Field((1,), np.int64, "once"),
    }


def slabs_of(z_ks: NDArray[np.float32]) -> dict[str, NDArray[np.float32]]:
    """Return what a rank commits of a round, given z of its rungs' samples, float32 [K, S]."""
    return {"samples/z": z_ks}


def create(path: Path, run: RunReader, attributes: Mapping[str, str]) -> None:
    """Create a side file without any round (see `layout.make_file`)."""
    header: dict[str, Attribute] = {"format": FORMAT, "format_version": FORMAT_VERSION}
    header |= {"run_created": run.texts.get("created", ""), "run_fingerprint": run.fingerprint}
    make_file(path, fields_of(run.geometry), {}, {**header, **attributes})


def grow(path: Path, run: RunReader) -> None:
    """Replace a side file by one with room for all rounds of a run that has more rounds now."""
    grow_file(path, fields_of(run.geometry), {})


class RescoredReader(untrusted_hdf5.UntrustedFile):
    """The committed content of a side file; use as a context manager.

    Attributes
    ----------
    path : Path
    config : dict, the other model's parsed input file
    fingerprint : str, of the other model
    run_created, run_fingerprint : str, of the run whose samples these are
    rounds, rounds_planned : int; `rounds` counts the committed ones
    shape : (K, S), samples of a round
    """

    NAME = "file of rescored samples"

    def _read_header(self) -> None:
        file = self._file
        untrusted_hdf5.require(file, FORMAT, FORMAT_VERSION, "one of rescored samples")
        self.config: dict[str, Any] = parse_toml(untrusted_hdf5.text(file, "config"))
        self.fingerprint = untrusted_hdf5.text(file, "model_fingerprint")
        self.run_created = untrusted_hdf5.text(file, "run_created")
        self.run_fingerprint = untrusted_hdf5.text(file, "run_fingerprint")
        z = untrusted_hdf5.dataset(file, "samples/z")
        counter = untrusted_hdf5.dataset(file, "progress/rounds_committed")
        if len(z.shape) != 3 or z.dtype != np.float32 or counter.shape != (1,):
            raise ValueError("a dataset has another shape or type")
        self.rounds_planned: int = z.shape[0]
        self.shape: tuple[int, int] = z.shape[1:]
        self.rounds = int(counter[0])
        if not 0 <= self.rounds <= self.rounds_planned:
            raise ValueError("its counter of rounds is out of range")

    def z(self, round_: int) -> NDArray[np.float32]:
        """Return the other model's z of a committed round's samples, float32 [K, S]."""
        if not 0 <= round_ < self.rounds:
            raise IndexError(f"round {round_} is not committed in {self.path}")
        return np.asarray(self._file["samples/z"][round_])

    def belongs_to(self, run: RunReader) -> bool:
        """Return whether these are the outputs of this run's samples."""
        theirs = (run.texts.get("created", ""), run.fingerprint)
        same = (self.run_created, self.run_fingerprint) == theirs
        return same and self.shape == (run.geometry.n_rungs, run.samples_per_round)


def open_rescored(path: str | Path) -> RescoredReader:
    """Open a side file for reading.

    Raises a UserError where there is no such file, or it is damaged.
    """
    return RescoredReader(Path(path))


def find(run: RunReader, other: RunReader) -> Path:
    """Return the side file that holds the other run's model's outputs of this run's samples.

    The model's fingerprint decides, not the file's name. Raises a UserError where there is none,
    with the command that makes it.
    """
    found = sorted(run.path.parent.glob(f"{glob.escape(run.path.stem)}.rescored.*.h5"))
    for path in found:
        with open_rescored(path) as side:
            if side.fingerprint == other.fingerprint and side.belongs_to(run) and side.rounds:
                return path
    raise UserError(
        f"the model of {other.path} has not evaluated the samples of {run.path}: run "
        f"[mpirun -n R] python -m omniinput_hpc.rescore {run.path} {other.path}"
    )
