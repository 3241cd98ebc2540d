"""Decide whether to start a new run or resume the one at the output path (rank 0 only)."""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from omniinput_hpc import models
from omniinput_hpc.config import Analysis, Config, input_file
from omniinput_hpc.config.space import Space
from omniinput_hpc.errors import UserError
from omniinput_hpc.models import input_space
from omniinput_hpc.models.observables import SAME_Y
from omniinput_hpc.runfile import side_checkpoint
from omniinput_hpc.runfile.checked_datasets import BrokenRun
from omniinput_hpc.runfile.layout import Geometry, target_of
from omniinput_hpc.runfile.reader import open_run
from omniinput_hpc.text import shown_path

_OF_RUN = ("output", "rounds", "histogram_blocks", "threads", "device", "writer")
FREE_TO_CHANGE = {("run", key) for key in _OF_RUN} | {
    ("model", "path"),  # the fingerprint identifies the files
    ("output", "path"),
    ("law", "path"),
    *(("analysis", key) for key in Analysis.model_fields),
}
"""Keys whose values may differ between a resumed run and its file."""
_TABLES_WITH_FILES = (("output", "other"), ("law", "prompt"))

NAMES = {"package_version": "omniinput_hpc", "gpu": "GPU", "gpu_driver": "GPU driver"}
"""Names in messages of attributes of the environment; others appear under their own name."""

OWN_CODE = {
    "law_source": "law.factory or law.prompt.factory", "observables_source": "[[observables]]",
}  # fmt: skip
"""Attributes of the user's own code, apart from the model's, with its keys."""

RUNGS_AT_ONCE = 16
"""Checkpoints of this many rungs are checked at once, to limit memory."""

log = logging.getLogger("omniinput_hpc")


@dataclass(frozen=True)
class Existing:
    """The run at the output path, if any."""

    resume: bool = False  # whether there is a run to resume; if not, the fields keep their defaults
    rounds: int = 0  # committed
    burn_in: int = 0  # committed rounds of burn-in
    rounds_planned: int = 0  # for which the file has room
    walkers: int = 0  # per rung
    look_ahead: bool = False  # whether its kernel looks ahead
    checksums: bool = True  # files of older versions have none
    rounds_per_block: int = 1  # that share a histogram
    settled: bool = True  # False after a kill between writing a counter and its checksum
    attributes: Mapping[str, str] = field(default_factory=dict)  # the file's text attributes

    def as_begun(self, given: Config) -> Config:
        """Return the input of a resumed run, with what it leaves out as the run decided it."""
        if given.sampler.walkers == "auto":
            given = given.with_walkers(self.walkers)
        return given.looking_ahead(self.look_ahead)

    def shapes(self, g: Geometry) -> Geometry:
        """Return the shapes of a run, with those fixed by the file that it resumes."""
        if not self.resume:
            return g
        return replace(g, checksums=self.checksums, rounds_per_block=self.rounds_per_block)


@dataclass(frozen=True)
class Identity:
    """Identifies the model and the machine, to compare a resumed run with its file."""

    fingerprint: str  # of the model's files and options
    probe_z: list[float]  # the model's z at fixed inputs
    environment: Mapping[str, str]  # versions of libraries, devices, processor
    model_beta: float  # of the model's own distribution; NaN if it cannot be sampled directly
    rows_normalized: bool = False  # whether the model's conditional rows were found to sum to 1
    space: Space | None = None  # the values that its sites may take
    inside: Mapping[str, Any] = field(default_factory=dict)  # of a constrained space, as stored
    marks: Mapping[str, Any] = field(default_factory=dict)  # of law and observables, as stored


def find_existing(config: Config, fingerprint: str | Callable[[], str], restart: str) -> Existing:
    """Decide between a new run and resuming; never overwrite anything.

    `fingerprint` is the fingerprint of the input file's model, or a function that returns it, which
    is called only if a run exists. `restart` is the command-line option. Raises a UserError if the
    path cannot be used, or holds another run, or if burn-in is too short to tune a new one.
    """
    path = Path(config.run.output)
    if not _exists(path):
        if restart == "require":
            raise UserError(f"--restart require: there is no run file {path} to resume")
        _check_folder(path)
        least = least_burn_in(config.sampler.exchanges)
        if config.ladder is not None and config.ladder.tune and config.run.burn_in < least:
            raise UserError(
                f"run.burn_in = {config.run.burn_in}: ladder.tune needs at least {least} rounds"
            )
        return Existing()
    if os.path.isdir(path):
        raise UserError(f"run.output = {path} is a folder; it must name a file")
    if restart == "never":
        raise UserError(
            f"--restart never: {path} exists; choose another run.output, or move it away"
        )
    with open_run(path) as run:
        stored = input_file.parse(run.config_toml, f"{path} (stored input)")
        found = Existing(
            resume=True,
            rounds=run.rounds,
            burn_in=run.burn_in_committed,
            rounds_planned=run.rounds_planned,
            walkers=run.walkers,
            look_ahead=stored.kernel.learns_ahead,
            checksums=run.geometry.checksums,
            rounds_per_block=run.geometry.rounds_per_block,
            settled=run.is_settled,
            attributes=run.texts,
        )
        differences = _differences(stored, found.as_begun(config))
        now = fingerprint() if callable(fingerprint) else fingerprint
        if run.fingerprint != now and stored.model.kind == config.model.kind:
            differences.append("the model's files or options have changed")
    if differences:
        head = (
            f"run.output = {path} holds another run; choose another run.output, or move it away. "
            "Differences:"
        )
        extended = _how_to_extend(stored, config)
        raise UserError("\n  ".join([head, *differences, *filter(None, [extended])]))
    if config.run.rounds < found.rounds_planned:
        raise UserError(
            f"run.rounds = {config.run.rounds}, but {path} was made for {found.rounds_planned} "
            "rounds; run.rounds can only be raised"
        )
    if not os.access(path, os.W_OK):
        raise UserError(f"{path} cannot be written (read-only)")
    return found


def least_burn_in(exchanges: int) -> int:
    """Return the fewest rounds that tune a ladder, given the exchanges per round."""
    return 2 if exchanges > 1 else 6  # an exchange tries half of the pairs


def _differences(stored: Config, given: Config) -> list[str]:
    # stored inputs from before look_ahead had a default mean false by its absence
    old, new = stored.looking_ahead(False).model_dump(), given.model_dump()
    old["observables"], new["observables"] = stored.observed, given.observed
    lines = []
    for table in new:
        there_t, here_t = old.get(table) or {}, new[table] or {}
        for key in sorted({*there_t, *here_t}):
            there, here = there_t.get(key), here_t.get(key)
            if (table, key) == ("ladder", "anchors"):  # older files store true if it is left out
                there, here = there is not False, here is not False
            if (table, key) in _TABLES_WITH_FILES:  # see ("model", "path")
                places = dict.fromkeys(("path", "file"))
                there, here = ({**(other or {}), **places} for other in (there, here))
            if (table, key) not in FREE_TO_CHANGE and there != here:
                lines.append(f"{table}.{key} is {there!r} in the file and {here!r} here")
    return lines


def _how_to_extend(stored: Config, given: Config) -> str:
    """Return a sentence on how to add rungs to a run, if the user tried this; else ""."""
    if stored.ladder is None or given.ladder is None or given.ladder.kappa is not None:
        return ""
    old, new = set(stored.ladder.beta_k.tolist()), set(given.ladder.beta_k.tolist())
    if not old < new or (stored.bins, stored.model.kind) != (given.bins, given.model.kind):
        return ""
    # The new betas and their old neighbours, so that the two runs share bins
    both = sorted(new)
    kept = [
        beta
        for i, beta in enumerate(both)
        if beta not in old or not old.issuperset(both[max(i - 1, 0) : i + 2])
    ]
    file, other = given.run.output, Path(given.run.output).with_stem("NEW")
    two, joined = f"{shown_path(file)} {shown_path(other)}", shown_path(f"{file}+{other}")
    return (
        "to add betas, start a separate run with another run.output, another run.seed and "
        f"[ladder] betas = {kept} (the new betas and their old neighbours, so that both runs "
        f"share bins), then join the two with omniinput reweight {two}, and with omniinput "
        f"precision-recall {joined}"
    )


def _exists(path: Path) -> bool:
    try:
        os.stat(path)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
            return False
        # a name that is too long, a folder that may not be entered
        raise UserError(f"run.output = {path} cannot be used: {error.strerror}") from None
    return True


def _check_folder(path: Path) -> None:
    """Raise a UserError if the file cannot be created; create nothing."""
    target = target_of(path)
    if path.is_symlink():
        # A missing target folder may be on a file system that is not mounted at present.
        if target.is_symlink() or not os.path.isdir(target.parent):
            raise UserError(
                f"run.output = {path} is a link to {os.readlink(path)}, whose folder does not "
                "exist; create (or mount) that folder, or remove the link"
            )
        path = target
    folder = path.parent
    while not os.path.exists(folder):
        folder = folder.parent
    if not os.path.isdir(folder):
        raise UserError(f"run.output = {path}: {folder} is not a folder")
    if os.statvfs(folder).f_flag & os.ST_RDONLY or not os.access(folder, os.W_OK | os.X_OK):
        raise UserError(f"run.output = {path}: the folder {folder} cannot be written")


def check_rounds(path: Path, rungs: range) -> None:
    """Check all committed rounds of the rungs that a rank writes.

    No rounds should be added to a file that the analysis would refuse. Raises a UserError that
    names the remedy if a round is damaged.
    """
    with open_run(path, tried=True, live=False) as run:
        for round_ in range(run.rounds if rungs else 0):
            try:
                run.check_round(round_, rungs)
            except BrokenRun as error:
                raise UserError(f"{error}; {_remedy(path, round_)}") from None


def _remedy(path: Path, damaged: int) -> str:
    """Return the remedy for a damaged round, for a message."""
    with suppress(UserError):
        side = side_checkpoint.read(path)
        if side.has_state and side.rounds <= damaged:
            return (
                f"omniinput salvage RUN.h5 NEW.h5 goes back to round {side.rounds}, from which the "
                "run can resume"
            )
    return (
        "its side file cannot restore this round: no rounds are added; omniinput reweight "
        "and the other verbs on run files read it with --damaged"
    )


def check_resume(config: Config, g: Geometry, here: Identity, found: Existing) -> None:
    """Compare the model and the environment with those of the file.

    Warns if the environment differs. Raises a UserError if the model has other shapes, tokens or
    outputs than the file's, or if the stored walkers are damaged.
    """
    if not found.resume:
        return
    path = Path(config.run.output)
    with open_run(path) as run:
        there = asdict(replace(run.geometry, rounds=g.rounds, checksums=g.checksums))
        stored_z, space, attributes = run.probe_z, run.space, run.attributes()
        run.check_header()
        n_rungs = run.geometry.n_rungs
        for k in range(0, n_rungs, RUNGS_AT_ONCE):
            run.checkpoint(range(k, min(k + RUNGS_AT_ONCE, n_rungs)))  # raises if damaged
        threads = run.config.run.threads
    mine = asdict(g)
    sizes = [
        f"{n} is {there[n]} in the file and {v} here" for n, v in mine.items() if v != there[n]
    ]
    if sizes:
        raise UserError(
            f"run.output = {path} holds a run of another model ({', '.join(sizes)}); choose "
            "another run.output, or move it away"
        )
    if here.space is not None and not here.space.same_as(space):
        raise UserError(
            f"run.output = {path} holds a run whose model had other tokens (space.allowed): the "
            "tokenizer has changed; choose another run.output, or move it away"
        )
    key = "space_fingerprint"
    if here.inside.get(key) != found.attributes.get(key):
        raise UserError(
            f"run.output = {path} holds a run of other inputs: the texts of the model's values "
            "have changed; choose another run.output, or move it away"
        )
    same = stored_z.shape == (len(here.probe_z),)
    if not same or not models.same_outputs(stored_z, here.probe_z, config):
        raise UserError(
            f"run.output = {path} holds a run of another model (its outputs differ); choose "
            "another run.output, or move it away"
        )
    for mark, now in here.marks.items():
        _compare(path, mark, attributes.get(mark, now), now)
    _warn_of_changes(config, here, found, threads)


def _compare(path: Path, mark: str, then: Any, now: Any) -> None:
    """Raise a UserError if a run had another law, warn if it had other observables."""
    if mark.startswith("law"):
        if not input_space.same_mark(then, now):
            raise UserError(
                f"run.output = {path} holds a run under another law (its probabilities or the "
                "tokens of its prompts differ); choose another run.output, or move it away"
            )
    elif np.shape(then) != np.shape(now) or not np.allclose(now, then, SAME_Y, SAME_Y):
        log.warning(
            "warning: [[observables]] give other numbers of the same inputs than when the run %s "
            "began; choose another run.output",
            path,
        )


def _warn_of_changes(config: Config, here: Identity, found: Existing, threads: int) -> None:
    """Warn if the user's code, or what may change the last bits, is not as the run was begun."""
    now = {**here.environment, "threads": str(config.run.threads)}
    then = {**found.attributes, "threads": str(threads)}
    changed = {k: f"{then[k]} -> {now[k]}" for k in now if then.get(k, now[k]) != now[k]}
    source = changed.pop("model_source", "")
    if source:
        log.warning(
            "warning: the file of model.factory has changed since this run began: %s; z of %d "
            "inputs that were tried is unchanged; if z of others may have changed, choose another "
            "run.output",
            source,
            len(here.probe_z),
        )
    for key in OWN_CODE.keys() & changed.keys():
        log.warning(
            "warning: the file of %s has changed since this run began: %s; if it returns anything "
            "else, choose another run.output",
            OWN_CODE[key],
            changed.pop(key),
        )
    if changed:
        log.warning(
            "warning: resuming in a different environment; results may differ in the last bits: %s",
            "; ".join(f"{NAMES.get(key, key)} {text}" for key, text in changed.items()),
        )
