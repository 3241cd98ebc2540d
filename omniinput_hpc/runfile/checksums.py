"""Checksums of a run file: 64-bit xxh3 per dataset, round and rung.

Each rank hashes its data before it writes them, and commits the checksums with them. They do not
depend on the number of ranks. The seed encodes the dataset, the round (or block of rounds) and the
rung, so that bytes from another place do not match. The last axis runs over the datasets of the
kind, in alphabetical order:

    checksum/round           uint64 [R, K, n], datasets with one slab per round
    checksum/block           uint64 [N, K, n], datasets with one slab per block of rounds
    checksum/parity          uint64 [2, K, n], datasets with two slabs that are written in turn
    checksum/counted_parity  uint64 [2, K, n], the same, for counts and sums since burn-in
    checksum/burn_in         uint64 [K, n], datasets that are frozen after burn-in
    checksum/once            uint64 [n], datasets that are written at creation
    checksum/progress        uint64 [n, 2], the counters, in the order of `COUNTERS`: checksums of
                             the latest even value and of the latest odd value

HDF5 does not protect attributes or the offsets of datasets; the attributes ``checksum_attributes``
and ``checksum_datasets`` do.
"""

from __future__ import annotations

import time
from collections.abc import Container, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import xxhash
from numpy.typing import NDArray

from omniinput_hpc.runfile import untrusted_hdf5
from omniinput_hpc.runfile.fields import Field, entry_of, slab

COUNTERS = ("progress/rounds_committed", "progress/burn_in_committed")
PROGRESS = "checksum/progress"
BY_KIND = {
    "round": "checksum/round",
    "block": "checksum/block",
    "parity": "checksum/parity",
    "counted parity": "checksum/counted_parity",
    "burn-in": "checksum/burn_in",
    "once": "checksum/once",
}
"""The dataset of checksums for each kind of dataset (see `fields.Field.per`)."""
OF_DATASETS, OF_ATTRIBUTES = "checksum_datasets", "checksum_attributes"
MAX_ATTRIBUTES = 1000
ATTEMPTS, PAUSE = 50, 0.002
"""Attempts to read a counter and its checksum from a live run, and the seconds between attempts."""

Fields = Mapping[str, Field]
Sums = NDArray[np.uint64]


def fields_of(fields: Fields, n_rungs: int) -> dict[str, Field]:
    """Return the datasets that hold the checksums of some datasets."""
    found = {}
    for per, name in BY_KIND.items():
        names = columns(fields, per)
        first = {"once": (), "burn-in": (n_rungs,)}
        if names:
            like = fields[names[0]]
            shape = (*first.get(per, (like.shape[0], n_rungs)), len(names))
            found[name] = replace(like, shape=shape, dtype=np.uint64, over="rung")
    return found | {PROGRESS: Field((len(counters(fields)), 2), np.uint64, "once")}


def counters(fields: Container[str]) -> list[str]:
    """Return the counters among some datasets, in the order of `PROGRESS`."""
    return [name for name in COUNTERS if name in fields]


def columns(fields: Fields, per: str) -> list[str]:
    """Return the datasets of a kind that have checksums, in the order of the last axis."""
    return sorted(
        name
        for name, field in fields.items()
        if field.per == per and name not in COUNTERS and not name.startswith("checksum/")
    )


def of_slab(name: str, field: Field, round_: int, rungs: range, values: NDArray[Any]) -> Sums:
    """Return the checksum of each rung's part of a slab (see `fields.slab`), uint64 [rungs]."""
    values = np.ascontiguousarray(values, dtype=field.dtype)
    number = entry_of(field, round_) if field.per == "block" else round_
    if field.per == "burn-in":  # every burn-in round overwrites it
        number = 0
    if field.over == "bottom":
        parts = [values if k == 0 else values[:0] for k in rungs]
    else:  # there is one pair of neighbours fewer than rungs, so the last part may be empty
        parts = [values[i : i + 1] for i in range(len(rungs))]
    sums = [_digest(name, number, k, part) for k, part in zip(rungs, parts, strict=True)]
    return np.array(sums, dtype=np.uint64)


def with_sums(
    fields: Fields, round_: int, rungs: range, slabs: Mapping[str, NDArray[Any]]
) -> dict[str, NDArray[Any]]:
    """Return a rank's slabs of a round in the dtypes of the file, and the slabs of checksums."""
    found = {
        name: np.ascontiguousarray(slabs[name], dtype=field.dtype)
        for name, field in fields.items()
        if name in slabs and not name.startswith("checksum/")
    }
    for per, name in BY_KIND.items():
        if name not in fields:
            continue
        n_rungs = fields[name].shape[-2] if per != "once" else 0
        # In burn-in, only the side file gets them.
        in_side_file = per == "counted parity" and found.keys() >= {*columns(fields, per)}
        if in_side_file or slab(fields[name], round_, rungs, n_rungs) is not None:
            found[name] = np.stack(
                [of_slab(n, fields[n], round_, rungs, found[n]) for n in columns(fields, per)],
                axis=-1,
            )
    return found


def of_header(fields: Fields, values: Mapping[str, NDArray[Any]]) -> dict[str, Sums]:
    """Return the checksums in a new file, given the values of its datasets at creation."""
    found: dict[str, Sums] = {}
    if PROGRESS in fields:
        found[PROGRESS] = np.array([_of_last_values(n, 0) for n in counters(fields)], np.uint64)
    if values.keys() >= {*columns(fields, "once")} and (name := BY_KIND["once"]) in fields:
        sums = [of_whole(n, fields[n], values[n]) for n in columns(fields, "once")]
        found[name] = np.array(sums, dtype=np.uint64)
    if values.keys() >= {*columns(fields, "burn-in")} and (name := BY_KIND["burn-in"]) in fields:
        rungs = range(fields[name].shape[0])
        names = columns(fields, "burn-in")
        of_rungs = [of_slab(n, fields[n], 0, rungs, values[n]) for n in names]
        found[name] = np.stack(of_rungs, axis=-1)
    return found


def of_whole(name: str, field: Field, values: NDArray[Any]) -> int:
    """Return the checksum of a dataset that is written at creation."""
    return _digest(name, 0, 0, np.ascontiguousarray(values, dtype=field.dtype))


def of_counter(name: str, value: int) -> int:
    """Return the checksum of a counter's value."""
    return _digest(name, 0, 0, np.array([value], dtype=np.int64))


def _of_last_values(name: str, value: int) -> list[int]:
    """Return the checksums of a counter's value and of the previous value, even value first."""
    return [of_counter(name, value - (value - parity) % 2) for parity in range(2)]


def put_counter(datasets: Mapping[str, Any], name: str, value: int) -> None:
    """Set a counter to the next value, and then write its checksum.

    The checksum of the previous value stays, so that a half-written checksum does no harm.
    """
    datasets[name][0] = value
    if PROGRESS in datasets:
        row = counters(datasets).index(name)
        datasets[PROGRESS][row, value % 2] = of_counter(name, value)


def set_counter(file: h5py.File, name: str, value: int) -> None:
    """Write a counter and both its checksums, whatever its previous value."""
    file[name][0] = value
    if PROGRESS in file:
        file[PROGRESS][counters(file).index(name)] = _of_last_values(name, value)


def counter(file: h5py.File, name: str) -> tuple[int, bool]:
    """Return a counter of committed rounds, and whether it matches its checksum.

    The run may be live. It writes the counter after the data, and then the checksum. A run that
    was killed between the two has committed the round.
    """
    value = int(file[name][0])
    if PROGRESS not in file:
        return value, True
    row = counters(file).index(name)
    for _ in range(ATTEMPTS):
        value, found = int(file[name][0]), file[PROGRESS][row].tolist()
        for fitting in (value + 1, value):
            if found[fitting % 2] == of_counter(name, fitting):
                return fitting, True
        if found[(value - 1) % 2] == of_counter(name, value - 1):
            return value, True
        time.sleep(PAUSE)
    return value, False


def settle(file: h5py.File) -> bool:
    """Make counters and checksums agree after a kill between their writes.

    Return whether they disagreed. A file that is open only for reading is not changed, and neither
    is a counter that no checksum matches.
    """
    if PROGRESS not in file:
        return False
    unsettled = False
    for row, name in enumerate(counters(file)):
        value, fits = counter(file, name)
        stored = int(file[name][0]), file[PROGRESS][row].tolist()
        if fits and stored != (value, _of_last_values(name, value)):
            unsettled = True
            if file.mode == "r+":
                set_counter(file, name, value)
    return unsettled


def settle_file(path: Path) -> None:
    """Settle the counters of a run file that no other process is writing."""
    with h5py.File(path, "r", locking=False) as file:
        unsettled = settle(file)
    if unsettled:
        with h5py.File(path, "r+", locking=False) as file:
            settle(file)


def of_attributes(file: h5py.File, fields: Fields, attributes: Mapping[str, Any]) -> dict[str, str]:
    """Return the attributes that hold the checksums of attributes and of datasets' places."""
    if PROGRESS not in fields:
        return {}
    of_datasets = _of_places(file, fields)
    return {
        OF_DATASETS: of_datasets,
        OF_ATTRIBUTES: _of_attributes({**attributes, OF_DATASETS: of_datasets}),
    }


def wrong_attributes(file: h5py.File, fields: Fields) -> Iterator[str]:
    """Yield which of a file's attributes and layout do not match their checksum."""
    if len(file.attrs) > MAX_ATTRIBUTES:
        raise ValueError("it has too many attributes")
    stored = {name: untrusted_hdf5.attribute(file, name) for name in file.attrs}
    if stored.get(OF_ATTRIBUTES) != _of_attributes(stored):
        yield "the set of its attributes (the stored input, the model's fingerprint and others)"
    if stored.get(OF_DATASETS) != _of_places(file, fields):
        yield "the list of its datasets (their names, shapes, types and places in the file)"


def _of_attributes(attributes: Mapping[str, Any]) -> str:
    hashed = xxhash.xxh3_64()
    for name in sorted(set(attributes) - {OF_ATTRIBUTES}):
        value = attributes[name]
        if not isinstance(value, str):
            value = np.asarray(value)
            value = value.dtype.str, value.shape, value.tobytes()
        hashed.update(f"{name} = {value!r}\n".encode())
    return hashed.hexdigest()


def _of_places(file: h5py.File, fields: Fields) -> str:
    """Return the checksum of the names, shapes, types and offsets of datasets."""
    places = []
    for name in sorted(fields):
        dataset = file[name]
        kind = dataset.id.get_type().encode()
        places.append((name, dataset.shape, kind, dataset.id.get_offset() if dataset.size else 0))
    return xxhash.xxh3_64_hexdigest(repr(places).encode())


def _digest(name: str, round_: int, rung: int, values: NDArray[Any]) -> int:
    seed = xxhash.xxh3_64_intdigest(f"{name} {round_} {rung}".encode())
    return xxhash.xxh3_64_intdigest(values.data, seed)
