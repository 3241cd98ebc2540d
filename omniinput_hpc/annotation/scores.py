"""Score files: one append-only file per annotator (``RUN.scores.NAME.jsonl``) or judge.

Every line is ``{"id", "score", "seconds", "when", "guideline", "annotator"}``, plus ``"judge"``,
``"undo"`` and ``"nonce"`` if they are not empty (see `Score`). The last line per id counts; a null
score withdraws the earlier ones. A line is on the disk (fsync) before `ScoreFile.append` returns.
This module needs neither torch nor MPI.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from omniinput_hpc.annotation.jsonl import (
    MAX_FILE_LINES,
    Flag,
    NonNegative,
    Text,
    UnitScore,
    checked,
    line_of,
    parse_object,
    read_bytes,
)
from omniinput_hpc.annotation.tasks import TaskSet, stem_of
from omniinput_hpc.errors import UserError
from omniinput_hpc.runfile.lock import Owner, RunLock
from omniinput_hpc.text import duration, printable, sync
from omniinput_hpc.untrusted.texts import encoding_of

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,39}")


@dataclass(frozen=True, kw_only=True)
class Score:
    """One line of a score file.

    Attributes
    ----------
    id : of the task
    score : in [0, 1]; None withdraws the earlier scores of the task
    seconds : time taken, None if unknown
    when : ISO 8601 with the time zone
    guideline : version of the guideline in view, None without one
    annotator : name of the person or judge
    judge : kind and name of the judge, None for a person
    undo : whether this line only undoes the last change
    nonce : of the request; a request that is sent twice counts once
    """

    id: Text
    score: UnitScore | None
    seconds: NonNegative | None = None
    when: Text
    guideline: Text | None = None
    annotator: Text
    judge: Text | None = None
    undo: Flag = False
    nonce: Text | None = None


@dataclass(frozen=True)
class Scores:
    """The score file of one annotator or judge, with all its lines in order.

    `judge` is the kind and name of the judge, None for a person. `notes` are remarks for the user
    that are not errors, for instance on a last line that was cut short.
    """

    path: Path
    annotator: str
    judge: str | None
    lines: Sequence[Score] = field(repr=False)
    notes: Sequence[str] = ()

    def latest(self) -> dict[str, Score]:
        """Return the line that counts for each id, without ids whose score was withdrawn."""
        last = {line.id: line for line in self.lines}
        return {id_: line for id_, line in last.items() if line.score is not None}

    def by_id(self) -> dict[str, float]:
        """Return the score that counts for each id."""
        return {id_: line.score for id_, line in self.latest().items() if line.score is not None}


def check_name(name: str) -> str:
    """Return an annotator's name, or raise a UserError; the name becomes part of a file name."""
    if not _NAME.fullmatch(name):
        raise UserError(
            f"the annotator's name {json.dumps(name[:60], ensure_ascii=False)} must be 1 to 40 "
            'letters, digits, "_" or "-", beginning with a letter (A to Z) or digit'
        )
    return name


def scores_path(tasks_path: Path, name: str, judge: bool = False) -> Path:
    """Return ``RUN.scores.NAME.jsonl``, or a judge's ``RUN.judge-scores.NAME.jsonl``.

    It is beside ``RUN.tasks.jsonl``. A pattern that matches people's files does not match judges'.
    """
    kind = "judge-scores" if judge else "scores"
    return tasks_path.with_name(f"{stem_of(tasks_path)}.{kind}.{check_name(name)}.jsonl")


def check_case(path: Path) -> None:
    """Raise a UserError if a new file's name differs from an existing one only in case.

    Some file systems would take them for one file, and people for one annotator.
    """
    names = os.listdir(path.parent) if path.parent.is_dir() else []
    other = next((name for name in names if name.casefold() == path.name.casefold()), path.name)
    if path.name not in names and other != path.name:
        raise UserError(f"{path} and {other} would differ only in case: use the existing name")


def find_scores(tasks_path: Path) -> list[Path]:
    """Return the score files beside a task file: people's, then judges', each sorted by name."""
    stem, name = re.escape(stem_of(tasks_path)), _NAME.pattern
    files = sorted(tasks_path.parent.iterdir(), key=lambda path: path.name)
    kinds = [re.compile(rf"{stem}\.{kind}\.{name}\.jsonl") for kind in ("scores", "judge-scores")]
    return [path for kind in kinds for path in files if kind.fullmatch(path.name)]


def read_scores(path: Path, tasks: TaskSet | None = None) -> Scores:
    """Read a score file, also while it is being written.

    A last line that was cut short was never acknowledged: it is left out and noted. One that lacks
    only its newline counts, since `ScoreFile` would add it.

    Raises
    ------
    UserError
        No such file, a damaged line, a score outside [0, 1], an id that is not in `tasks` (if
        given), lines of more than one annotator, or an invalid name (see `check_name`).
    """
    data = read_plain(path)
    if data.count(b"\n") > MAX_FILE_LINES:
        raise UserError(f"{path} has more than {MAX_FILE_LINES:,} lines, too many for scores")
    *whole, tail = data.split(b"\n")
    notes = []
    if tail and _is_whole(tail):
        whole.append(tail)
    elif tail:
        notes.append(f"{path}: the last line is cut short and is left out")
    rows = [(f"{path}, line {n}", line) for n, line in enumerate(whole, 1) if line.strip()]
    lines = [checked(Score, parse_object(line, where), where) for where, line in rows]
    names = sorted({check_name(line.annotator) for line in lines})
    if len(names) > 1:
        raise UserError(f"{path} holds lines of several annotators ({', '.join(names)})")
    if tasks is not None:
        ids = tasks.ids
        for (where, _), line in zip(rows, lines, strict=True):
            if line.id not in ids:
                problem = f"{tasks.path} holds no task with the id {line.id}"
                raise UserError(f"{where}: {problem}; are these the scores of another task file?")
    judge = next((printable(line.judge) for line in lines if line.judge), None)
    name = names[0] if names else path.name.removesuffix(".jsonl").rpartition(".")[2]
    return Scores(path, check_name(name), judge, lines, notes)


def read_plain(path: Path) -> bytes:
    """Return a score file's bytes.

    Raises a UserError if it is another file, or if its encoding or line ends rule out appending.
    """
    data = read_bytes(path, "score file")
    if data.startswith(b'{"format": "omniinput-'):  # scores have no header
        kind = data[22:99].partition(b'"')[0].decode("ascii", "replace")
        raise UserError(f"{path} has no scores ({kind}); a bank is given as --bank, a key as --key")
    encoding = encoding_of(data)
    if encoding not in ("utf-8", "utf-8-sig"):
        raise UserError(f"{path} is saved as {encoding.upper()}; save it as UTF-8")
    if b"\r" in data.replace(b"\r\n", b""):
        raise UserError(f"{path}: its lines end with CR; save it with LF (or CRLF) line endings")
    return data


def now() -> str:
    """Return the current time in UTC, as score files record it."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


class _ScoreLock(RunLock):
    """The lock of a score file: `RunLock` with a message for annotators."""

    def refusal(self, owner: Owner, age: float) -> str:
        return (
            f"{self.output} is being written by another process: {owner.description} (last "
            f"heartbeat {duration(max(age, 0))} ago). End it, or choose another name; if you know "
            f"that it has ended, remove {self.path}"
        )


class NotSaved(UserError):
    """A score could not be written and does not count."""


class ScoreFile(AbstractContextManager["ScoreFile"]):
    """A score file open for writing; only one process can hold it.

    It is created if missing, and accepts only ids of `tasks`. A last line that lacks its newline
    gets one; a partial last line is cut off, since it was never acknowledged.

    Raises
    ------
    UserError
        Another process writes the file, its content is damaged (see `read_scores`), it cannot be
        written, or another file's name differs only in case.
    """

    def __init__(self, path: Path, tasks: TaskSet) -> None:
        self.path, self._ids, self._broken = path, tasks.ids, False
        check_case(path)
        self._lock = _ScoreLock(path)
        self._lock.take()
        with ExitStack() as undo:  # on any error the lock is released
            undo.callback(self._lock.release)
            try:
                self.note = _repair_last_line(path)
                self.scores = read_scores(path, tasks) if path.exists() else None
                self._descriptor = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o644)
                undo.callback(os.close, self._descriptor)
                sync(path.parent)
            except OSError as error:
                raise UserError(f"{path} cannot be written: {error.strerror}") from None
            undo.pop_all()

    def __exit__(self, *exception: object) -> None:
        os.close(self._descriptor)
        self._lock.release()

    def heartbeat(self) -> None:
        """Keep the lock fresh; call it often (see `RunLock`)."""
        self._lock.heartbeat()

    def append(self, *scores: Score) -> None:
        """Write scores, all of them or none; they are on the disk when this returns.

        Raises
        ------
        NotSaved
            The disk is full, the file was moved or replaced, or another process took over its lock.
            If a partial line cannot be removed, every later call raises this too, because the next
            line would be joined to it.
        UserError
            An id that is not in the task set, or a score outside [0, 1].
        """
        for score in scores:
            if score.id not in self._ids:
                raise UserError(f"no task has the id {score.id}")
            if score.score is not None and not 0.0 <= score.score <= 1.0:
                raise UserError(f"the score {score.score} is not between 0 and 1")
        if self._broken:
            raise NotSaved(f"not saved: a write to {self.path} failed and left a part; restart")
        if not self._lock.keep():
            raise NotSaved(f"not saved: {self._lock.lost()}")
        data = b"".join(line_of(_without_defaults(score)) for score in scores)
        size = self._size()
        try:
            written = os.write(self._descriptor, data)
            if written == len(data):
                os.fsync(self._descriptor)
                return
            reason = "the disk is full"
        except OSError as error:
            reason = error.strerror or str(error)
        try:
            os.ftruncate(self._descriptor, size)
        except OSError as error:
            self._broken = True
            reason += f", and the part that was written remains ({error.strerror}); restart"
        raise NotSaved(f"not saved in {self.path}: {reason}")

    def _size(self) -> int:
        """Return the file's size; raise `NotSaved` if its path no longer leads to it."""
        opened = os.fstat(self._descriptor)
        try:
            found = os.stat(self.path)
        except OSError:
            raise NotSaved(f"not saved: {self.path} was moved or removed; restart") from None
        if (found.st_dev, found.st_ino) != (opened.st_dev, opened.st_ino):
            raise NotSaved(f"not saved: {self.path} was replaced by another file; restart")
        return opened.st_size


def add_score_files(tasks: TaskSet, lines: Mapping[str, Sequence[Score]]) -> list[tuple[Path, int]]:
    """Write a new score file for each annotator; return path and number of lines of each.

    Raises a UserError, before anything is written, if one of the files has content already.
    """
    if not any(lines.values()):
        raise UserError(f"no scores were given for {tasks.path}")
    paths = {
        name: scores_path(tasks.scored, name, any(score.judge for score in scores))
        for name, scores in lines.items()
    }
    existing = [path for path in paths.values() if path.exists() and path.stat().st_size]
    if existing:
        raise UserError(
            f"{existing[0]} exists already; move it away, or choose another name with --annotator"
        )
    for path in paths.values():
        check_case(path)
    for name, scores in lines.items():
        with ScoreFile(paths[name], tasks) as file:
            file.append(*scores)
    return [(paths[name], len(scores)) for name, scores in lines.items()]


def _without_defaults(score: Score) -> dict[str, object]:
    """Return a line's object without empty "judge", "undo" and "nonce"."""
    optional = ("judge", "undo", "nonce")
    return {k: v for k, v in asdict(score).items() if k not in optional or v}


def _repair_last_line(path: Path) -> str:
    """Complete a last line that lacks only its newline, or cut off a partial one; return a note."""
    if not path.exists():
        return ""
    data = read_plain(path)
    tail = data.rpartition(b"\n")[2]
    if not tail:
        return ""
    with path.open("r+b") as file:
        if _is_whole(tail):
            file.seek(0, os.SEEK_END)
            file.write(b"\n")
            done = "completed"
        else:
            file.truncate(len(data) - len(tail))
            done = "cut off; no acknowledged score is lost"
        file.flush()
        os.fsync(file.fileno())
    return f"{path}: its last line was incomplete ({len(tail)} bytes) and has been {done}"


def _is_whole(tail: bytes) -> bool:
    """Whether a last line without its newline is a complete object."""
    try:
        parse_object(tail, "")
    except UserError:
        return False
    return True
