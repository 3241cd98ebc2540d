"""The side file of `omniinput observe`: an observable of a run's recorded samples.

The file is ``RUN.observed.NAME.h5`` next to ``RUN.h5``. It is written at once, by a rename.

    attrs              format = "omniinput-observed", format_version, function (what y is),
                       run_created and run_fingerprint (of the run), created; checksum: xxh3_64 of
                       y; inputs: xxh3_64 of the run's checksums of their inputs
    observables/NAME   float64 [rounds, K, S], like samples/z of the run
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import xxhash
from numpy.typing import NDArray

from omniinput_hpc.errors import UserError
from omniinput_hpc.runfile import untrusted_hdf5
from omniinput_hpc.runfile.layout import making
from omniinput_hpc.runfile.reader import RunReader
from omniinput_hpc.runfile.rescored import sums_of_inputs

FORMAT, FORMAT_VERSION = "omniinput-observed", 1


def path_of(run_path: Path, name: str) -> Path:
    """Return the side file's path: ``runs/a.h5`` and ``b`` give ``runs/a.observed.b.h5``."""
    return run_path.with_name(f"{run_path.stem}.observed.{name}.h5")


def write(run: RunReader, name: str, function: str, y_rks: NDArray[np.float64]) -> Path:
    """Write y of all samples of a run, all or nothing; return the path.

    Raises a UserError if the file cannot be written.
    """
    path = path_of(run.path, name)
    attributes = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "function": function,
        "run_created": run.created,
        "run_fingerprint": run.fingerprint,
        "created": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "checksum": _checksum(y_rks),
        "inputs": _inputs(run, len(y_rks)),
    }
    try:
        with making(path) as file:
            file.create_dataset(f"observables/{name}", data=y_rks, track_times=False)
            for key, value in attributes.items():
                file.attrs[key] = value
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error.strerror or error}") from None
    return path


def read(run: RunReader, name: str) -> NDArray[np.float64]:
    """Return y of the samples of a run's committed rounds, float64 [rounds, K, S].

    Raises
    ------
    UserError
        The file is missing, damaged or of other samples, or lacks rounds that were added since.
    """
    path = path_of(run.path, name)
    with _ObservedFile(path) as file:
        y_rks = file.values(name)
        if file.run != (run.created, run.fingerprint):
            raise UserError(f"{path} is of another run's samples, not of {run.path}")
    g = run.geometry
    fits = y_rks.shape == (run.rounds, g.n_rungs, g.samples_per_round)
    if not fits or file.inputs not in ("", _inputs(run, run.rounds)):
        raise UserError(f"{path} lacks samples of {run.path}: repeat omniinput observe")
    return y_rks


def _inputs(run: RunReader, rounds: int) -> str:
    sums_rk = sums_of_inputs(run, range(rounds))
    return xxhash.xxh3_64_hexdigest(np.ascontiguousarray(sums_rk).data)


def _checksum(y_rks: NDArray[Any]) -> str:
    return xxhash.xxh3_64_hexdigest(np.ascontiguousarray(y_rks, np.float64).data)


class _ObservedFile(untrusted_hdf5.UntrustedFile):
    """The opened file; `values` reads its dataset."""

    NAME = "file of an observable"

    def _read_header(self) -> None:
        untrusted_hdf5.require(self._file, FORMAT, (FORMAT_VERSION,), "a file of an observable")
        text = untrusted_hdf5.text
        self.run = text(self._file, "run_created"), text(self._file, "run_fingerprint")
        self._checksum = text(self._file, "checksum")
        known = "inputs" in self._file.attrs  # not in files of older versions
        self.inputs = text(self._file, "inputs") if known else ""

    def values(self, name: str) -> NDArray[np.float64]:
        """Return the dataset."""
        with self._damage_as_user_error():
            found = untrusted_hdf5.dataset(self._file, f"observables/{name}")
            if found.dtype != np.float64 or len(found.shape) != 3:
                raise ValueError("a dataset has the wrong shape or type")
            y_rks = np.asarray(found[...])
            if _checksum(y_rks) != self._checksum:
                raise ValueError("its content does not match its checksum")
            return y_rks
