"""From drawn inputs of one run or several to one blind task set: repeats, gold, random order."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from omniinput_hpc.annotation.choose import Chosen
from omniinput_hpc.annotation.display import Shown
from omniinput_hpc.annotation.jsonl import Fields, read_objects
from omniinput_hpc.annotation.png import read_png_header
from omniinput_hpc.annotation.scores import find_scores
from omniinput_hpc.annotation.tasks import (
    PNG,
    KeyItem,
    Kind,
    Task,
    key_path,
    tasks_id_of,
    write_key,
    write_tasks,
)
from omniinput_hpc.errors import UserError


@dataclass(frozen=True)
class Part:
    """The drawn inputs of one run, and how they are shown."""

    chosen: Sequence[Chosen]
    shown: Shown


@dataclass(frozen=True)
class Gold:
    """An item of known score."""

    shown: str
    score: float


def common_kind(parts: Sequence[Part]) -> Kind:
    """Return what all parts are shown as.

    Raises
    ------
    UserError
        Texts and pictures would be mixed.
    """
    kinds = {part.shown.kind for part in parts}
    if len(kinds) > 1:
        raise UserError("texts and pictures cannot be mixed in one task set")
    return kinds.pop()


def read_gold(path: Path, kind: Kind) -> list[Gold]:
    """Read gold items: JSON lines ``{"text", "score"}``, or ``{"png": FILE, "score"}``.

    Paths are relative to the file.
    """
    found = []
    for n, value in enumerate(read_objects(path, "file of gold items"), 1):
        row = Fields(value, path, n)
        score = row.score_or_none("score")
        if score is None:
            raise row.wrong("score", "a score from 0 to 1")
        shown = row.text("text") if kind == "text" else _picture(path.parent / row.text("png"))
        found.append(Gold(shown, score))
    return found


def _picture(path: Path) -> str:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from None
    try:
        read_png_header(data)
    except UserError:
        raise UserError(f"{path} is not a whole PNG") from None
    return PNG + base64.b64encode(data).decode("ascii")


def write_task_set(
    path: Path,
    parts: Sequence[Part],
    header: dict[str, Any],
    *,
    repeats: float = 0.1,
    gold: Sequence[Gold] = (),
    seed: int = 1,
) -> int:
    """Write a task file and its key; return the number of tasks.

    Parameters
    ----------
    path : of the task file
    parts : a part per run of the key's header
    header : of the key (see `tasks.Key`), without its tasks_id
    repeats : this share of the drawn items is shown a second time under another id
    gold : items of known score
    seed : of ids and order

    Raises
    ------
    UserError
        There are scores for the task file already, or kinds would be mixed.
    """
    scores = find_scores(path) if path.parent.is_dir() else []
    if path.exists() and scores:
        raise UserError(
            f"{path} has scores already ({scores[0].name}); move them away or choose another "
            "--output: ids would change, and the scores would be of no use"
        )
    kind = common_kind(parts)
    rng = np.random.default_rng(np.random.SeedSequence([seed, *_entropy(header)]))
    made: list[tuple[Task, KeyItem]] = []
    for run, part in enumerate(parts):
        shown = part.shown.show(np.stack([c.x for c in part.chosen])) if part.chosen else []
        for c, what in zip(part.chosen, shown, strict=True):
            id_ = _new_id(rng)
            item = KeyItem(id_, run, c.bin_lower, c.z, c.log_weight, c.draws, c.x.tolist(), c.lane)
            made.append((_task(id_, kind, what, part.shown.prefix), item))
    drawn = len(made)
    for i in rng.permutation(drawn)[: round(repeats * drawn)]:
        task, item = made[i]
        id_ = _new_id(rng)
        made.append((replace(task, id=id_), replace(item, id=id_, draws=0, repeats=item.id)))
    for one in gold:
        id_ = _new_id(rng)
        key = KeyItem(id_, None, None, None, None, 0, [], None, gold=one.score)
        made.append((_task(id_, kind, one.shown, None), key))
    mixed = [made[i] for i in rng.permutation(len(made))]
    path.parent.mkdir(parents=True, exist_ok=True)
    tasks = [task for task, _ in mixed]
    # the key first: a task file without its key would be of no use
    write_key(
        key_path(path),
        {"tasks_id": tasks_id_of(t.id for t in tasks), **header},
        [key for _, key in mixed],
    )
    write_tasks(path, kind, tasks)
    return len(mixed)


def _entropy(header: dict[str, Any]) -> list[int]:
    """Return numbers that differ between runs, so that their ids do."""
    digest = hashlib.sha256(repr(header["runs"]).encode()).digest()
    return [int.from_bytes(digest[i : i + 4], "big") for i in range(0, 16, 4)]


def _new_id(rng: np.random.Generator) -> str:
    return rng.bytes(8).hex()


def _task(id_: str, kind: Kind, what: str, prefix: str | None) -> Task:
    if kind == "text":
        return Task(id_, text=what, prefix=prefix)
    return Task(id_, png=what, prefix=prefix)
