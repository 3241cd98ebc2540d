"""The layout of the run file, and creating and growing one (without MPI).

The run file is an HDF5 file of contiguous datasets with fixed shapes, allocated at creation. Rank 0
creates it as ``RUN.h5.partial``, syncs it to the disk and renames it. After that only raw data are
written (see `writers`), so that a kill at any instant leaves a readable file.
"""

from __future__ import annotations

import io
import math
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from omniinput_hpc.config.observables import NAME_FORM
from omniinput_hpc.histogram import MAX_BINS, MAX_GROUPS
from omniinput_hpc.runfile import checksums
from omniinput_hpc.runfile.fields import Field as Field
from omniinput_hpc.runfile.fields import shape_of as shape_of
from omniinput_hpc.runfile.fields import slab as slab
from omniinput_hpc.text import sync

FORMAT = "omniinput-run"
FORMAT_VERSION = 3
WITHOUT_CHECKSUMS = 2
"""The version of files without checksums, which are still read and resumed."""

Attribute = str | int | float | NDArray[Any]
ROUNDS_PER_BLOCK = "rounds_per_block"
"""The attribute with the number of rounds that share a histogram; 1 if it is missing."""
N_LEARNING = 6
"""Numbers in the learning state of a flat-histogram rung (`kernels.wang_landau.LearningState`)."""


@dataclass(frozen=True)
class Geometry:
    """The numbers that fix the shape of every dataset."""

    rounds: int
    n_rungs: int
    n_walkers: int
    n_bins: int
    samples_per_round: int
    n_sites: int
    n_values: int
    n_kernels: int
    n_tuned: int = 0  # numbers that a rung's kernel tunes
    flat: bool = False  # whether there are flat-histogram rungs
    log_q: bool = False  # whether samples store their log-probability under every rung (ancestral)
    annealed: bool = False  # with log_q: one number per sample instead (populations)
    checksums: bool = False  # False only for files of older versions
    rounds_per_block: int = 1  # rounds that share a histogram
    curved: bool = False  # whether burn-in tunes kappa and z0 of Gaussian rungs
    headed: bool = False  # whether walkers keep the direction that Wang-Landau proposes
    observables: tuple[str, ...] = ()  # names of numbers that samples have besides z
    n_ids: int = 0  # the number of the model's ids, if sites take only some of them; else 0

    @property
    def x_dtype(self) -> np.dtype[Any]:
        """The smallest unsigned integer type that holds the model's ids."""
        return np.min_scalar_type(max(self.n_values, self.n_ids) - 1)

    @property
    def n_log_q(self) -> int:
        """The number of log-probabilities per sample."""
        return 0 if not self.log_q else 1 if self.annealed else self.n_rungs

    def check(self) -> None:
        """Raise a ValueError if no run file can have these numbers."""
        if self.n_bins > MAX_BINS:
            raise ValueError(f"{self.n_bins:.3g} bins are too many")
        if min(self.rounds, self.n_rungs, self.n_walkers, self.n_bins, self.n_kernels) < 1:
            raise ValueError("it has no rounds, rungs, walkers, bins or kernels")
        if self.samples_per_round % self.n_walkers:
            raise ValueError("its number of samples is not a multiple of its number of walkers")
        if not 1 <= self.rounds_per_block <= self.rounds:
            raise ValueError("its number of rounds per histogram is out of range")
        if not all(NAME_FORM.fullmatch(name) for name in self.observables):
            raise ValueError("its observables have names that no run gives")
        if self.n_ids and self.n_ids < self.n_values:
            raise ValueError("its sites take more values than the model has")


def dataset_of(observable: str) -> str:
    """Return the dataset with an observable of the samples."""
    return f"observables/{observable}"


def layout(g: Geometry) -> dict[str, Field]:
    """Return every dataset of a run file, by name."""
    r, k, w, b, s = g.rounds, g.n_rungs, g.n_walkers, g.n_bins, g.samples_per_round
    groups, learnt = min(MAX_GROUPS, w), b + 2 if g.flat else 0
    counts = Field((r, k, b), np.uint32, "round")
    if g.rounds_per_block > 1:
        blocks = replace(counts, per="block", rounds_per_block=g.rounds_per_block, rounds=r)
        counts = replace(blocks, shape=(-(-r // g.rounds_per_block), k, b))
    fields = {
        "ladder/beta": Field((k,), np.float64, "burn-in"),
        "ladder/rejection": Field((k - 1,), np.float64, "burn-in", "pair"),
        "ladder/z_std": Field((k,), np.float64, "burn-in"),
        "ensemble/log_weight": Field((k, b), np.float64, "burn-in"),
        "ensemble/kappa": Field((k,), np.float64, "burn-in" if g.curved else "once"),
        "ensemble/z0": Field((k,), np.float64, "burn-in" if g.curved else "once"),
        "bins/edges": Field((b + 1,), np.float64, "once"),
        "histogram/counts": counts,
        "histogram/outside": Field((r, k, 2), np.uint32, "round"),
        "histogram/lane_counts": Field((2, k, groups, b), np.uint64, "counted parity"),
        "histogram/z_sum": Field((2, k, b), np.float64, "counted parity"),
        "samples/x": Field((r, k, s, g.n_sites), g.x_dtype, "round"),
        "samples/z": Field((r, k, s), np.float32, "round"),
        "samples/walker": Field((r, k, s), np.int32, "round"),
        "exchange/attempted": Field((r, k - 1), np.int64, "round", "pair"),
        "exchange/accepted": Field((r, k - 1), np.int64, "round", "pair"),
        "exchange/walker": Field((r, k, w), np.int32, "round"),
        "exchange/round_trips": Field((r, w * k), np.int64, "round", "bottom"),
        "kernel/attempted": Field((r, k, g.n_kernels), np.int64, "round"),
        "kernel/accepted": Field((r, k, g.n_kernels), np.int64, "round"),
        "state/x": Field((2, k, w, g.n_sites), g.x_dtype, "parity"),
        "state/z": Field((2, k, w), np.float32, "parity"),
        "state/walker": Field((2, k, w), np.int32, "parity"),
        "state/direction": Field((2, k, w), np.int8, "parity"),
        "state/beta": Field((2, k), np.float64, "parity"),
        "state/swaps": Field((2, k - 1, 2), np.int64, "parity", "pair"),
        "state/kernel": Field((2, k, g.n_tuned), np.float64, "parity"),
        "state/entropy": Field((2, k, learnt), np.float64, "parity"),
        "state/visits": Field((2, k, learnt), np.float64, "parity"),
        "state/learning": Field((2, k, N_LEARNING), np.float64, "parity"),
        "progress/rounds_committed": Field((1,), np.int64, "once"),
        "progress/burn_in_committed": Field((1,), np.int64, "once"),
    }
    if g.n_ids:
        fields["space/allowed"] = Field((g.n_values,), g.x_dtype, "once")
    if g.curved:
        fields["state/gaussian"] = Field((2, k, 2), np.float64, "parity")
    if g.headed:
        fields["state/heading"] = Field((2, k, w), np.int8, "parity")
    if g.log_q:
        fields["samples/log_q"] = Field((r, k, s, g.n_log_q), np.float64, "round")
    fields |= {dataset_of(one): Field((r, k, s), np.float64, "round") for one in g.observables}
    if not g.checksums:
        return fields
    # The state comes last: the side file has a copy of it, so a file cut off there can be salvaged.
    before = {n: field for n, field in fields.items() if not n.startswith(("state/", "progress/"))}
    return before | checksums.fields_of(fields, k) | fields


def size_of_groups(g: Geometry) -> dict[str, int]:
    """Return the bytes of each group of datasets of a run file ("samples", "histogram", ...)."""
    sizes: dict[str, int] = {}
    for name, field in layout(g).items():
        group = name.partition("/")[0]
        n_bytes = math.prod(field.shape) * np.dtype(field.dtype).itemsize
        sizes[group] = sizes.get(group, 0) + n_bytes
    return sizes


def size_in_bytes(g: Geometry) -> int:
    """Return the size of a run file's data."""
    return sum(size_of_groups(g).values())


def create(
    path: Path,
    g: Geometry,
    first: Mapping[str, NDArray[Any]],
    attributes: Mapping[str, Attribute],
) -> None:
    """Make a run file without any round (see `make_file`), given its `first_values`."""
    version = FORMAT_VERSION if g.checksums else WITHOUT_CHECKSUMS
    header: dict[str, Attribute] = {"format": FORMAT, "format_version": version}
    header |= {"n_values": g.n_values, "n_sites": g.n_sites}
    header |= {"n_ids": g.n_ids} if g.n_ids else {}
    header |= {ROUNDS_PER_BLOCK: g.rounds_per_block, **attributes}
    make_file(path, layout(g), first, header)


def make_file(
    path: Path,
    fields: Mapping[str, Field],
    first: Mapping[str, NDArray[Any]],
    attributes: Mapping[str, Attribute],
) -> None:
    """Make a file without any round; the name appears only when the file is complete and on disk.

    Raises an OSError if the disk is read-only, full, or out of quota.
    """
    counters = {name: np.zeros(1, np.int64) for name in fields if name in checksums.COUNTERS}
    values = {**first, **counters, **checksums.of_header(fields, first)}
    with making(path) as file:
        make_datasets(file, fields)
        for name, value in values.items():
            file[name][...] = value
        created = time.strftime("%Y-%m-%dT%H:%M:%S%z")
        put_attributes(file, fields, {**attributes, "created": created})


def put_attributes(
    file: h5py.File, fields: Mapping[str, Field], attributes: Mapping[str, Attribute]
) -> None:
    """Store attributes in a new file, with checksums of them and of the datasets' places."""
    for name, value in {**attributes, **checksums.of_attributes(file, fields, attributes)}.items():
        file.attrs[name] = value


def grow_file(
    path: Path,
    fields: Mapping[str, Field],
    attributes: Mapping[str, Attribute],
    heartbeat: Callable[[], object] = lambda: None,
) -> None:
    """Replace a file by a longer one with the same content, except for the given attributes.

    `heartbeat` is called after every entry that is copied, because large files take minutes.
    """
    with h5py.File(path, "r", locking=False) as old, making(path) as new:
        make_datasets(new, fields)
        put_attributes(new, fields, {**old.attrs, **attributes})
        committed, _ = checksums.counter(old, "progress/rounds_committed")
        for name, field in fields.items():
            if field.per in ("round", "block"):
                for entry in range(-(-committed // field.rounds_per_block)):
                    new[name][entry] = old[name][entry]
                    heartbeat()
            else:
                new[name][...] = old[name][...]
        checksums.settle(new)


def grow(
    path: Path, g: Geometry, config_toml: str, heartbeat: Callable[[], object] = lambda: None
) -> None:
    """Replace a run file by a longer one (`g.rounds` rounds) with the same content."""
    grow_file(path, layout(g), {"config": config_toml}, heartbeat)


def partial_of(path: Path) -> Path:
    """Return the name of a file until it is complete, in the folder of a link's target."""
    target = target_of(path)
    return target.with_name(target.name + ".partial")


def target_of(path: Path) -> Path:
    """Return the file that a path leads to; symbolic links, even dangling ones, are followed."""
    return Path(os.path.realpath(path))


def checkpoint_of(path: Path) -> Path:
    """Return the path of the side file, next to the run file itself, not to a symbolic link."""
    target = target_of(path)
    return target.with_name(target.name + ".checkpoint")


def first_values(
    beta_k: NDArray[np.float64],
    edges: NDArray[np.float64],
    log_weight_kb: NDArray[np.float64] | None = None,
    kappa_k: NDArray[np.float64] | None = None,
    z0_k: NDArray[np.float64] | None = None,
) -> dict[str, NDArray[np.float64]]:
    """Return the values in a new run file; those that burn-in measures are NaN until then.

    Without the last three arguments, all rungs are canonical.
    """
    n_rungs, zero_k = len(beta_k), np.zeros(len(beta_k))
    if log_weight_kb is None:
        log_weight_kb = -beta_k[:, None] * (0.5 * (edges[:-1] + edges[1:]))
    return {
        "ladder/beta": beta_k,
        "ladder/rejection": np.full(n_rungs - 1, np.nan),
        "ladder/z_std": np.full(n_rungs, np.nan),
        "bins/edges": edges,
        "ensemble/log_weight": log_weight_kb,
        "ensemble/kappa": zero_k if kappa_k is None else kappa_k,
        "ensemble/z0": zero_k if z0_k is None else z0_k,
    }


def make_datasets(file: h5py.File, fields: Mapping[str, Field]) -> None:
    """Make datasets that are contiguous, allocated now, and without a fill value."""
    for name, field in fields.items():
        creation = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        creation.set_layout(h5py.h5d.CONTIGUOUS)
        creation.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
        creation.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
        creation.set_obj_track_times(False)
        group, _, leaf = name.rpartition("/")
        parent = file.require_group(group)
        space = h5py.h5s.create_simple(field.shape)
        kind = h5py.h5t.py_create(np.dtype(field.dtype))
        h5py.h5d.create(parent.id, leaf.encode(), kind, space, dcpl=creation)


class _Noted(io.FileIO):
    """A file for HDF5 to write to that records errors instead of raising them into HDF5.

    If a delayed write fails while an object is closed, h5py only prints the error, and closing the
    file may then crash the process.
    """

    error: OSError | None = None

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        size = len(view)
        while len(view) and self.error is None:
            try:
                view = view[super().write(view) or 0 :]
            except OSError as error:
                self.error = error
        return size

    def truncate(self, size: int | None = None) -> int:
        try:
            return super().truncate(size)
        except OSError as error:
            self.error = self.error or error
            return size or 0


@contextmanager
def making(path: Path) -> Iterator[h5py.File]:
    """Make an HDF5 file that gets its name only when it is complete and on disk.

    If the path is a symbolic link, the target is made. Raises an OSError if something could not
    be written; an existing file is then unchanged.
    """
    partial, target = partial_of(path), target_of(path)
    with _Noted(partial, "w+") as raw:
        try:
            with h5py.File(raw, "w") as file:
                yield file
        except Exception:  # if it follows a recorded error, the recorded one is raised below
            if raw.error is None:
                raise
    if raw.error is not None:
        partial.unlink(missing_ok=True)
        raise raw.error
    sync(partial)
    os.replace(partial, target)
    sync(target.parent)


def free_bytes(folder: Path) -> int:
    """Return the free space of the nearest existing folder."""
    while not os.path.exists(folder):
        folder = folder.parent
    return shutil.disk_usage(folder).free
