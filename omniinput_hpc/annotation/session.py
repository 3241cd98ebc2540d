"""One annotator's session: the order of the tasks, scores so far, undo, and time left.

The page learns only what `Session.item` and `Session.progress` return: neither the key nor other
annotators' scores are read here.
"""

from __future__ import annotations

import hashlib
import statistics
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from omniinput_hpc.annotation.scores import Score, ScoreFile, now
from omniinput_hpc.annotation.tasks import Task, TaskSet
from omniinput_hpc.errors import UserError

MIN_REPEAT_DISTANCE = 20
"""Least distance in positions between tasks with the same input, if there are enough tasks."""


class Session:
    """The work of one annotator, written to an open score file.

    The annotator's name and the task set determine the order. `guideline` is the version of the
    guideline in view.
    """

    def __init__(self, tasks: TaskSet, file: ScoreFile, annotator: str, guideline: str) -> None:
        self._tasks, self._file = order_of(tasks, annotator), file
        self._kind, self._annotator, self._guideline = tasks.kind, annotator, guideline
        self._position = {task.id: i for i, task in enumerate(self._tasks)}
        self._score: dict[str, float] = {}
        self._history: list[tuple[str, float | None]] = []  # task and previous score of each change
        self._undone_id = ""  # the task of the last undo
        self._nonces: set[str] = set()
        self._seconds: list[float] = []
        for line in file.scores.lines if file.scores else ():
            self._apply(line)

    def _apply(self, line: Score) -> None:
        """Update the state from one line of the file."""
        if line.undo:
            if self._history:
                self._history.pop()
            self._undone_id = line.id
        else:
            self._history.append((line.id, self._score.get(line.id)))
            if line.seconds is not None:
                self._seconds.append(line.seconds)
        if line.score is None:
            self._score.pop(line.id, None)
        else:
            self._score[line.id] = line.score
        if line.nonce:
            self._nonces.add(line.nonce)

    def item(self, position: int) -> dict[str, Any]:
        """Return what the page shows at a position; the score is the annotator's own."""
        if not 0 <= position < len(self._tasks):
            raise UserError(f"there is no item {position}")
        task = self._tasks[position]
        own = {"position": position, "kind": self._kind, "score": self._score.get(task.id)}
        return asdict(task) | own

    def progress(self) -> dict[str, Any]:
        """Return the number of tasks done, and the estimated seconds left (None: unknown)."""
        n, done = len(self._tasks), len(self._score)
        recent = self._seconds[-50:]
        seconds_left = statistics.median(recent) * (n - done) if recent else None
        return {"n": n, "done": done, "seconds_left": seconds_left, "undoable": len(self._history)}

    def unscored_after(self, position: int) -> int | None:
        """Return the next position without a score, cyclically; None if all tasks are scored."""
        n = len(self._tasks)
        positions = ((position + step) % n for step in range(1, n + 1))
        return next((p for p in positions if self._tasks[p].id not in self._score), None)

    def view(self, position: int | None) -> dict[str, Any]:
        """Return an item (None: all are scored) with the progress."""
        item = None if position is None else self.item(position)
        return {"item": item, "progress": self.progress()}

    def score(self, id_: str, score: float, seconds: float | None, nonce: str) -> dict[str, Any]:
        """Write a score, and return the next view once the score is on the disk.

        A repeated nonce counts once, so that a request may be sent again. Raises a UserError for
        another task set's id or a score outside [0, 1], and NotSaved if it could not be written.
        """
        if id_ not in self._position:
            raise UserError("this task file holds no such item")
        if nonce not in self._nonces:
            self._append(id=id_, score=score, seconds=seconds, nonce=nonce)
        return self.view(self.unscored_after(self._position[id_]))

    def undo(self, nonce: str) -> dict[str, Any]:
        """Undo the last change, in the file too, and return that item."""
        if nonce in self._nonces:  # done already: the page did not get the answer
            last = self._undone_id
        elif not self._history:
            raise UserError("there is nothing to undo")
        else:
            last, before = self._history[-1]
            self._append(id=last, score=before, undo=True, nonce=nonce)
        return self.view(self._position[last])

    def _append(self, **fields: Any) -> None:
        line = Score(when=now(), guideline=self._guideline, annotator=self._annotator, **fields)
        self._file.append(line)
        self._apply(line)

    def heartbeat(self) -> None:
        """Keep the score file's lock fresh."""
        self._file.heartbeat()


def order_of(tasks: TaskSet, annotator: str) -> list[Task]:
    """Return the tasks in this annotator's order: random, but the same at every start.

    Tasks that show the same input (repeats) are kept apart.
    """
    seed = hashlib.sha256(f"{tasks.tasks_id} {annotator}".encode()).digest()
    rng = np.random.default_rng(np.frombuffer(seed, dtype=np.uint32))
    pool = sorted(tasks.tasks, key=lambda task: task.id)
    order = [pool[i] for i in rng.permutation(len(pool))]
    distance = min(MIN_REPEAT_DISTANCE, len(order) // 4)
    shown = [replace(task, id="") for task in order]

    def too_near(i: int) -> bool:
        near = range(max(0, i - distance + 1), min(i + distance, len(shown)))
        return any(j != i and shown[j] == shown[i] for j in near)

    def swap(i: int, j: int) -> None:
        order[i], order[j] = order[j], order[i]
        shown[i], shown[j] = shown[j], shown[i]

    for i in range(len(order)):
        if too_near(i):
            for j in map(int, rng.permutation(len(order))):
                swap(i, j)
                if not too_near(i) and not too_near(j):
                    break
                swap(i, j)
    return order
