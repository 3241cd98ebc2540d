"""The file of a census, RUN.census.h5: the inputs found so far and the prefixes still open.

Every commit replaces the whole file by a rename, so that a kill leaves the last commit.

    attrs              format = "omniinput-census", format_version, config (TOML),
                       model_fingerprint, package_version, created; the numbers in `NUMBERS`;
                       checksum: xxh3_128 of all of these and of the datasets
    found/x            [n, D], smallest unsigned integer that holds n_values; found/z float32 [n]
    counts/inputs      int64 [B + 2], inputs found per bin, then below and above the bins
    bins/edges         float64 [B + 1]
    open/x             [k, D], prefixes not evaluated yet, padded with 0
    open/depth         int64 [k], their lengths; open/loss float64 [k], sums of -l over their sites
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import xxhash
from numpy.typing import NDArray

from omniinput_hpc.errors import UserError
from omniinput_hpc.histogram import MAX_BINS
from omniinput_hpc.runfile import untrusted_hdf5
from omniinput_hpc.runfile.layout import making

FORMAT, FORMAT_VERSION = "omniinput-census", 1
TEXTS = ("config", "model_fingerprint", "package_version", "created")
NUMBERS = (
    "n_sites", "n_values",
    "below",  # the requested Z; NaN: none
    "margin",  # of z, for rounding
    "complete_below",  # all inputs with z up to this have been found
    "least_unlisted",  # the lowest z of an input that was counted but is not listed
    "lost_mass",  # mass of the pruned prefixes and of evaluated inputs above Z (see `Frontier`)
    "least_lost",  # the smallest loss of the pruned prefixes
    "n_evaluated",  # prefixes evaluated
    "apart",  # the largest difference between loss / m and z of an input
    "seconds",  # run time so far
)  # fmt: skip
ARRAYS: dict[str, Any] = {
    "found/x": "u", "found/z": np.float32, "counts/inputs": np.int64, "bins/edges": np.float64,
    "open/x": "u", "open/depth": np.int64, "open/loss": np.float64,
}  # fmt: skip


@dataclass(frozen=True)
class StoredCensus:
    """The content of the file: texts, numbers and arrays by name (see the module)."""

    texts: Mapping[str, str]
    numbers: Mapping[str, float]
    arrays: Mapping[str, NDArray[Any]]

    def checksum(self) -> str:
        """Return the xxh3_128 of all content, in hexadecimal."""
        digest = xxhash.xxh3_128()
        for name in TEXTS:
            digest.update(f"{name}={self.texts[name]};".encode())
        for name in NUMBERS:
            digest.update(f"{name}={float(self.numbers[name])!r};".encode())
        for name in ARRAYS:
            array = self.arrays[name]
            digest.update(f"{name}={array.shape}{array.dtype.str};".encode())
            digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
        return digest.hexdigest()


def path_of(run_path: Path) -> Path:
    """Return the path of a run's census: ``runs/a.h5`` gives ``runs/a.census.h5``."""
    return run_path.with_name(f"{run_path.stem}.census.h5")


def write(path: Path, census: StoredCensus) -> None:
    """Write a census, all or nothing. Raise a `UserError` if it cannot be written."""
    try:
        with making(path) as file:
            for name, array in census.arrays.items():
                file.create_dataset(name, data=array, track_times=False)
            header = {"format": FORMAT, "format_version": FORMAT_VERSION}
            numbers = {name: float(census.numbers[name]) for name in NUMBERS}
            checksum = {"checksum": census.checksum()}
            for name, value in {**header, **census.texts, **numbers, **checksum}.items():
                file.attrs[name] = value
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error.strerror or error}") from None


def read(path: Path) -> StoredCensus:
    """Read a census.

    Raises
    ------
    UserError
        The file is missing, damaged or not a census.
    """
    with _CensusFile(path) as file:
        return file.content()


class _CensusFile(untrusted_hdf5.UntrustedFile):
    """The opened file; `content` reads its datasets."""

    NAME = "census"

    def _read_header(self) -> None:
        file = self._file
        untrusted_hdf5.require(file, FORMAT, (FORMAT_VERSION,), "a census")
        self._texts = {name: untrusted_hdf5.text(file, name) for name in TEXTS}
        self._numbers = {name: float(untrusted_hdf5.attribute(file, name)) for name in NUMBERS}
        self._checksum = untrusted_hdf5.text(file, "checksum")
        self._datasets = {name: untrusted_hdf5.dataset(file, name) for name in ARRAYS}
        d = {name: found.shape for name, found in self._datasets.items()}
        n, k = len(self._datasets["found/z"]), len(self._datasets["open/loss"])
        n_sites, n_values = (int(self._numbers[name]) for name in ("n_sites", "n_values"))
        n_bins = len(self._datasets["bins/edges"]) - 1
        right = {
            "found/x": (n, n_sites), "found/z": (n,), "counts/inputs": (n_bins + 2,),
            "bins/edges": (n_bins + 1,), "open/x": (k, n_sites), "open/depth": (k,),
            "open/loss": (k,),
        }  # fmt: skip
        if d != right or n_sites < 1 or n_values < 1 or not 1 <= n_bins <= MAX_BINS:
            raise ValueError("a dataset has the wrong shape")
        for name, dataset in self._datasets.items():
            kind = np.min_scalar_type(n_values - 1) if ARRAYS[name] == "u" else ARRAYS[name]
            if dataset.dtype != np.dtype(kind):
                raise ValueError(f"dataset {name} has the wrong type")

    def content(self) -> StoredCensus:
        """Return the checked content."""
        with self._damage_as_user_error():
            arrays = {name: np.asarray(found[...]) for name, found in self._datasets.items()}
            found = StoredCensus(self._texts, self._numbers, arrays)
            if found.checksum() != self._checksum:
                raise ValueError("its content does not match its checksum")
            _check_possible(found)
        return found


def _check_possible(census: StoredCensus) -> None:
    """Raise a ValueError for values that no census writes."""
    a, numbers = census.arrays, census.numbers
    depth, n_values = a["open/depth"], int(numbers["n_values"])
    possible = (
        np.isfinite(a["found/z"]).all()
        and np.isfinite(a["open/loss"]).all()
        and ((depth >= 0) & (depth <= int(numbers["n_sites"]))).all()
        and all((a[name] < n_values).all() for name in ("found/x", "open/x"))
        and (a["counts/inputs"] >= 0).all()
    )
    if not possible:
        raise ValueError("it holds values that no census writes")
