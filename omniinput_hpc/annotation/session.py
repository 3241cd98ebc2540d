"""One annotator's session: the order of the tasks, what was scored, undo, and time left.

What the page may know is exactly what `Session.item` and `Session.progress` return: no key is ever
read here, nor anybody else's scores.
"""

from __future__ import annotations

import hashlib
import statistics
from dataclasses import replace
from typing import Any

import numpy as np

from omniinput_hpc.annotation.scores import Score, ScoreFile, now
from omniinput_hpc.annotation.tasks import Task, TaskSet
from omniinput_hpc.errors import UserError

APART = 20
"""Tasks that show the same are at least so many positions apart, where there is room."""


class Session:
    """The work of one annotator on one task set.

    Parameters
    ----------
    tasks : TaskSet
    file : the annotator's score file, open
    annotator : name; with the task set it determines the order
    guideline : version of the guideline that is in view
    """

    def __init__(self, tasks: TaskSet, file: ScoreFile, annotator: str, guideline: str) -> None:
        self._tasks, self._file = order_of(tasks, annotator), file
        self._kind, self._annotator, self._guideline = tasks.kind, annotator, guideline
        self._position = {task.id: i for i, task in enumerate(self._tasks)}
        self._score: dict[str, float] = {}
        self._history: list[tuple[str, float | None]] = []  # what each change replaced
        self._undone = ""  # the item of the last undo
        self._nonces: set[str] = set()
        self._seconds: list[float] = []
        for line in file.scores.lines if file.scores else ():
            self._take_in(line)

    def _take_in(self, line: Score) -> None:
        """Bring the state up to a line of the file."""
        if line.undo:
            if self._history:
                self._history.pop()
            self._undone = line.id
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
        """Return what the page shows of a position; the score is the annotator's own."""
        if not 0 <= position < len(self._tasks):
            raise UserError(f"there is no item {position}")
        task = self._tasks[position]
        return {
            "position": position,
            "id": task.id,
            "kind": self._kind,
            "text": task.text,
            "png": task.png,
            "prefix": task.prefix,
            "score": self._score.get(task.id),
        }

    def progress(self) -> dict[str, Any]:
        """Return how much is done, and how many seconds the rest will take (None: not known)."""
        n, done = len(self._tasks), len(self._score)
        recent = self._seconds[-50:]
        left = statistics.median(recent) * (n - done) if recent else None
        return {"n": n, "done": done, "seconds_left": left, "undoable": len(self._history)}

    def unscored_after(self, position: int) -> int | None:
        """Return the next position without a score, going round; None where all have one."""
        n = len(self._tasks)
        places = ((position + step) % n for step in range(1, n + 1))
        return next((p for p in places if self._tasks[p].id not in self._score), None)

    def view(self, position: int | None) -> dict[str, Any]:
        """Return an item (None: all is done) with the progress."""
        item = None if position is None else self.item(position)
        return {"item": item, "progress": self.progress()}

    def score(self, id_: str, score: float, seconds: float | None, nonce: str) -> dict[str, Any]:
        """Write a score, and return what comes next once it is on the disk.

        The same nonce counts once, so that a request may be sent again.

        Raises
        ------
        UserError
            No such task, a score outside [0, 1].
        NotSaved
            It could not be written.
        """
        if id_ not in self._position:
            raise UserError("this task file holds no such item")
        if nonce not in self._nonces:
            line = Score(id_, score, seconds, now(), self._guideline, self._annotator, nonce=nonce)
            self._file.append(line)
            self._take_in(line)
        return self.view(self.unscored_after(self._position[id_]))

    def undo(self, nonce: str) -> dict[str, Any]:
        """Take the last change back, on the disk too, and return that item."""
        if nonce in self._nonces:  # done already: the answer got lost
            last = self._undone
        elif not self._history:
            raise UserError("there is nothing to undo")
        else:
            last, before = self._history[-1]
            line = Score(
                last, before, None, now(), self._guideline, self._annotator, undo=True, nonce=nonce
            )
            self._file.append(line)
            self._take_in(line)
        return self.view(self._position[last])

    def heartbeat(self) -> None:
        """Touch the score file's lock now and then."""
        self._file.heartbeat()


def order_of(tasks: TaskSet, annotator: str) -> list[Task]:
    """Return the tasks in this annotator's order: random, the same at every start.

    Tasks that show the same (repeats) are kept apart.
    """
    seed = hashlib.sha256(f"{tasks.tasks_id} {annotator}".encode()).digest()
    rng = np.random.default_rng(np.frombuffer(seed, dtype=np.uint32))
    pool = sorted(tasks.tasks, key=lambda task: task.id)
    order = [pool[i] for i in rng.permutation(len(pool))]
    apart = min(APART, len(order) // 4)
    bare = [replace(task, id="") for task in order]

    def too_near(i: int) -> bool:
        near = range(max(0, i - apart + 1), min(i + apart, len(bare)))
        return any(j != i and bare[j] == bare[i] for j in near)

    def swap(i: int, j: int) -> None:
        order[i], order[j] = order[j], order[i]
        bare[i], bare[j] = bare[j], bare[i]

    for i in range(len(order)):
        if too_near(i):
            for j in map(int, rng.permutation(len(order))):
                swap(i, j)
                if not too_near(i) and not too_near(j):
                    break
                swap(i, j)
    return order
