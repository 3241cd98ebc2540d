"""Judges: programs that score tasks as people do, into score files that are marked as theirs.

Here: what a judge is, and running one over a task file, batch by batch, so that a run that was
killed goes on with the same batches. The judges themselves import torch where they need it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from omniinput_hpc.annotation.scores import Score, ScoreFile, now, scores_path
from omniinput_hpc.annotation.tasks import Task, TaskSet
from omniinput_hpc.errors import UserError


class Judge(Protocol):
    """What scores tasks.

    Attributes
    ----------
    about : what kind and which, with what its scores depend on; stands in every line of its file
    """

    about: str

    def judge(self, tasks: Sequence[Task]) -> list[float | None]:
        """Return a score in [0, 1] for each task, None where it cannot judge."""
        ...

    def notes(self) -> list[str]:
        """Return what a person should know of the scores so far."""
        ...


@dataclass(frozen=True)
class Done:
    """What a run of a judge did.

    Attributes
    ----------
    path : of the score file
    new, before : tasks scored in this run, and found scored
    left_out : tasks that it cannot judge
    """

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
) -> Done:
    """Let a judge score what it has not scored yet, in the tasks' order.

    Batches are the same in every run of the same `batch`, so that a run that went on gives the same
    scores as one that was never stopped. A batch is on the disk before the next begins.

    Raises
    ------
    UserError
        The file of that name holds a person's scores or another judge's, or a score is not in
        [0, 1].
    """
    path = scores_path(tasks.path, name)
    new = left_out = 0
    with ScoreFile(path, tasks) as file:
        lines = file.scores.lines if file.scores else ()
        for other in {line.judge for line in lines} - {judge.about}:
            whose = f"the judge {other}" if other else "a person"
            raise UserError(f"{path} holds scores of {whose}; choose another --name")
        known = set(file.scores.by_id()) if file.scores else set()
        for i in range(0, len(tasks.tasks), batch):
            some = tasks.tasks[i : i + batch]
            if any(task.id not in known for task in some):
                given = judge.judge(some)
                words = [
                    Score(task.id, score, None, now(), None, name, judge=judge.about)
                    for task, score in zip(some, given, strict=True)
                    if score is not None and task.id not in known
                ]
                left_out += sum(score is None for score in given)
                if words:
                    file.append(*words)
                new += len(words)
            file.heartbeat()
            progress(min(i + batch, len(tasks.tasks)), len(tasks.tasks))
    return Done(path, new, len(known), left_out)


def default_name(judge: str) -> str:
    """Return a judge's name where none is given: of a rule its function's."""
    return judge.rpartition(":")[2]
