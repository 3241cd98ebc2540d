"""The scored inputs of a model: what each task shows, its key item, and all scores of it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from omniinput_hpc.annotation.join import check_who, require_length, scores_by_key
from omniinput_hpc.annotation.scores import Score, Scores
from omniinput_hpc.annotation.tasks import Key, KeyItem, Task, read_key, read_tasks
from omniinput_hpc.errors import UserError


@dataclass(frozen=True)
class ScoredInput:
    """A task with scores that shows an input of the model; no gold item.

    Attributes
    ----------
    task, item : what it shows, and which input this is
    key : of its task set
    scores : the line that counts, by annotator
    """

    task: Task
    item: KeyItem
    key: Key
    scores: Mapping[str, Score]


def scored_inputs(
    fingerprint: str,
    score_paths: Sequence[Path],
    key_path: Path | None = None,
    n_sites: int | None = None,
) -> list[ScoredInput]:
    """Return the scored inputs of the model with this fingerprint, in the order of the tasks.

    The task file is the one beside the key. Files of one annotator are joined: the last one counts.
    `n_sites` is the length of the run's inputs; None: any.

    Raises
    ------
    UserError
        Unreadable files, scores of other tasks, one name used by different scorers, or no score of
        this model.
    """
    by_key = scores_by_key(score_paths, key_path)
    check_who([file for files in by_key.values() for file in files])
    found = []
    for path, files in by_key.items():
        tasks = read_tasks(path.with_name(path.name.removesuffix(".key.jsonl") + ".jsonl"))
        key, latest = read_key(path, tasks.tasks_id), _by_task(files)
        if unknown := latest.keys() - tasks.ids:
            raise UserError(f"{tasks.path} holds no task with the scored id {min(unknown)}")
        items = key.by_id()
        for task in tasks.tasks:
            item, scores = items[task.id], latest.get(task.id)
            mine = item.run is not None and key.runs[item.run].model_fingerprint == fingerprint
            if mine and scores:
                require_length(path, item, n_sites)
                found.append(ScoredInput(task, item, key, scores))
    if not found:
        raise UserError(f"{', '.join(map(str, score_paths))}: no input of this model is scored yet")
    return found


def _by_task(files: Sequence[Scores]) -> dict[str, dict[str, Score]]:
    """Return the line that counts for each task and annotator."""
    found: dict[str, dict[str, Score]] = defaultdict(dict)
    for file in files:
        for id_, line in file.latest().items():
            found[id_][file.annotator] = line
    return found
