"""Check scores imported from other programs' files, and collect them by annotator."""

from __future__ import annotations

import re
import unicodedata
from collections import defaultdict
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from omniinput_hpc.annotation.jsonl import NonNegative, Text, UnitScore, checked
from omniinput_hpc.annotation.scores import Score, check_name, now
from omniinput_hpc.annotation.tasks import TaskSet
from omniinput_hpc.errors import UserError
from omniinput_hpc.text import counted

DEFAULT_STARS = 5
_AS_NUMBER = re.compile(r"[+-]?[0-9][0-9.,' \u00a0\u202f]*([eE][+-]?[0-9]+)?")


@dataclass(frozen=True)
class ImportOptions:
    """The file to import, and how.

    `annotator` names who scored (None: the file names them); it is refused if the file holds
    several people's scores. `stars` is S, the highest Label Studio rating.
    """

    path: Path
    annotator: str | None = None
    stars: int = DEFAULT_STARS


@dataclass(frozen=True)
class Imported:
    """Lines of new score files, by annotator, and notes on what was left out or changed."""

    lines: dict[str, list[Score]] = field(default_factory=lambda: defaultdict(list))
    notes: list[str] = field(default_factory=list)


class Collected:
    """Scores of a file, checked one by one and kept in `found`."""

    def __init__(self, tasks: TaskSet, options: ImportOptions) -> None:
        self.found = Imported()
        self._tasks, self._options, self._ids = tasks, options, tasks.ids
        self._people: dict[str, tuple[str, str]] = {}  # the name here, and in the file

    def add(self, value: dict[str, Any], where: str, person: str | None = None) -> Score:
        """Check one score and add it; `person` is who gave it, as the file names them."""
        score = checked(_ImportedScore, value, where)
        name, said = self._options.annotator, _composed(score.annotator or "")
        if name is None:
            if not said:
                raise UserError(f"{where}: the scorer is not named; name them with --annotator")
            name = without_accents(said)
        person = _composed(person or said) or "an unnamed person"
        if check_name(name).casefold() not in self._people and name != said == person:
            self.found.notes.append(f"{said} is imported as {name}")
        known, other = self._people.setdefault(name.casefold(), (name, person))
        if other != person:
            remedy = "import them separately" if self._options.annotator else "rename one of them"
            would = f"would both be {name}" if known == name else "differ only in case"
            raise UserError(f"{where}: {other!r} and {person!r} {would}; {remedy}")
        id_, when = self._id_of(score.id, where), score.when or now()
        line = Score(**{**asdict(score), "id": id_, "when": when, "annotator": name})
        self.found.lines[name].append(line)
        return line

    def note(self, number: int, thing: str, what: str = "left out") -> None:
        """Note how many things were left out, if any."""
        if number:
            self.found.notes.append(f"{self._options.path}: {counted(number, thing)} {what}")

    def _id_of(self, text: str, where: str) -> str:
        """Return the task's id without the blanks or apostrophe that a spreadsheet may add."""
        bare = text.strip().removeprefix("'")
        for id_ in (text, bare):
            if id_ in self._ids:
                return id_
        problem = f"{where}: {self._tasks.path} holds no task with the id {text}"
        if _AS_NUMBER.fullmatch(bare):
            problem += (
                "; did a spreadsheet turn it into a number? Import the column id as text (Excel: "
                "Data, From Text/CSV, type Text), and save it as CSV again"
            )
        raise UserError(problem)


@dataclass(frozen=True, kw_only=True)
class _ImportedScore:
    """A score from another program's file; see `Score`."""

    id: Text
    score: UnitScore
    seconds: NonNegative | None = None
    when: Text | None = None
    guideline: Text | None = None
    judge: Text | None = None
    annotator: Text | None = None


def _composed(name: str) -> str:
    """Return a name in Unicode's composed form (NFC), without blanks around it."""
    return unicodedata.normalize("NFC", name).strip()


def without_accents(name: str) -> str:
    """Return a name without accents and without blanks around it."""
    parts = unicodedata.normalize("NFKD", name.strip())
    return "".join(c for c in parts if not unicodedata.combining(c))


def plain_name(name: str) -> str:
    """Return another program's name without accents, with "-" for characters not allowed here."""
    return re.sub(r"[^A-Za-z0-9_-]", "-", without_accents(name))
