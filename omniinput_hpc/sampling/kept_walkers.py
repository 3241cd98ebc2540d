"""RUN.check.json: the number of walkers that ``--check`` found for ``walkers = "auto"``.

The run takes it, so that the plan that was read is the plan that is run; but only where it is of
the same input, model, number of ranks and devices. Else the number is found anew.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from omniinput_hpc.config import Config
from omniinput_hpc.errors import UserError
from omniinput_hpc.histogram import MAX_GROUPS
from omniinput_hpc.sampling.auto_walkers import MAX_WALKERS
from omniinput_hpc.sampling.restart import FREE_TO_CHANGE
from omniinput_hpc.text import write_atomically
from omniinput_hpc.untrusted.files import read_bytes
from omniinput_hpc.untrusted.parsing import parse_json

MAX_BYTES = 1 << 16

log = logging.getLogger("omniinput_hpc")


@dataclass(frozen=True)
class Setting:
    """What a number of walkers was found for."""

    given: Config  # the input as the user gave it
    fingerprint: str  # of the model
    devices: Sequence[str]  # of every rank

    @property
    def key(self) -> str:
        """A hash of all that the number depends on."""
        tables = self.given.model_dump()
        kept = {
            f"{table}.{key}": value
            for table, keys in tables.items()
            for key, value in (keys or {}).items()
            if (table, key) not in FREE_TO_CHANGE - {("run", "threads"), ("run", "device")}
        }
        text = json.dumps([kept, self.fingerprint, list(self.devices)], default=str)
        return hashlib.sha256(text.encode()).hexdigest()


def path_of(setting: Setting) -> Path:
    """Return the file beside the run file."""
    return Path(setting.given.run.output).with_suffix(".check.json")


def keep(setting: Setting, n_walkers: int) -> None:
    """Write what was found (rank 0 only); a file system that refuses is only told."""
    path = path_of(setting)
    text = json.dumps({"walkers": n_walkers, "found_for": setting.key}, indent=1) + "\n"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, text)
    except OSError as error:
        log.warning("warning: %s cannot be written: %s", path, error.strerror)
        return
    log.info("%s: the run will take %d walkers a rung", path, n_walkers)


def find_kept(setting: Setting) -> int | None:
    """Return what a check found for this very setting (rank 0 only); None where there is nothing.

    A file that cannot be read, or is of another setting, is told and passed over.
    """
    path = path_of(setting)
    if not path.exists():
        return None
    try:
        found = parse_json(read_bytes(path, "file of --check", MAX_BYTES))
        number, key = found["walkers"], found["found_for"]
    except (UserError, ValueError, KeyError, TypeError) as error:  # it is advice: found anew
        log.warning("warning: %s is passed over: %s", path, error)
        return None
    n_blocks = setting.given.sampler.blocks
    possible = range(MAX_GROUPS * n_blocks, MAX_WALKERS * n_blocks + 1, n_blocks)
    if type(number) is int and key == setting.key and number in possible:
        return number
    log.info("%s is of another input, model or machine; walkers are found anew", path)
    return None
