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
from omniinput_hpc.estimators import EstimateError
from omniinput_hpc.estimators.precision_recall.from_rule import check_scores, load_rule
from omniinput_hpc.plugins import load_function

Of = Literal["values", "shown"]


class RuleJudge(Judge):
    """A `Judge` that calls a function.

    Parameters
    ----------
    name : ``module:function``
    of : "values": the function takes inputs' values, int64 [n, D], as ``--rule`` elsewhere does;
        "shown": a list of n texts, or of n pictures, uint8 [h, w] or [h, w, 3]
    key : of the tasks; "values" requires it, and gives no score to gold items, which have no values

    Raises
    ------
    EstimateError
        No such function; at a call, scores of the wrong shape or range.
    """

    def __init__(self, name: str, of: Of, key: Key | None) -> None:
        self.about = f"rule {name}" + (" of what is shown" if of == "shown" else "")
        self._name, self._key = name, key.by_id() if key else {}
        self._function: Any = (
            load_rule(name, "--judge") if of == "values" else load_function(name, "--judge")
        )
        self._of = of

    def score(self, tasks: Sequence[Task]) -> list[float | None]:
        """Return the rule's scores."""
        if self._of == "shown":
            shown = [_shown(task) for task in tasks]
            return list(check_scores(self._call(shown), len(tasks), self._name).tolist())
        by_run: dict[int | None, list[int]] = defaultdict(list)  # inputs of a run are equally long
        for i, task in enumerate(tasks):
            by_run[self._key[task.id].run].append(i)
        scores: list[float | None] = [None] * len(tasks)
        for run, places in by_run.items():
            if run is not None:
                x_nd = np.array([self._key[tasks[i].id].x for i in places], dtype=np.int64)
                for i, score in zip(places, self._call(x_nd).tolist(), strict=True):
                    scores[i] = score
        return scores

    def _call(self, given: Any) -> Any:
        try:
            return self._function(given)
        except (EstimateError, UserError):
            raise
        except Exception as error:  # a user's own function may raise anything
            problem = f"{type(error).__name__}: {error}"
            raise UserError(f"--judge {self._name} failed: {problem}") from error


def _shown(task: Task) -> Any:
    return pixels(task.png) if task.png is not None else (task.prefix or "") + (task.text or "")
