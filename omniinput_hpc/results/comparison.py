"""Compare runs: two samplers of one model, or several models on one scale of recall.

Needs neither MPI nor torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from omniinput_hpc.errors import UserError
from omniinput_hpc.estimators import BoolArray, FloatArray
from omniinput_hpc.estimators.comparison.models import ModelComparison, compare_models
from omniinput_hpc.estimators.comparison.samplers import (
    MIN_P_VALUE,
    SamplerComparison,
    compare_inputs,
    compare_samplers,
    largest_chance,
)
from omniinput_hpc.estimators.density.density import MIN_EFFECTIVE_COUNT, Density
from omniinput_hpc.estimators.errors.jackknife import Interval
from omniinput_hpc.estimators.precision_recall.curves import Curve, Range
from omniinput_hpc.estimators.precision_recall.thresholds import ends_of
from omniinput_hpc.results.aupr import one_sided_words, recall_unit
from omniinput_hpc.results.curve import CurveResult, about_curve
from omniinput_hpc.results.curves import CurveOptions, curve_of
from omniinput_hpc.results.density import verdict_lines
from omniinput_hpc.results.normalization import shift_of
from omniinput_hpc.results.record import Record
from omniinput_hpc.results.result import Written
from omniinput_hpc.results.run_groups import require_apart, seed_lines
from omniinput_hpc.results.tables import Columns, describe_run
from omniinput_hpc.runfile.reader import RunReader
from omniinput_hpc.text import decimals, interval, range_words, shown

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, repr=False)
class Compared(Written):
    """Runs, or groups of joined runs, that are compared.

    Attributes
    ----------
    groups : the runs of each density
    """

    groups: Sequence[Sequence[RunReader]]

    def lines(self) -> list[str]:
        """Return what ``omniinput compare`` prints: the runs, their verdicts, the comparison."""
        lines = [describe_run(*group) for group in self.groups]
        for name, density in zip(self.names, self.densities, strict=True):
            lines += [f"{name}: {line}" for line in verdict_lines(density)]
        return lines + self.summary()


@dataclass(frozen=True, repr=False)
class SamplersResult(Compared):
    """Two runs of one model: a row for each range of bins."""

    NAME: ClassVar = "samplers"
    TITLE: ClassVar = "Samplers:"

    found: SamplerComparison

    def columns(self) -> Columns:
        """Return the columns of A.samplers.csv."""
        found, edges = self.found, self.densities[0].edges
        return {
            "z_lower": edges[found.first_r],
            "z_upper": edges[found.stop_r],
            "delta_log_g": found.delta_r,
            "delta_error": found.error_r,
        }

    def summary(self) -> list[str]:
        """Return the comparison in words."""
        lines = seed_lines(self.groups) + sampler_lines(self.found, self.names[0], self.names[1])
        if not self.converged:
            lines = [NOT_CONVERGED + line for line in lines]
        return lines

    def figure(self) -> Figure:
        """Return both densities, with their difference below."""
        from omniinput_hpc.plots.comparison import samplers_figure

        (a, b), pair = self.densities, (self.names[0], self.names[1])
        return samplers_figure(a, b, self.found, pair, self.label)


def compare_two_samplers(
    groups: Sequence[Sequence[RunReader]], densities: Sequence[Density], names: Sequence[str]
) -> SamplersResult:
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
    found = compare_samplers(*pair)
    p, where, n = compare_inputs(
        ([run.data for run in groups[0]], [run.data for run in groups[1]]), pair, found
    )
    found = replace(found, inputs_p=p, inputs_where=where, n_features=n)
    runs = [run for group in groups for run in group]
    return SamplersResult(runs, densities, groups, found, names=names)


def curves_of(
    groups: Sequence[Sequence[RunReader]], densities: Sequence[Density], options: CurveOptions
) -> list[CurveResult]:
    """Return the models' curves, by a rule or each by the score files of its model.

    `groups` are the runs of each density, one or several. Each curve covers the range between its
    own ends: `recall_range` applies only after all curves are on one scale.

    Raises
    ------
    UserError
        There is neither a rule nor a score file for a run's model; or people scored one model and
        a judge another.
    """
    curves = []
    for runs, density in zip(groups, densities, strict=True):
        its_own = replace(options.of_model(runs[0].fingerprint), recall_range=None)
        if not (its_own.rule or its_own.labelled):
            raise UserError(f"no score file is for the model of {runs[0].path}")
        curves.append(curve_of(runs, density, its_own))
    by_judge = {any(curve.joined.judges) for curve in curves if curve.joined is not None}
    if len(by_judge) > 1:
        raise UserError(
            "one model was scored by people and another by a judge: their scores are not compared; "
            "give scores of the same people, or of one judge, for both"
        )
    return curves


@dataclass(frozen=True, repr=False)
class ModelsResult(Compared):
    """The first model compared with each other one: a row for each common recall.

    Attributes
    ----------
    curves : of each model
    found : the first model and each other one
    shifts, normalized_by : what is added to the log recall of each other model, and how it is known
    """

    NAME: ClassVar = "compared"
    TITLE: ClassVar = "Models:"

    curves: Sequence[CurveResult]
    found: Sequence[ModelComparison]
    shifts: Sequence[float]
    normalized_by: Sequence[str]

    def columns(self) -> Columns:
        """Return the curves at common recalls; `model` numbers each comparison's second model."""
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
            for number, c in enumerate(self.found, start=2)
        ]
        return {name: np.concatenate([table[name] for table in tables]) for name in tables[0]}

    def summary(self) -> list[str]:
        """Return each curve's side, each comparison in words, and last the verdict of each."""
        pairs, verdicts = list(zip(self.names, self.curves, strict=True)), []
        lines = [f"{name}: {line}" for name, curve in pairs for line in curve.side_lines()]
        for name, curve in pairs:
            lines += [f"{name}: {line}" for line in (*curve.who_scored(), *curve.left_out_lines())]
        for i, (both, how) in enumerate(zip(self.found, self.normalized_by, strict=True), start=1):
            apart = [self.names[j] for j in (0, i) if not self.densities[j].verdict.converged]
            joined = [joined for j in (0, i) if (joined := self.curves[j].joined) is not None]
            apart += dict.fromkeys(name for one in joined for name in one.unconverged)
            lines.append(f"normalized by: {how}")
            if all(self.curves[j].curve.draws.paired for j in (0, i)):
                lines.append(PAIRED)
            unit = recall_unit(self.densities[0], self.densities[i])
            said = model_lines(both, self.names[0], self.names[i], apart, unit)
            outside = [self._outside(j, both) for j in (0, i)]
            lines += [said[0], *outside, *said[1:-1]]
            verdicts.append(said[-1])
        return lines + self._scorers_apart() + verdicts

    def _scorers_apart(self) -> list[str]:
        """Return a note on each other model that nobody scored who scored the first; else []."""
        notes = []
        first, *others = (
            set(c.joined.scored.annotators) if c.joined else set() for c in self.curves
        )
        for name, who in zip(self.names[1:], others, strict=True):
            if first and who and not first & who:
                notes.append(
                    f"note: {self.names[0]} was scored by {', '.join(sorted(first))} and {name} by "
                    f"{', '.join(sorted(who))}: their difference includes that of the annotators"
                )
        return notes

    def _outside(self, i: int, both: ModelComparison) -> str:
        """Return which outputs of model i's curve lie outside a common range of recall."""
        shift = self.shifts[i - 1] if i else 0.0
        curve = self.curves[i]
        return outside_line(
            self.names[i], curve.curve, curve.density, (both.lower, both.upper), shift
        )

    def record(self, into: Record) -> None:
        """Add the densities, the AUPRs, and both AUPRs over the common range of recall."""
        super().record(into)
        for name, curve in zip(self.names, self.curves, strict=True):
            into.add_aupr(curve.curve, name)
        for other, found in zip(self.names[1:], self.found, strict=True):
            _record_pair(into, found, self.names[0], other)

    def about_figure(self) -> str:
        """Return the side, and the rule if there is one."""
        first = self.curves[0]
        return about_curve(first.side, None if first.joined else first.by)

    def figure(self) -> Figure:
        """Return all curves on one scale, with the ratios of the areas below."""
        from omniinput_hpc.plots.comparison import models_figure

        curves = [one.curve for one in self.curves]
        shown = list(zip(self.names, curves, [0.0, *self.shifts], strict=True))
        others = list(zip(self.names[1:], self.found, strict=True))
        absolute = all(density.absolute for density in self.densities)
        return models_figure(shown, others, absolute, self.densities[0].measure)


def compare_with_first(
    groups: Sequence[Sequence[RunReader]],
    densities: Sequence[Density],
    names: Sequence[str],
    curves: Sequence[CurveResult],
    z_range: Sequence[float] | None,
    recall_range: Range | None = None,
) -> ModelsResult:
    """Compare the first model with each other; raises as `shift_of` and `compare_models` do.

    groups : the runs of each density, one or several
    recall_range : of log recall, on the first model's scale (default: what both curves reach)
    """
    first, found, shifts, methods = curves[0].curve, [], [], []
    for i in range(1, len(groups)):
        pair = (densities[0], densities[i])
        shift, error, how = shift_of((groups[0], groups[i]), pair, z_range)
        found.append(compare_models(first, curves[i].curve, shift, error, recall_range))
        shifts.append(shift)
        methods.append(how)
    runs = [run for group in groups for run in group]
    return ModelsResult(runs, densities, groups, curves, found, shifts, methods, names=names)


def _record_pair(record: Record, found: ModelComparison, first: str, other: str) -> None:
    """Record both models' AUPRs over their common range of recall, the difference and the ratio."""
    intervals = {
        f"AUPR of {first}, beside {other}": found.aupr_a,
        f"AUPR of {other}, beside {first}": found.aupr_b,
        f"AUPR of {first} less {other}": found.aupr_difference,
        f"AUPR of {first} by {other}": found.aupr_ratio,
    }
    for name, one in intervals.items():
        record.add_interval(name, one)
        record.values[name]["over_ln_recall"] = [found.lower, found.upper]


def sampler_lines(found: SamplerComparison, name_a: str, name_b: str) -> list[str]:
    """Return the lines that are printed."""
    z = found.delta_r / found.error_r
    n = len(z)
    wide = int((found.stop_r - found.first_r > 1).sum())
    lines = [
        f"{n} ranges of bins ({wide} of them joined, to have {MIN_EFFECTIVE_COUNT:.0f} effective "
        f"counts in both): largest |ln g difference| {np.abs(found.delta_r).max():.4f}, rms "
        f"{np.sqrt(np.mean(z**2)):.3f} standard errors, largest {np.abs(z).max():.2f} "
        f"(probability {largest_chance(found):.2g} among so many ranges)",
        f"Hotelling's T^2 over {len(found.group_g) - 1} groups of bins: "
        f"{shown(found.t_squared, '.2f')}, p = {shown(found.p, '.3g')}",
    ]
    if found.inputs_where:
        lines.append(
            f"inputs: {found.n_features} shares of values compared; largest difference: "
            f"p = {found.inputs_p:.3g} ({found.inputs_where})"
        )
    # without a joint test, single ranges can still show that the samplers disagree
    density_p = found.p if np.isfinite(found.p) else largest_chance(found)
    p_values = [p for p in (density_p, found.inputs_p) if np.isfinite(p)]
    if p_values and min(p_values) < MIN_P_VALUE:
        lines.append(f"{name_a} and {name_b} DISAGREE: one of them has not converged, or is wrong.")
    elif not np.isfinite(found.p):
        lines.append(
            f"The data cannot tell whether {name_a} and {name_b} agree: there are too few lanes or "
            "ranges of bins to test their densities."
        )
    else:
        lines.append(f"{name_a} and {name_b} agree within their errors.")
    return lines


def ranges(where_x: BoolArray, x: FloatArray) -> list[str]:
    """Return the ranges of ln recall x where `where_x` holds, as text."""
    edge = np.flatnonzero(np.diff(np.concatenate([[False], where_x, [False]]).astype(int)))
    return [range_words((x[i], x[j - 1])) for i, j in edge.reshape(-1, 2) if j - i > 1]


NOT_CONVERGED = "not converged: "
PAIRED = (
    "both curves have errors from the same labels, which are resampled for both at once: what they "
    "share cancels in the difference and the ratio"
)


def verdict(
    found: ModelComparison,
    name_a: str,
    name_b: str,
    unconverged: Sequence[str] = (),
    unit: str = " inputs",
) -> str:
    """Return a sentence: which model is better in which range, or that the data cannot tell.

    No model is called better if any run has not converged (`unconverged` holds their names).
    """
    d, x = found.difference_x, found.log_recall_x
    where = f"over recall {range_words((found.lower, found.upper))}{unit}"
    if unconverged:
        which = f"{' and '.join(unconverged)} {'have' if len(unconverged) > 1 else 'has'}"
        return (
            f"{NOT_CONVERGED}no model can be called better {where}, because {which} not "
            "converged: the errors of such a run are not known."
        )
    if not np.isfinite(found.aupr_difference.error):
        return f"The data cannot tell which model is better {where}: the errors are not known."
    if found.aupr_difference.excludes(0.0):
        better, worse = (name_a, name_b) if found.aupr_difference.value > 0 else (name_b, name_a)
        size = abs(float(found.aupr_difference.value))
        text = f"{better} is better than {worse} {where}: its mean precision is {size:.4g} higher"
    else:
        text = f"The data cannot tell which model is better {where}"
    parts = [
        f"{name} is more precise at recall {', '.join(found_ranges)}"
        for name, found_ranges in ((name_a, ranges(d.low > 0, x)), (name_b, ranges(d.high < 0, x)))
        if found_ranges
    ]
    if parts:
        return f"{text}; by 95% bands at each recall {', and '.join(parts)}."
    return f"{text}; the 95% bands do not tell them apart at any single recall."


def outside_line(name: str, curve: Curve, density: Density, common: Range, shift: float) -> str:
    """Return the outputs of a curve inside and outside a common range of log recall, in words.

    `shift` is what is added to the curve's log recall; `density` is in the curve's bins.
    """
    known = np.isfinite(curve.log_recall_t)
    x, z = curve.log_recall_t[known] + shift, curve.threshold_t[known]
    (first, last), (begin, stop) = ends_of(curve, density.edges), np.interp(common, x, z)
    parts = [(first, begin)] * bool(common[0] > x[0]) + [(stop, last)] * bool(common[1] < x[-1])
    inside = f"{begin if common[0] > x[0] else first:.4g} to {stop:.4g}"
    outside = " and ".join(f"{low:.4g} to {high:.4g}" for low, high in parts)
    rest = f"; outside it: z = {outside}" if parts else ", all of its curve"
    return f"{name}: the common range is z = {inside}{rest}"


def _aupr(aupr: Interval, one_sided: int = 0) -> str:
    """Return an AUPR, or a difference or ratio of two, with its interval."""
    low, high = float(aupr.low), float(aupr.high)
    form = f".{decimals(low, high)}f"
    note = one_sided_words(one_sided, format(low, form), format(high, form))
    return f"{shown(float(aupr.value), form)} ({interval(low, high, form)}){note}"


def model_lines(
    found: ModelComparison,
    name_a: str,
    name_b: str,
    unconverged: Sequence[str] = (),
    unit: str = " inputs",
) -> list[str]:
    """Return the lines that are printed; `unit` follows a recall.

    Lines about a model in `unconverged` begin with "not converged: ".
    """
    common = f"{range_words((found.lower, found.upper))}{unit}"
    over = f"over recall {common}"
    both = (name_a, name_b)
    said = [
        *(
            ((name,), f"AUPR of {name}: {_aupr(aupr, kind)}, {over}")
            for name, aupr, kind in (
                (name_a, found.aupr_a, found.one_sided_a),
                (name_b, found.aupr_b, found.one_sided_b),
            )
        ),
        (
            both,
            f"AUPR difference, {name_a} minus {name_b}: {_aupr(found.aupr_difference)}, {over}",
        ),
        (
            both,
            f"AUPR ratio, {name_a} over {name_b}: {_aupr(found.aupr_ratio)}, {over}",
        ),
    ]
    return [
        f"common range of recall: {common}",
        *((NOT_CONVERGED if set(of) & set(unconverged) else "") + line for of, line in said),
        verdict(found, name_a, name_b, unconverged, unit),
    ]
