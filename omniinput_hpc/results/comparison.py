"""Compare runs: two samplers of one model, or several models on one scale of recall.

Needs neither MPI nor torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from omniinput_hpc.errors import UserError
from omniinput_hpc.estimators import EstimateError
from omniinput_hpc.estimators.comparison import models, samplers
from omniinput_hpc.estimators.comparison.input_counts import Pairs, pairs_of
from omniinput_hpc.estimators.comparison.normalization import bennett_shift, normalize
from omniinput_hpc.estimators.density.density import Density
from omniinput_hpc.estimators.errors.jackknife import estimate
from omniinput_hpc.estimators.precision_recall.curves import Curve, Range
from omniinput_hpc.models import input_space
from omniinput_hpc.results.curves import CurveOptions, RunCurve, curve_of, side_lines
from omniinput_hpc.results.record import Record
from omniinput_hpc.results.run_groups import require_apart, seed_lines
from omniinput_hpc.results.tables import Columns
from omniinput_hpc.runfile.reader import RunReader
from omniinput_hpc.runfile.rescored import find, open_rescored

MAX_PAIRED_SAMPLES = 5_000_000
"""Most samples of a run that are read for a normalization."""


def require_one_space(runs: Sequence[RunReader]) -> None:
    """Check that all runs' models have the same space of inputs; else raise UserError."""
    spaces = [
        input_space.space_of(str(run.path), run.config, run.n_sites, run.n_values) for run in runs
    ]
    for space in spaces[1:]:
        input_space.require_same(spaces[0], space)


def read_pairs(
    run: RunReader, other: RunReader, density: Density, max_samples: int = MAX_PAIRED_SAMPLES
) -> tuple[Pairs, str]:
    """Return a run's samples with both models' outputs, and a line on the source of the outputs.

    If not all rounds were rescored, only those that were are used. If they hold more than
    `max_samples` samples, evenly spaced rounds are read, to bound the memory.

    Raises
    ------
    UserError
        The other model has not evaluated the samples (see `omniinput rescore`).
    """
    path = find(run, other)
    with open_rescored(path, run.on_damage) as side:
        rescored = min(side.rounds, run.rounds)
        n_rounds = min(rescored, max(1, max_samples // (len(run.beta_k) * run.samples_per_round)))
        rounds = np.unique(np.linspace(0, rescored - 1, n_rounds).astype(int))
        other_rks = np.stack([side.z(r) for r in rounds])
    own_rks = np.concatenate([run.samples_z(slice(r, r + 1)) for r in rounds])
    pairs = pairs_of(density, own_rks, other_rks, run.walkers)
    missing = f", {rescored} of {run.rounds} rounds" if rescored < run.rounds else ""
    if len(rounds) < rescored:
        missing += f", {len(rounds)} evenly spaced rounds read"
    return pairs, f"{path}{missing}"


def shift_of(
    groups: tuple[Sequence[RunReader], Sequence[RunReader]],
    densities: tuple[Density, Density],
    z_range: Sequence[float] | None,
) -> tuple[float, float, str]:
    """Return the shift to add to the second model's log g, its standard error, and the method.

    `groups` are the runs of each density. The shift of two absolute densities is 0. Other densities
    need both models' outputs of both runs' samples. If a range Z is given, the papers' cross-model
    normalization is used; otherwise Bennett's acceptance ratio.

    Raises
    ------
    UserError
        The other model has not evaluated the samples, or they come from several runs.
    EstimateError
        The data do not determine the shift.
    """
    a, b = densities
    if z_range is None and a.absolute and b.absolute:
        return 0.0, 0.0, "absolute densities (beta = 0 on both ladders)"
    joined = next((group for group in groups if len(group) > 1), None)
    if joined is not None:
        name = "+".join(str(run.path) for run in joined)
        why = "--range was given" if z_range is not None else "a ladder has no beta = 0"
        raise UserError(
            f"{name}: {why}, so the models are normalized by samples that both have evaluated, "
            "which needs single runs: compare those, or absolute densities without --range"
        )
    one, other = groups[0][0], groups[1][0]
    pairs_a, _ = read_pairs(one, other, a)
    pairs_b, _ = read_pairs(other, one, b)
    if z_range is None:
        shift, name = bennett_shift(a, b, pairs_a, pairs_b), "Bennett's ratio"
    else:
        row = normalize(a, b, pairs_a, pairs_b, *z_range).rows[0]
        if row.shift is None:
            raise EstimateError(row.refused)
        shift, name = row.shift, row.name
    result = estimate(shift, a.lanes_g, b.lanes_g)
    return float(result.value), float(result.error), name


def normalized_columns(densities: tuple[Density, Density], shift: float) -> Columns:
    """Return both densities in the bins with counts, with `shift` added to the second one."""
    parts = [(d, np.flatnonzero(d.count_b)) for d in densities]
    shifted = zip(parts, (0.0, shift), strict=True)
    return {
        "model": np.concatenate([np.full(len(i), m) for m, (_, i) in enumerate(parts, start=1)]),
        "z_lower": np.concatenate([d.edges[i] for d, i in parts]),
        "z_upper": np.concatenate([d.edges[i + 1] for d, i in parts]),
        "log_g": np.concatenate([d.log_g_b[i] + s for (d, i), s in shifted]),
        "log_g_error": np.concatenate([d.log_g_error_b[i] for d, i in parts]),
    }


@dataclass(frozen=True)
class SamplerResult:
    """Comparison of two runs of one model: printed lines, and the columns of the CSV file."""

    found: samplers.SamplerComparison
    lines: list[str]
    columns: Columns


def compare_two_samplers(
    groups: Sequence[Sequence[RunReader]], densities: Sequence[Density], names: Sequence[str]
) -> SamplerResult:
    """Compare two runs of one model, or two groups of joined runs.

    Raises
    ------
    UserError
        There are more than two groups, or they share a run or a seed.
    """
    if len(groups) > 2:
        raise UserError("these are runs of one model: give only two of them")
    require_apart(groups)
    pair = (densities[0], densities[1])
    found = samplers.compare_samplers(*pair)
    p, where, n = samplers.compare_inputs((groups[0], groups[1]), pair, found)
    found = replace(found, inputs_p=p, inputs_where=where, n_features=n)
    edges = pair[0].edges
    lines = seed_lines(groups) + samplers.describe(found, names[0], names[1])
    if not all(density.verdict.converged for density in pair):
        lines = [models.NOT_CONVERGED + line for line in lines]
    columns: Columns = {
        "z_lower": edges[found.first_r],
        "z_upper": edges[found.stop_r],
        "delta_log_g": found.delta_r,
        "delta_error": found.error_r,
    }
    return SamplerResult(found, lines, columns)


def curves_of(
    groups: Sequence[Sequence[RunReader]], densities: Sequence[Density], options: CurveOptions
) -> list[RunCurve]:
    """Return the models' curves, by a rule or each by the score files of its model.

    `groups` are the runs of each density, one or several. Each curve covers the range between its
    own ends: `recall_range` applies only after all curves are on one scale.

    Raises
    ------
    UserError
        There is neither a rule nor a score file for a run's model.
    """
    curves = []
    for runs, density in zip(groups, densities, strict=True):
        its_own = replace(options.of_model(runs[0].fingerprint), recall_range=None)
        if not (its_own.rule or its_own.scores):
            raise UserError(f"no score file is for the model of {runs[0].path}")
        curves.append(curve_of(runs, density, its_own))
    return curves


@dataclass(frozen=True)
class ModelResult:
    """The first model compared with each other one: what is printed, written and plotted.

    Attributes
    ----------
    curves : name, curve, and shift of its log recall, of every model
    comparisons : name and comparison of every model but the first
    lines, columns : the printed text, and the columns of the CSV file
    """

    curves: list[tuple[str, Curve, float]]
    comparisons: list[tuple[str, models.ModelComparison]]
    lines: list[str]
    columns: Columns


def compare_with_first(
    groups: Sequence[Sequence[RunReader]],
    densities: Sequence[Density],
    names: Sequence[str],
    curves: Sequence[RunCurve],
    z_range: Sequence[float] | None,
    recall_range: Range | None = None,
) -> ModelResult:
    """Compare the first model with each other; raises as `shift_of` and `compare_models` do.

    groups : the runs of each density, one or several
    recall_range : of log recall, on the first model's scale (default: what both curves reach)
    """
    first = curves[0].curve
    shown, found = [(names[0], first, 0.0)], []
    lines = [f"{n}: {line}" for n, c in zip(names, curves, strict=True) for line in side_lines(c)]
    for i in range(1, len(groups)):
        pair = (densities[0], densities[i])
        shift, error, how = shift_of((groups[0], groups[i]), pair, z_range)
        both = models.compare_models(first, curves[i].curve, shift, error, recall_range)
        shown.append((names[i], curves[i].curve, shift))
        found.append((names[i], both))
        unconverged = [names[j] for j in (0, i) if not densities[j].verdict.converged]
        said = models.describe(both, names[0], names[i], unconverged)
        lines += [f"normalized by: {how}", *said]
    return ModelResult(shown, found, lines, _model_columns([both for _, both in found]))


def add_to(record: Record, found: models.ModelComparison, first: str, other: str) -> None:
    """Record both models' AUPRs over their common range of recall, the difference and the ratio."""
    intervals = {
        f"AUPR of {first}, beside {other}": found.aupr_a,
        f"AUPR of {other}, beside {first}": found.aupr_b,
        f"AUPR of {first} less {other}": found.aupr_difference,
        f"AUPR of {first} by {other}": found.aupr_ratio,
    }
    for name, interval in intervals.items():
        record.add_interval(name, interval)
        record.values[name]["over_ln_recall"] = [found.lower, found.upper]


def _model_columns(found: Sequence[models.ModelComparison]) -> Columns:
    """Return the curves at common recalls; `model` numbers the second model of each comparison."""
    tables: list[Columns] = [
        {
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
        for number, c in enumerate(found, start=2)
    ]
    return {name: np.concatenate([table[name] for table in tables]) for name in tables[0]}
