"""What `analysis/compare.py` does with its runs: two samplers of one model, or several models.

Needs neither MPI nor torch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from omniinput_hpc.annotation.join import join_scores, scores_of_model
from omniinput_hpc.errors import UserError
from omniinput_hpc.estimators.comparison import models as two_models
from omniinput_hpc.estimators.comparison import samplers as two_samplers
from omniinput_hpc.estimators.density.density import Density
from omniinput_hpc.estimators.precision_recall.curves import Side
from omniinput_hpc.estimators.precision_recall.from_rule import Curve, precision_recall, sum_scores
from omniinput_hpc.estimators.precision_recall.from_scores import scored_curve
from omniinput_hpc.plots import comparison
from omniinput_hpc.plots.style import z_label
from omniinput_hpc.results import run_pair
from omniinput_hpc.runfile.reader import RunReader

Rule = Callable[[NDArray[np.int64]], NDArray[np.float64]]


@dataclass(frozen=True)
class Result:
    """What is printed, written and drawn.

    Attributes
    ----------
    ending : of the files' names
    lines : list of str
    columns : of the CSV
    figure : Figure
    """

    ending: str
    lines: list[str]
    columns: dict[str, NDArray[Any]]
    figure: Figure


def samplers(
    runs: Sequence[RunReader], densities: Sequence[Density], names: Sequence[str]
) -> Result:
    """Compare two runs of one model.

    Raises
    ------
    UserError
        More than two runs.
    """
    if len(runs) > 2:
        raise UserError("these are runs of one model: give two of them at a time")
    pair, two = (densities[0], densities[1]), (names[0], names[1])
    found = two_samplers.compare_samplers(*pair)
    p, where, n = two_samplers.compare_inputs((runs[0], runs[1]), pair, found)
    found = replace(found, inputs_p=p, inputs_where=where, n_features=n)
    edges = pair[0].edges
    columns = {
        "z_lower": edges[found.bins],
        "z_upper": edges[found.bins + 1],
        "delta_log_g": found.delta_b,
        "delta_error": found.error_b,
    }
    label = z_label(runs[0].config)
    figure = comparison.samplers_figure(*pair, found, two, label)
    return Result(".samplers", two_samplers.describe(found, *two), columns, figure)


def curve_by_rule(
    run: RunReader, density: Density, rule: Rule, side: Side, fewest: tuple[int, int]
) -> Curve:
    """Return a run's curve by a rule (see `precision_recall.precision_recall`)."""
    sums = sum_scores(run, density, rule, fewest[0])
    return precision_recall(density, sums, side, fewest, whole=False)


def curve_by_scores(
    run: RunReader,
    density: Density,
    scores: Sequence[Path],
    key: Path | None,
    side: Side,
    fewest: tuple[int, int],
) -> Curve:
    """Return a run's curve by people's scores, of those files that are of its model.

    Raises
    ------
    UserError
        None of them is.
    """
    mine = scores_of_model(run.fingerprint, scores, key)
    if not mine:
        raise UserError(f"none of the score files is of the model of {run.path}")
    return scored_curve(
        density, join_scores(run.fingerprint, mine, key).scored, side, *fewest
    ).curve


def models(
    runs: Sequence[RunReader],
    densities: Sequence[Density],
    names: Sequence[str],
    curves: Sequence[Curve],
    z_range: Sequence[float] | None,
) -> Result:
    """Compare the first model with each of the others, by their curves.

    Raises
    ------
    UserError, EstimateError
        See `run_pair.shift_of` and `two_models.compare_models`.
    """
    shown, found, lines = [(names[0], curves[0], 0.0)], [], []
    for i in range(1, len(runs)):
        pair = (densities[0], densities[i])
        shift, error, how = run_pair.shift_of((runs[0], runs[i]), pair, z_range)
        both = two_models.compare_models(curves[0], curves[i], shift, error)
        shown.append((names[i], curves[i], shift))
        found.append((names[i], both))
        lines += [f"normalized by: {how}", *two_models.describe(both, names[0], names[i])]
    figure = comparison.models_figure(shown, found, all(d.absolute for d in densities))
    return Result(".compared", lines, _columns([both for _, both in found]), figure)


def _columns(found: Sequence[two_models.ModelComparison]) -> dict[str, NDArray[Any]]:
    """Return the curves on their common recall, the second model of each row named by number."""
    parts: dict[str, list[NDArray[Any]]] = {}
    for number, c in enumerate(found, start=2):
        row = {
            "model": np.full(len(c.log_recall_x), number),
            "log_recall": c.log_recall_x,
            "precision_1": c.precision_ax,
            "precision": c.precision_bx,
            "difference": c.difference_x.value,
            "difference_low": c.difference_x.low,
            "difference_high": c.difference_x.high,
            "cumulative_ratio": c.cumulative_x.value,
            "cumulative_ratio_low": c.cumulative_x.low,
            "cumulative_ratio_high": c.cumulative_x.high,
        }
        for name, values in row.items():
            parts.setdefault(name, []).append(values)
    return {name: np.concatenate(values) for name, values in parts.items()}
