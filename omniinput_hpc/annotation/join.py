"""Join score files with their keys into the arrays that the estimators take."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import numpy as np

from omniinput_hpc.annotation.scores import Scores, read_plain, read_scores
from omniinput_hpc.annotation.tasks import Key, KeyItem, read_key
from omniinput_hpc.errors import UserError
from omniinput_hpc.estimators import BoolArray, FloatArray
from omniinput_hpc.estimators.precision_recall.from_scores import Scored
from omniinput_hpc.histogram import MAX_BINS
from omniinput_hpc.text import counted


@dataclass(frozen=True)
class Joined:
    """The scores of one model's inputs.

    Attributes
    ----------
    scored : Scored; repeats are averaged into their originals, gold items are left out, and only
        annotators who scored an input of this model are listed
    judges : kind of judge of each annotator, None for a person
    first_ar, second_ar : float64 [A, R], both scores of the items shown twice (NaN: not scored)
    given_ag, gold_g : float64 [A, G] and [G], given and known scores of gold items
    notes : remarks for the user that are not errors
    unconverged : run files of a bank that had not converged when their scores were added
    """

    scored: Scored
    judges: Sequence[str | None]
    first_ar: FloatArray
    second_ar: FloatArray
    given_ag: FloatArray
    gold_g: FloatArray
    notes: Sequence[str]
    unconverged: Sequence[str] = ()


def key_beside(scores_path: Path) -> Path:
    """Return ``RUN.tasks.key.jsonl``, the key of ``RUN.scores.NAME.jsonl``."""
    stem, found, _ = scores_path.name.replace(".judge-scores.", ".scores.").rpartition(".scores.")
    if not found:
        read_plain(scores_path)  # refuses other files of this package
        raise UserError(f"{scores_path} is not named RUN.scores.NAME.jsonl; give its --key")
    return scores_path.with_name(f"{stem}.tasks.key.jsonl")


def scores_by_key(score_paths: Sequence[Path], key_path: Path | None) -> dict[Path, list[Scores]]:
    """Read score files, by their key: `key_path`, or the one beside each file."""
    found: dict[Path, list[Scores]] = defaultdict(list)
    for path in score_paths:
        found[key_path or key_beside(path)].append(read_scores(path))
    return found


def scores_of_model(
    fingerprint: str, score_paths: Sequence[Path], key_path: Path | None = None
) -> list[Path]:
    """Return the score files whose key lists the model with this fingerprint."""
    key_of = {path: key_path or key_beside(path) for path in score_paths}
    models = {
        key: {run.model_fingerprint for run in read_key(key).runs} for key in {*key_of.values()}
    }
    return [path for path in score_paths if fingerprint in models[key_of[path]]]


def join_scores(
    fingerprint: str, score_paths: Sequence[Path], key_path: Path | None = None,
    n_sites: int | None = None,
) -> Joined:  # fmt: skip
    """Join score files with their keys, for the model with this fingerprint.

    Files with the same annotator's name are joined. Without `key_path`, the key beside each file is
    read. `n_sites` is the length of the run's inputs; None: any.

    Raises
    ------
    UserError
        Unreadable files, no task or no score of this model, tasks of another length, unknown ids,
        one name used by different scorers, or keys that differ in bin width or draw method.
    """
    by_key = scores_by_key(score_paths, key_path)
    keys = {path: read_key(path) for path in by_key}
    files = [file for path in keys for file in by_key[path]]
    check_who(files)
    notes = [note for file in files for note in file.notes] + _drawn_apart(keys, fingerprint)
    names = sorted({file.annotator for file in files})
    judges = {file.annotator: file.judge for file in files if file.judge}
    people = [a for a, name in enumerate(names) if name not in judges] or [*range(len(names))]
    lower, width, n_bins = _bins(keys.values(), fingerprint)
    inputs, repeats, golds = _Inputs(names, lower, width), [], []
    for path, key in keys.items():
        items = key.by_id()
        given = scores_by_annotator(by_key[path], items, path, notes)
        scores = [given.get(name, {}) for name in names]
        ids_a = [_scored_ids(items, given, name) for name in names]
        for item in key.items:
            score_a = np.array([by_id.get(item.id, np.nan) for by_id in scores])
            if item.gold is not None:
                golds.append((score_a, item.gold))
            elif item.run is not None and key.runs[item.run].model_fingerprint == fingerprint:
                require_length(path, item, n_sites)
                if item.repeats is not None:
                    repeats.append([[s.get(item.repeats, np.nan) for s in scores], score_a])
                scored_a = np.array([(item.repeats or item.id) in ids for ids in ids_a])
                inputs.add(key, item, score_a, scored_a, bool(scored_a[people].any()))
    scored = inputs.scored(n_bins)
    if np.isnan(scored.score_ai).all():
        raise UserError(f"{', '.join(map(str, score_paths))}: no input of this model is scored yet")
    both_ra = np.array(repeats).reshape(-1, 2, len(names))
    given_ga = np.array([score_a for score_a, _ in golds]).reshape(-1, len(names))
    alike = [(a, b) for a, b in combinations(names, 2) if a.casefold() == b.casefold()]
    use = np.flatnonzero(~np.isnan(scored.score_ai).all(axis=1))
    without = [name for a, name in enumerate(names) if a not in use]
    notes += [f"{a} and {b} differ only in case and count as two annotators" for a, b in alike]
    notes += [f"{name} has scored no input of this model and is left out" for name in without]
    scored = scored.by(use)
    return Joined(
        scored=scored,
        judges=[judges.get(name) for name in scored.annotators],
        first_ar=both_ra[:, 0, use].T,
        second_ar=both_ra[:, 1, use].T,
        given_ag=given_ga[:, use].T,
        gold_g=np.array([gold for _, gold in golds]),
        notes=notes,
    )


def _drawn_apart(keys: Mapping[Path, Key], fingerprint: str) -> list[str]:
    """Return a note if tasks were drawn separately from several runs of the model; else []."""
    apart: dict[frozenset[str], Path] = {}
    for path, key in keys.items():
        runs = frozenset(r.identity for r in key.runs if r.model_fingerprint == fingerprint)
        if runs:
            apart.setdefault(runs, path)
    if len(apart) < 2:
        return []
    return [
        f"the tasks of {' and '.join(map(str, apart.values()))} were drawn separately from "
        "different runs of one model: in a bin that one run reached only in part, its inputs count "
        "too much (omniinput choose RUN1.h5 RUN2.h5 draws them together)"
    ]


def _scored_ids(
    items: dict[str, KeyItem], given: dict[str, dict[str, float]], name: str
) -> set[str]:
    """Return the ids of the drawn items that an annotator has scored, perhaps by a repeat."""
    return {items[id_].repeats or id_ for id_ in given.get(name, {})}


class _Inputs:
    """The distinct inputs i = 0 ... I - 1 of several keys, in the order of their first item.

    An input that people scored in one task set and only a judge in another counts twice: its draws
    in the second set are among those that people did not score.
    """

    def __init__(self, names: Sequence[str], lower: float, width: float) -> None:
        self._names, self._lower, self._width = names, lower, width
        self._rows: dict[tuple[bool, tuple[int, ...]], tuple[int, int, FloatArray]] = {}
        self._scores: dict[tuple[bool, tuple[int, ...]], list[list[float]]] = {}
        self._lanes: dict[tuple[str, int | None], int] = {}
        self._by_weight = True

    def add(
        self, key: Key, item: KeyItem, score_a: FloatArray, scored_a: BoolArray, by_people: bool
    ) -> None:
        """Add an item and its scores, float64 [A].

        scored_a : bool [A], whether each annotator scored it, so that its draws count
        by_people : whether a person did
        """
        counts = bool(scored_a.any())
        self._by_weight = by_weight = key.draw_method == "by-weight"  # the same in all keys
        assert item.bin_lower is not None and item.log_weight is not None  # not gold
        assert item.run is not None
        counts_a = np.array([counts, *scored_a])  # for anyone, and each annotator
        if by_weight:
            weight_a = item.draws * counts_a.astype(np.float64)
        else:  # its ln; what is shown again has been drawn once
            weight_a = np.where(counts_a & (item.repeats is None), item.log_weight, -np.inf)
        x = by_people or not counts, tuple(item.x)
        place = key.runs[item.run].identity, item.lane
        lane = self._lanes.setdefault(place, len(self._lanes))
        known = self._rows.get(x)
        if known is None:
            self._rows[x] = (round((item.bin_lower - self._lower) / self._width), lane, weight_a)
            self._scores[x] = [[] for _ in self._names]
        else:  # perhaps drawn again in another set or run
            add = np.add if by_weight else np.logaddexp
            self._rows[x] = (*known[:2], add(known[2], weight_a))
        for scores, score in zip(self._scores[x], score_a.tolist(), strict=True):
            if not np.isnan(score):
                scores.append(score)

    def scored(self, n_bins: int) -> Scored:
        """Return the inputs with each annotator's mean score (NaN: not scored)."""
        values = self._scores.values()
        mean_ia = [[np.mean(s) if s else np.nan for s in of_input] for of_input in values]
        rows = list(self._rows.values())
        bin_i, lane_i = np.array([row[:2] for row in rows], dtype=np.int64).reshape(-1, 2).T
        weight_ia = np.array([row[2] for row in rows]).reshape(len(rows), 1 + len(self._names))
        if not self._by_weight:  # a factor per bin cancels, and keeps exp above 0
            largest_b = np.full(n_bins, np.finfo(np.float64).min)
            np.maximum.at(largest_b, bin_i, weight_ia[:, 0])
            weight_ia = np.exp(weight_ia - largest_b[bin_i, None])
        return Scored(
            edges=self._lower + self._width * np.arange(n_bins + 1, dtype=np.float64),
            bin_i=bin_i,
            lane_i=lane_i,
            weight_i=weight_ia[:, 0],
            score_ai=np.array(mean_ia, dtype=np.float64).reshape(-1, len(self._names)).T.copy(),
            annotators=self._names,
            weight_ai=weight_ia[:, 1:].T,
        )


def check_who(files: Sequence[Scores]) -> None:
    """Raise a UserError if one name stands for two scorers: a person and a judge, or two judges."""
    first: dict[str, Scores] = {}
    for file in files:
        known = first.setdefault(file.annotator, file) if file.lines else file
        if known.judge != file.judge:
            who = [f"{one.judge or 'a person'} ({one.path})" for one in (known, file)]
            raise UserError(
                f"{file.annotator} is the name of both {who[0]} and {who[1]}: score again under "
                "another name, or give only one of the files"
            )


def scores_by_annotator(
    files: Sequence[Scores], items: dict[str, KeyItem], key_path: Path, notes: list[str]
) -> dict[str, dict[str, float]]:
    """Return the scores that count, by annotator and id; note scores that a later file replaces."""
    scores: dict[str, dict[str, float]] = {}
    for file in files:
        by_id = file.by_id()
        unknown = next((id_ for id_ in by_id if id_ not in items), None)
        if unknown is not None:
            raise UserError(
                f"{file.path} has a score of {unknown}, which is not in {key_path}: are these the "
                "scores of another task file?"
            )
        known = scores.setdefault(file.annotator, {})
        other = sum(known.get(id_, score) != score for id_, score in by_id.items())
        if other:
            tasks = counted(other, "task")
            notes.append(
                f"{file.path}: replaces {file.annotator}'s scores of {tasks} in an earlier file"
            )
        known.update(by_id)
    return scores


def require_length(path: Path, item: KeyItem, n_sites: int | None) -> None:
    """Raise a UserError if a task of a key shows an input of another length; None: any is right.

    The fingerprint of a language model does not cover the length of its texts.
    """
    if n_sites not in (None, len(item.x)):
        raise UserError(
            f"{path}: its tasks show inputs of {len(item.x)} sites of this model, and the run has "
            f"{n_sites}: choose tasks from the run"
        )


def _bins(keys: Iterable[Key], fingerprint: str) -> tuple[float, float, int]:
    """Return lower end, width and number of the bins that cover all ranges of the model."""
    keys = list(keys)
    runs = [run for key in keys for run in key.runs if run.model_fingerprint == fingerprint]
    if not runs:
        paths = ", ".join(str(key.path) for key in keys)
        problem = f"no task belongs to this run's model ({fingerprint})"
        raise UserError(f"{paths}: {problem}; were the tasks chosen from another run?")
    if len({key.draw_method for key in keys}) > 1 or len({round(key.width, 9) for key in keys}) > 1:
        raise UserError(
            "the task files differ in how tasks were drawn or in bin width: analyse them separately"
        )
    lower, width = min(run.range[0] for run in runs), keys[0].width
    upper = max(run.range[1] for run in runs)
    if any(abs((run.range[0] - lower) / width % 1.0 - 0.5) < 0.499 for run in runs):
        raise UserError("the bins of the task files do not coincide: analyse them separately")
    n_bins = (upper - lower) / width
    if n_bins > MAX_BINS:
        raise UserError(f"the task files span {lower:g} to {upper:g}, too many bins ({n_bins:.3g})")
    return lower, width, max(1, int(np.ceil(n_bins - 1e-6)))
