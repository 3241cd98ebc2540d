"""Task files: what annotators see, and the key, which they do not see.

``RUN.tasks.jsonl`` begins with a header. Every further line is a task, in random order: an opaque
id and a text or a picture, with nothing that reveals z, model or rung. ``RUN.tasks.key.jsonl``
records which input of which run each task shows. This module needs neither torch nor MPI.
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from omniinput_hpc.annotation.jsonl import (
    AnyText,
    Finite,
    Positive,
    Range,
    Record,
    Text,
    UnitScore,
    Whole,
    Wholes,
    checked,
    expected,
    read_objects,
    write_objects,
)
from omniinput_hpc.errors import UserError
from omniinput_hpc.histogram import MAX_BINS

KEY_MODE = 0o600
"""Permissions of a key: annotators on the same machine must not see z."""
TASKS_FORMAT, KEY_FORMAT, VERSION = "omniinput-tasks", "omniinput-key", 1
PNG_URI = "data:image/png;base64,"
"""The beginning of a PNG's data URI."""
Kind = Literal["text", "image"]
MAX_LOG_SHARE = 1e-6
"""ln of a share of 1, with room for rounding."""
MAX_DRAWS = 2**16
"""Largest number of draws of an input, and of draws per bin."""
Draws = Annotated[
    int, Field(strict=True, ge=0, le=MAX_DRAWS), expected(f"a whole number from 0 to {MAX_DRAWS:,}")
]
DrawMethod = Literal["by-weight", "uniform"]
_PngUri = Annotated[
    str, Field(strict=True, pattern=f"^{PNG_URI}"), expected(f"a data URI ({PNG_URI}...)")
]


@dataclass(frozen=True)
class Task:
    """One text or picture (a data URI) to score; its id is opaque.

    `prefix` is a fixed beginning that all inputs of the model share; it is displayed separately.
    """

    id: Text
    text: AnyText | None = None
    png: _PngUri | None = None
    prefix: AnyText | None = None


@dataclass(frozen=True)
class TaskSet:
    """A file of tasks; `tasks_id` identifies the set, and is a hash of its ids.

    Score files are beside the task file, or in the folder `results`.
    """

    path: Path
    tasks_id: str
    kind: Kind
    tasks: Sequence[Task]
    results: Path | None = None

    @property
    def scored(self) -> Path:
        """The path beside which score files are stored: the task file, or its name in `results`."""
        return self.path if self.results is None else self.results / self.path.name

    @property
    def ids(self) -> set[str]:
        """The ids of all tasks."""
        return {task.id for task in self.tasks}


@dataclass(frozen=True)
class KeyRun:
    """A run that tasks were drawn from, and the range of z that was used.

    `created` is the time when the run began; None in keys of older versions.
    """

    path: Text
    model_fingerprint: Text
    range: Range
    created: Text | None = None

    @property
    def identity(self) -> str:
        """The run's name and start, equal in all keys of one run as far as they record them."""
        return self.path if self.created is None else f"{Path(self.path).name} {self.created}"


@dataclass(frozen=True)
class KeyItem:
    """The input that a task shows.

    Gold items are not drawn: their run, bin_lower, z, log_weight and lane are None, x is empty.

    Attributes
    ----------
    id : of the task
    run : index into the key's runs
    bin_lower : lower edge of the bin (of the key's width)
    z : output of the input
    log_weight : ln of the input's share of its bin's weight before the draw (shares of all distinct
        recorded inputs of the bin and run sum to 1)
    draws : how often the input was drawn (see `Key.draw_method`); 0 for repeats and gold items
    x : the input's values
    lane : the lane of the drawn sample
    repeats : for a repeat, the id of the task that shows the same input; otherwise None
    gold : for a gold item, its known score; otherwise None
    """

    id: Text
    run: Whole | None
    bin_lower: Finite | None
    z: Finite | None
    log_weight: Finite | None
    draws: Draws
    x: Wholes = field(repr=False)
    lane: Whole | None
    repeats: Text | None = None
    gold: UnitScore | None = None


@dataclass(frozen=True)
class Key:
    """The key of a task set.

    Attributes
    ----------
    draw_method : "by-weight": inputs were drawn in proportion to their weight, so that the mean
        score of a bin, each item counted ``draws`` times, estimates r without bias; "uniform":
        with equal probability, so that scores must be weighted by exp(log_weight). Files call it
        "law"
    runs : the runs that tasks were drawn from
    width : of the bins
    range : lowest and highest output over the ranges of all runs
    per_bin : requested draws per bin and run
    duplicates : recorded samples in range that were copies of others
    """

    path: Path
    tasks_id: str
    draw_method: DrawMethod
    runs: Sequence[KeyRun]
    width: float
    range: tuple[float, float]
    per_bin: int
    duplicates: int
    items: Sequence[KeyItem]

    def by_id(self) -> dict[str, KeyItem]:
        """Return the items by their id."""
        return {item.id: item for item in self.items}


@dataclass(frozen=True)
class _TasksHeader:
    """First line of a task file."""

    version: Annotated[Literal[1], expected(str(VERSION))]
    tasks_id: Text
    kind: Annotated[Kind, expected('"text" or "image"')]
    tasks: Whole


@dataclass(frozen=True)
class _KeyHeader:
    """First line of a key: the fields of `Key`, and the number of its items."""

    version: Annotated[Literal[1], expected(str(VERSION))]
    tasks_id: Text
    law: Annotated[DrawMethod, expected('"by-weight" or "uniform"')]
    runs: list[KeyRun]
    width: Positive
    range: Range
    per_bin: Draws
    duplicates: Whole
    items: Whole


def key_path(tasks_path: Path) -> Path:
    """Return the key's path: ``RUN.tasks.key.jsonl`` for ``RUN.tasks.jsonl``."""
    return tasks_path.with_name(tasks_path.name.removesuffix(".jsonl") + ".key.jsonl")


def stem_of(tasks_path: Path) -> str:
    """Return the prefix that related files share: ``RUN`` of ``RUN.tasks.jsonl``."""
    return tasks_path.name.removesuffix(".jsonl").removesuffix(".tasks")


def tasks_id_of(ids: Iterable[str]) -> str:
    """Return the set's id, a hash of its tasks' ids, which stays the same if texts are masked."""
    return hashlib.sha256("\n".join(sorted(ids)).encode()).hexdigest()[:16]


def write_tasks(path: Path, kind: Kind, tasks: Sequence[Task]) -> str:
    """Write a task file atomically, and return its tasks_id."""
    tasks_id = tasks_id_of(task.id for task in tasks)
    header = {"format": TASKS_FORMAT, "version": VERSION, "tasks_id": tasks_id, "kind": kind}
    header |= {"tasks": len(tasks)}
    lines = ({k: v for k, v in asdict(task).items() if v is not None} for task in tasks)
    write_objects(path, [header, *lines])
    return tasks_id


def write_key(path: Path, header: dict[str, Any], items: Sequence[KeyItem]) -> None:
    """Write a key atomically, readable only by its owner; `header` holds the fields of `Key`."""
    first = {"format": KEY_FORMAT, "version": VERSION, **header, "items": len(items)}
    write_objects(path, [first, *map(asdict, items)], KEY_MODE)


def read_tasks(path: Path, results: Path | None = None) -> TaskSet:
    """Read a task file; `results` is the folder of its scores, if they are not beside it.

    Raises
    ------
    UserError
        No such file, another format, a file cut short, lines added or lost, or an id that occurs
        twice.
    """
    header, rows = _read(path, TASKS_FORMAT, "task file", _TasksHeader)
    _check_count(path, len(rows), header.tasks, "tasks")
    shown, hidden = ("png", "text") if header.kind == "image" else ("text", "png")
    tasks = []
    for where, row in rows:
        task = checked(Task, {**row, hidden: None}, where)
        if getattr(task, shown) is None:
            raise UserError(f'{where}: "{shown}" is missing')
        tasks.append(task)
    _check_ids(path, header.tasks_id, [task.id for task in tasks])
    return TaskSet(path, header.tasks_id, header.kind, tasks, results)


def read_key(path: Path, tasks_id: str | None = None) -> Key:
    """Read the key of a task file, which must belong to the set `tasks_id` (None: any set).

    Raises
    ------
    UserError
        No such file, another format, a file cut short, the key of another task set, or items
        outside the bins of their runs.
    """
    header, rows = _read(path, KEY_FORMAT, "key of a task file", _KeyHeader)
    _check_count(path, len(rows), header.items, "items")
    items = [checked(KeyItem, row, where) for where, row in rows]
    _check_ids(path, header.tasks_id, [item.id for item in items])
    if tasks_id not in (None, header.tasks_id):
        ids = f"{header.tasks_id}, not {tasks_id}"
        raise UserError(f"{path} is the key of another task set ({ids})")
    bins = (header.width, header.range, header.per_bin, header.duplicates)
    key = Key(path, header.tasks_id, header.law, header.runs, *bins, items)
    _check_drawn_items(key, [where for where, _ in rows])
    return key


def _read(
    path: Path, format_: str, what: str, header: type[Record]
) -> tuple[Record, list[tuple[str, dict[str, Any]]]]:
    """Return the header, and the objects of the other lines with their places."""
    (where, first), *rows = read_objects(path, what)
    if first.get("format") != format_:
        problem = f"is not a {what} of omniinput_hpc (its first line does not name that format)"
        raise UserError(f"{path} {problem}")
    return checked(header, first, where), rows


def _check_count(path: Path, found: int, written: int, what: str) -> None:
    if found != written:
        problem = "cut short" if found < written else "longer than it was"
        raise UserError(f"{path} is {problem}: it holds {found} {what} instead of {written}")


def _check_ids(path: Path, tasks_id: str, ids: Sequence[str]) -> None:
    id_, times = Counter(ids).most_common(1)[0] if ids else ("", 0)
    if times > 1:
        raise UserError(f"{path}: the id {id_} occurs twice")
    if tasks_id_of(ids) != tasks_id:
        raise UserError(f"{path}: its ids are not those that it was written with (tasks_id)")


def _check_drawn_items(key: Key, places: Sequence[str]) -> None:
    """Check that every item except gold ones is in a bin of its run."""
    for run in key.runs:
        if (run.range[1] - run.range[0]) / key.width > MAX_BINS:
            raise UserError(f"{key.path}, line 1: more than {MAX_BINS:,} bins of {key.width:g}")
    sites: dict[int, set[int]] = defaultdict(set)
    for where, item in zip(places, key.items, strict=True):
        if item.gold is not None:
            continue
        for name in ("run", "bin_lower", "z", "log_weight", "lane"):
            if getattr(item, name) is None:
                raise UserError(f'{where}: "{name}" must be a number, got null')
        assert item.run is not None and item.bin_lower is not None
        if item.run >= len(key.runs):
            raise UserError(f'{where}: "run" is {item.run}, but the key names {len(key.runs)} runs')
        if item.log_weight is not None and item.log_weight > MAX_LOG_SHARE:
            raise UserError(f'{where}: "log_weight" is {item.log_weight:g}; a share is at most 1')
        low, high = key.runs[item.run].range
        if not low - key.width / 2 < item.bin_lower < high - key.width / 2:
            raise UserError(f'{where}: "bin_lower" is {item.bin_lower:g}, outside the run\'s range')
        sites[item.run].add(len(item.x))
        if len(sites[item.run]) > 1:
            raise UserError(f'{where}: "x" is not as long as the other inputs of its run')
