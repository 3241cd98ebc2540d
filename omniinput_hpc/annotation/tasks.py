"""Task files: what annotators see, and the key to it, which they do not see.

``RUN.tasks.jsonl`` begins with a header; every further line is a task: an opaque id and a text or
a picture, in random order, with nothing that tells z, model or rung. ``RUN.tasks.key.jsonl`` says
where each task comes from. Needs numpy alone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from omniinput_hpc.annotation.jsonl import Fields, read_objects, write_objects
from omniinput_hpc.errors import UserError

TASKS_FORMAT, KEY_FORMAT, VERSION = "omniinput-tasks", "omniinput-key", 1
PNG = "data:image/png;base64,"
Kind = Literal["text", "image"]
Law = Literal["by-weight", "uniform"]


@dataclass(frozen=True)
class Task:
    """One thing to score.

    Attributes
    ----------
    id : str, opaque
    text, png : what is shown; a PNG is a data URI. Exactly one of them is given
    prefix : a fixed beginning that all inputs of the model share, shown apart
    """

    id: str
    text: str | None = None
    png: str | None = None
    prefix: str | None = None


@dataclass(frozen=True)
class TaskSet:
    """A file of tasks; `tasks_id` names the set, and is made from its ids."""

    path: Path
    tasks_id: str
    kind: Kind
    tasks: Sequence[Task]

    @property
    def ids(self) -> set[str]:
        """The ids of all tasks."""
        return {task.id for task in self.tasks}


@dataclass(frozen=True)
class KeyRun:
    """A run that tasks were drawn from, and the range of z that they were drawn from."""

    path: str
    model_fingerprint: str
    range: tuple[float, float]


@dataclass(frozen=True)
class KeyItem:
    """Where a task comes from.

    Attributes
    ----------
    id : of the task
    run : index into the key's runs; None for gold items, which are not drawn
    bin_lower : lower edge of the bin (of the key's width); None for gold items
    z : output of the input; None for gold items
    log_weight : ln of the input's share of its bin's weight before the draw (shares of all distinct
        recorded inputs of the bin and run sum to 1); None for gold items
    draws : how often the draw took this input (see `Key.law`); 0 for repeats and gold items
    x : the input's values; empty for gold items
    lane : the lane of the recorded sample that was drawn; None for gold items
    repeats : for a repeated item the id of the task that shows the same; else None
    gold : for a gold item its known score; else None
    """

    id: str
    run: int | None
    bin_lower: float | None
    z: float | None
    log_weight: float | None
    draws: int
    x: Sequence[int] = field(repr=False)
    lane: int | None
    repeats: str | None = None
    gold: float | None = None


@dataclass(frozen=True)
class Key:
    """The key of a task set.

    Attributes
    ----------
    law : "by-weight": inputs were drawn in proportion to their weight, so that the mean score of a
        bin, each item counted ``draws`` times, estimates r without bias; "uniform": distinct inputs
        were drawn alike, and scores must be weighted by exp(log_weight)
    runs : of which models
    width : of the bins
    range : lowest and highest output of all runs' ranges
    per_bin : draws asked for per bin and run
    duplicates : recorded samples in range that were copies of others
    header : the whole header, as in the file
    """

    path: Path
    tasks_id: str
    law: Law
    runs: Sequence[KeyRun]
    width: float
    range: tuple[float, float]
    per_bin: int
    duplicates: int
    header: dict[str, Any]
    items: Sequence[KeyItem]

    def by_id(self) -> dict[str, KeyItem]:
        """Return the items by their id."""
        return {item.id: item for item in self.items}


def key_path(tasks_path: Path) -> Path:
    """Return the key's path: ``RUN.tasks.jsonl`` has ``RUN.tasks.key.jsonl``."""
    return tasks_path.with_name(tasks_path.name.removesuffix(".jsonl") + ".key.jsonl")


def stem_of(tasks_path: Path) -> str:
    """Return the name that files beside a task file begin with: ``RUN`` of ``RUN.tasks.jsonl``."""
    return tasks_path.name.removesuffix(".jsonl").removesuffix(".tasks")


def tasks_id_of(ids: Iterable[str]) -> str:
    """Return the name of the set of these ids: the text of a task may be masked, not its id."""
    return hashlib.sha256("\n".join(sorted(ids)).encode()).hexdigest()[:16]


def write_tasks(path: Path, kind: Kind, tasks: Sequence[Task], note: str = "") -> str:
    """Write a task file, whole or not at all, and return its tasks_id."""
    tasks_id = tasks_id_of(task.id for task in tasks)
    header = {
        "format": TASKS_FORMAT,
        "version": VERSION,
        "tasks_id": tasks_id,
        "kind": kind,
        "tasks": len(tasks),
    }
    if note:
        header["note"] = note
    lines = ({k: v for k, v in asdict(task).items() if v is not None} for task in tasks)
    write_objects(path, [header, *lines])
    return tasks_id


def write_key(path: Path, header: dict[str, Any], items: Sequence[KeyItem]) -> None:
    """Write a key, whole or not at all; `header` holds what `Key` lists."""
    first = {"format": KEY_FORMAT, "version": VERSION, **header, "items": len(items)}
    write_objects(path, [first, *map(asdict, items)])


def read_tasks(path: Path) -> TaskSet:
    """Read a task file.

    Raises
    ------
    UserError
        No such file, another format, cut short, lines added or lost, the same id twice.
    """
    header, rows = _open(path, TASKS_FORMAT, "task file", "tasks")
    kind = header.text("kind")
    if kind not in ("text", "image"):
        raise header.wrong("kind", '"text" or "image"')
    tasks = [_task(row, kind) for row in rows]
    tasks_id = header.text("tasks_id")
    _check_ids(path, tasks_id, [task.id for task in tasks])
    return TaskSet(path, tasks_id, "text" if kind == "text" else "image", tasks)


def read_key(path: Path, tasks_id: str | None = None) -> Key:
    """Read the key of a task file.

    Parameters
    ----------
    path : of the key
    tasks_id : of the task set that it must belong to (default: any)

    Raises
    ------
    UserError
        No such file, another format, cut short, or of another task set.
    """
    header, rows = _open(path, KEY_FORMAT, "key of a task file", "items")
    items = [_key_item(row) for row in rows]
    found = header.text("tasks_id")
    _check_ids(path, found, [item.id for item in items])
    if tasks_id not in (None, found):
        raise UserError(f"{path} is the key of another task set ({found}, not {tasks_id})")
    law = header.text("law")
    if law not in ("by-weight", "uniform"):
        raise header.wrong("law", '"by-weight" or "uniform"')
    runs = header.value.get("runs")
    if not isinstance(runs, list) or not all(isinstance(run, dict) for run in runs):
        raise header.wrong("runs", "a list of runs")
    return Key(
        path=path,
        tasks_id=found,
        law="by-weight" if law == "by-weight" else "uniform",
        runs=[_key_run(Fields(run, path, 1)) for run in runs],
        width=header.number("width"),
        range=_range(header),
        per_bin=header.whole("per_bin"),
        duplicates=header.whole("duplicates"),
        header=header.value,
        items=items,
    )


def _open(path: Path, format_: str, what: str, count: str) -> tuple[Fields, list[Fields]]:
    """Return header and rows; the header says how many rows there must be."""
    objects = read_objects(path, what)
    header = Fields(objects[0], path, 1)
    if header.value.get("format") != format_:
        raise UserError(
            f"{path} is no {what} of omniinput_hpc (its first line names no such format)"
        )
    if header.value.get("version") != VERSION:
        raise header.wrong("version", str(VERSION))
    rows = [Fields(value, path, n) for n, value in enumerate(objects[1:], 2)]
    wanted = header.whole(count)
    if len(rows) != wanted:
        what_happened = "cut short" if len(rows) < wanted else "longer than it was"
        raise UserError(f"{path} is {what_happened}: it holds {len(rows)} of {wanted} {count}")
    return header, rows


def _check_ids(path: Path, tasks_id: str, ids: Sequence[str]) -> None:
    seen: set[str] = set()
    for id_ in ids:
        if id_ in seen:
            raise UserError(f"{path}: the id {id_} is there twice")
        seen.add(id_)
    if tasks_id_of(ids) != tasks_id:
        raise UserError(f"{path}: its ids are not those that it was written with (tasks_id)")


def _task(row: Fields, kind: str) -> Task:
    if kind == "image":
        png = row.text("png")
        if not png.startswith(PNG):
            raise row.wrong("png", f"a data URI ({PNG}...)")
        return Task(row.text("id"), png=png, prefix=row.text_or_none("prefix"))
    text = row.value.get("text")
    if not isinstance(text, str):
        raise row.wrong("text", "a text")
    return Task(row.text("id"), text=text, prefix=row.text_or_none("prefix"))


def _key_item(row: Fields) -> KeyItem:
    gold = row.score_or_none("gold")
    drawn = gold is None
    x = row.value.get("x")
    if not isinstance(x, list) or not all(type(value) is int for value in x):
        raise row.wrong("x", "a list of whole numbers")
    return KeyItem(
        id=row.text("id"),
        run=row.whole("run") if drawn else None,
        bin_lower=row.number("bin_lower") if drawn else None,
        z=row.number("z") if drawn else None,
        log_weight=row.number("log_weight") if drawn else None,
        draws=row.whole("draws"),
        x=x,
        lane=row.whole("lane") if drawn else None,
        repeats=row.text_or_none("repeats"),
        gold=gold,
    )


def _key_run(run: Fields) -> KeyRun:
    return KeyRun(run.text("path"), run.text("model_fingerprint"), _range(run))


def _range(fields: Fields) -> tuple[float, float]:
    value = fields.value.get("range")
    if not isinstance(value, list) or len(value) != 2:
        raise fields.wrong("range", "[lowest, highest]")
    low, high = (Fields({"range": v}, Path("range"), 1).number("range") for v in value)
    return low, high
