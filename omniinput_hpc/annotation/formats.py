"""Scores in other programs' files: CSV, Label Studio's JSON, JSON lines as Inspect's samples.

Export holds the words that count; import gives the lines of score files, checked whole before
anything is written. A Label Studio rating of s stars out of S is the score (s - 1) / (S - 1), so
that one star is 0 and all stars are 1; a Number is the score as it is, and is taken where an
annotation holds both. Of Inspect's letters, C is 1, P is 0.5, I and N are 0.
"""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omniinput_hpc.annotation.jsonl import Fields, line_of, read_bytes, read_objects
from omniinput_hpc.annotation.scores import Score, Scores, check_name, now
from omniinput_hpc.annotation.tasks import TaskSet
from omniinput_hpc.errors import UserError

COLUMNS = ("id", "score", "seconds", "when", "guideline", "annotator", "judge")
LETTERS = {"C": 1.0, "P": 0.5, "I": 0.0, "N": 0.0}
STARS = 5


@dataclass(frozen=True)
class Reading:
    """What an import is told.

    Attributes
    ----------
    path : of the file
    annotator : who scored, where the file does not say or has one annotator; None: the file says
    stars : S, a Label Studio rating's most stars
    """

    path: Path
    annotator: str | None = None
    stars: int = STARS


Lines = dict[str, list[Score]]


def to_csv(tasks: TaskSet, scores: Sequence[Scores]) -> bytes:
    """Return a row per annotator and scored task, in the tasks' order; empty: not known."""
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(COLUMNS)
    for file in scores:
        words = file.last_words()
        for task in tasks.tasks:
            if task.id in words:
                word = words[task.id]
                row = [getattr(word, name) for name in COLUMNS]
                table.writerow("" if value is None else value for value in row)
    return text.getvalue().encode()


def from_csv(tasks: TaskSet, reading: Reading) -> Lines:
    """Return the lines of a CSV file with the columns ``id`` and ``score``, others as exported."""
    try:
        text = read_bytes(reading.path, "CSV file of scores").decode("utf-8-sig")
        table = csv.DictReader(io.StringIO(text), strict=True)
        rows = [(table.line_num, row) for row in table]
    except (UnicodeDecodeError, csv.Error) as error:
        raise UserError(f"{reading.path} cannot be read as CSV: {error}") from None
    missing = [name for name in COLUMNS[:2] if name not in (table.fieldnames or ())]
    if missing:
        raise UserError(f"{reading.path} has no column {' or '.join(missing)} in its first line")
    lines: Lines = defaultdict(list)
    for number, row in rows:
        if None in row or None in row.values():
            raise UserError(
                f"{reading.path}, line {number}: cut short, or not as long as the first"
            )
        value: dict[str, Any] = {k: v for k, v in row.items() if v != ""}
        for name in ("score", "seconds"):
            if name in value:
                value[name] = _number(value[name])
        _add(lines, tasks, Fields(value, reading.path, number), reading)
    return _once(lines, reading.path)


def to_label_studio(tasks: TaskSet, scores: Sequence[Scores]) -> bytes:
    """Return a list of Label Studio tasks with their annotations, a Number and a rating each."""
    words = [(file.annotator, file.last_words()) for file in scores]
    shown = "text" if tasks.kind == "text" else "image"
    made = []
    for n, task in enumerate(tasks.tasks, 1):
        what = {"text": (task.prefix or "") + (task.text or ""), "image": task.png}[shown]
        done = [(name, said[task.id]) for name, said in words if task.id in said]
        annotations = [_annotation(shown, name, word) for name, word in done]
        data = {"id": task.id, shown: what}
        made.append({"id": n, "data": data, "annotations": annotations})
    return json.dumps(made, indent=1).encode("ascii")


def _annotation(shown: str, name: str, word: Score) -> dict[str, Any]:
    assert word.score is not None  # last words have one
    stars = 1 + round(word.score * (STARS - 1))
    values = {"number": {"number": word.score}, "rating": {"rating": stars}}
    return {
        "completed_by": {"email": f"{name}@omniinput"},
        "lead_time": word.seconds,
        "created_at": word.when,
        "was_cancelled": False,
        "guideline": word.guideline,
        "judge": word.judge,
        "result": [
            {"from_name": kind, "to_name": shown, "type": kind, "value": value}
            for kind, value in values.items()
        ],
    }


def from_label_studio(tasks: TaskSet, reading: Reading) -> Lines:
    """Return the lines of a Label Studio export (JSON, not JSON_MIN).

    A task's ``data`` must hold the opaque ``id``. Of several annotations of one person, the last
    counts; cancelled ones do not.
    """
    path = reading.path
    try:
        items = json.loads(read_bytes(path, "Label Studio export"))
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} is cut short or is no JSON: {error}") from None
    if not isinstance(items, list):
        raise UserError(f"{path}: expected a list of tasks, as Label Studio's JSON export is")
    lines: Lines = defaultdict(list)
    for n, item in enumerate(items, 1):
        where = f"{path}, task {n}"
        data = item.get("data") if isinstance(item, dict) else None
        if not isinstance(data, dict) or "annotations" not in item:
            raise UserError(f"{where}: no data and annotations (export as JSON, not JSON_MIN)")
        if not isinstance(data.get("id"), str):
            raise UserError(f'{where}: its data hold no "id" of a task file')
        for annotation in _list(item["annotations"], where):
            if annotation.get("was_cancelled"):
                continue
            value = {
                "id": data["id"],
                "score": _rated(annotation, where, reading.stars),
                "seconds": annotation.get("lead_time"),
                "when": annotation.get("updated_at") or annotation.get("created_at"),
                "guideline": annotation.get("guideline"),
                "judge": annotation.get("judge"),
                "annotator": _person(annotation.get("completed_by"), where),
            }
            _add(lines, tasks, Fields(value, path, n, where), reading)
    for said in lines.values():
        said.sort(key=lambda line: line.when)
    return lines


def _list(value: Any, where: str) -> list[dict[str, Any]]:
    if not isinstance(value, list) or not all(isinstance(v, dict) for v in value):
        raise UserError(f"{where}: its annotations are no list of objects")
    return value


def _rated(annotation: dict[str, Any], where: str, stars: int) -> float:
    """Return the score of an annotation: of its Number, else of its rating."""
    found: dict[str, Any] = {}
    for result in _list(annotation.get("result"), where):
        value = result.get("value")
        for kind in ("number", "rating"):
            if isinstance(value, dict) and kind in value:
                if kind in found:
                    raise UserError(f"{where}: an annotation holds several results of type {kind}")
                found[kind] = value[kind]
    if "number" in found:
        return float(_finite(found["number"], where))
    if "rating" not in found:
        raise UserError(f"{where}: an annotation holds neither a rating nor a Number")
    rating = _finite(found["rating"], where)
    if not 1 <= rating <= stars:
        raise UserError(f"{where}: {rating:g} stars of 1 to {stars}; are there more (--stars)?")
    return (rating - 1.0) / (stars - 1.0)


def _finite(value: Any, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise UserError(f"{where}: {json.dumps(value)[:60]} is no number")
    return float(value)


def _person(completed_by: Any, where: str) -> str | None:
    """Return an annotator's name: of the e-mail address the part before the @, or user7."""
    if isinstance(completed_by, dict):
        completed_by = completed_by.get("email") or completed_by.get("id")
    if completed_by is None:
        return None
    if isinstance(completed_by, int):
        return f"user{completed_by}"
    if not isinstance(completed_by, str):
        raise UserError(f"{where}: completed_by names nobody")
    return re.sub(r"[^A-Za-z0-9_-]", "-", completed_by.partition("@")[0])


def to_inspect(tasks: TaskSet, scores: Sequence[Scores]) -> bytes:
    """Return a line per task that was scored: ``{"id", "scores": {NAME: {"value", ...}}}``."""
    words = [(file.annotator, file.last_words()) for file in scores]
    lines = []
    for task in tasks.tasks:
        said = {name: said[task.id] for name, said in words if task.id in said}
        if said:
            lines.append({"id": task.id, "scores": {k: _inspected(v) for k, v in said.items()}})
    return b"".join(map(line_of, lines))


def _inspected(word: Score) -> dict[str, Any]:
    names = ("seconds", "when", "guideline", "judge")
    return {"value": word.score, "metadata": {name: getattr(word, name) for name in names}}


def from_inspect(tasks: TaskSet, reading: Reading) -> Lines:
    """Return the lines of precomputed scores, an annotator per scorer.

    A value is a number in [0, 1], true or false, or one of `LETTERS`; null was not scored. A scorer
    is a judge unless its metadata, as exported here, say otherwise.
    """
    lines: Lines = defaultdict(list)
    for n, sample in enumerate(read_objects(reading.path, "file of precomputed scores"), 1):
        row = Fields(sample, reading.path, n)
        scores = sample.get("scores")
        if not isinstance(scores, dict):
            raise row.wrong("scores", "an object, a score per scorer")
        for scorer, given in scores.items():
            given = given if isinstance(given, dict) else {"value": given}
            known = given.get("metadata")
            known = known if isinstance(known, dict) and "judge" in known else {}
            score = given.get("value")
            if score is None:
                continue
            if isinstance(score, bool):
                score = float(score)
            elif isinstance(score, str):
                score = LETTERS.get(score, score)  # another text is complained about below
            value = {
                "id": sample.get("id"),
                "score": score,
                "seconds": known.get("seconds"),
                "when": known.get("when"),
                "guideline": known.get("guideline"),
                "judge": known.get("judge") if known else f"Inspect scorer {scorer}",
                "annotator": re.sub(r"[^A-Za-z0-9_-]", "-", scorer),
            }
            _add(lines, tasks, Fields(value, reading.path, n), reading)
    return _once(lines, reading.path)


def _number(text: str) -> float | str:
    """Return a cell's number; a text is left to `Fields` to complain about."""
    try:
        return float(text)
    except ValueError:
        return text


def _add(lines: Lines, tasks: TaskSet, row: Fields, reading: Reading) -> None:
    """Check one score and add it to its annotator's lines."""
    id_, score = row.text("id"), row.score_or_none("score")
    if score is None:
        raise row.wrong("score", "a score from 0 to 1")
    if id_ not in tasks.ids:
        raise UserError(f"{row.where}: {tasks.path} holds no task with the id {id_}")
    seconds = row.number_or_none("seconds")
    if seconds is not None and seconds < 0:
        raise row.wrong("seconds", "a number >= 0")
    name = reading.annotator or row.text_or_none("annotator")
    if name is None:
        raise UserError(f"{row.where}: it does not say who scored; name them by --annotator")
    lines[check_name(name)].append(
        Score(
            id=id_,
            score=score,
            seconds=seconds,
            when=row.text_or_none("when") or now(),
            guideline=row.text_or_none("guideline"),
            annotator=name,
            judge=row.text_or_none("judge"),
        )
    )


def _once(lines: Lines, path: Path) -> Lines:
    """Return the lines, having made sure that nobody scored a task twice."""
    for name, said in lines.items():
        seen: set[str] = set()
        for line in said:
            if line.id in seen:
                raise UserError(f"{path}: {name} has several scores of {line.id}; leave one")
            seen.add(line.id)
    return lines


EXPORTS: dict[str, tuple[str, Callable[[TaskSet, Sequence[Scores]], bytes]]] = {
    "csv": (".scores.csv", to_csv),
    "label-studio": (".label-studio.json", to_label_studio),
    "inspect": (".inspect.jsonl", to_inspect),
}
IMPORTS: dict[str, Callable[[TaskSet, Reading], Lines]] = {
    "csv": from_csv,
    "label-studio": from_label_studio,
    "inspect": from_inspect,
}
