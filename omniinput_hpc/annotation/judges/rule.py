"""A rule as a judge: a function from inputs, or from what annotators see, to scores."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from omniinput_hpc.annotation.judges import Judge
from omniinput_hpc.annotation.png import pixels
from omniinput_hpc.annotation.tasks import Key, Task
from omniinput_hpc.estimators.precision_recall.from_rule import (
    call_rule,
    check_scores,
    load_rule,
)
from omniinput_hpc.plugins import load_function, source_of

Of = Literal["values", "shown"]
OPTION = "--judge"


class RuleJudge(Judge):
    """A `Judge` that calls a function.

    Parameters
    ----------
    name : ``module:function``
    of : "values": the function takes inputs' values, int64 [n, D], like ``--rule`` elsewhere;
        "shown": a list of n texts, or of n pictures, uint8 [h, w] or [h, w, 3]
    key : of the tasks, required for "values"; gold items have no values and get no score

    Raises
    ------
    UserError
        No such function; in `score`, the function fails.
    EstimateError
        In `score`, scores of the wrong shape or range.
    """

    def __init__(self, name: str, of: Of, key: Key | None) -> None:
        what = " of what is shown" if of == "shown" else ""
        self.about = f"rule {name}{what}, {source_of(name)}"
        self._name, self._key = name, key.by_id() if key else {}
        self._function: Any = (
            load_rule(name, OPTION) if of == "values" else load_function(name, OPTION)
        )
        self._of = of

    def score(self, tasks: Sequence[Task]) -> list[float | None]:
        """Return the rule's scores."""
        if self._of == "shown":
            shown = [_shown(task) for task in tasks]
            scores = call_rule(self._function, shown, self._name, OPTION)
            return list(check_scores(scores, len(tasks), self._name).tolist())
        by_run: dict[int | None, list[int]] = defaultdict(list)  # inputs of a run are equally long
        for i, task in enumerate(tasks):
            by_run[self._key[task.id].run].append(i)
        found: list[float | None] = [None] * len(tasks)
        for run, places in by_run.items():
            if run is not None:
                x_nd = np.array([self._key[tasks[i].id].x for i in places], dtype=np.int64)
                for i, score in zip(places, self._function(x_nd).tolist(), strict=True):
                    found[i] = score
        return found


def _shown(task: Task) -> Any:
    return pixels(task.png) if task.png is not None else (task.prefix or "") + (task.text or "")
