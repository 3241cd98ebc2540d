"""Representative inputs: for each bin of z, some that stand for all there, as people see them.

Every recorded sample stands for w_i inputs (`Density.log_mixture`), on any rung.
Draws are independent and in proportion to w_i, from one pass over the file in bounded memory: of a
round that holds a share s of the weight seen so far, each draw moves there with probability s.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from omniinput_hpc.annotation.display import Shown, shown_of, values_as_text
from omniinput_hpc.annotation.tasks import Kind, read_key, read_tasks
from omniinput_hpc.annotation.tasks import key_path as key_beside
from omniinput_hpc.errors import UserError
from omniinput_hpc.estimators import EstimateError
from omniinput_hpc.estimators.density.density import Density
from omniinput_hpc.estimators.precision_recall.curves import Side
from omniinput_hpc.estimators.run_data import RunData, samples_in_bins
from omniinput_hpc.results.redact import mask

FloatArray = NDArray[np.float64]
PER_BIN, MAX_BINS = 5, 12


@dataclass(frozen=True)
class Representative:
    """An input that stands for its bin.

    Attributes
    ----------
    bin : index of its bin
    z : its output
    shown : its text, or its picture as a data URI
    draws : how often it was drawn
    values : int64 [D]
    score : mean of the scores that it was given; None without scores
    """

    bin: int
    z: float
    shown: str
    draws: int
    values: NDArray[np.int64]
    score: float | None = None


@dataclass(frozen=True)
class Representatives:
    """Representative inputs of one run.

    Attributes
    ----------
    kind : "text" or "image"
    prefix : a text that all inputs begin with, shown apart; None without one
    note : how they are shown
    law : how they were drawn, in words
    edges : float64 [B + 1], of the bins
    items : by bin
    """

    kind: Kind
    prefix: str | None
    note: str
    law: str
    edges: FloatArray
    items: Sequence[Representative]

    def of_bin(self, bin_: int) -> list[Representative]:
        """Return the inputs of a bin."""
        return [item for item in self.items if item.bin == bin_]

    def bins(self, side: Side) -> list[int]:
        """Return the bins that have inputs, from the confident end on."""
        return sorted({item.bin for item in self.items}, reverse=side == "high")

    def masked(self) -> Representatives:
        """Return the same with e-mail addresses, phone numbers and street addresses masked."""
        if self.kind == "image":
            return self
        items = [replace(item, shown=mask(item.shown)) for item in self.items]
        prefix = None if self.prefix is None else mask(self.prefix)
        return replace(self, prefix=prefix, items=items)


def edges_for(
    density: Density, between: tuple[float, float] | None = None, width: float | None = None
) -> FloatArray:
    """Return bins for `draw`, made of whole bins of the run.

    Parameters
    ----------
    density : of the run
    between : range of z (default: all bins with counts)
    width : of a bin (default: such that there are at most `MAX_BINS`)

    Raises
    ------
    EstimateError
        No bins there, or too many.
    """
    counted = np.flatnonzero(density.count_b)
    fine = density.edges
    unit = float(np.diff(fine).min())
    first, last = int(counted[0]), int(counted[-1]) + 1
    if between is not None:
        first = int(np.searchsorted(fine, between[0] - 0.5 * unit))
        last = int(np.searchsorted(fine, between[1] + 0.5 * unit)) - 1
    if first >= last:
        low, high = (0.0, 0.0) if between is None else between
        raise EstimateError(f"there are no bins of the run from {low:g} to {high:g}")
    step = -(-(last - first) // MAX_BINS) if width is None else round(width / unit)
    if step < 1 or (last - first) / step > 200:
        raise EstimateError(f"a bin of {width} makes no bins, or over 200: give another --width")
    return np.asarray(fine[[*range(first, last, step), last]])


def draw(
    run: RunData, density: Density, edges: FloatArray, per_bin: int = PER_BIN, seed: int = 0
) -> list[Representative]:
    """Draw inputs of each bin in proportion to their weight, `shown` left empty.

    Parameters
    ----------
    run, density : of one run
    edges : float64 [B + 1]
    per_bin : draws a bin; an input that is drawn again is counted, not listed again
    seed : of the draws

    Raises
    ------
    EstimateError
        No recorded samples inside the edges.
    """
    n_bins = len(edges) - 1
    rng = np.random.default_rng(seed)
    total_b = np.full(n_bins, -np.inf)
    kept: list[list[tuple[float, NDArray[np.int64]] | None]] = [
        [None] * per_bin for _ in range(n_bins)
    ]
    for part in samples_in_bins(run, edges):
        log_w_i = -density.log_mixture(part.z_i, part.log_q_ik)
        for b in np.unique(part.bin_i):
            mine = np.flatnonzero(part.bin_i == b)
            sum_i = np.logaddexp.accumulate(log_w_i[mine])
            total_b[b] = np.logaddexp(total_b[b], sum_i[-1])
            moves = np.flatnonzero(rng.random(per_bin) < np.exp(sum_i[-1] - total_b[b]))
            points = sum_i[-1] + np.log(rng.random(len(moves)))
            places = np.minimum(np.searchsorted(sum_i, points), len(mine) - 1)
            for n, i in zip(moves, mine[places], strict=True):
                kept[b][n] = (float(part.z_i[i]), part.x_id[i].astype(np.int64))
    items = [item for b, row in enumerate(kept) for item in _distinct(b, row)]
    if not items:
        raise EstimateError(
            f"{run.path} has no recorded samples with outputs from {edges[0]:g} to {edges[-1]:g}"
        )
    return items


def _distinct(
    bin_: int, row: Sequence[tuple[float, NDArray[np.int64]] | None]
) -> list[Representative]:
    """Return the different inputs of a bin's draws, by z, each with how often it was drawn."""
    found: dict[bytes, Representative] = {}
    for z, x in (drawn for drawn in row if drawn is not None):
        known = found.get(x.tobytes())
        draws = 1 if known is None else known.draws + 1
        found[x.tobytes()] = Representative(bin_, z, "", draws, x)
    return sorted(found.values(), key=lambda item: item.z)


def how_to_show(config: dict[str, Any], render: bool) -> Shown:
    """Return how a run's inputs are shown, by their values where nothing else can be done.

    Parameters
    ----------
    config : of the run
    render : whether a `python` model may be built for its own ``render``: this runs its code
    """

    def values(why: str) -> Shown:
        return Shown("text", values_as_text, None, f"values are shown: {why}")

    if config.get("model", {}).get("kind") == "python" and not render:
        return values("--render builds the run's own model and lets it render them")
    try:
        return shown_of(config)
    except UserError as error:
        return values(str(error))


def representatives(
    run: RunData,
    density: Density,
    edges: FloatArray,
    per_bin: int = PER_BIN,
    seed: int = 0,
    render: bool = False,
) -> Representatives:
    """Return representative inputs of each bin of a run (see `draw` and `how_to_show`)."""
    items = draw(run, density, edges, per_bin, seed)
    how = how_to_show(run.config, render)
    shown = how.show(np.stack([item.values for item in items]))
    items = [replace(item, shown=word) for item, word in zip(items, shown, strict=True)]
    law = f"{per_bin} draws a bin, in proportion to weight"
    return Representatives(how.kind, how.prefix, how.note, law, edges, items)


def of_tasks(
    tasks_path: Any, fingerprint: str, score_of: Callable[[str], float | None], per_bin: int
) -> Representatives | None:
    """Return the inputs of a task file that are of one model; None if there are none.

    Parameters
    ----------
    tasks_path : Path
    fingerprint : of the model
    score_of : mean score of the task with an id, None without one
    per_bin : at most so many a bin, in the task file's order
    """
    tasks = read_tasks(tasks_path)
    key = read_key(key_beside(tasks_path), tasks.tasks_id)
    shown = {task.id: task for task in tasks.tasks}
    lower = key.range[0]
    n_bins = max(1, int(np.ceil((key.range[1] - lower) / key.width - 1e-6)))
    items: list[Representative] = []
    count_b = np.zeros(n_bins, dtype=np.int64)
    for item in key.items:
        if item.run is None or item.repeats is not None:
            continue
        if key.runs[item.run].model_fingerprint != fingerprint:
            continue
        assert item.bin_lower is not None and item.z is not None  # not gold
        b = int(np.clip(round((item.bin_lower - lower) / key.width), 0, n_bins - 1))
        if count_b[b] < per_bin:
            count_b[b] += 1
            task = shown[item.id]
            what = (task.text if tasks.kind == "text" else task.png) or ""
            values = np.array(item.x, dtype=np.int64)
            items.append(Representative(b, item.z, what, item.draws, values, score_of(item.id)))
    if not items:
        return None
    prefix = next((task.prefix for task in tasks.tasks if task.prefix is not None), None)
    edges = lower + key.width * np.arange(n_bins + 1, dtype=np.float64)
    law = f"tasks of {tasks_path.name}, drawn {key.draw_method}"
    return Representatives(tasks.kind, prefix, "as the annotators saw them", law, edges, items)


def csv_text(found: Representatives, source: str, with_values: bool) -> str:
    """Return the table: a row per input; texts as JSON strings, so that a row is a line.

    (In a spreadsheet such a text cannot begin a formula either.)
    """
    file = io.StringIO()
    for line in (f"representative inputs: {found.law}", f"source: {source}"):
        file.write(f"# {line}\n")
    writer = csv.writer(file, lineterminator="\n")
    text = ["text"] if found.kind == "text" else []
    writer.writerow(
        ["z_lower", "z_upper", "z", "draws", "score", *text, *(["values"] if with_values else [])]
    )
    for item in found.items:
        edges = [f"{edge:.12g}" for edge in found.edges[item.bin : item.bin + 2]]
        score = "nan" if item.score is None else f"{item.score:.6g}"
        row = [*edges, f"{item.z:.9g}", item.draws, score]
        row += [json.dumps(item.shown)] if text else []
        row += [" ".join(map(str, item.values.tolist()))] if with_values else []
        writer.writerow(row)
    return file.getvalue()
