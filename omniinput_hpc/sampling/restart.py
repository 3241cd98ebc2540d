"""What is at the output's path already, and whether this run may go on with it (rank 0 only)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from omniinput_hpc.config import Analysis, Config, input_file
from omniinput_hpc.errors import UserError
from omniinput_hpc.runfile.reader import open_run

_FREE = {("run", key) for key in ("output", "rounds", "threads", "device", "writer")} | {
    ("model", "path"),  # the fingerprint speaks for the files
    *(("analysis", key) for key in Analysis.model_fields),
}


def judge(config: Config, fingerprint: str, restart: str) -> dict[str, Any]:
    """Decide between a new run and going on, and refuse what would destroy something.

    Returns
    -------
    dict with "resume" (bool), "rounds" committed, "burn_in" committed, "planned" rounds and
    "walkers" of the file, and "attributes" (those that are strings)

    Raises
    ------
    UserError
        See the messages.
    """
    path = Path(config.run.output)
    if not path.exists():
        if restart == "require":
            raise UserError(f"--restart require: there is no run file {path} to go on with")
        _check_folder(path)
        none = {"rounds": 0, "burn_in": 0, "planned": 0, "walkers": 0}
        return {"resume": False, "attributes": {}, **none}
    if path.is_dir():
        raise UserError(f"run.output = {path} is a folder; it must name a file")
    if restart == "never":
        raise UserError(
            f"--restart never: {path} exists; choose another run.output, or move it away"
        )
    with open_run(path) as run:
        stored = input_file.parse(run.config_toml, f"{path} (stored input)")
        found: dict[str, Any] = {
            "resume": True,
            "rounds": run.rounds,
            "burn_in": run.burn_in_committed,
            "planned": run.rounds_planned,
            "walkers": run.walkers,
            "attributes": run.texts,
        }
        differences = _differences(stored, config)
        if run.fingerprint != fingerprint and stored.model.kind == config.model.kind:
            differences.append("the model's files or options are others than then")
    if differences:
        raise UserError(
            "\n".join(
                [
                    f"run.output = {path} holds another run; choose another run.output, or move it "
                    "away. What differs:",
                    *(f"  {d}" for d in differences),
                ]
            )
        )
    if config.run.rounds < found["planned"]:
        raise UserError(
            f"run.rounds = {config.run.rounds}, but {path} was made for {found['planned']} rounds; "
            "rounds may only grow"
        )
    if not os.access(path, os.W_OK):
        raise UserError(f"{path} cannot be written (read-only)")
    return found


def _differences(stored: Config, wanted: Config) -> list[str]:
    if wanted.sampler.walkers == "auto":  # whatever was found then
        wanted = wanted.with_walkers(stored.sampler.n_walkers)
    old, new = stored.model_dump(), wanted.model_dump()
    lines = []
    for table in new:
        there_t, here_t = old[table] or {}, new[table] or {}
        for key in sorted({*there_t, *here_t}):
            there, here = there_t.get(key), here_t.get(key)
            if (table, key) not in _FREE and there != here:
                lines.append(f"{table}.{key} is {there!r} in the file and {here!r} here")
    return lines


def _check_folder(path: Path) -> None:
    """Check that the file can be made, without making anything."""
    folder = path.parent
    while not folder.exists():
        folder = folder.parent
    if not folder.is_dir():
        raise UserError(f"run.output = {path}: {folder} is not a folder")
    if os.statvfs(folder).f_flag & os.ST_RDONLY or not os.access(folder, os.W_OK | os.X_OK):
        raise UserError(f"run.output = {path}: the folder {folder} cannot be written")
