"""A precision-recall curve: its columns, printed lines, part of the record, and pictures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from omniinput_hpc.annotation.join import Joined
from omniinput_hpc.estimators import BoolArray, FloatArray
from omniinput_hpc.estimators.comparison.to_exact import Exact, ExactCurve, compare_curve
from omniinput_hpc.estimators.density.density import Density
from omniinput_hpc.estimators.precision_recall.curves import FEWEST_INPUTS, FEWEST_LANES, Curve
from omniinput_hpc.estimators.precision_recall.direction import wrong_way
from omniinput_hpc.estimators.precision_recall.from_scores import ScoredCurve, kept_scores
from omniinput_hpc.estimators.precision_recall.thresholds import (
    SMALL,
    AtThreshold,
    Unreached,
    at_thresholds,
    left_out,
    none_right,
    unreached,
)
from omniinput_hpc.models.table import ConfidentSide
from omniinput_hpc.results.aupr import aupr_line, recall_unit, scale_lines
from omniinput_hpc.results.density import DensityResult, verdict_lines
from omniinput_hpc.results.record import Record
from omniinput_hpc.results.result import Interval, Written
from omniinput_hpc.results.scores import summarize_scores, who_scored
from omniinput_hpc.results.tables import Columns
from omniinput_hpc.text import tens, tens_interval

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FEWEST_PER_BIN = (FEWEST_INPUTS, FEWEST_LANES)
WORTH_SAYING = 0.05
"""If fewer right inputs than this share of those counted may have been missed, none is reported."""


@dataclass(frozen=True, repr=False)
class CurveResult(Written):
    """Precision and recall over all inputs: a row for each threshold, from the confident end on.

    Under a law, precision is a share of the probability, and recall that of the right inputs.

    Attributes
    ----------
    curve : with all replicates
    by : the rule, or the names of the annotators
    confident : the end that the curve is counted from, and why
    joined, scored : the scores and what they give; None with a rule
    fewest : distinct scored inputs, and lanes that they come from, that a bin needs
    exact : exact values in the curve's bins, to compare with
    thresholds : outputs at which precision and recall are reported
    test_sets : outputs of test data by name; those beyond the curve's ends give a warning
    examples : a line with a text of each end, see `aupr.example_lines`
    fine : the density in the run's own bins; None: the curve has these
    """

    NAME: ClassVar = "pr"
    TITLE: ClassVar = "Precision and recall of"

    curve: Curve
    by: str
    confident: ConfidentSide
    joined: Joined | None = None
    scored: ScoredCurve | None = None
    fewest: tuple[int, int] = FEWEST_PER_BIN
    exact: Exact | None = None
    thresholds: Sequence[float] = ()
    test_sets: Mapping[str, FloatArray] = field(default_factory=dict)
    examples: Sequence[str] = ()
    fine: Density | None = None

    @property
    def density(self) -> Density:
        """The density in the curve's bins."""
        return self.densities[0]

    @property
    def side(self) -> str:
        """The model's confident end, "low" or "high"; `confident.why` gives the reason."""
        return self.confident.end

    @property
    def aupr(self) -> Interval:
        """Mean precision over ln recall within `recall_range`."""
        curve = self.curve
        return Interval(curve.aupr, curve.aupr_error, curve.aupr_low, curve.aupr_high)

    @property
    def recall_range(self) -> tuple[float, float]:
        """The ends of ln recall between which the AUPR is taken."""
        return self.curve.aupr_range

    @property
    def threshold(self) -> FloatArray:
        """The output up to which inputs are accepted, float64 [n]."""
        return self.curve.threshold_t

    @property
    def precision(self) -> FloatArray:
        """Share of right inputs among those accepted, float64 [n]."""
        return self.curve.precision_t

    @property
    def log_recall(self) -> FloatArray:
        """Natural log of the number, or probability, of right inputs accepted, float64 [n]."""
        return self.curve.log_recall_t

    def columns(self) -> Columns:
        """Return the columns of RUN.pr.csv."""
        curve = self.curve
        low, high = curve.bands.low, curve.bands.high
        columns = {
            "threshold": curve.threshold_t,
            "precision": curve.precision_t,
            "precision_low": low.precision_t,
            "precision_high": high.precision_t,
            "log_recall": curve.log_recall_t,
            "log_recall_low": low.log_recall_t,
            "log_recall_high": high.log_recall_t,
            "overconfident": 1.0 - curve.precision_t,
            "overconfident_low": 1.0 - high.precision_t,
            "overconfident_high": 1.0 - low.precision_t,
        }
        for name in ("log_wrong", "simple_precision", "simple_log_recall"):
            ends = (("", curve.trace), ("_low", low), ("_high", high))
            columns |= {name + end: getattr(values, name + "_t") for end, values in ends}
        b, wrong_t = curve.bin_t, curve.trace.log_wrong_t
        return columns | {
            "r": curve.r_b[b],
            "r_error": curve.r_error_b[b],
            "r_low": curve.r_low_b[b],
            "r_high": curve.r_high_b[b],
            "inputs": curve.inputs_b[b],
            "lanes": curve.lanes_b[b],
            "thin": curve.thin_b[b].astype(np.int64),
            "one_sided": _one_sided(np.isneginf(curve.log_recall_t), np.isneginf(wrong_t)),
            "r_one_sided": _one_sided(curve.r_b[b] == 0.0, curve.r_b[b] == 1.0),
            "log10_recall": curve.log_recall_t / np.log(10.0),
        }

    def lines(self) -> list[str]:
        """Return what ``omniinput precision-recall`` prints."""
        truth = [] if self._truth is None else [str(self._truth)]
        verdict = verdict_lines(self.density)
        return [self.source, *self.numbers(), *self.examples, *verdict, *self._notes, *truth]

    def summary(self) -> list[str]:
        """Return the source of the scores, and the printed lines."""
        return [f"scores: {self.by}", *self.lines()[1:]]

    def numbers(self) -> list[str]:
        """Return the lines on thresholds, bins and the AUPR."""
        density, curve, fewest = self.density, self.curve, self.fewest
        gaps = int(curve.interpolated_b.sum())
        gap = f"; r interpolated in {gaps} bins without samples" if gaps else ""
        lines = [f"{len(curve.bin_t)} thresholds{gap}"]
        lines += thin_lines(density, curve, fewest) + self.left_out_lines()
        lines += [aupr_line(curve, density), *scale_lines(density, curve)]
        return [*lines, *none_right_lines(density, curve)]

    def left_out_lines(self) -> list[str]:
        """Return a line if a considerable share of the most confident inputs is left out."""
        fine = self.density if self.fine is None else self.fine
        found = left_out(self.curve, self.density.edges, fine)
        if found is None or found.share < SMALL:
            return []
        way = "below" if self.side == "low" else "above"
        small = (
            f"less than {SMALL:.0%} of all up to z = {found.small_from:.6g} or further"
            if np.isfinite(found.small_from)
            else f"nowhere less than {SMALL:.0%}"
        )
        return [
            f"left out at the confident end: z {way} {found.first:.6g}, with about "
            f"{tens(found.log_inputs)}{fine.words.of or ' inputs'}; these are {found.share:.0%} of "
            f"all up to the first threshold, and {small}; precision and recall refer to the inputs "
            "counted"
        ]

    @cached_property
    def _notes(self) -> list[str]:
        return self.side_lines() + self._scores_lines() + self.reach_lines()

    def side_lines(self) -> list[str]:
        """Return the confident side, and a warning if r(z) rises away from it."""
        return [str(self.confident), *wrong_way_lines(self.curve, self.density)]

    def who_scored(self) -> list[str]:
        """Return the lines on what was scored by whom; none with a rule."""
        if self.joined is None or self.scored is None:
            return []
        kept = kept_scores(self.density, self.scored.scores)
        return [*who_scored(self.scored, self.joined), *filter(None, [kept])]

    def _scores_lines(self) -> list[str]:
        """Return the lines on the scores and their annotators; none with a rule."""
        if self.joined is None or self.scored is None:
            return []
        kept = kept_scores(self.density, self.scored.scores)
        said = summarize_scores(self.scored, self.joined.scored, self.confident.end)
        return [*self.joined.notes, *said, *filter(None, [kept])]

    def reach_lines(self) -> list[str]:
        """Return the lines on chosen thresholds, and warnings of test data beyond the ends.

        Raises
        ------
        EstimateError
            A threshold lies beyond the curve's ends.
        """
        curve, edges = self.curve, self.density.edges
        beyond = {name: unreached(curve, edges, z_n) for name, z_n in self.test_sets.items()}
        at = at_thresholds(curve, edges, self.thresholds)
        return threshold_lines(at, curve, recall_unit(self.density)) + unreached_lines(beyond)

    def about(self) -> list[str]:
        """Return the lines that explain the columns, the notes, and those of the density."""
        curve, fewest = self.curve, self.fewest
        sign = "<" if curve.side == "low" else ">="
        lines = [
            f"precision and log recall of the inputs with z {sign} threshold; scores: {self.by}",
            "log_recall: natural log of the sum of r g over those inputs, the right ones; "
            "log_wrong: of (1 - r) g, the wrong ones (the unnormalized false positive rate); "
            "overconfident: 1 - precision; simple: the papers' approximations r(z*) and max r g; "
            "bands: 95%",
            "r: mean score of the bin that the threshold adds; inputs, lanes: its distinct inputs "
            f"(counted up to {fewest[0]} or a little more) and their lanes; thin: 1 if these "
            f"are fewer than {fewest[0]} or {fewest[1]}",
            "one_sided (of precision), r_one_sided: 1 if no right input was seen, so only the "
            "upper end is a bound; -1 if no wrong one was, so only the lower end is",
            aupr_line(curve, self.density, digits=6),
        ]
        gaps = int(curve.interpolated_b.sum())
        if gaps:
            lines.append(f"bins with counts but without samples, whose r is interpolated: {gaps}")
        return lines + self._notes + DensityResult(self.runs, self.densities).about()

    def record(self, into: Record) -> None:
        """Add the density's verdict and values, and the AUPR."""
        super().record(into)
        into.add_aupr(self.curve, into.run_path.stem)

    def about_figure(self) -> str:
        """Return the side and the source of the scores."""
        return about_curve(self.side, self.by)

    @cached_property
    def _truth(self) -> ExactCurve | None:
        if self.exact is None:
            return None
        return compare_curve(self.density, self.curve, self.exact, self.curve.side)

    def figure(self) -> Figure:
        """Return precision over log10 recall with its 95 % band, and the exact curve if known."""
        from omniinput_hpc.plots.scores import curve_figure

        return curve_figure(self.density, self.curve, self.exact, self._truth)

    def roc_figure(self) -> Figure:
        """Return right against wrong inputs accepted, an unnormalized ROC curve."""
        from omniinput_hpc.plots.scores import roc_figure

        return roc_figure(self.density, self.curve)

    def r_figure(self) -> Figure:
        """Return the mean score r(z) of each bin."""
        from omniinput_hpc.plots.scores import r_figure

        judge_b = getattr(self.scored and self.scored.scores, "judge_b", None)
        return r_figure(self.density, self.curve, self.label, self.exact, judge_b)

    def figures(self) -> dict[str, Figure]:
        """Return precision and ROC; with scores also r(z), with exact values also rho and r."""
        from omniinput_hpc.plots.density import rho_r_figure

        figures = {self.NAME: self.figure(), "roc": self.roc_figure()}
        if self.scored is not None:
            figures["r"] = self.r_figure()
        elif self.exact is not None:
            figures["rho_r"] = rho_r_figure(self.density, self.curve, self.label, self.exact)
        return figures

    def plot_scores(
        self, label: str | None = None, title: str | None = None, style: str | None = None
    ) -> Figure:
        """Return the mean score r(z) of each bin; see `plots.look.drawn`."""
        from omniinput_hpc.plots import look

        return look.drawn(self.r_figure, label, title, style)


def about_curve(side: str, by: str | None) -> str:
    """Return the line of a title that states a curve's side and the source of its scores."""
    scores = f", scores by {by}" if by else ""
    return f"inputs are accepted from the {side} end of z{scores}"


def none_right_lines(density: Density, curve: Curve) -> list[str]:
    """Return a line if a curve's far end may hold more right inputs than it shows."""
    found = none_right(curve, density)
    if found is None or found.log_most < curve.log_recall_t[-1] + np.log(WORTH_SAYING):
        return []
    way = "above" if curve.side == "low" else "below"
    return [
        f"no right input was seen {way} z = {found.first:.6g}, in {found.n_bins} bins: the curve "
        f"counts none there, but up to {tens(found.log_most)}{density.words.of} may exist "
        "(95%), besides the "
        f"{tens(curve.log_recall_t[-1])} that it counts; recall counts only those seen"
    ]


def thin_lines(
    density: Density, curve: Curve, fewest: tuple[int, int] = FEWEST_PER_BIN
) -> list[str]:
    """Return lines on the bins with too few inputs or lanes: those left out, and those counted."""
    few = f"fewer than {fewest[0]} inputs or {fewest[1]} lanes"
    lines = []
    left_out = density.believed_b & (curve.inputs_b > 0)
    left_out[curve.bin_t] = False
    ends = np.sort(curve.bin_t)[[0, -1]]
    if left_out.any():
        lines.append(
            f"the curve counts the bins from {density.edges[ends[0]]:g} to "
            f"{density.edges[ends[1] + 1]:g}; bins left out at the ends, with {few}: "
            f"{left_out.sum()}"
        )
    thin = np.flatnonzero(curve.thin_b)
    names = [f"{density.edges[b]:g} to {density.edges[b + 1]:g}" for b in thin[:6]]
    more = f" and {thin.size - 6} more" if thin.size > 6 else ""
    if thin.size == len(curve.bin_t):
        lines.append(f"all bins have {few}: all are counted, and all are drawn hollow")
    elif thin.size:
        lines.append(f"{thin.size} bins have {few} and are drawn hollow: {', '.join(names)}{more}")
    return lines


def wrong_way_lines(curve: Curve, density: Density) -> list[str]:
    """Return a line if r(z) rises away from the curve's side, else none.

    density : in the curve's bins
    """
    found = wrong_way(curve, density.log_g_b)
    if found is None:
        return []
    return [
        f"r(z) rises the wrong way: its mean is {found.near:.3f} in the half of the bins nearest "
        f"the {curve.side} side and {found.far:.3f} in the other; counted from the {found.other} "
        f"side the AUPR is {found.aupr:.4f}: if {found.other} outputs are the confident ones, give "
        f"--side {found.other}, and set it in [analysis]"
    ]


def threshold_lines(found: Sequence[AtThreshold], curve: Curve, unit: str) -> list[str]:
    """Return a line for each chosen threshold: precision and recall with their bands."""
    sign, lines = "<" if curve.side == "low" else ">=", []
    for one in found:
        where = f"{one.threshold:.6g}"
        if one.threshold == curve.threshold_t[0] != one.asked:
            where += f" (the curve's first threshold; asked: {one.asked:.6g})"
        elif one.threshold != one.asked:
            where += f" (the bin edge nearest to {one.asked:.6g})"
        ends = float(one.log_recall.low), float(one.log_recall.high)
        recall = f"{tens(float(one.log_recall.value), ends)} ({tens_interval(*ends)}){unit}"
        lines.append(f"at z {sign} {where}: precision {one.precision}, recall {recall} (95% bands)")
    return lines


def beyond_lines(density: Density, sets: Mapping[str, FloatArray], of: str) -> list[str]:
    """Return warnings for the test sets with outputs outside the range that the walkers visited."""
    visited = np.flatnonzero(density.count_b)
    low, high = density.edges[visited[0]], density.edges[visited[-1] + 1]
    lines = []
    for name, z_n in sets.items():
        share = float(((z_n < low) | (z_n > high)).mean())
        if share:
            lines.append(
                f"warning: {share:.1%} of the {len(z_n):,} outputs of {name} (z = {z_n.min():.4g} "
                f"to {z_n.max():.4g}) lie outside what {of} visited, z = {low:.6g} "
                f"to {high:.6g}"
            )
    return lines


def unreached_lines(found: Mapping[str, Unreached]) -> list[str]:
    """Return warnings for the test sets with outputs beyond the curve's ends."""
    lines = []
    for name, one in found.items():
        if one.before:
            lines.append(
                f"warning: {one.before:.1%} of the {one.n:,} outputs of {name} (the most "
                f"confident at z = {one.extreme:.4g}) lie beyond the confident end of the curve, "
                f"z = {one.first:.6g}: the curve counts no inputs there, and their precision is "
                "not known"
            )
        if one.after:
            lines.append(
                f"warning: {one.after:.1%} of the {one.n:,} outputs of {name} lie beyond the far "
                f"end of the curve, z = {one.last:.6g}: its recall does not count such inputs"
            )
    return lines


def _one_sided(none_right: BoolArray, none_wrong: BoolArray) -> NDArray[np.int64]:
    """Return 1 if nothing right was seen, -1 if nothing wrong was, else 0, for each bin."""
    return np.asarray(np.where(none_right, 1, np.where(none_wrong, -1, 0)), dtype=np.int64)
