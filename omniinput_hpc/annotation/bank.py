"""Banks of labels: scored inputs of several runs in one file, for the curves of any model.

``BANK.jsonl`` begins with a header: the runs and task sets that inputs were drawn from, with the
edges of their bins, and the annotators. Every other line holds an input: its values, its scores,
and where it was recorded and drawn. The file shows z, so annotators must not see it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np

from omniinput_hpc.annotation.join import check_who, scores_by_annotator, scores_by_key
from omniinput_hpc.annotation.jsonl import (
    Finite,
    Flag,
    Text,
    UnitScore,
    Whole,
    Wholes,
    checked,
    expected,
    read_objects,
    write_objects,
)
from omniinput_hpc.annotation.tasks import KEY_MODE, Draws, Key, KeyItem, read_key
from omniinput_hpc.errors import UserError
from omniinput_hpc.estimators import FloatArray

FORMAT, VERSION = "omniinput-bank", 1
WHAT = "bank of labels"


@dataclass(frozen=True)
class BankRun:
    """A run, a task set and a range of z that inputs were drawn from.

    Attributes
    ----------
    path : of the run file, relative to the bank's folder
    model_fingerprint, created : of the run
    tasks_id : of the task set
    edges : of the bins that inputs were drawn from, float64 [B + 1]
    absolute : whether each `log_g` is ln of a number of inputs, not just up to a constant
    converged : whether the run had when each `log_g` was computed; true in older banks
    """

    path: Text
    model_fingerprint: Text
    created: Text
    tasks_id: Text
    edges: Annotated[list[Finite], expected("a list of finite numbers")]
    absolute: Flag
    converged: Flag = True

    def same_draws(self, other: BankRun) -> bool:
        """Whether both are the same task set of the same run, and the same bins."""
        mine = (self.model_fingerprint, self.created, self.tasks_id, self.edges)
        return mine == (other.model_fingerprint, other.created, other.tasks_id, other.edges)


@dataclass(frozen=True)
class BankItem:
    """A scored input.

    Attributes
    ----------
    x : its values
    run : index into the bank's runs
    place : round, rung and index of a sample of the run that recorded it
    lane : of the drawn sample
    z, bin : its output in that run, and the index of its bin
    log_g : ln of the number of inputs of the bin: one draw finds x with probability exp(-log_g)
    draws : how often it was drawn
    scores : by annotator; the mean, if it was shown twice
    """

    x: Wholes = field(repr=False)
    run: Whole
    place: Wholes
    lane: Whole
    z: Finite
    bin: Whole
    log_g: Finite
    draws: Draws
    scores: Annotated[dict[Text, UnitScore], expected("scores from 0 to 1 by annotator")]


@dataclass(frozen=True)
class Bank:
    """Scored inputs of several runs; `annotators` has the kind of judge, None for a person."""

    path: Path
    runs: Sequence[BankRun]
    annotators: dict[str, str | None]
    items: Sequence[BankItem]

    def run_path(self, run: BankRun) -> Path:
        """Return the path of a run file."""
        return self.path.parent / run.path


@dataclass(frozen=True)
class _Header:
    version: Annotated[Literal[1], expected(str(VERSION))]
    runs: Annotated[list[BankRun], expected("a list of runs")]
    annotators: Annotated[dict[Text, Text | None], expected("kinds of judges by name")]
    items: Whole


def read_bank(path: Path) -> Bank:
    """Read a bank.

    Raises
    ------
    UserError
        No such file, another format, a file cut short, or items that do not fit their runs.
    """
    (where, first), *rows = read_objects(path, WHAT)
    if first.get("format") != FORMAT:
        raise UserError(f"{path} is not a {WHAT} (its first line does not name that format)")
    header = checked(_Header, first, where)
    if len(rows) != header.items:
        raise UserError(f"{path} holds {len(rows)} inputs instead of {header.items}: damaged")
    for run in header.runs:
        if len(run.edges) < 2 or any(not a < b for a, b in pairwise(run.edges)):
            raise UserError(f'{where}: "edges" of {run.path} must ascend')
    items = [checked(BankItem, row, place) for place, row in rows]
    for item, (place, _) in zip(items, rows, strict=True):
        _check_item(item, header, place)
    if len({len(item.x) for item in items}) > 1:
        raise UserError(f"{path}: its inputs differ in length")
    return Bank(path, header.runs, header.annotators, items)


def _check_item(item: BankItem, header: _Header, where: str) -> None:
    fits = item.run < len(header.runs) and item.bin < len(header.runs[item.run].edges) - 1
    if not fits or len(item.place) != 3 or item.draws < 1:
        raise UserError(f'{where}: "run", "bin", "place" or "draws" is out of range')
    if unknown := item.scores.keys() - header.annotators.keys():
        raise UserError(f"{where}: the header does not name the annotator {min(unknown)}")


def write_bank(bank: Bank) -> None:
    """Write a bank atomically, readable only by its owner."""
    header: dict[str, Any] = {"format": FORMAT, "version": VERSION}
    header |= {"runs": [asdict(run) for run in bank.runs], "annotators": bank.annotators}
    header["items"] = len(bank.items)
    write_objects(bank.path, [header, *map(asdict, bank.items)], KEY_MODE)


def merged(bank: Bank | None, new: Bank) -> Bank:
    """Return a bank with the runs and inputs of `new`.

    If both hold the same draws, an annotator's scores in `new` replace the earlier ones.
    """
    if bank is None:
        return new
    for name in bank.annotators.keys() & new.annotators.keys():
        if bank.annotators[name] != new.annotators[name]:
            raise UserError(
                f"{name} is the name of a person and of a judge, or of two judges, in {bank.path} "
                "and in the new scores: score again under another name"
            )
    runs = [run for run in bank.runs if not any(map(run.same_draws, new.runs))]
    first, runs = len(runs), [*runs, *new.runs]
    scored_by: dict[int, set[str]] = defaultdict(set)
    log_g = {}
    for item in new.items:
        scored_by[item.run + first] |= item.scores.keys()
        log_g[item.run + first, item.bin] = item.log_g
    items: dict[tuple[int, ...], BankItem] = {}
    for item in bank.items:
        drawn_from = bank.runs[item.run]
        number = next(n for n, run in enumerate(runs) if run.same_draws(drawn_from))
        scores = item.scores
        if runs[number].absolute != drawn_from.absolute:
            raise UserError(
                f"{drawn_from.path} has changed since its scores were added to {bank.path}: make "
                "the bank again, with all score files"
            )
        scores = {name: s for name, s in scores.items() if name not in scored_by[number]}
        if scores:
            if (number, item.bin) not in log_g and not drawn_from.converged:
                runs[number] = replace(runs[number], converged=False)
            now = log_g.get((number, item.bin), item.log_g)
            items[number, *item.x] = replace(item, run=number, scores=scores, log_g=now)
    for item in new.items:
        key = (item.run + first, *item.x)
        scores = (items.pop(key).scores if key in items else {}) | item.scores
        items[key] = replace(item, run=key[0], scores=scores)
    used = {name for item in items.values() for name in item.scores}
    annotators = {n: kind for n, kind in (bank.annotators | new.annotators).items() if n in used}
    return Bank(bank.path, runs, annotators, list(items.values()))


@dataclass(frozen=True)
class ScoredItems:
    """The scored inputs of one run in one task set and one range of z.

    Attributes
    ----------
    key : of the task set
    edges : float64 [B + 1], of the bins that they were drawn from
    scores : the scores of each item by annotator
    """

    key: Key
    edges: FloatArray
    items: Sequence[KeyItem]
    scores: Sequence[dict[str, float]]


def scored_items(
    fingerprint: str, created: str, score_paths: Sequence[Path], key_path: Path | None = None
) -> tuple[list[ScoredItems], dict[str, str | None], list[str]]:
    """Return a run's scored inputs of each task set and range, the annotators, and notes.

    `fingerprint` and `created` are those of the run. Gold items are left out.

    Raises
    ------
    UserError
        Unreadable files, no score of this run, or inputs that were not drawn by weight.
    """
    by_key = scores_by_key(score_paths, key_path)
    files = [file for some in by_key.values() for file in some]
    check_who(files)
    found, notes = [], [note for file in files for note in file.notes]
    for path, some in by_key.items():
        key = read_key(path)
        mine = [
            i
            for i, run in enumerate(key.runs)
            if run.model_fingerprint == fingerprint and run.created in (None, created)
        ]
        if not mine:
            continue
        if key.draw_method != "by-weight":
            raise UserError(f"{path}: a bank takes only inputs drawn by weight (choose)")
        given = scores_by_annotator(some, key.by_id(), path, notes)
        scores: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
        for name, by_id in given.items():
            for item in key.items:
                if item.id in by_id:
                    scores[item.repeats or item.id][name].append(by_id[item.id])
        for i in mine:  # a run may be drawn from in several ranges
            items = [item for item in key.items if item.run == i and item.repeats is None]
            items = [item for item in items if scores.get(item.id)]
            means = [{n: float(np.mean(s)) for n, s in scores[item.id].items()} for item in items]
            if items:
                found.append(ScoredItems(key, _edges_of(key, i), items, means))
    if not found:
        names = ", ".join(map(str, score_paths))
        raise UserError(f"{names}: no input of this run is scored yet, or it is another run's")
    return found, {file.annotator: file.judge for file in files if file.lines}, notes


def _edges_of(key: Key, i: int) -> FloatArray:
    """Return the edges of the bins that inputs of a key's run i were drawn from."""
    lower, upper = key.runs[i].range
    numbers = np.arange(round((upper - lower) / key.width) + 1, dtype=np.float64)
    return np.asarray(lower + key.width * numbers)
