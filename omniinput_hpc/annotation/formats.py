"""Export and import scores: CSV, Label Studio's JSON, and samples of Inspect.

Inspect's samples are read from JSON lines and from its logs (``.eval``), and written as JSON lines;
`omniinput_hpc.export` writes logs.

Export writes the latest score of each task. Import returns lines for score files, all of which are
checked before anything is written. Inspect's letters count as C = 1, P = 0.5, I = N = 0.
"""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from omniinput_hpc.annotation.imports import Collected, Imported, ImportOptions, plain_name
from omniinput_hpc.annotation.jsonl import (
    MAX_FILE_BYTES,
    Text,
    checked,
    expected,
    line_of,
    read_bytes,
    read_objects,
)
from omniinput_hpc.annotation.label_studio import from_label_studio, to_label_studio
from omniinput_hpc.annotation.scores import Score, Scores
from omniinput_hpc.annotation.tasks import TaskSet
from omniinput_hpc.errors import UserError
from omniinput_hpc.text import first_line, read_cell, safe_cell
from omniinput_hpc.untrusted.tables import SEPARATORS, read_table

COLUMNS = ("id", "score", "seconds", "when", "guideline", "annotator", "judge")
NUMBERS = ("score", "seconds")
LETTER_SCORES = {"C": 1.0, "P": 0.5, "I": 0.0, "N": 0.0}
INSPECT_LOG = ".eval"
INSPECT_METADATA = ("seconds", "when", "guideline", "judge")


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


def from_csv(tasks: TaskSet, options: ImportOptions) -> Imported:
    """Return the lines of a CSV file with ``id``, ``score`` and optionally other `COLUMNS`."""
    table = read_table(options.path, "CSV file of scores", MAX_FILE_BYTES, COLUMNS[:2], COLUMNS[2:])
    collected = Collected(tasks, options)
    numbers = table.numbers(NUMBERS)
    for (line, cells), found in zip(table.rows, numbers, strict=True):
        value: dict[str, Any] = {
            name: read_cell(cell)
            for name, cell in zip(table.names, cells, strict=True)
            if name in COLUMNS and name not in NUMBERS and cell.strip()
        }
        collected.add({**value, **found}, f"{options.path}, line {line}")
    decimals = " and decimal commas" if table.has_comma(NUMBERS) else ""
    if decimals or table.separator != ",":
        words = f"read with {SEPARATORS[table.separator]} between cells{decimals}"
        collected.found.notes.append(f"{options.path}: {words}")
    collected.note(table.n_empty, "empty row")
    others = [name for name in table.names if name and name not in COLUMNS]
    if others:
        collected.found.notes.append(f"{options.path}: ignored columns: {', '.join(others)[:200]}")
    return _check_unique(collected.found, options.path)


def to_inspect(tasks: TaskSet, scores: Sequence[Scores]) -> bytes:
    """Return a line per scored task: ``{"id", "scores": {NAME: {"value", ...}}}``."""
    latest = [(file.annotator, file.latest()) for file in scores]
    samples = []
    for task in tasks.tasks:
        given = {name: inspect_score(lines[task.id]) for name, lines in latest if task.id in lines}
        if given:
            samples.append({"id": task.id, "scores": given})
    return b"".join(map(line_of, samples))


def inspect_score(line: Score) -> dict[str, Any]:
    """Return a score as Inspect's samples have it, with the rest of its line as metadata."""
    metadata = {name: getattr(line, name) for name in INSPECT_METADATA}
    return {"value": line.score, "metadata": metadata}


def from_inspect(tasks: TaskSet, options: ImportOptions) -> Imported:
    """Return the lines of Inspect's samples, from a log or JSON lines; a scorer is an annotator.

    A value is a number in [0, 1], true or false, or one of `LETTER_SCORES`; null means not scored.
    A scorer is a judge unless its metadata, as exported here, state otherwise. Logs raise a
    ModuleNotFoundError without inspect_ai.
    """
    collected, without = Collected(tasks, options), 0
    if options.path.suffix.lower() == INSPECT_LOG:
        samples = _logged(options.path)
    else:
        samples = read_objects(options.path, "file of precomputed scores")
    for where, row in samples:
        sample = checked(_InspectSample, row, where)
        for scorer, given in sample.scores.items():
            given = given if isinstance(given, dict) else {"value": given}
            known = given.get("metadata")
            known = known if isinstance(known, dict) and "judge" in known else {}
            score = given.get("value")
            if score is None:
                without += 1
                continue
            if isinstance(score, bool):
                score = float(score)
            elif isinstance(score, str):
                score = LETTER_SCORES.get(score, score)  # `add` refuses other texts
            value = {name: known.get(name) for name in INSPECT_METADATA}
            value |= {"id": sample.id, "score": score, "annotator": plain_name(scorer)}
            if not known:
                value["judge"] = f"Inspect scorer {scorer}"
            collected.add(value, where, scorer)
    collected.note(without, "null score")
    return _check_unique(collected.found, options.path)


def _logged(path: Path) -> list[tuple[str, dict[str, Any]]]:
    """Return the scored samples of a log of Inspect, read by inspect_ai, each with its place."""
    read_bytes(path, "log of Inspect")  # a regular file within the limits
    from inspect_ai.log import read_eval_log

    try:
        log = read_eval_log(str(path))
    except Exception as error:  # what inspect_ai raises for a damaged file depends on the damage
        problem = f"inspect_ai cannot read it as a log ({first_line(error)})"
        raise UserError(f"{path}: {problem}") from None
    rows = []
    for number, sample in enumerate(log.samples or [], 1):
        given = {
            name: {"value": score.value, "metadata": score.metadata}
            for name, score in (sample.scores or {}).items()
        }
        rows.append((f"{path}, sample {number}", {"id": str(sample.id), "scores": given}))
    return rows


def _check_unique(found: Imported, path: Path) -> Imported:
    """Return the lines; a UserError if an annotator scored a task twice."""
    for name, scores in found.lines.items():
        id_, times = Counter(line.id for line in scores).most_common(1)[0]
        if times > 1:
            raise UserError(f"{path}: {name} has several scores of {id_}; keep only one")
    return found


EXPORTS: dict[str, tuple[str, Callable[[TaskSet, Sequence[Scores]], bytes]]] = {
    "csv": (".scores.csv", to_csv),
    "label-studio": (".label-studio.json", to_label_studio),
    "inspect": (".inspect.jsonl", to_inspect),
}
IMPORTS: dict[str, Callable[[TaskSet, ImportOptions], Imported]] = {
    "csv": from_csv,
    "label-studio": from_label_studio,
    "inspect": from_inspect,
}
