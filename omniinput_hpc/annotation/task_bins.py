"""The bins that tasks are drawn from, checked so that their scores can be analysed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from omniinput_hpc.annotation.display import DescribedRun
from omniinput_hpc.annotation.drawing import Chosen
from omniinput_hpc.errors import UserError
from omniinput_hpc.estimators import EstimateError, FloatArray
from omniinput_hpc.estimators.density.wide_bins import spans_of
from omniinput_hpc.estimators.precision_recall.curves import FEWEST_INPUTS, FEWEST_LANES

MAX_TASK_BINS = 100_000


def bin_edges(lower: float, upper: float, width: float) -> FloatArray:
    """Return the edges of whole bins from lower to upper, float64 [B + 1], or a UserError."""
    if not (np.isfinite([lower, upper, width]).all() and width > 0 and upper > lower):
        raise UserError(f"--range {lower:g} {upper:g} --width {width:g}: no bins in that range")
    n = (upper - lower) / width
    if n > MAX_TASK_BINS:
        asked = f"--range {lower:g} {upper:g} --width {width:g}"
        raise UserError(
            f"{asked}: {n:.3g} bins, more than {MAX_TASK_BINS:,}; choose a larger --width"
        )
    if round(n) < 1 or abs(n - round(n)) > 1e-6 * n:
        raise UserError(f"--range {lower:g} {upper:g} is not a whole number of bins of {width:g}")
    return np.asarray(lower + np.arange(round(n) + 1) * width)


@dataclass(frozen=True)
class TaskBins:
    """The bins that inputs of a run are drawn from.

    Attributes
    ----------
    path, fingerprint : of the run file, and of its model
    edges : float64 [B + 1], of these bins
    run_edges : float64, of the run's own, narrower bins
    walkers : number of walkers of the run
    """

    path: str
    fingerprint: str
    edges: FloatArray
    run_edges: FloatArray
    walkers: int


def bins_of_run(run: DescribedRun, lower: float, upper: float, width: float) -> TaskBins:
    """Return bins whose edges are also edges of the run's bins, as the analysis requires.

    If they are not, a UserError suggests the nearest ones that are.
    """
    edges, fine = bin_edges(lower, upper, width), run.edges
    try:
        spans = spans_of(fine, edges)
    except EstimateError:
        step = float(fine[1] - fine[0])
        raise UserError(
            f"--range {lower:g} {upper:g} --width {width:g}: scores are analysed in bins made of "
            f"whole bins of the run, and those of {run.path} go from {fine[0]:g} to "
            f"{fine[-1]:g} in steps of {step:g}; take {_nearest_bins(fine, lower, upper, width)}"
        ) from None
    # use the run's own floats: 0.1 + 2 * 0.7 differs from 1.5, and outputs may lie on edges
    edges = fine[[*(span.start for span in spans), spans[-1].stop]]
    return TaskBins(str(run.path), run.fingerprint, edges, fine, run.walkers)


def _nearest_bins(fine: FloatArray, lower: float, upper: float, width: float) -> str:
    """Return the options nearest to the given ones that fit the run's bins."""
    n_fine, step = len(fine) - 1, float(fine[1] - fine[0])
    share = min(max(1, round(width / step)), n_fine)  # run bins per task bin
    first = min(max(0, round((lower - fine[0]) / step)), n_fine - share)
    n_bins = min(max(1, round((upper - lower) / (share * step))), (n_fine - first) // share)
    low, high = fine[first], fine[first + n_bins * share]
    return f"--range {low:.9g} {high:.9g} --width {share * step:.9g}"


def of_one_model(wanted: Sequence[TaskBins]) -> list[list[int]]:
    """Return the indices of the runs of each model, whose inputs are drawn together.

    Raises a UserError if their bins differ.
    """
    groups: dict[str, list[int]] = {}
    for i, one in enumerate(wanted):
        groups.setdefault(one.fingerprint, []).append(i)
    for same in groups.values():
        first = wanted[same[0]]
        for other in (wanted[i] for i in same):
            pairs = (first.edges, other.edges), (first.run_edges, other.run_edges)
            if not all(np.array_equal(*pair) for pair in pairs):
                raise UserError(
                    f"{first.path} and {other.path} are runs of one model, so their inputs are "
                    "drawn together: they need the same [bins] and one --range"
                )
    return list(groups.values())


def too_few_to_analyse(wanted: Sequence[TaskBins], chosen: Sequence[Sequence[Chosen]]) -> list[str]:
    """Return a note on each model without a bin that a curve could use, even if all were scored.

    Parameters
    ----------
    wanted : the bins of each run, see `of_one_model`
    chosen : the inputs drawn from each run
    """
    notes = []
    for fingerprint in dict.fromkeys(one.fingerprint for one in wanted):
        same = [i for i, one in enumerate(wanted) if one.fingerprint == fingerprint]
        inputs: dict[int, set[bytes]] = defaultdict(set)
        lanes: dict[int, set[tuple[int, int]]] = defaultdict(set)
        first = wanted[same[0]].edges
        for i in same:
            for item in chosen[i]:
                b = round((item.bin_lower - first[0]) / (first[1] - first[0]))
                inputs[b].add(item.x.tobytes())
                lanes[b].add((i, item.lane))
        if any(len(inputs[b]) >= FEWEST_INPUTS and len(lanes[b]) >= FEWEST_LANES for b in inputs):
            continue
        best = max(inputs, key=lambda b: len(inputs[b]))
        walkers = sum(wanted[i].walkers for i in same)
        remedy = "raise --per-bin, or later lower --fewest-inputs and --fewest-lanes"
        if walkers < FEWEST_LANES:
            remedy = f"there are {walkers} walkers in all; later lower --fewest-lanes"
        notes.append(
            f"note: in the tasks of {', '.join(wanted[i].path for i in same)} no bin has "
            f"{FEWEST_INPUTS} distinct inputs from {FEWEST_LANES} lanes, which a curve requires "
            f"(the best has {len(inputs[best])} from {len(lanes[best])}): {remedy} of "
            "omniinput precision-recall"
        )
    return notes
