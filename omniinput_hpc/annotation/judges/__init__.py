"""Judges: programs that score tasks in place of people, into score files marked as theirs.

This module defines a judge and runs one over a task file; `table` lists the kinds of judges. Their
own modules import torch, so each is imported only when its judge is built.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from omniinput_hpc.annotation.scores import Score, ScoreFile, now, scores_path
from omniinput_hpc.annotation.tasks import Task, TaskSet
from omniinput_hpc.errors import UserError


class Judge(ABC):
    """A program that scores tasks.

    Attributes
    ----------
    about : its kind, name and everything that its scores depend on; part of every line of its file
    """

    about: str

    @abstractmethod
    def score(self, tasks: Sequence[Task]) -> list[float | None]:
        """Return a score in [0, 1] for each task, or None if the judge cannot score it."""

    def notes(self) -> list[str]:
        """Return remarks for the user on the scores so far."""
        return []


@dataclass(frozen=True)
class Outcome:
    """Result of `run_judge`: numbers of tasks scored now, scored before, and not scorable."""

    path: Path
    new: int
    before: int
    left_out: int


def run_judge(
    tasks: TaskSet,
    judge: Judge,
    name: str,
    batch: int,
    progress: Callable[[int, int], None] = lambda done, of: None,
) -> Outcome:
    """Score the tasks that a judge has not scored yet, in the tasks' order.

    The same `batch` gives the same batches in every run, so that a resumed run gives the same
    scores as an uninterrupted one. A batch is on the disk before the next begins.

    Raises
    ------
    UserError
        The file of that name holds scores of a person or another judge, or a score is outside
        [0, 1].
    """
    path = scores_path(tasks.scored, name)
    if not path.exists():  # one that exists: a person's, or a judge's from an earlier version
        path = scores_path(tasks.scored, name, judge=True)
    new = left_out = 0
    with ScoreFile(path, tasks) as file:
        existing = file.scores.lines if file.scores else ()
        for other in {line.judge for line in existing} - {judge.about}:
            whose = f"the judge {other}" if other else "a person"
            raise UserError(f"{path} holds scores of {whose}; choose another --name")
        known = set(file.scores.by_id()) if file.scores else set()
        for i in range(0, len(tasks.tasks), batch):
            some = tasks.tasks[i : i + batch]
            if any(task.id not in known for task in some):
                given = judge.score(some)
                lines = [
                    Score(id=task.id, score=score, when=now(), annotator=name, judge=judge.about)
                    for task, score in zip(some, given, strict=True)
                    if score is not None and task.id not in known
                ]
                left_out += sum(score is None for score in given)
                if lines:
                    file.append(*lines)
                new += len(lines)
            file.heartbeat()
            progress(min(i + batch, len(tasks.tasks)), len(tasks.tasks))
    return Outcome(path, new, len(known), left_out)
