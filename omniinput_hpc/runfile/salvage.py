"""Salvaging a run file whose HDF5 metadata is damaged, with the offsets in its side file.

The old file is read without HDF5: its datasets are contiguous, and `side_checkpoint` stores their
offsets. The data go into a new run file, in the state after the last round of the old file or in
the state of the side file. The caller checks whether the new file is complete.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from omniinput_hpc.errors import UserError
from omniinput_hpc.runfile import checksums, side_checkpoint, untrusted_hdf5
from omniinput_hpc.runfile.fields import ends_block, entry_of
from omniinput_hpc.runfile.layout import layout, make_datasets, making, put_attributes
from omniinput_hpc.runfile.side_checkpoint import ALWAYS, IN_TURN, fields_of
from omniinput_hpc.text import first_line, sync
from omniinput_hpc.untrusted.files import open_regular


@dataclass(frozen=True)
class CommittedState:
    """A round after which the walkers are known."""

    rounds: int  # committed rounds that are kept
    burn_in: int  # committed burn-in rounds
    of_side: bool  # whether the walkers come from the side file, not from the old file


class OldFile:
    """The bytes of a run file, by dataset, as a context manager.

    Raises a UserError if the file is missing or unreadable, has no complete side file, or is longer
    than its side file states.

    Attributes
    ----------
    side : the content of the side file
    claimed : int, committed rounds: by the old file's counter if plausible, else by the side file
    rounds, burn_in : int, committed rounds that can be read (see `go_back`)
    unreadable : the first claimed data that cannot be read; "" if all can be read
    """

    def __init__(self, path: Path) -> None:
        if not untrusted_hdf5.is_file(path):
            raise UserError(f"{path}: no such run file")
        self.path, self.side = path, side_checkpoint.read(path)
        self.burn_in_planned = self.side.burn_in_planned
        self.unreadable = ""
        with ExitStack() as undo:
            try:
                file = undo.enter_context(open_regular(path))
                self._size = os.fstat(file.fileno()).st_size
            except OSError as error:
                raise untrusted_hdf5.unreadable(path, error) from None
            self._descriptor = file.fileno()
            if self._size > self.side.n_bytes:
                raise UserError(
                    f"{path} is longer than the run file that its side file describes; they do "
                    "not belong together"
                )
            self.rounds, self.burn_in = self._counters()
            self.claimed = self.rounds
            self._close = undo.pop_all().close

    def __enter__(self) -> OldFile:
        return self

    def __exit__(self, *exception: object) -> None:
        self._close()

    def read(self, name: str, index: int | None = None) -> NDArray[Any] | None:
        """Return a dataset or one entry of its first axis; None if the bytes cannot be read."""
        place = self.side.places[name]
        shape, kind = place.shape if index is None else place.shape[1:], np.dtype(place.dtype)
        n_bytes = math.prod(shape) * kind.itemsize
        offset = place.offset + (index or 0) * n_bytes
        if offset + n_bytes > self._size:
            return None
        data = bytearray()
        while len(data) < n_bytes:
            try:
                part = os.pread(self._descriptor, n_bytes - len(data), offset + len(data))
            except OSError:  # a bad sector
                return None
            if not part:
                return None
            data += part
        return np.frombuffer(data, dtype=kind).reshape(shape)

    def _counters(self) -> tuple[int, int]:
        """Return the committed rounds and burn-in rounds, at least those of the side file."""
        side = self.side
        names = [n for n in (*checksums.COUNTERS, checksums.PROGRESS) if n in side.places]
        stored = {name: self.read(name) for name in names}
        if any(values is None for values in stored.values()):
            return side.rounds, side.burn_in
        counted = [checksums.counter(stored, name) for name in checksums.COUNTERS]
        rounds, burn_in = (value for value, _ in counted)
        possible = all(fits for _, fits in counted)
        possible &= side.rounds <= rounds <= side.geometry.rounds
        possible &= side.burn_in <= burn_in <= self.burn_in_planned
        if possible and (rounds == 0 or burn_in == self.burn_in_planned):
            return rounds, burn_in
        return side.rounds, side.burn_in

    def go_back(self, name: str, round_: int) -> None:
        """Drop a round with an unreadable dataset, and all later rounds.

        Walkers are known only after the last two rounds and after the round of the side file, so
        this goes back by one round or to the side file. Raises a UserError if neither is possible.
        """
        what = f"{name} of round {round_} cannot be read"
        if round_ == self.claimed - 1 > self.side.rounds:
            self.rounds = round_
        elif round_ >= self.side.rounds and self.side.has_state:
            self.rounds, self.burn_in = self.side.rounds, self.side.burn_in
        else:
            raise UserError(
                f"{self.path}: {what}; the run cannot be resumed from the rest, so nothing was "
                "written"
            )
        self.unreadable = self.unreadable or what

    def states(self) -> list[CommittedState]:
        """Return the states from which a run may be resumed, newest first."""
        found = [CommittedState(self.rounds, self.burn_in, of_side=False)]
        if self.rounds > self.side.rounds:  # of two slabs, the other holds the previous round
            found.append(CommittedState(self.rounds - 1, self.burn_in, of_side=False))
        if self.side.has_state:
            found.append(CommittedState(self.side.rounds, self.side.burn_in, of_side=True))
        return found

    def check_identity(self, heartbeat: Callable[[], object]) -> None:
        """Raise a UserError if the side file belongs to another run.

        The walkers in their slots or the histogram must match the side file, after its last round.
        One match is enough, because the other data may be damaged. Walkers that never swap are in
        the same slots in every run: of these, the inputs must match.
        """
        if self.side.rounds == 0:
            return
        kept_kw, name = self.side.slabs["state/walker"], "exchange/walker"
        if np.array_equal(kept_kw.ravel(), np.arange(kept_kw.size)):
            kept_kw, name = self.side.slabs["state/x"], "samples/x"
        last = self.read(name, self.side.rounds - 1)
        if last is not None and np.array_equal(last[:, -kept_kw.shape[1] :], kept_kw):
            return
        if not self._has_histogram_of_side(heartbeat):
            raise UserError(
                f"{self.path} is not the run that its side file describes, or more than its "
                "metadata is damaged: nothing was written"
            )

    def _has_histogram_of_side(self, heartbeat: Callable[[], object]) -> bool:
        """Return whether the histograms of complete blocks fit the total in the side file."""
        per_block, total_kb = self.side.geometry.rounds_per_block, np.zeros(1, np.int64)
        n_blocks, n_further = divmod(self.side.rounds, per_block)
        for block in range(n_blocks):
            counts_kb = self.read("histogram/counts", block)
            if counts_kb is None:
                return False
            total_kb = total_kb + counts_kb.astype(np.int64)
            heartbeat()
        counted_kb = self.side.slabs["histogram/lane_counts"].sum(axis=1).astype(np.int64)
        if n_further:  # rounds whose block is not complete
            return n_blocks > 0 and bool((total_kb <= counted_kb).all())
        return np.array_equal(total_kb, counted_kb)


def write_new(old: OldFile, new: Path, heartbeat: Callable[[], object]) -> None:
    """Write a new run file with all rounds of an old one, in its newest state.

    See `OldFile.go_back` for rounds that cannot be read. `heartbeat` is called after every entry
    that is copied. Raises a UserError if no state is left to resume from, and an OSError if the new
    file cannot be written.
    """
    g = old.side.geometry
    with making(new) as file:
        make_datasets(file, layout(g))
        _put_attributes(file, old)
        for name, field in layout(g).items():
            if field.per not in ("round", "block") or not math.prod(field.shape):
                continue
            for round_ in range(old.rounds):
                if field.per == "block" and not ends_block(field, round_):
                    continue
                entry = entry_of(field, round_)
                values = old.read(name, entry)
                if values is None:
                    old.go_back(name, round_)
                    break
                file[name][entry] = values
                heartbeat()
        _put(file, old, old.states()[0])


def _put_attributes(file: h5py.File, old: OldFile) -> None:
    try:
        put_attributes(file, layout(old.side.geometry), old.side.attributes)
    except (TypeError, ValueError, OverflowError, RuntimeError) as error:
        raise UserError(
            f"{old.path}: its side file holds attributes that no run file has, so nothing was "
            f"written ({first_line(error)})"
        ) from None


def put_state(old: OldFile, new: Path, state: CommittedState) -> None:
    """Change the state of a new file (see `OldFile.states`)."""
    with h5py.File(new, "r+", locking=False) as file:
        _put(file, old, state)
    sync(new)


def _put(file: h5py.File, old: OldFile, state: CommittedState) -> None:
    side, g = old.side, old.side.geometry
    frozen = side.burn_in == old.burn_in_planned  # the side file then has all results of burn-in
    for name, field in fields_of(g, ALWAYS).items():
        stored = None if field.per == "once" or frozen or state.of_side else old.read(name)
        file[name][...] = side.slabs[name] if stored is None else stored
    last = state.rounds - 1 if state.rounds else state.burn_in - old.burn_in_planned - 1
    for name, field in fields_of(g, IN_TURN).items():
        if state.rounds == 0 and (state.burn_in == 0 or field.per == "counted parity"):
            continue
        for parity in range(2):
            from_side = state.of_side and parity == last % 2
            values = side.slabs[name] if from_side else old.read(name, parity)
            if values is not None:
                file[name][parity] = values
    for name, value in zip(checksums.COUNTERS, (state.rounds, state.burn_in), strict=True):
        checksums.set_counter(file, name, value)
