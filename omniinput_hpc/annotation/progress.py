"""The page ``/progress``: how many tasks each annotator has scored, without the scores.

It reads the score files beside the task file, also while they are being written.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from statistics import median

from omniinput_hpc.annotation.scores import find_scores, read_scores
from omniinput_hpc.annotation.tasks import TaskSet
from omniinput_hpc.errors import UserError
from omniinput_hpc.text import duration

SECONDS_TO_RELOAD = 10


@dataclass(frozen=True)
class AnnotatorProgress:
    """One row of the page.

    Attributes
    ----------
    name : of the annotator or judge; of the file if it cannot be read
    is_judge : whether a program scores
    done : tasks with a score that counts
    seconds : median time per score; None if unknown
    last : time of the last line, "" without lines
    problem : why the file cannot be read, "" if it can
    """

    name: str
    is_judge: bool
    done: int
    seconds: float | None
    last: str
    problem: str = ""


def progress_of(tasks: TaskSet) -> list[AnnotatorProgress]:
    """Return a row for each score file of a task set, people first, then by name."""
    rows = []
    for path in find_scores(tasks.scored):
        try:
            scores = read_scores(path, tasks)
        except UserError as error:
            rows.append(AnnotatorProgress(path.name, False, 0, None, "", str(error)))
            continue
        took = [line.seconds for line in scores.lines if line.seconds is not None]
        rows.append(
            AnnotatorProgress(
                scores.annotator,
                scores.judge is not None,
                len(scores.by_id()),
                median(took) if took else None,
                scores.lines[-1].when if scores.lines else "",
            )
        )
    return sorted(rows, key=lambda row: (row.is_judge, row.name))


def as_html(rows: Sequence[AnnotatorProgress], n_tasks: int) -> str:
    """Return the page; it reloads every 10 s without a script."""
    body = "".join(_row(row, n_tasks) for row in rows)
    nobody = "" if rows else "<p>Nobody has scored anything yet.</p>"
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="refresh" content="{SECONDS_TO_RELOAD}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        "<title>Progress</title></head><body>"
        f"<h1>Progress of {n_tasks} items</h1>{nobody}"
        '<table cellpadding="6"><thead><tr><th align="left">annotator</th><th>scored</th><th></th>'
        "<th>time left</th><th>seconds per score</th><th>last score</th></tr></thead>"
        f"<tbody>{body}</tbody></table></body></html>\n"
    )


def _row(row: AnnotatorProgress, n_tasks: int) -> str:
    name = escape(row.name) + (" (judge)" if row.is_judge else "")
    if row.problem:
        return f'<tr><td>{name}</td><td colspan="5">{escape(row.problem)}</td></tr>'
    left = n_tasks - row.done
    known = row.seconds is not None and left > 0
    time_left = duration(row.seconds * left) if known and row.seconds is not None else ""
    seconds = "" if row.seconds is None else f"{row.seconds:.1f}"
    when = escape(row.last.replace("T", " ").partition(".")[0])
    return (
        f'<tr><td>{name}</td><td align="right">{row.done} of {n_tasks}</td>'
        f'<td><progress max="{n_tasks}" value="{row.done}"></progress></td>'
        f'<td align="right">{time_left}</td><td align="right">{seconds}</td>'
        f"<td>{when and when + ' UTC'}</td></tr>"
    )
