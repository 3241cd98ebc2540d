"""RUN.check.json: the number of walkers that ``--check`` found for ``walkers = "auto"``.

The run uses this number, so that it matches the printed plan, but only if the input, the model, the
number of ranks and the devices are the same. Otherwise the number is searched again.
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
from omniinput_hpc.sampling.restart import FREE_TO_CHANGE
from omniinput_hpc.sampling.shapes import MAX_WALKERS
from omniinput_hpc.text import write_atomically
from omniinput_hpc.untrusted.files import read_bytes
from omniinput_hpc.untrusted.parsing import parse_json

MAX_BYTES = 1 << 16

log = logging.getLogger("omniinput_hpc")


@dataclass(frozen=True)
class Setting:
    """The setting for which a number of walkers was found."""

    given: Config  # the input as the user gave it
    fingerprint: str  # of the model
    devices: Sequence[str]  # one per rank, see `models.device.size`

    @property
    def key(self) -> str:
        """A hash of everything that the number depends on."""
        tables = self.given.model_dump() | {"observables": self.given.observed}
        kept = {
            f"{table}.{key}": value
            for table, keys in tables.items()
            for key, value in (keys or {}).items()
            if (table, key) not in FREE_TO_CHANGE - {("run", "threads"), ("run", "device")}
        }
        text = json.dumps([kept, self.fingerprint, list(self.devices)], default=str)
        return hashlib.sha256(text.encode()).hexdigest()


def path_of(setting: Setting) -> Path:
    """Return the path of the file next to the run file."""
    return Path(setting.given.run.output).with_suffix(".check.json")


def keep(setting: Setting, n_walkers: int) -> None:
    """Write the number (rank 0 only); a failure to write only causes a warning."""
    path = path_of(setting)
    text = json.dumps({"walkers": n_walkers, "found_for": setting.key}, indent=1) + "\n"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, text)
    except OSError as error:
        log.warning("warning: %s cannot be written: %s", path, error.strerror)
        return
    log.info("%s: the run will use %d walkers per rung", path, n_walkers)


def find_kept(setting: Setting) -> int | None:
    """Return the number that a check found for this setting, or None (rank 0 only).

    A file that is unreadable or belongs to another setting is reported and ignored.
    """
    path = path_of(setting)
    if not path.exists():
        return None
    try:
        found = parse_json(read_bytes(path, "file of --check", MAX_BYTES))
        number, key = found["walkers"], found["found_for"]
    except (UserError, ValueError, KeyError, TypeError) as error:  # the number is searched again
        log.warning("warning: %s is ignored: %s", path, error)
        return None
    n_blocks = setting.given.sampler.blocks
    possible = range(MAX_GROUPS * n_blocks, MAX_WALKERS * n_blocks + 1, n_blocks)
    if type(number) is int and key == setting.key and number in possible:
        return number
    log.info(
        "%s is for another input, model or machine; searching the number of walkers again", path
    )
    return None
