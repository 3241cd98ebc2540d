"""Recover the rounds of a damaged run file: ``omniinput salvage RUN.h5 NEW.h5``.

The side file RUN.h5.checkpoint helps to read the old file even if HDF5 can no longer open it; the
old file is not changed. NEW.h5 can be resumed like any run. It holds all rounds of the old file or,
if the last rounds or the walkers are damaged, the rounds up to the side file's checkpoint. Exit
codes: 0 if `omniinput verify` finds nothing wrong with NEW.h5; 1 if it does, with one line for each
finding; 2 if nothing was written.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from omniinput_hpc.cli.verify import show, verify_file
from omniinput_hpc.errors import EXIT_COMPLETE, EXIT_FAILURE, UserError
from omniinput_hpc.parallel.alone import Ranks
from omniinput_hpc.runfile import layout, lock, salvage, side_checkpoint, untrusted_hdf5
from omniinput_hpc.runfile.reader import open_run
from omniinput_hpc.text import amount, sync

SUFFIXES = (".h5", ".hdf5")


def run(world: Ranks, path: Path, new: Path) -> int:
    """Salvage a run file on rank 0, print the result, and return the exit code.

    Raises a UserError if nothing can be recovered or the new file cannot be written.
    """
    world.on_rank_0(lambda: _check_paths(path, new))
    with lock.hold(path, world, key="") as held, lock.hold(new, world, key="") as held_new:

        def heartbeat() -> None:
            held.heartbeat()
            held_new.heartbeat()

        def still_free() -> None:
            for one in (held, held_new):
                if not one.keep():
                    raise UserError(str(one.lost()))
            _check_paths(path, new)

        def bring_back() -> bool:
            _check_paths(path, new)  # again: another job may have made the file
            notes, findings = salvage_file(path, new, heartbeat, still_free)
            with open_run(new) as there:
                rounds = f"{there.rounds} of {there.rounds_planned} rounds"
            return show(notes, findings, f"{path} -> {new}: {rounds};")

        return EXIT_COMPLETE if world.on_rank_0(bring_back) else EXIT_FAILURE


def salvage_file(
    path: Path,
    new: Path,
    heartbeat: Callable[[], object] = lambda: None,
    before_naming: Callable[[], object] = lambda: None,
) -> tuple[list[str], list[str]]:
    """Salvage a run file; return notes, and what `omniinput verify` finds in the new one, as lines.

    `heartbeat` is called for each round that is copied or verified, `before_naming` just before the
    new file gets its name. Raises a UserError if nothing can be recovered.
    """
    candidate, notes = new.with_name(new.name + ".salvaged"), []
    try:
        with salvage.OldFile(path) as old:
            _check_room(old, new.parent)
            old.check_identity(heartbeat)
            salvage.write_new(old, candidate, heartbeat)
            states = old.states()
            found = [verify_file(candidate, heartbeat=heartbeat)[1]]
            while found[-1] and len(found) < len(states):
                salvage.put_state(old, candidate, states[len(found)])
                found.append(verify_file(candidate, heartbeat=heartbeat)[1])
            best = min(range(len(found)), key=lambda i: len(found[i]))  # the newest one of equals
            if best != len(found) - 1:
                salvage.put_state(old, candidate, states[best])
            if best > 0 or old.unreadable:
                notes.append(_dropped(old, states[best], found[0][0] if best > 0 else ""))
        _check_readable(path, candidate)
        before_naming()
        os.replace(candidate, new)
        sync(new.parent)
    except OSError as error:
        reason = error.strerror or str(error)
        raise UserError(f"{new} cannot be made: {reason}") from None
    finally:
        for left in (candidate, layout.partial_of(candidate)):
            left.unlink(missing_ok=True)
    with open_run(new) as there:
        side_checkpoint.keep(layout.checkpoint_of(new), side_checkpoint.of_run(there))
    return notes, found[best]


def _check_room(old: salvage.OldFile, folder: Path) -> None:
    needed, free = layout.size_in_bytes(old.side.geometry), layout.free_bytes(folder)
    if needed > free:
        raise UserError(
            f"{old.path}: a new file needs {amount(needed)}, but {folder} has {amount(free)} free"
        )


def _check_readable(path: Path, candidate: Path) -> None:
    try:
        open_run(candidate, tried=True).close()
    except UserError as error:
        raise UserError(
            f"{path}: its side file does not yield a run file; nothing was written ({error})"
        ) from None


def _dropped(old: salvage.OldFile, kept: salvage.CommittedState, finding: str) -> str:
    """Describe what the new file lacks and why; `finding` is the first one in the newest state."""
    what = "its walkers are those of the side file"
    if kept.rounds < old.claimed:
        what = f"rounds {kept.rounds} to {old.claimed - 1} are sampled again on resume"
    reasons = [
        old.unreadable,
        finding and f"with the newest walkers omniinput verify would find: {finding}",
    ]
    return f"{what}, since {', and '.join(reason for reason in reasons if reason)}"


def _check_paths(path: Path, new: Path) -> None:
    if not untrusted_hdf5.is_file(path):
        raise UserError(f"{path}: no such run file")
    if new.suffix not in SUFFIXES:
        raise UserError(f"{new}: a run file's name must end with {' or '.join(SUFFIXES)}")
    if os.path.lexists(new):
        raise UserError(f"{new} exists; choose another name, or move it away")
    if not os.path.isdir(new.parent):
        raise UserError(f"{new}: {new.parent} is not a folder")
