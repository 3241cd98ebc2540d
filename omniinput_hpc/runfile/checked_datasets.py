"""Reading datasets of a run file and checking their checksums and values."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from omniinput_hpc.errors import UserError
from omniinput_hpc.runfile import checksums, untrusted_hdf5
from omniinput_hpc.runfile.fields import Field, entry_of, slab
from omniinput_hpc.text import first_line

log = logging.getLogger("omniinput_hpc")

OnDamage = Callable[[Path, str], object]
"""Handles damage, given the file and a description: `refuse`, `refuse_impossible` or `warn`."""

ROUNDS_AT_ONCE = 256


class BrokenRun(UserError):
    """A damaged run file: part of it is missing, altered or impossible."""


class WrongChecksum(BrokenRun):
    """A run file with data that do not match their checksum."""

    can_be_read = True  # by scripts, on demand


class BeingWritten(UserError):
    """A run file that was overwritten while it was read."""


def refuse(path: Path, damage: str) -> None:
    """Raise a `WrongChecksum`."""
    raise WrongChecksum(f"{path} is damaged: {damage} (omniinput verify lists all damage)")


def refuse_impossible(path: Path, damage: str) -> None:
    """Raise a `BrokenRun`."""
    raise BrokenRun(f"{path} is damaged: {damage} (omniinput verify lists all damage)")


def warn(path: Path, damage: str) -> None:
    """Log a warning and let the reader continue."""
    log.warning("warning: %s is damaged: %s", path, damage)


def check_field(file: h5py.File, name: str, field: Field) -> None:
    """Raise a ValueError unless a dataset has the shape and type of its field."""
    found = untrusted_hdf5.dataset(file, name)
    if found.shape != field.shape or found.dtype != field.dtype:
        raise ValueError(f"dataset {name} has the wrong shape or type")


class CheckedFile(untrusted_hdf5.UntrustedFile):
    """A file with checksums, opened for reading; the caller decides how damage is handled.

    Parameters
    ----------
    on_damage : called for data that do not match their checksum
    on_impossible : called for values that no run writes
    tried : see `UntrustedFile`
    live : whether another process may be writing the file; the reader then holds the data that are
        soon overwritten in memory, for all rungs
    """

    DAMAGED = BrokenRun

    def __init__(
        self,
        path: Path,
        on_damage: OnDamage = refuse,
        on_impossible: OnDamage = refuse_impossible,
        tried: bool = False,
        live: bool = True,
    ) -> None:
        self.live = live
        self.on_damage, self._on_impossible = on_damage, on_impossible
        super().__init__(path, tried)


class CheckedDatasets:
    """The datasets of an open run file.

    Parameters
    ----------
    file, path : the open file
    fields : all its datasets by name, including those of checksums, if any
    n_rungs : int
    possible : by dataset, a check that yields descriptions of values that no run writes
    on_damage, on_impossible : called if a checksum or such a check fails
    """

    def __init__(
        self,
        file: h5py.File,
        path: Path,
        fields: Mapping[str, Field],
        n_rungs: int,
        possible: Mapping[str, Callable[[NDArray[Any]], Iterator[str]]],
        on_damage: OnDamage,
        on_impossible: OnDamage,
    ) -> None:
        self._file, self._path, self._fields, self._n_rungs = file, path, fields, n_rungs
        self._possible, self._on_damage, self._on_impossible = possible, on_damage, on_impossible
        self._progress = self._counters()
        self._sums: tuple[tuple[str, int], checksums.Sums | None] | None = None  # read last
        self._held: dict[tuple[str, int], NDArray[Any]] = {}
        self._reported: set[str] = set()

    def names(self, per: str) -> list[str]:
        """Return the datasets of a kind (see `fields.Field.per`) that have checksums."""
        return checksums.columns(self._fields, per)

    def hold(self, round_: int) -> bool:
        """Read the counts and sums since burn-in now, because a live run soon overwrites them.

        They are checked later, by `slab`. Return whether all of them belong to that round.
        """
        for name in [*self.names("counted parity"), checksums.BY_KIND["counted parity"]]:
            if name in self._fields:
                self._held[name, round_] = self._file[name][round_ % 2]
        return self._counters() == self._progress

    def slab(self, name: str, round_: int, rungs: range) -> NDArray[Any]:
        """Return the slab that some rungs wrote to a dataset in a round (see `fields.slab`)."""
        if (name, round_) in self._held:
            values = self._held[name, round_][rungs.start : rungs.stop]
        else:
            field = self._fields[name]
            where = slab(field, round_, rungs, self._n_rungs)  # None: a single rung has no pair
            values = self.read(name, where or (entry_of(field, round_), slice(0)))
        sums = self._sums_of(self._fields[name].per, round_)
        if sums is not None:
            self._compare(name, round_, rungs, values, sums[rungs.start : rungs.stop])
        self._check_possible(name, round_, values)
        return values

    def rounds(self, name: str, rounds: range, rungs: range) -> NDArray[Any]:
        """Return the data that some rungs wrote in some rounds; the first axis is the round."""
        field = self._fields[name]
        where = slab(field, 0, rungs, self._n_rungs)
        rest = where[1:] if where is not None else (slice(0),)
        values = self.read(name, (slice(rounds.start, rounds.stop), *rest))
        sums_name = checksums.BY_KIND[field.per]
        for begin in range(rounds.start, rounds.stop, ROUNDS_AT_ONCE):
            end = min(begin + ROUNDS_AT_ONCE, rounds.stop)
            some = values[begin - rounds.start : end - rounds.start]
            if sums_name in self._fields:
                sums_rkn = self.read(sums_name, slice(begin, end))
                for round_, one, sums in zip(range(begin, end), some, sums_rkn, strict=True):
                    self._compare(name, round_, rungs, one, sums[rungs.start : rungs.stop])
            self._check_possible(name, begin, some)
        return values

    def whole(self, name: str, frozen: bool = True) -> NDArray[Any]:
        """Return a whole dataset, written at creation or by burn-in; unchecked until `frozen`."""
        values, field = self.read(name, ...), self._fields[name]
        sums = self._sums_of(field.per, 0) if frozen else None
        if sums is not None and field.per == "once":
            if sums[self.names("once").index(name)] != checksums.of_whole(name, field, values):
                self._damaged(name)
        elif sums is not None:
            self._compare(name, None, range(self._n_rungs), values, sums)
        return values

    def read(self, name: str, where: Any) -> NDArray[Any]:
        """Return a part of a dataset, unchecked. Raise a `BrokenRun` if it cannot be read."""
        try:
            # opened anew each time: HDF5 keeps old bytes of a dataset that stays open
            return np.asarray(self._file[name][where])
        except (OSError, RuntimeError) as error:  # a bad sector, or a file cut short meanwhile
            raise BrokenRun(f"{self._path}: {name} cannot be read: {first_line(error)}") from None

    def report_impossible(self, words: str) -> None:
        """Report values that no run writes."""
        self._report(words, self._on_impossible)

    def report_damage(self, words: str) -> None:
        """Report data that do not match their checksum."""
        self._report(f"{words} does not match its checksum", self._on_damage)

    def _sums_of(self, per: str, round_: int) -> checksums.Sums | None:
        """Return a round's checksums for all datasets of a kind, uint64 [K, n]; [n] for "once"."""
        name = checksums.BY_KIND[per]
        if name not in self._fields:
            return None
        if (name, round_) in self._held:
            return self._held[name, round_]
        if self._sums is None or self._sums[0] != (per, round_):
            whole = per in ("once", "burn-in")
            where = ... if whole else entry_of(self._fields[name], round_)
            self._sums = (per, round_), self.read(name, where)
        return self._sums[1]

    def _compare(
        self, name: str, round_: int | None, rungs: range, values: NDArray[Any],
        sums_kn: checksums.Sums,
    ) -> None:  # fmt: skip
        field = self._fields[name]
        stored_k = sums_kn[:, self.names(field.per).index(name)]
        found_k = checksums.of_slab(name, field, round_ or 0, rungs, values)
        for i in np.flatnonzero(found_k != stored_k):
            if "parity" in field.per and self._counters() != self._progress:
                raise BeingWritten(
                    f"{self._path} was written to while it was being read: another job is sampling "
                    "into it"
                )
            self._damaged(name, round_, rungs[i])

    def _damaged(self, name: str, round_: int | None = None, rung: int | None = None) -> None:
        words, field = name, self._fields[name]
        if round_ is not None and field.per == "block":
            first = round_ - round_ % field.rounds_per_block
            words += f" of rounds {first} to {round_}"
        elif round_ is not None:
            words += f" of round {round_}" if round_ >= 0 else f" of burn-in round {round_}"
        over = field.over
        if rung is not None and over != "bottom":
            words += f", rung {rung}" if over == "rung" else f", rungs {rung} and {rung + 1}"
        self.report_damage(words)

    def _check_possible(self, name: str, first_round: int, values: NDArray[Any]) -> None:
        check = self._possible.get(name)
        if check is None or next(check(values), None) is None:
            return
        per_round = [values] if values.ndim < len(self._fields[name].shape) else values
        for round_, one in enumerate(per_round, start=first_round):
            for words in check(one):
                self.report_impossible(f"{name} of round {round_}: {words}")

    def _report(self, words: str, report: OnDamage) -> None:
        if words not in self._reported:
            self._reported.add(words)
            report(self._path, words)

    def _counters(self) -> list[int]:
        return [int(self.read(name, 0)) for name in checksums.counters(self._fields)]
