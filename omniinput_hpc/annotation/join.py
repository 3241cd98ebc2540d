"""Score files and their key, joined into the arrays that the estimators take."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from omniinput_hpc.annotation.scores import Scores, read_scores
from omniinput_hpc.annotation.tasks import Key, KeyItem, read_key
from omniinput_hpc.errors import UserError
from omniinput_hpc.estimators.precision_recall.from_scores import Scored

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class Joined:
    """What annotators said of one model's inputs.

    Attributes
    ----------
    scored : Scored; repeats are averaged into their originals, gold items are not in it
    judges : what kind of judge each annotator is, None for a person
    first_ar, second_ar : float64 [A, R], scores of items shown twice (NaN where not scored)
    given_ag, gold_g : float64 [A, G] and [G], scores of gold items and the known ones
    notes : what was odd and is not an error
    """

    scored: Scored
    judges: Sequence[str | None]
    first_ar: FloatArray
    second_ar: FloatArray
    given_ag: FloatArray
    gold_g: FloatArray
    notes: Sequence[str]


def key_beside(scores_path: Path) -> Path:
    """Return ``RUN.tasks.key.jsonl``, the key of ``RUN.scores.NAME.jsonl``."""
    stem, found, _ = scores_path.name.rpartition(".scores.")
    if not found:
        raise UserError(f"{scores_path}: a score file is named RUN.scores.NAME.jsonl; give --key")
    return scores_path.with_name(f"{stem}.tasks.key.jsonl")


def scores_of_model(
    fingerprint: str, score_paths: Sequence[Path], key_path: Path | None = None
) -> list[Path]:
    """Return the score files whose key names the model with this fingerprint."""
    keys = {key_path or key_beside(path) for path in score_paths}
    named = {
        path
        for path in keys
        if any(run.model_fingerprint == fingerprint for run in read_key(path).runs)
    }
    return [path for path in score_paths if (key_path or key_beside(path)) in named]


def join_scores(
    fingerprint: str, score_paths: Sequence[Path], key_path: Path | None = None
) -> Joined:
    """Join score files with their keys, for the model with this fingerprint.

    Parameters
    ----------
    fingerprint : of the run's model; tasks of other models in the same set are left out
    score_paths : one or more files; a name that occurs in several is one annotator
    key_path : the key of all of them (default: the one beside each)

    Raises
    ------
    UserError
        Unreadable files, no task of this model, keys of different widths or laws, unknown ids.
    """
    by_key: dict[Path, list[Scores]] = defaultdict(list)
    for path in score_paths:
        by_key[key_path or key_beside(path)].append(read_scores(path))
    keys = {path: read_key(path) for path in by_key}
    names = sorted({file.annotator for files in by_key.values() for file in files})
    lower, width, n_bins = _bins(keys.values(), fingerprint)
    words: dict[str, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    rows: dict[tuple[int, ...], tuple[int, int, float]] = {}
    order: dict[tuple[int, ...], int] = {}
    twice: list[FloatArray] = []
    golds: list[tuple[FloatArray, float]] = []
    judges: dict[str, str | None] = {}
    notes: list[str] = []
    lanes: dict[tuple[Path, int | None, int | None], int] = {}
    for path, key in keys.items():
        items = key.by_id()
        said: dict[str, dict[str, float]] = {name: {} for name in names}
        said |= _words(by_key[path], items, path)
        for file in by_key[path]:
            judges[file.annotator] = file.judge
            notes += file.notes
        for item in key.items:
            given = np.array([said[name].get(item.id, np.nan) for name in names])
            if item.gold is not None:
                golds.append((given, item.gold))
                continue
            if not _is_of(key, item, fingerprint):
                continue
            if item.repeats is not None:
                first = [said[name].get(item.repeats, np.nan) for name in names]
                twice.append(np.stack([np.array(first), given]))
            x = tuple(item.x)
            i = order.setdefault(x, len(order))
            lane = lanes.setdefault((path, item.run, item.lane), len(lanes))
            assert item.bin_lower is not None and item.log_weight is not None  # not gold
            weight = float(item.draws) if key.law == "by-weight" else np.exp(item.log_weight)
            bin_ = round((item.bin_lower - lower) / width)
            known = rows.get(x)
            if known is None:
                rows[x] = (bin_, lane, weight)
            elif item.repeats is None and key.law == "by-weight":
                rows[x] = (*known[:2], known[2] + weight)  # drawn again, of another set or run
            for name, score in zip(names, given, strict=True):
                if not np.isnan(score):
                    words[name][i].append(float(score))
    columns = np.array(list(rows.values()))
    score_ai = np.full((len(names), len(rows)), np.nan)
    for a, name in enumerate(names):
        for i, scores in words[name].items():
            score_ai[a, i] = np.mean(scores)
    if np.isnan(score_ai).all():
        raise UserError(f"{', '.join(map(str, score_paths))}: no input of this model is scored yet")
    both = np.array(twice).reshape(-1, 2, len(names))
    return Joined(
        scored=Scored(
            edges=lower + width * np.arange(n_bins + 1, dtype=np.float64),
            bin_i=columns[:, 0].astype(np.int64),
            lane_i=columns[:, 1].astype(np.int64),
            weight_i=columns[:, 2],
            score_ai=score_ai,
            annotators=names,
        ),
        judges=[judges[name] for name in names],
        first_ar=both[:, 0].T,
        second_ar=both[:, 1].T,
        given_ag=np.array([given for given, _ in golds]).reshape(-1, len(names)).T,
        gold_g=np.array([gold for _, gold in golds]),
        notes=notes,
    )


def _is_of(key: Key, item: KeyItem, fingerprint: str) -> bool:
    return item.run is not None and key.runs[item.run].model_fingerprint == fingerprint


def _words(
    files: Sequence[Scores], items: dict[str, KeyItem], key_path: Path
) -> dict[str, dict[str, float]]:
    """Return the scores that count by annotator and id."""
    said: dict[str, dict[str, float]] = {}
    for file in files:
        scores = file.by_id()
        unknown = next((id_ for id_ in scores if id_ not in items), None)
        if unknown is not None:
            raise UserError(
                f"{file.path} has a score of {unknown}, which is not in {key_path}: are these the "
                "scores of another task file?"
            )
        said.setdefault(file.annotator, {}).update(scores)
    return said


def _bins(keys: Iterable[Key], fingerprint: str) -> tuple[float, float, int]:
    """Return lower end, width and number of the bins that cover the model's ranges."""
    keys = list(keys)
    runs = [run for key in keys for run in key.runs if run.model_fingerprint == fingerprint]
    if not runs:
        paths = ", ".join(str(key.path) for key in keys)
        raise UserError(
            f"{paths}: no task is of this run's model ({fingerprint}); were the tasks chosen from "
            "another run?"
        )
    if len({key.law for key in keys}) > 1 or len({round(key.width, 9) for key in keys}) > 1:
        raise UserError(
            "the task files differ in how tasks were drawn or in the bins' width: analyse them "
            "one by one"
        )
    lower, width = min(run.range[0] for run in runs), keys[0].width
    upper = max(run.range[1] for run in runs)
    if any(abs((run.range[0] - lower) / width % 1.0 - 0.5) < 0.499 for run in runs):
        raise UserError("the task files' bins do not coincide: analyse them one by one")
    return lower, width, max(1, int(np.ceil((upper - lower) / width - 1e-6)))
