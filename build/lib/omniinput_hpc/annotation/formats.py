"""Scores in other programs' files: CSV, Label Studio's JSON, JSON lines as Inspect's samples.

Export writes the latest score of each task; import returns the lines of score files, and every line
is checked before anything is written. A Label Studio rating of s stars out of S is the score
(s - 1) / (S - 1), so that one star is 0 and all stars are 1; a Number is the score as it is, and is
preferred where an annotation holds both. Of Inspect's letters, C is 1, P is 0.5, I and N are 0.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from omniinput_hpc.annotation.jsonl import (
    Finite,
    NonNegative,
    Text,
    UnitScore,
    checked,
    expected,
    line_of,
    read_bytes,
    read_objects,
)
from omniinput_hpc.annotation.scores import Score, Scores, check_name, now
from omniinput_hpc.annotation.tasks import TaskSet
from omniinput_hpc.errors import UserError
from omniinput_hpc.text import read_cell, safe_cell
from omniinput_hpc.untrusted.parsing import parse_json

COLUMNS = ("id", "score", "seconds", "when", "guideline", "annotator", "judge")
LETTER_SCORES = {"C": 1.0, "P": 0.5, "I": 0.0, "N": 0.0}
INSPECT_METADATA = ("seconds", "when", "guideline", "judge")
DEFAULT_STARS = 5


@dataclass(frozen=True)
class ImportOptions:
    """What file to import, and how.

    `annotator` is who scored, where the file does not say or has one annotator (of several
    people's scores it is refused); None: the file says. `stars` is S, the most stars of a Label
    Studio rating.
    """

    path: Path
    annotator: str | None = None
    stars: int = DEFAULT_STARS


ScoreLines = dict[str, list[Score]]
"""The lines of new score files, by annotator."""


class _Collected:
    """Scores of a file, checked one by one, as the lines of each annotator's score file."""

    def __init__(self, tasks: TaskSet, options: ImportOptions) -> None:
        self.lines: ScoreLines = defaultdict(list)
        self._tasks, self._options = tasks, options
        self._people: dict[str, str] = {}  # as the file calls them, by name

    def add(self, value: dict[str, Any], where: str, person: str | None = None) -> None:
        """Check one score and add it; `person` is who gave it, as the file says."""
        score = checked(_ImportedScore, value, where)
        if score.id not in self._tasks.ids:
            raise UserError(f"{where}: {self._tasks.path} holds no task with the id {score.id}")
        name = self._options.annotator or score.annotator
        if name is None:
            raise UserError(f"{where}: it does not say who scored; name them by --annotator")
        name, person = check_name(name), person or score.annotator or "somebody without a name"
        other = self._people.setdefault(name, person)
        if other != person:
            remedy = "import them one by one" if self._options.annotator else "rename one there"
            raise UserError(f"{where}: {other!r} and {person!r} would both be {name}; {remedy}")
        line = {**asdict(score), "when": score.when or now(), "annotator": name}
        self.lines[name].append(Score(**line))


@dataclass(frozen=True, kw_only=True)
class _ImportedScore:
    """A score of another program's file; see `Score`."""

    id: Text
    score: UnitScore
    seconds: NonNegative | None = None
    when: Text | None = None
    guideline: Text | None = None
    judge: Text | None = None
    annotator: Text | None = None


@dataclass(frozen=True)
class _LabelStudioValue:
    number: Finite | None = None
    rating: Finite | None = None


@dataclass(frozen=True)
class _LabelStudioResult:
    value: _LabelStudioValue | None = None


@dataclass(frozen=True)
class _LabelStudioAnnotation:
    """One person's work on a task; the fields of `Any` are checked as `_ImportedScore`'s."""

    result: list[_LabelStudioResult] | None = None
    completed_by: Any = None
    was_cancelled: Any = None
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


@dataclass(frozen=True)
class _InspectSample:
    id: Text
    scores: Annotated[
        dict[str, Any], Field(strict=True), expected("an object with a score per scorer")
    ]


def to_csv(tasks: TaskSet, scores: Sequence[Scores]) -> bytes:
    """Return a row per annotator and scored task, in the tasks' order; unknown cells are empty."""
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(COLUMNS)
    for file in scores:
        latest = file.latest()
        for task in tasks.tasks:
            if task.id in latest:
                row = [getattr(latest[task.id], name) for name in COLUMNS]
                table.writerow(map(_cell, row))
    return text.getvalue().encode()


def _cell(value: Any) -> Any:
    return "" if value is None else safe_cell(value) if isinstance(value, str) else value


def from_csv(tasks: TaskSet, options: ImportOptions) -> ScoreLines:
    """Return the lines of a CSV file with the columns ``id`` and ``score``, others as exported."""
    try:
        text = read_bytes(options.path, "CSV file of scores").decode("utf-8-sig")
        table = csv.DictReader(io.StringIO(text), strict=True)
        rows = [(table.line_num, row) for row in table]
    except (UnicodeDecodeError, csv.Error) as error:
        raise UserError(f"{options.path} cannot be read as CSV: {error}") from None
    missing = [name for name in COLUMNS[:2] if name not in (table.fieldnames or ())]
    if missing:
        raise UserError(f"{options.path} has no column {' or '.join(missing)} in its first line")
    found = _Collected(tasks, options)
    for number, row in rows:
        where = f"{options.path}, line {number}"
        if None in row or None in row.values():
            raise UserError(f"{where}: cut short, or not as long as the first")
        value: dict[str, Any] = {k: read_cell(v) for k, v in row.items() if v != ""}
        value |= {k: _number(value[k]) for k in ("score", "seconds") if k in value}
        found.add(value, where)
    return _check_unique(found.lines, options.path)


def to_label_studio(tasks: TaskSet, scores: Sequence[Scores]) -> bytes:
    """Return a list of Label Studio tasks with their annotations, a Number and a rating each."""
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
    assert line.score is not None  # withdrawn ones are not exported
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


def from_label_studio(tasks: TaskSet, options: ImportOptions) -> ScoreLines:
    """Return the lines of a Label Studio export (JSON, not JSON_MIN).

    A task's ``data`` must hold the opaque ``id``. Of several annotations of one person, the last
    counts; cancelled ones do not.
    """
    path = options.path
    try:
        items = parse_json(read_bytes(path, "Label Studio export"))
    except ValueError as error:
        raise UserError(f"{path} is cut short or is no JSON: {error}") from None
    if not isinstance(items, list):
        raise UserError(f"{path}: expected a list of tasks, as Label Studio's JSON export is")
    found = _Collected(tasks, options)
    for n, item in enumerate(items, 1):
        where = f"{path}, task {n}"
        if not isinstance(item, dict) or not {"data", "annotations"} <= item.keys():
            raise UserError(f"{where}: no data and annotations (export as JSON, not JSON_MIN)")
        task = checked(_LabelStudioTask, item, where)
        for annotation in task.annotations:
            if annotation.was_cancelled:
                continue
            value = {
                "id": task.data.id,
                "score": _rated(annotation, where, options.stars),
                "seconds": annotation.lead_time,
                "when": annotation.updated_at or annotation.created_at,
                "guideline": annotation.guideline,
                "judge": annotation.judge,
            }
            person = _person(annotation.completed_by, where)
            found.add({**value, "annotator": _name_of(person)}, where, person)
    for scores in found.lines.values():
        scores.sort(key=lambda line: line.when)
    return found.lines


def _rated(annotation: _LabelStudioAnnotation, where: str, stars: int) -> float:
    """Return the score of an annotation: of its Number, else of its rating."""
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
        raise UserError(f"{where}: {ratings[0]:g} stars of 1 to {stars}; are there more (--stars)?")
    return (ratings[0] - 1.0) / (stars - 1.0)


def _person(completed_by: Any, where: str) -> str | None:
    """Return who scored, as the file says: an e-mail address, or user7."""
    if isinstance(completed_by, dict):
        completed_by = completed_by.get("email") or completed_by.get("id")
    if completed_by is None:
        return None
    if isinstance(completed_by, int):
        return f"user{completed_by}"
    if not isinstance(completed_by, str):
        raise UserError(f"{where}: completed_by must be a user's number, address or object")
    return completed_by


def _name_of(person: str | None) -> str | None:
    """Return an annotator's name: of an e-mail address the part before the @."""
    return None if person is None else _plain_name(person.partition("@")[0])


def _plain_name(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_-]", "-", name)


def to_inspect(tasks: TaskSet, scores: Sequence[Scores]) -> bytes:
    """Return a line per task that was scored: ``{"id", "scores": {NAME: {"value", ...}}}``."""
    latest = [(file.annotator, file.latest()) for file in scores]
    samples = []
    for task in tasks.tasks:
        given = {name: _inspect_score(lines[task.id]) for name, lines in latest if task.id in lines}
        if given:
            samples.append({"id": task.id, "scores": given})
    return b"".join(map(line_of, samples))


def _inspect_score(line: Score) -> dict[str, Any]:
    metadata = {name: getattr(line, name) for name in INSPECT_METADATA}
    return {"value": line.score, "metadata": metadata}


def from_inspect(tasks: TaskSet, options: ImportOptions) -> ScoreLines:
    """Return the lines of precomputed scores, an annotator per scorer.

    A value is a number in [0, 1], true or false, or one of `LETTER_SCORES`; null was not scored. A
    scorer is a judge unless its metadata, as exported here, say otherwise.
    """
    found = _Collected(tasks, options)
    for where, row in read_objects(options.path, "file of precomputed scores"):
        sample = checked(_InspectSample, row, where)
        for scorer, given in sample.scores.items():
            given = given if isinstance(given, dict) else {"value": given}
            known = given.get("metadata")
            known = known if isinstance(known, dict) and "judge" in known else {}
            score = given.get("value")
            if score is None:
                continue
            if isinstance(score, bool):
                score = float(score)
            elif isinstance(score, str):
                score = LETTER_SCORES.get(score, score)  # another text is refused in add
            value = {name: known.get(name) for name in INSPECT_METADATA}
            value |= {"id": sample.id, "score": score, "annotator": _plain_name(scorer)}
            if not known:
                value["judge"] = f"Inspect scorer {scorer}"
            found.add(value, where, scorer)
    return _check_unique(found.lines, options.path)


def _number(text: str) -> float | str:
    """Return a cell's number; another text as it is, to be refused in `_Collected.add`."""
    try:
        return float(text)
    except ValueError:
        return text


def _check_unique(lines: ScoreLines, path: Path) -> ScoreLines:
    """Return the lines if nobody scored a task twice."""
    for name, scores in lines.items():
        id_, times = Counter(line.id for line in scores).most_common(1)[0]
        if times > 1:
            raise UserError(f"{path}: {name} has several scores of {id_}; leave one")
    return lines


EXPORTS: dict[str, tuple[str, Callable[[TaskSet, Sequence[Scores]], bytes]]] = {
    "csv": (".scores.csv", to_csv),
    "label-studio": (".label-studio.json", to_label_studio),
    "inspect": (".inspect.jsonl", to_inspect),
}
IMPORTS: dict[str, Callable[[TaskSet, ImportOptions], ScoreLines]] = {
    "csv": from_csv,
    "label-studio": from_label_studio,
    "inspect": from_inspect,
}
