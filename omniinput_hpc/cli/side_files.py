"""Checks by `omniinput verify` of files next to a run file: second checkpoint, rescored samples."""

from __future__ import annotations

import os
from collections.abc import Callable

from omniinput_hpc.errors import UserError
from omniinput_hpc.runfile import rescored, side_checkpoint
from omniinput_hpc.runfile.checked_datasets import OnDamage
from omniinput_hpc.runfile.layout import checkpoint_of
from omniinput_hpc.runfile.reader import RunReader

Add = Callable[[str, str], None]
"""Takes the name of a check and a finding."""


def check_checkpoint(run: RunReader, notes: list[str], add: Add) -> None:
    """Check the second copy of the checkpoint, if it exists, and append a note about it."""
    path = checkpoint_of(run.path)
    if not os.path.exists(path):
        return
    try:
        side = side_checkpoint.read(run.path)
    except UserError as error:
        add("second checkpoint", f"{error}; the next start of the run rewrites it")
        return
    if side.is_of(side_checkpoint.of_run(run, with_slabs=False)):
        notes.append(f"{path}: {side.rounds} rounds and {side.burn_in} of burn-in")
    else:
        notes.append(f"{path} does not match the run file; the next start of the run rewrites it")


def _add_to(damage: list[str]) -> OnDamage:
    return lambda _, words: damage.append(words)


def check_rescored(run: RunReader, notes: list[str], add: Add) -> None:
    """Check the checksums of the files of rescored samples next to a run, and append notes."""
    check = "rescored samples"
    for path in rescored.beside(run.path):
        damage: list[str] = []
        try:
            with rescored.open_rescored(path, _add_to(damage)) as side:
                if not side.belongs_to(run):
                    notes.append(f"{path} holds samples of another run; no script reads it")
                    continue
                for round_ in range(side.rounds):
                    side.z(round_)
                notes.append(f"{path}: {side.rounds} rounds")
        except UserError as error:
            add(check, str(error))
        for words in damage:
            add(check, f"{path}: {words}; move it away, and rescore the run again")
