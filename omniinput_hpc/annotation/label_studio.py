"""Export to and import from Label Studio's JSON: tasks with each person's scores.

A rating of s stars out of S is the score (s - 1) / (S - 1), so that one star is 0 and all stars are
1. A Number is the score itself, and takes precedence if an annotation holds both. Predictions of a
model and cancelled annotations are not imported.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from omniinput_hpc.annotation.imports import (
    DEFAULT_STARS,
    Collected,
    Imported,
    ImportOptions,
    plain_name,
)
from omniinput_hpc.annotation.jsonl import MAX_FILE_BYTES, Finite, Flag, Text, checked
from omniinput_hpc.annotation.scores import Score, Scores
from omniinput_hpc.annotation.tasks import TaskSet
from omniinput_hpc.errors import UserError
from omniinput_hpc.untrusted.files import read_text
from omniinput_hpc.untrusted.parsing import parse_json

Given = tuple[str, datetime | None, Score]
"""Place in the file, time of the score (None if missing), and the score."""


@dataclass(frozen=True)
class _LabelStudioValue:
    number: Finite | None = None
    rating: Finite | None = None


@dataclass(frozen=True)
class _LabelStudioResult:
    value: _LabelStudioValue | None = None


@dataclass(frozen=True)
class _LabelStudioAnnotation:
    """One person's annotation of a task; fields of type `Any` are checked later."""

    result: list[_LabelStudioResult] | None = None
    completed_by: Any = None
    was_cancelled: Flag | None = None
    lead_time: Any = None
    created_at: Any = None
    updated_at: Any = None
    guideline: Any = None
    judge: Any = None


@dataclass(frozen=True)
class _LabelStudioData:
    id: Text


@dataclass(frozen=True)
class _LabelStudioTask:
    data: _LabelStudioData
    annotations: list[_LabelStudioAnnotation]
    predictions: list[Any] | None = None


def to_label_studio(tasks: TaskSet, scores: Sequence[Scores]) -> bytes:
    """Return Label Studio's tasks with their annotations, each with a Number and a rating."""
    latest = [(file.annotator, file.latest()) for file in scores]
    exported = []
    for n, task in enumerate(tasks.tasks, 1):
        shown = (task.prefix or "") + (task.text or "") if tasks.kind == "text" else task.png
        given = [(name, lines[task.id]) for name, lines in latest if task.id in lines]
        annotations = [_annotation(tasks.kind, name, line) for name, line in given]
        data = {"id": task.id, tasks.kind: shown}
        exported.append({"id": n, "data": data, "annotations": annotations})
    return json.dumps(exported, indent=1).encode("ascii")


def _annotation(shown: str, name: str, line: Score) -> dict[str, Any]:
    assert line.score is not None  # withdrawn scores are not exported
    stars = 1 + round(line.score * (DEFAULT_STARS - 1))
    values = {"number": {"number": line.score}, "rating": {"rating": stars}}
    return {
        "completed_by": {"email": f"{name}@omniinput"},
        "lead_time": line.seconds,
        "created_at": line.when,
        "was_cancelled": False,
        "guideline": line.guideline,
        "judge": line.judge,
        "result": [
            {"from_name": kind, "to_name": shown, "type": kind, "value": value}
            for kind, value in values.items()
        ],
    }


def from_label_studio(tasks: TaskSet, options: ImportOptions) -> Imported:
    """Return the lines of a Label Studio export (JSON, not JSON_MIN).

    A task's ``data`` must hold our ``id``. If a person annotated a task several times, the latest
    annotation counts; cancelled ones do not.
    """
    collected, given = Collected(tasks, options), []
    predicted = cancelled = 0
    for n, item in enumerate(_items(options.path), 1):
        where = f"{options.path}, task {n}"
        task = checked(_LabelStudioTask, _task(item, where), where)
        predicted += len(task.predictions or ())
        for annotation in task.annotations:
            if annotation.was_cancelled:
                cancelled += 1
                continue
            when = annotation.updated_at or annotation.created_at or None
            value = {
                "id": task.data.id,
                "score": _rated(annotation, where, options.stars),
                "seconds": annotation.lead_time,
                "when": when,
                "guideline": annotation.guideline,
                "judge": annotation.judge,
            }
            person = _person(annotation.completed_by, where)
            line = collected.add({**value, "annotator": _name_of(person)}, where, person)
            given.append((where, _time(when), line))
    collected.note(cancelled, "cancelled annotation")
    collected.note(predicted, "prediction", "left out: made by a model, not a person")
    replaced = _put_in_order(given, collected.found)
    collected.note(replaced, "annotation", "replaced by a later one for the same person and task")
    return collected.found


def _items(path: Path) -> list[Any]:
    try:
        items = parse_json(read_text(path, "Label Studio export", MAX_FILE_BYTES).encode())
    except ValueError as error:
        raise UserError(f"{path} is cut short or is not JSON: {error}") from None
    if isinstance(items, dict) and "completions" in items:
        items = [items]  # an old export with a file per task; `_task` refuses it
    if not isinstance(items, list):
        raise UserError(f"{path}: expected a list of tasks, as in Label Studio's JSON export")
    return items


def _task(item: Any, where: str) -> Any:
    """Return a task of an export; a UserError if it lacks our data or annotations."""
    keys = item.keys() if isinstance(item, dict) else ()
    if {"data", "annotations"} <= set(keys):
        return item
    if "completions" in keys:
        raise UserError(
            f"{where}: completions instead of annotations (Label Studio before 1.0): import the "
            "project into Label Studio 1.0 or later, and export it as JSON again"
        )
    what = "a JSON-MIN export, which lacks our ids" if "annotation_id" in keys else ""
    raise UserError(f"{where}: no data or annotations{what and f' ({what})'}; export it as JSON")


def _put_in_order(given: Sequence[Given], found: Imported) -> int:
    """Sort each annotator's lines by time, so that the latest counts; return how many are replaced.

    At equal times, the last one in the file counts. Raises a UserError if a person annotated a task
    several times and one annotation has no time.
    """
    by_task: dict[tuple[str, str], list[Given]] = defaultdict(list)
    for one in given:
        by_task[one[2].annotator, one[2].id].append(one)
    for (name, id_), several in by_task.items():
        if len(several) > 1 and any(time is None for _, time, _ in several):
            raise UserError(
                f"{several[-1][0]}: {name} has several annotations of {id_}, and one has no time "
                "(updated_at or created_at): delete all but one"
            )
    beginning = datetime.min.replace(tzinfo=UTC)
    found.lines.clear()
    for _, _, line in sorted(given, key=lambda one: one[1] or beginning):
        found.lines[line.annotator].append(line)
    return len(given) - len(by_task)


def _time(when: Any) -> datetime | None:
    """Return a time of an export, in UTC, which is also the default zone; None if it is invalid."""
    try:
        time = datetime.fromisoformat(when.strip().upper())
        return time.replace(tzinfo=time.tzinfo or UTC).astimezone(UTC)
    except (AttributeError, ValueError, OverflowError):
        return None


def _rated(annotation: _LabelStudioAnnotation, where: str, stars: int) -> float:
    """Return an annotation's score, from its Number or else from its rating."""
    values = [result.value for result in annotation.result or [] if result.value is not None]
    numbers = [value.number for value in values if value.number is not None]
    ratings = [value.rating for value in values if value.rating is not None]
    for kind, results in (("number", numbers), ("rating", ratings)):
        if len(results) > 1:
            raise UserError(f"{where}: an annotation holds several results of type {kind}")
    if numbers:
        return numbers[0]
    if not ratings:
        raise UserError(f"{where}: an annotation holds neither a rating nor a Number")
    if not 1 <= ratings[0] <= stars:
        raise UserError(f"{where}: {ratings[0]:g} stars, not 1 to {stars}; set the most by --stars")
    return (ratings[0] - 1.0) / (stars - 1.0)


def _person(completed_by: Any, where: str) -> str | None:
    """Return who scored, as the file names them: an e-mail address, or user7."""
    if isinstance(completed_by, dict):
        completed_by = completed_by.get("email") or completed_by.get("id")
    if completed_by is None:
        return None
    if isinstance(completed_by, int) and not isinstance(completed_by, bool):
        return f"user{completed_by}"
    if not isinstance(completed_by, str):
        raise UserError(f"{where}: completed_by must be a user's number, address or object")
    return completed_by


def _name_of(person: str | None) -> str | None:
    """Return an annotator's name: the part of an e-mail address before the @."""
    return None if person is None else plain_name(person.partition("@")[0])
