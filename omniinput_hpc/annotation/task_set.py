"""A blind task set of inputs drawn from one or more runs: repeats, gold items, random order."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from omniinput_hpc.annotation import tasks as task_files
from omniinput_hpc.annotation.display import DescribedRun, Display, shown_of
from omniinput_hpc.annotation.drawing import (
    BinReport,
    Chosen,
    choose,
    describe_draw,
)
from omniinput_hpc.annotation.jsonl import Text, UnitScore, checked, read_objects, write_whole
from omniinput_hpc.annotation.png import file_data_uri
from omniinput_hpc.annotation.scores import find_scores
from omniinput_hpc.annotation.task_bins import TaskBins
from omniinput_hpc.annotation.tasks import DrawMethod, KeyItem, Kind, Task
from omniinput_hpc.errors import UserError
from omniinput_hpc.estimators.density.density import Density
from omniinput_hpc.runfile.lock import RunLock
from omniinput_hpc.untrusted import fasta


@dataclass(frozen=True)
class HowDrawn:
    """How inputs are drawn: number per bin, bin width, method and seed."""

    per_bin: int
    width: float
    method: DrawMethod
    seed: int


@dataclass(frozen=True)
class DrawnRun:
    """The drawn inputs of one run.

    Attributes
    ----------
    chosen, reports : inputs, and numbers for each bin (see `drawing.choose`)
    shown : how they are displayed
    about : the run's entry in the key's header (see `tasks.KeyRun`)
    """

    chosen: Sequence[Chosen]
    reports: Sequence[BinReport]
    shown: Display
    about: dict[str, Any]


def draw_from(
    runs: Sequence[DescribedRun],
    density: Density,
    bins: Sequence[TaskBins],
    z_range: tuple[float, float],
    how: HowDrawn,
    number: int = 0,
) -> list[DrawnRun]:
    """Draw inputs of runs of one model together, in their task bins, which are the same.

    `number` is the first run's index in the set; the first run gets the numbers for each bin. The
    key records `z_range`. Raises a UserError if the bins hold no samples, or if it is unknown how
    to display the model's inputs.
    """
    seed, data = how.seed + 1_000_003 * number, [run.data for run in runs]
    chosen, reports = choose(data, density, bins[0].edges, how.per_bin, how.method, seed)
    drawn: list[DrawnRun] = []
    for run, mine, of_run in zip(runs, chosen, bins, strict=True):
        about = {"path": of_run.path, "model_fingerprint": run.fingerprint, "range": [*z_range]}
        about |= {"created": run.created} if run.created else {}
        drawn.append(DrawnRun(mine, [] if drawn else reports, shown_of(run.config), about))
    return drawn


def key_header(drawn_runs: Sequence[DrawnRun], how: HowDrawn) -> dict[str, Any]:
    """Return the header of a set's key (see `tasks.Key`), without its tasks_id."""
    ranges = [drawn.about["range"] for drawn in drawn_runs]
    return {
        "law": how.method,
        "law_in_words": describe_draw(how.method),
        "runs": [drawn.about for drawn in drawn_runs],
        "width": how.width,
        "range": [min(low for low, _ in ranges), max(high for _, high in ranges)],
        "per_bin": how.per_bin,
        "duplicates": sum(r.looked_at - r.distinct for drawn in drawn_runs for r in drawn.reports),
        "seed": how.seed,
    }


@dataclass(frozen=True)
class GoldItem:
    """A text or picture (a data URI) of known score."""

    shown: str
    score: float


def common_kind(drawn_runs: Sequence[DrawnRun]) -> Kind:
    """Return the kind in which all runs' inputs are displayed; a UserError if they differ."""
    kinds = {run.shown.kind for run in drawn_runs}
    if len(kinds) > 1:
        raise UserError("texts and pictures cannot be mixed in one task set")
    return kinds.pop()


@dataclass(frozen=True)
class _GoldText:
    text: Text
    score: UnitScore


@dataclass(frozen=True)
class _GoldPicture:
    png: Text
    score: UnitScore


def read_gold(path: Path, kind: Kind) -> list[GoldItem]:
    """Read gold items: JSON lines ``{"text", "score"}``, or ``{"png": FILE, "score"}``.

    Picture files are relative to the file of gold items.
    """
    found = []
    for where, value in read_objects(path, "file of gold items"):
        if kind == "text":
            item = checked(_GoldText, value, where)
            found.append(GoldItem(item.text, item.score))
        else:
            picture = checked(_GoldPicture, value, where)
            found.append(GoldItem(file_data_uri(path.parent / picture.png), picture.score))
    return found


def write_task_set(
    path: Path,
    drawn_runs: Sequence[DrawnRun],
    header: dict[str, Any],
    repeats: float = 0.1,
    gold: Sequence[GoldItem] = (),
    seed: int = 1,
) -> int:
    """Write a task file and its key; return the number of tasks.

    Parameters
    ----------
    path : of the task file
    drawn_runs : one for each run of the key's header
    header : of the key file (see `tasks.Key`), without its tasks_id
    repeats : share of the drawn items that is shown a second time under another id
    gold : items of known score; they get the prefix that all runs share
    seed : of ids and order

    Raises
    ------
    UserError
        The task file already has scores (even if the file itself was moved away), or texts and
        pictures would be mixed.
    """
    found = find_scores(path) if path.parent.is_dir() else []
    # an empty file that nobody holds is what an annotator leaves who scored nothing
    scores = [file for file in found if file.stat().st_size or RunLock(file).is_taken()]
    if scores:
        raise UserError(
            f"{path} has scores already ({scores[0].name}); move them away or choose another "
            "--output: ids would change, and the scores would be of no use"
        )
    kind = common_kind(drawn_runs)
    shown = (header["law"], header["width"], repeats, list(gold))
    rng = np.random.default_rng([seed, *_entropy(header["runs"], drawn_runs, shown)])
    items = [item for run, drawn in enumerate(drawn_runs) for item in _items_of(run, drawn, rng)]
    n_drawn = len(items)
    for i in rng.permutation(n_drawn)[: round(repeats * n_drawn)]:
        task, item = items[i]
        id_ = _new_id(rng)
        items.append((replace(task, id=id_), replace(item, id=id_, draws=0, repeats=item.id)))
    prefixes = {drawn.shown.prefix for drawn in drawn_runs}
    prefix = prefixes.pop() if len(prefixes) == 1 else None
    for one in gold:
        id_ = _new_id(rng)
        key = KeyItem(id_, None, None, None, None, 0, [], None, gold=one.score)
        items.append((_task(id_, kind, one.shown, prefix), key))
    mixed = [items[i] for i in rng.permutation(len(items))]
    path.parent.mkdir(parents=True, exist_ok=True)
    tasks = [task for task, _ in mixed]
    header = {"tasks_id": task_files.tasks_id_of(task.id for task in tasks), **header}
    # the key first: a task file is useless without its key
    task_files.write_key(task_files.key_path(path), header, [key for _, key in mixed])
    task_files.write_tasks(path, kind, tasks)
    return len(mixed)


def write_fasta(path: Path, drawn_runs: Sequence[DrawnRun]) -> Path | None:
    """Write the drawn inputs of a task file as FASTA next to its key, with the id, z and bin.

    As it shows z, it has the key's permissions. Returns its path; None if inputs are not sequences
    of letters.
    """
    letters = [run.shown.letters for run in drawn_runs]
    key_path = task_files.key_path(path)
    key = task_files.read_key(key_path, task_files.read_tasks(path).tasks_id)
    headers, sequences = [], []
    for item in key.items:
        if item.run is None or item.bin_lower is None or item.repeats is not None:
            continue
        show = letters[item.run]
        if show is None:
            return None
        upper = item.bin_lower + key.width
        headers.append(f"{item.id} z={item.z:.9g} bin={item.bin_lower:.6g}..{upper:.6g}")
        sequences += show(np.array([item.x]))
    found = key_path.with_suffix(".fasta")
    data = fasta.text_of(headers, sequences).encode()
    write_whole(found, data, task_files.KEY_MODE)
    return found


def _items_of(run: int, drawn: DrawnRun, rng: np.random.Generator) -> list[tuple[Task, KeyItem]]:
    if not drawn.chosen:
        return []
    shown, items = drawn.shown, []
    seen_n = shown.show(np.stack([c.x for c in drawn.chosen]))
    for c, seen in zip(drawn.chosen, seen_n, strict=True):
        id_ = _new_id(rng)
        key = KeyItem(id_, run, c.bin_lower, c.z, c.log_weight, c.draws, c.x.tolist(), c.lane)
        items.append((_task(id_, shown.kind, seen, shown.prefix), key))
    return items


def _entropy(
    about: Sequence[dict[str, Any]], drawn_runs: Sequence[DrawnRun], shown: tuple[Any, ...]
) -> list[int]:
    """Return numbers that differ between task sets, so that their ids differ too."""
    runs = [{k: v for k, v in run.items() if k != "created"} for run in about]
    drawn = [[(c.x.tolist(), c.bin_lower, c.draws) for c in one.chosen] for one in drawn_runs]
    digest = hashlib.sha256(repr((runs, drawn, shown)).encode()).digest()
    return [int.from_bytes(digest[i : i + 4], "big") for i in range(0, 16, 4)]


def _new_id(rng: np.random.Generator) -> str:
    """Return a random id that spreadsheets do not take for a number (all digits, or 12e34)."""
    id_ = rng.bytes(8).hex()
    return id_ if set("abcdf") & set(id_) else _new_id(rng)


def _task(id_: str, kind: Kind, shown: str, prefix: str | None) -> Task:
    if kind == "text":
        return Task(id_, text=shown, prefix=prefix)
    return Task(id_, png=shown, prefix=prefix)
