"""A rule as a judge: a function from inputs, or from what annotators see, to scores."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from omniinput_hpc.annotation.judges import Judge
from omniinput_hpc.annotation.png import pixels
from omniinput_hpc.annotation.tasks import Key, Task
from omniinput_hpc.errors import UserError
from omniinput_hpc.estimators.precision_recall.from_rule import (
    call_rule,
    check_scores,
)
from omniinput_hpc.plugins import load_function, reads_texts, source_of

Of = Literal["values", "shown"]
OPTION = "--judge"


class RuleJudge(Judge):
    """A `Judge` that calls a function.

    Parameters
    ----------
    name : ``module:function``
    of : "values": the function takes inputs' values, int64 [n, D], or texts without the prefix if
        its first argument is ``texts``, like ``--rule`` elsewhere; "shown": it takes a list of n
        texts, or of n pictures, uint8 [h, w] or [h, w, 3]
    key : of the tasks, required for "values"; gold items have no values and get no score

    Raises
    ------
    UserError
        No such function; in `score`, the function fails, or it reads texts and the tasks are
        pictures.
    EstimateError
        In `score`, scores of the wrong shape or range.
    """

    def __init__(self, name: str, of: Of, key: Key | None) -> None:
        self._function = load_function(name, OPTION)
        self._show = _shown if of == "shown" else None
        what = " of what is shown" if of == "shown" else ""
        if of == "values" and reads_texts(self._function):
            self._show, what = self._text_of, " of texts"
        self.about = f"rule {name}{what}, {source_of(name)}"
        self._name, self._key = name, key.by_id() if key else {}

    def score(self, tasks: Sequence[Task]) -> list[float | None]:
        """Return the rule's scores."""
        if self._show is not None:
            return list(self._scores([self._show(task) for task in tasks]))
        by_run: dict[int | None, list[int]] = defaultdict(list)  # inputs of a run are equally long
        for i, task in enumerate(tasks):
            by_run[self._key[task.id].run].append(i)
        found: list[float | None] = [None] * len(tasks)
        for run, places in by_run.items():
            if run is not None:
                x_nd = np.array([self._key[tasks[i].id].x for i in places], dtype=np.int64)
                for i, score in zip(places, self._scores(x_nd), strict=True):
                    found[i] = score
        return found

    def _scores(self, given: Any) -> list[float]:
        scores = check_scores(
            call_rule(self._function, given, self._name, OPTION), len(given), self._name
        )
        return list(scores.tolist())

    def _text_of(self, task: Task) -> str:
        if task.text is None:
            raise UserError(f"{OPTION} {self._name} reads texts, but the tasks are pictures")
        return task.text


def _shown(task: Task) -> Any:
    return pixels(task.png) if task.png is not None else (task.prefix or "") + (task.text or "")
