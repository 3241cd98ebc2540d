"""The side file of a rescored run: the outputs of another model for the run's recorded samples.

The file is ``RUN.rescored.NAME.h5`` next to ``RUN.h5``; NAME is the other model's input file. It is
created, committed and read like a run file (see `layout` and `writers`): its name appears when the
empty file is complete, and readers see only committed rounds. Reading needs only numpy and h5py.

    attrs                        format = "omniinput-rescored", format_version, config (of the other
                                 model, TOML), model_fingerprint, run_created and run_fingerprint
                                 (of the run), package_version, created
    samples/z                    float32 [rounds, K, S], like samples/z of the run
    samples/x_checksum           uint64 [rounds, K], of the run's samples/x; 0 if it has none
    progress/rounds_committed    int64 [1]
    checksum/round, checksum/progress    see `checksums`
"""

from __future__ import annotations

import glob
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from omniinput_hpc.config import Config, stored
from omniinput_hpc.errors import UserError
from omniinput_hpc.runfile import checked_datasets, checksums, consistency, untrusted_hdf5
from omniinput_hpc.runfile.checked_datasets import (
    CheckedDatasets,
    CheckedFile,
    OnDamage,
    refuse,
)
from omniinput_hpc.runfile.fields import Field
from omniinput_hpc.runfile.layout import Attribute, Geometry, grow_file, layout, make_file
from omniinput_hpc.runfile.reader import RunReader
from omniinput_hpc.text import shown_path

FORMAT = "omniinput-rescored"
FORMAT_VERSION = 3
WITHOUT_CHECKSUMS, WITHOUT_INPUTS = 1, 2
"""Versions of files without checksums, of the inputs or at all, that are read and continued."""

INPUTS = "samples/x_checksum"
COUNTER = "progress/rounds_committed"


def path_of(run_path: Path, name: str) -> Path:
    """Return the side file's path: ``runs/a.h5`` and ``b`` give ``runs/a.rescored.b.h5``."""
    return run_path.with_name(f"{run_path.stem}.rescored.{name}.h5")


def fields_of(g: Geometry, version: int = FORMAT_VERSION) -> dict[str, Field]:
    """Return every dataset of the side file, given the run's geometry."""
    return _fields((g.rounds, g.n_rungs, g.samples_per_round), version)


def _fields(shape: tuple[int, int, int], version: int) -> dict[str, Field]:
    fields = {
        "samples/z": Field(shape, np.float32, "round"),
        COUNTER: Field((1,), np.int64, "once"),
    }
    if version == WITHOUT_CHECKSUMS:
        return fields
    if version != WITHOUT_INPUTS:
        fields[INPUTS] = Field(shape[:2], np.uint64, "round")
    return fields | checksums.fields_of(fields, shape[1])


def create(path: Path, run: RunReader, attributes: Mapping[str, str]) -> None:
    """Create a side file without any round (see `layout.make_file`)."""
    header: dict[str, Attribute] = {"format": FORMAT, "format_version": FORMAT_VERSION}
    header |= {"run_created": run.texts.get("created", ""), "run_fingerprint": run.fingerprint}
    make_file(path, fields_of(run.geometry), {}, {**header, **attributes})


def grow(path: Path, run: RunReader) -> None:
    """Replace a side file by a longer one, after its run was extended."""
    with open_rescored(path) as side:
        version = side.version
    grow_file(path, fields_of(run.geometry, version), {})


def sums_of_inputs(run: RunReader, rounds: range) -> NDArray[np.uint64]:
    """Return the checksums of a run's `samples/x`, uint64 [R, K]; 0 in a file that has none."""
    if not run.geometry.checksums:
        return np.zeros((len(rounds), run.geometry.n_rungs), np.uint64)
    column = checksums.columns(layout(run.geometry), "round").index("samples/x")
    return run.entry(checksums.BY_KIND["round"], slice(rounds.start, rounds.stop))[:, :, column]


class RescoredReader(CheckedFile):
    """The committed content of a side file, as a context manager.

    Attributes
    ----------
    path : Path
    config : the other model's parsed input file (see `config.stored`)
    fingerprint : str, of the other model
    run_created, run_fingerprint : str, of the run that recorded the samples
    rounds, rounds_planned : int; `rounds` counts the committed rounds
    shape : (K, S), samples of a round
    version : int, of the format
    """

    NAME = "file of rescored samples"

    def _read_header(self) -> None:
        file = self._file
        versions = (WITHOUT_CHECKSUMS, WITHOUT_INPUTS, FORMAT_VERSION)
        self.version = untrusted_hdf5.require(file, FORMAT, versions, "a file of rescored samples")
        self.config: Config = stored.parse(untrusted_hdf5.text(file, "config"))
        self.fingerprint = untrusted_hdf5.text(file, "model_fingerprint")
        self.run_created = untrusted_hdf5.text(file, "run_created")
        self.run_fingerprint = untrusted_hdf5.text(file, "run_fingerprint")
        z = untrusted_hdf5.dataset(file, "samples/z")
        if len(z.shape) != 3:
            raise ValueError("a dataset has the wrong shape or type")
        self.rounds_planned: int = z.shape[0]
        self.shape: tuple[int, int] = z.shape[1:]
        fields = _fields(z.shape, self.version)
        for name, field in fields.items():
            checked_datasets.check_field(file, name, field)
        possible = {"samples/z": consistency.outputs}
        self._data = CheckedDatasets(
            file, self.path, fields, self.shape[0], possible, self.on_damage, self._on_impossible
        )
        self.rounds, fits = checksums.counter(file, COUNTER)
        if not 0 <= self.rounds <= self.rounds_planned:
            raise ValueError("its counter of rounds is out of range")
        if not fits:
            self._data.report_damage(COUNTER)
        if self.version != WITHOUT_CHECKSUMS:
            for what in checksums.wrong_attributes(file, fields):
                self._data.report_damage(what)

    def z(self, round_: int) -> NDArray[np.float32]:
        """Return the other model's z for the samples of a committed round, float32 [K, S]."""
        if not 0 <= round_ < self.rounds:
            raise IndexError(f"round {round_} is not committed in {self.path}")
        return self._data.slab("samples/z", round_, range(self.shape[0]))

    def belongs_to(self, run: RunReader) -> bool:
        """Return whether the outputs are for the samples of this run."""
        theirs = (run.texts.get("created", ""), run.fingerprint)
        same = (self.run_created, self.run_fingerprint) == theirs
        same = same and self.shape == (run.geometry.n_rungs, run.samples_per_round)
        return same and (self.version < FORMAT_VERSION or self._has_inputs_of(run))

    def _has_inputs_of(self, run: RunReader) -> bool:
        """Return False if the run has sampled a round again, after it was salvaged."""
        rounds = range(min(self.rounds, run.rounds))
        mine = self._data.rounds(INPUTS, rounds, range(self.shape[0]))
        theirs = sums_of_inputs(run, rounds)
        return bool(((mine == theirs) | (mine == 0) | (theirs == 0)).all())


def outputs_of(side: RescoredReader, run: RunReader) -> NDArray[np.float32]:
    """Return the other model's z of the samples of a run's `data`, float32 [rounds, K, S].

    The rounds are those that both files hold, at least one; else raises a UserError, as for the
    side file of another run.
    """
    if not side.belongs_to(run):
        raise UserError(f"{side.path} holds outputs of other samples than those of {run.path}")
    n_rounds = min(side.rounds, run.rounds)
    if not n_rounds:
        raise UserError(f"{side.path} holds no committed round yet: resume omniinput rescore")
    return np.stack([side.z(r)[: len(run.data.beta_k)] for r in range(n_rounds)])


def open_rescored(
    path: str | Path, on_damage: OnDamage = refuse, tried: bool = False
) -> RescoredReader:
    """Open a side file for reading, with the checks of `reader.open_run`.

    Raises a UserError if the file is missing or damaged.
    """
    return RescoredReader(Path(path), on_damage, tried=tried)


def beside(run_path: Path) -> list[Path]:
    """Return the side files of a run, sorted by name."""
    return sorted(run_path.parent.glob(f"{glob.escape(run_path.stem)}.rescored.*.h5"))


def find(run: RunReader, other: RunReader) -> Path:
    """Return the side file with the outputs of another run's model for the samples of this run.

    The model's fingerprint decides, not the name of the file. If there is no such side file, raises
    a UserError: that of the first damaged side file, or else one with the command that makes it.
    """
    problem: UserError | None = None
    for path in beside(run.path):
        try:
            with open_rescored(path, run.on_damage) as side:
                if side.fingerprint == other.fingerprint and side.belongs_to(run) and side.rounds:
                    return path
        except UserError as error:  # it may belong to another model
            problem = problem or error
    if problem is not None:
        raise problem
    raise UserError(
        f"the model of {other.path} has not evaluated the samples of {run.path}: run "
        f"[mpirun -n R] omniinput rescore {shown_path(run.path)} "
        f"{shown_path(other.path)}"
    )
