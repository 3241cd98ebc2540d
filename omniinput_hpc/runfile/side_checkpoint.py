"""The side file RUN.h5.checkpoint: a second copy of the checkpoint, and the layout of RUN.h5.

It holds what a resume needs: the attributes of the run file (configuration, fingerprints), all
results of burn-in, the walkers and the counters. It also holds the offset of every dataset, so that
`salvage` can read a file whose HDF5 metadata is destroyed. It is a safetensors file whose last
tensor is the xxh3_128 of all bytes before it, and it is replaced by a rename.
"""

from __future__ import annotations

import json
import logging
import math
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import safetensors.numpy
import xxhash
from numpy.typing import NDArray

from omniinput_hpc.config import stored
from omniinput_hpc.errors import UserError
from omniinput_hpc.runfile import checksums, untrusted_hdf5
from omniinput_hpc.runfile.layout import (
    FORMAT,
    FORMAT_VERSION,
    WITHOUT_CHECKSUMS,
    Field,
    Geometry,
    checkpoint_of,
    layout,
)
from omniinput_hpc.runfile.reader import RunReader, open_run
from omniinput_hpc.text import amount, first_line, write_atomically
from omniinput_hpc.untrusted.files import open_regular
from omniinput_hpc.untrusted.parsing import parse_json

if TYPE_CHECKING:
    from omniinput_hpc.parallel.comm import World

SIDE_FORMAT, SIDE_VERSION = "omniinput-checkpoint", 1
EVERY = 60.0
"""The least time between two copies, in seconds."""
SHARE = 0.005
"""The largest share of a run's time that copies may take."""
ALWAYS, IN_TURN = ("once", "burn-in"), ("parity", "counted parity")
"""Kinds of datasets (see `fields.Field.per`) that are copied: whole, or the last round's slab."""

MAX_BYTES = 1 << 33
"""The largest size of a side file, which is read into memory as a whole."""

_DIGEST, _DIGEST_BYTES = "~xxh3_128", 16  # "~": safetensors puts it after all other tensors

log = logging.getLogger("omniinput_hpc")


@dataclass(frozen=True)
class Place:
    """The place of a contiguous dataset in the run file."""

    offset: int  # in bytes
    shape: tuple[int, ...]
    dtype: str  # numpy's notation, such as "<f8"


@dataclass(frozen=True)
class SideCheckpoint:
    """The content of a side file."""

    attributes: Mapping[str, Any]  # all attributes of the run file
    geometry: Geometry
    places: Mapping[str, Place]  # of all datasets
    n_bytes: int  # size of the run file
    rounds: int  # committed
    burn_in: int  # committed
    slabs: Mapping[str, NDArray[Any]]  # see `ALWAYS`; without `IN_TURN` if nothing is committed

    @property
    def config_toml(self) -> str:
        """The resolved input file."""
        return str(self.attributes["config"])

    @property
    def burn_in_planned(self) -> int:
        """The number of burn-in rounds in the resolved input file."""
        return stored.parse(self.config_toml).run.burn_in

    @property
    def has_state(self) -> bool:
        """Whether the side file holds walkers to resume from."""
        return all(name in self.slabs for name in fields_of(self.geometry, IN_TURN))

    def is_of(self, file: SideCheckpoint) -> bool:
        """Whether both describe the same run file at the same length."""
        mine, other = (_about(replace(side, rounds=0, burn_in=0)) for side in (self, file))
        return mine == other


def fields_of(g: Geometry, kinds: tuple[str, ...]) -> dict[str, Field]:
    """Return the datasets of some kinds that a side file holds: all but the counters."""
    return {
        name: field
        for name, field in layout(g).items()
        if field.per in kinds and name not in (*checksums.COUNTERS, checksums.PROGRESS)
    }


def of_run(run: RunReader, with_slabs: bool = True) -> SideCheckpoint:
    """Return the side checkpoint of a run file that no process is writing."""
    g, last, offsets = run.geometry, run.last_round, run.offsets()
    slabs: dict[str, NDArray[Any]] = {}
    if with_slabs:
        slabs |= {name: run.entry(name) for name in fields_of(g, ALWAYS)}
    if with_slabs and last is not None:
        slabs |= {name: run.entry(name, last % 2) for name in fields_of(g, IN_TURN)}
    places = {
        name: Place(offsets[name], field.shape, np.dtype(field.dtype).str)
        for name, field in layout(g).items()
    }
    try:
        n_bytes = os.stat(run.path).st_size
    except OSError as error:
        raise untrusted_hdf5.unreadable(run.path, error) from None
    return SideCheckpoint(
        attributes=run.attributes(),
        geometry=g,
        places=places,
        n_bytes=n_bytes,
        rounds=run.rounds,
        burn_in=run.burn_in_committed,
        slabs=slabs,
    )


def write(path: Path, side: SideCheckpoint) -> None:
    """Write a side file, all or nothing. Raise an OSError if that fails."""
    if sum(values.nbytes for values in side.slabs.values()) > MAX_BYTES:
        raise OSError(f"the walkers take more than {amount(MAX_BYTES)}")
    tensors = {name: np.ascontiguousarray(values) for name, values in side.slabs.items()}
    tensors["about"] = np.frombuffer(_about(side).encode(), dtype=np.uint8)
    tensors[_DIGEST] = np.zeros(_DIGEST_BYTES, dtype=np.uint8)
    body = memoryview(safetensors.numpy.save(tensors))[:-_DIGEST_BYTES]
    write_atomically(path, body, xxhash.xxh3_128_digest(body))


def keep(path: Path, side: SideCheckpoint, warn: bool = True) -> bool:
    """Write a side file; return whether that succeeded, and warn if it did not.

    On failure, an existing side file is removed unless it describes the current run file.
    """
    try:
        write(path, side)
        return True
    except OSError as error:
        if warn:
            log.warning(
                "warning: %s cannot be written: %s; the run continues without it",
                path, error.strerror or error,
            )  # fmt: skip
    with suppress(OSError):
        try:
            stays = _read(path).is_of(side)
        except UserError:
            stays = False
        if not stays:
            path.unlink(missing_ok=True)
    return False


def _about(side: SideCheckpoint) -> str:
    return json.dumps(
        {
            "format": SIDE_FORMAT,
            "format_version": SIDE_VERSION,
            "attributes": {name: _plain(value) for name, value in side.attributes.items()},
            "geometry": asdict(side.geometry),
            "places": {name: asdict(place) for name, place in side.places.items()},
            "n_bytes": side.n_bytes,
            "rounds": side.rounds,
            "burn_in": side.burn_in,
        }
    )


def _plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value


def read(run: Path) -> SideCheckpoint:
    """Read the side file of a run file.

    Raises a UserError if it is missing or damaged.
    """
    path = checkpoint_of(run)
    if not untrusted_hdf5.is_file(path):
        raise UserError(f"{run} has no side file {path}")
    return _read(path)


def _read(path: Path) -> SideCheckpoint:
    try:
        with open_regular(path) as file:
            if os.fstat(file.fileno()).st_size > MAX_BYTES + untrusted_hdf5.MAX_ATTRIBUTE_BYTES:
                raise ValueError("it is too large")
            data = file.read()
    except OSError as error:
        raise untrusted_hdf5.unreadable(path, error) from None
    try:
        slabs = safetensors.numpy.load(data)
        digest = slabs.pop(_DIGEST).tobytes()
        if xxhash.xxh3_128_digest(memoryview(data)[:-_DIGEST_BYTES]) != digest:
            raise ValueError("its content does not match its checksum")
        return _checked(parse_json(slabs.pop("about").tobytes()), slabs)
    except (*untrusted_hdf5.ERRORS, safetensors.SafetensorError) as error:
        raise UserError(f"{path} is not a valid side file: {first_line(error)}") from None


def _checked(about: Any, slabs: Mapping[str, NDArray[Any]]) -> SideCheckpoint:
    """Return the content of a side file if it is consistent; else raise one of `ERRORS`."""
    kind, version = about["format"], about["format_version"]
    if (kind, version) != (SIDE_FORMAT, SIDE_VERSION):
        raise ValueError(f"its format is {kind!r}, version {version!r}")
    attributes = {
        name: np.array(value, dtype=np.float64) if isinstance(value, list) else value
        for name, value in about["attributes"].items()
    }
    versions = (WITHOUT_CHECKSUMS, FORMAT_VERSION)
    if attributes["format"] != FORMAT or attributes["format_version"] not in versions:
        raise ValueError("its run file has another format version")
    if not all(isinstance(value, str | int | float | np.ndarray) for value in attributes.values()):
        raise ValueError("it has attributes that no run file has")
    if not isinstance(attributes["config"], str):
        raise ValueError("it holds no input")
    shapes = {**about["geometry"]}
    observables = tuple(map(str, shapes.pop("observables", ())))
    numbers = {**shapes, **{n: about[n] for n in ("n_bytes", "rounds", "burn_in")}}
    if not all(isinstance(n, int) and 0 <= n < 1 << 60 for n in numbers.values()):
        raise ValueError("it has numbers out of range")
    g = Geometry(**shapes, observables=observables)
    g.check()
    places = {
        name: Place(int(p["offset"]), tuple(map(int, p["shape"])), str(p["dtype"]))
        for name, p in about["places"].items()
    }
    for name, field in layout(g).items():
        if (places[name].shape, places[name].dtype) != (field.shape, np.dtype(field.dtype).str):
            raise ValueError(f"dataset {name} has the wrong shape or type")
        n_bytes = math.prod(field.shape) * np.dtype(field.dtype).itemsize
        if not 0 <= places[name].offset <= about["n_bytes"] - n_bytes:
            raise ValueError(f"dataset {name} lies outside the file")
    found = SideCheckpoint(
        attributes, g, places, about["n_bytes"], about["rounds"], about["burn_in"], slabs
    )
    burn_in = found.burn_in_planned
    if found.rounds > g.rounds or found.burn_in > burn_in:
        raise ValueError("its counters are out of range")
    if found.rounds and found.burn_in < burn_in:
        raise ValueError("its counters contradict each other")
    if (found.rounds or found.burn_in) and not found.has_state:
        raise ValueError("it holds no walkers")
    for name, field in fields_of(g, ALWAYS + IN_TURN if found.has_state else ALWAYS).items():
        shape = field.shape if field.per in ALWAYS else field.shape[1:]
        if slabs[name].shape != shape or slabs[name].dtype != field.dtype:
            raise ValueError(f"its {name} has the wrong shape or type")
    return found


class SideWriter:
    """Keeps the side file of a run; all ranks construct it together, when the run file is ready.

    A copy is made at the start, after burn-in and after the last round. In between, copies take at
    most `SHARE` of the time. If a copy cannot be written, a warning is logged.
    """

    def __init__(self, run: Path, world: World) -> None:
        self._path, self._world = checkpoint_of(run), world
        self._next, self._fine = 0.0, True  # when the next is due; whether the last was written
        self._side: SideCheckpoint | None = None  # on rank 0

        def first() -> None:
            with open_run(run, tried=True) as reader:
                self._side = of_run(reader)
            self._write(self._side, time.monotonic())

        world.on_rank_0(first)

    def after_commit(
        self, round_: int, values: Mapping[str, NDArray[Any]], rungs: range, g: Geometry
    ) -> None:
        """Copy a round that was just committed, if a copy is due (all ranks call this).

        values : this rank's slabs of the round; empty if it writes no rung
        """
        # The last burn-in round is always copied: no later round stores the results of burn-in.
        due = round_ in (-1, g.rounds - 1) or time.monotonic() >= self._next
        if not self._world.max(np.array([due and self._world.rank == 0], dtype=np.int64))[0]:
            return
        begin, slabs = time.monotonic(), {}
        fields = fields_of(g, ("burn-in", *IN_TURN) if round_ < 0 else IN_TURN)
        values = checksums.with_sums(fields, round_, rungs, values)
        for name, field in fields.items():
            of_rungs = field.shape if field.per == "burn-in" else field.shape[1:]
            mine = values.get(name, np.empty((0, *of_rungs[1:])))
            parts = self._world.gather(np.ascontiguousarray(mine, dtype=field.dtype))
            if parts is not None:
                slabs[name] = parts[0] if len(parts) == 1 else np.concatenate(parts)
        if self._side is not None:
            self._side = _after(self._side, round_, slabs)
            self._write(self._side, begin)

    def _write(self, side: SideCheckpoint, begin: float) -> None:
        self._fine = keep(self._path, side, warn=self._fine)
        # the next round replaces all others, which may be large
        kept = {name: side.slabs[name] for name in fields_of(side.geometry, ALWAYS)}
        self._side = replace(side, slabs=kept)
        now = time.monotonic()
        self._next = now + max(EVERY, (now - begin) / SHARE)


def _after(side: SideCheckpoint, round_: int, slabs: Mapping[str, NDArray[Any]]) -> SideCheckpoint:
    """Return the side checkpoint after a round; burn-in rounds are negative."""
    burn_in = side.burn_in_planned
    return replace(
        side,
        rounds=max(round_ + 1, 0),
        burn_in=min(burn_in + round_ + 1, burn_in),
        slabs={**side.slabs, **slabs},
    )
