"""Scores: who scored what, how people and judges agree, and where further scores help."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from omniinput_hpc.annotation.join import Joined
from omniinput_hpc.estimators.precision_recall.agreement import (
    PeopleComparison,
    compare_pair,
    compared_with,
    krippendorff_alpha,
)
from omniinput_hpc.estimators.precision_recall.allocation import Allocation
from omniinput_hpc.estimators.precision_recall.curves import Curve, Side, area
from omniinput_hpc.estimators.precision_recall.from_scores import (
    Scored,
    ScoredCurve,
    bin_scores,
    mean_score,
    scored_curve,
)
from omniinput_hpc.results.aupr import recall_unit
from omniinput_hpc.results.banked import bank_lines
from omniinput_hpc.results.fid import fid_columns, fid_line
from omniinput_hpc.results.judged import error_of_judged_lines, judge_lines
from omniinput_hpc.results.record import Record
from omniinput_hpc.results.result import Result, Written
from omniinput_hpc.results.tables import Columns, beside
from omniinput_hpc.text import interval, range_words, shown

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, repr=False)
class AgreementResult(Written):
    """Annotators compared with the other people (or judges): a row for each bin that they scored.

    Attributes
    ----------
    joined : the scores
    found : each annotator compared with the others
    fid : a table of ``omniinput judge`` with the FID of each bin, and the number of the run in it
    """

    NAME: ClassVar = "agreement"
    TITLE: ClassVar = "Agreement on inputs of"

    joined: Joined
    found: Sequence[PeopleComparison]
    fid: tuple[Path, int | None] | None = None

    @cached_property
    def _columns(self) -> Columns:
        columns = people_columns(self.joined.scored, self.joined.judges, self.found)
        if self.fid is not None:
            columns |= fid_columns(*self.fid, columns["z_lower"])
        return columns

    def columns(self) -> Columns:
        """Return the columns of RUN.agreement.csv."""
        return dict(self._columns)

    def lines(self) -> list[str]:
        """Return what ``omniinput agreement`` prints."""
        return [self.source, *self.joined.notes, *self._over_all_bins]

    @cached_property
    def _over_all_bins(self) -> list[str]:
        lines = people_lines(self.joined.scored, self.joined.judges, self.found)
        if self.fid is not None:
            _, who = compared_with(self.joined.judges)
            lines.append(fid_line(self._columns[f"r_{who}"], self._columns["fid"], who))
        return lines

    def about(self) -> list[str]:
        """Return the lines on all bins, and the source."""
        return [*self._over_all_bins, f"source: {self.source}"]

    def figure(self) -> Figure:
        """Return mean scores, biases, and the FID if there is one."""
        from omniinput_hpc.plots.scores import agreement_figure

        return agreement_figure(self._columns, self.found, self.label)


@dataclass(frozen=True, repr=False)
class AnnotatorsResult(Written):
    """Mean scores of each annotator, a row for each bin; and the AUPR from a part of the scores.

    Attributes
    ----------
    joined, scored : the scores, and the curve that they give
    settled : curves from few to many scores per bin
    """

    NAME: ClassVar = "annotators"
    TITLE: ClassVar = "Annotators of inputs of"

    joined: Joined
    scored: ScoredCurve
    settled: Mapping[int, Curve] = field(default_factory=dict)

    def columns(self) -> Columns:
        """Return the columns of RUN.annotators.csv."""
        return annotator_columns(self.joined.scored)

    def lines(self) -> list[str]:
        """Return what ``omniinput annotators`` prints."""
        return [self.source, *self.joined.notes, *agreement_lines(self.joined)]

    def about(self) -> list[str]:
        """Return how annotators agree, and the source."""
        return [*agreement_lines(self.joined), f"source: {self.source}"]

    def figure(self) -> Figure:
        """Return the mean score of each annotator per bin."""
        from omniinput_hpc.plots.scores import annotators_figure

        return annotators_figure(self.joined.scored, self.scored.used_b, self.label)

    def write(self, into: Record, tag: str = "") -> list[str]:
        """Write also the AUPRs from a part of the scores, to RUN.convergence.csv and .png."""
        from omniinput_hpc.plots.scores import convergence_figure

        paths, curves, density = super().write(into, tag), self.settled, self.densities[0]
        rows = np.array([(n, c.aupr, c.aupr_low, c.aupr_high) for n, c in curves.items()])
        columns = dict(zip(("per_bin", "aupr", "low", "high"), rows.T, strict=True))
        table = beside(into.run_path, f".convergence{tag}.csv")
        into.add_table(
            table, ["AUPR from a part of the scores, 95% interval", self.source], columns
        )
        figure = convergence_figure(curves, density.absolute, density.measure)
        for n, curve in curves.items():
            into.add_aupr(curve, f"{n} scores a bin")
        return [*paths, str(table), self.save(figure, into, f"convergence{tag}")]


NEGATIVE_SLOPE = (
    "aupr_slope below 0: a larger r there would lower the AUPR, since the curve would stay longer "
    "at this bin's precision, which is below the AUPR"
)


@dataclass(frozen=True, repr=False)
class NextScores(Result):
    """Where further scores help most: a row for each counted bin.

    Attributes
    ----------
    run_name : of the run file
    joined, scored : the scores so far, and their curve
    found, budget : the further scores of each bin, and their number
    """

    TITLE: ClassVar = "Further scores of"

    run_name: str
    joined: Joined
    scored: ScoredCurve
    found: Allocation
    budget: int

    def columns(self) -> Columns:
        """Return the columns of RUN.next.csv."""
        found, result = self.found, self.scored
        b, edges = found.bin_b, result.density.edges
        return {
            "z_lower": edges[b],
            "z_upper": edges[b + 1],
            "inputs": result.scores.inputs_b[b],
            "r": result.curve.r_b[b],
            "spread": result.scores.spread_b[b],
            "aupr_slope": found.slope_b,
            "error_share": found.variance_b / max(found.error_now**2, 1e-300),
            "next_scores": found.next_b,
        }

    def lines(self) -> list[str]:
        """Return the effect of further scores, and the table."""
        found, result, columns = self.found, self.scored, self.columns()
        density_error = result.curve.aupr_error * np.sqrt(max(result.density_share, 0.0))
        lines = [
            f"{self.run_name}: standard error of the AUPR (or of the difference) from scoring: "
            f"{shown(found.error_now, '.4g')}; with {self.budget} more scores as below: "
            f"{shown(found.error_then, '.4g')}; spread evenly over the bins: "
            f"{shown(found.error_even, '.4g')}",
            "scoring cannot reduce the density's part of this AUPR's error, "
            f"{shown(density_error, '.2g')}",
            *error_of_judged_lines(result, found),
            *(f"{self.run_name}: {line}" for line in who_scored(result, self.joined)),
        ]
        lines.append("".join(f"{name:>13}" for name in columns))
        rows = zip(*columns.values(), strict=True)
        lines += ["".join(f"{shown(value, '.4g'):>13}" for value in row) for row in rows]
        if (found.slope_b < -1e-9).any():
            lines.append(NEGATIVE_SLOPE)
        return lines


def who_scored(result: ScoredCurve, joined: Joined) -> list[str]:
    """Return the lines on what was scored by whom, and how far these scores may be trusted."""
    lines = [_counted_line(result, joined.scored), *judge_lines(result, joined.scored)]
    return [*joined.notes, *lines, *bank_lines(result)]


def _counted_line(result: ScoredCurve, scored: Scored) -> str:
    used, edges = np.flatnonzero(result.used_b), result.density.edges
    inputs = result.scores.inputs_b[used]
    return (
        f"{int((~np.isnan(scored.score_i)).sum())} inputs scored by "
        f"{', '.join(scored.annotators)}; the curve counts the bins from {edges[used[0]]:g} to "
        f"{edges[used[-1] + 1]:g}, {inputs.min()} to {inputs.max()} inputs each"
    )


def summarize_scores(result: ScoredCurve, scored: Scored, side: Side) -> list[str]:
    """Return the lines on what was scored by whom, and on the parts of the error."""
    lines = [
        _counted_line(result, scored),
        _variance_line(result),
        *_bound_lines(result),
        *judge_lines(result, scored),
        *bank_lines(result),
    ]
    if len(scored.annotators) > 1:
        lines.append(_annotators_line(result, scored, side))
        if not result.scores.annotators.known:
            lines.append(
                "note: no input was scored by two annotators, so the errors do not include the "
                "choice of annotators"
            )
    return lines


def _annotators_line(result: ScoredCurve, scored: Scored, side: Side) -> str:
    """Return the AUPR by each annotator's scores, over the recall range of the joint curve.

    It is not known if someone scored nothing in the first or last of its bins.
    """
    ends, bins = result.curve.aupr_range, np.flatnonzero(result.used_b)
    each = []
    for a in range(len(scored.annotators)):
        alone = scored.of(a)
        alone = alone.part(result.used_b[alone.bin_i])
        if not np.isin(bins[[0, -1]], alone.bin_i).all():
            each.append(np.nan)
            continue
        curve = scored_curve(result.density, alone, side, 1, 1).curve
        each.append(area(curve.precision_t, curve.log_recall_t, *ends))
    known = [aupr for aupr in each if np.isfinite(aupr)]
    names = zip(scored.annotators, each, strict=True)
    said = (
        f"{name} {aupr:.4f}" if np.isfinite(aupr) else f"{name} not known" for name, aupr in names
    )
    deviation = f"; standard deviation {np.std(known, ddof=1):.4f}" if len(known) > 1 else ""
    over = f"{range_words(ends)}{recall_unit(result.density)}"
    return f"AUPR by annotator, over recall {over}: {', '.join(said)}{deviation}"


def _variance_line(result: ScoredCurve) -> str:
    """Return a line on the parts of the AUPR's error."""
    factor = f"by a factor {result.scores.design_effect:.2f} (design effect)"
    widened = f"correlation within lanes widens the scores' variance {factor}"
    if not np.isfinite(result.density_share):
        return widened
    share = f"{100 * result.density_share:.0f} %"
    return (
        f"of the AUPR's variance, {share} is from the density, the rest from the scores; {widened}"
    )


def _bound_lines(result: ScoredCurve) -> list[str]:
    """Return lines on one-sided bounds, which occur if nothing right or nothing wrong was seen."""
    curve = result.curve
    r_b = curve.r_b[result.used_b]
    seen = [("right", int((r_b == 0.0).sum())), ("wrong", int((r_b == 1.0).sum()))]
    words = [f"no {what} input in {n} of {len(r_b)} bins" for what, n in seen if n]
    lines = []
    if words:
        lines.append(
            f"scored: {', '.join(words)}; r has a one-sided 95% bound there (about 3 over the "
            "number of effective scores)"
        )
    if (curve.precision_t == 0.0).all():
        lines.append(f"no right input was scored: the AUPR is at most {curve.aupr_high:.6f} (95%)")
    elif (curve.precision_t == 1.0).all():
        lines.append(f"no wrong input was scored: the AUPR is at least {curve.aupr_low:.6f} (95%)")
    return lines


def agreement_lines(joined: Joined) -> list[str]:
    """Return the lines on how annotators agree with each other, themselves and gold items."""
    scored = joined.scored
    lines = []
    alpha = krippendorff_alpha(scored.score_ai)
    if alpha.n_items:
        lines.append(
            f"Krippendorff's alpha (interval) of {len(scored.annotators)} annotators: "
            f"{shown(alpha.alpha, '.3f')}, 95% interval "
            f"{interval(alpha.low, alpha.high, '.3f', 'not known')}, over "
            f"{alpha.n_items} inputs that two or more scored"
        )
    else:
        lines.append("Krippendorff's alpha: not known (no input was scored by two annotators)")
    rest = zip(scored.annotators, joined.first_ar, joined.second_ar, joined.given_ag, strict=True)
    for a, (name, first_r, second_r, given_g) in enumerate(rest):
        parts = [f"{name}: {int((~np.isnan(scored.score_ai[a])).sum())} inputs"]
        twice, gold = compare_pair(second_r, first_r), compare_pair(given_g, joined.gold_g)
        if twice.n:
            parts.append(f"{twice.n} shown twice, differing by {twice.distance:.3f} on average")
        if gold.n:
            parts.append(f"{gold.n} gold items, off by {gold.distance:.3f} (bias {gold.bias:+.3f})")
        lines.append(", ".join(parts))
    return lines


def annotator_columns(scored: Scored) -> dict[str, NDArray]:
    """Return a table: r per bin and annotator, mean and standard deviation over annotators.

    This is Table 1 of Liu et al., Evaluation of human-model prediction difference. The deviation is
    that of the annotators' means; it is NaN if fewer than two scored the bin.
    """
    everyone = bin_scores(scored)
    bins = np.flatnonzero(everyone.inputs_b)
    parts = [bin_scores(scored.of(a)) for a in range(len(scored.annotators))]
    r_ab = np.stack([part.r_b[bins] for part in parts])
    known = np.isfinite(r_ab)
    n_b = known.sum(axis=0)
    mean_b = np.where(known, r_ab, 0.0).sum(axis=0) / n_b
    square_b = (np.where(known, r_ab - mean_b, 0.0) ** 2).sum(axis=0)
    columns: dict[str, NDArray] = {
        "z_lower": scored.edges[bins],
        "z_upper": scored.edges[bins + 1],
        "r": everyone.r_b[bins],
        "r_error": np.hypot(everyone.sampling_error_b, everyone.annotator_error_b)[bins],
        "annotators": n_b,
        "mean": mean_b,
        "deviation": np.where(n_b > 1, np.sqrt(square_b / np.maximum(n_b - 1, 1)), np.nan),
    }
    for name, part, r_b in zip(scored.annotators, parts, r_ab, strict=True):
        columns[f"r_{name}"], columns[f"inputs_{name}"] = r_b, part.inputs_b[bins]
    return columns


def people_columns(
    scored: Scored, judges: Sequence[str | None], found: Sequence[PeopleComparison]
) -> dict[str, NDArray]:
    """Return a table with a row per bin that people scored.

    r_people is the mean over people, alpha_people their alpha (r_judges and alpha_judges without
    people). Each annotator then has the columns inputs, r, bias, bias_error, rank and alpha, as in
    `PeopleComparison`.
    """
    person_a, who = compared_with(judges)
    people = scored.score_ai[person_a]
    mean_i = mean_score(people)
    known = ~np.isnan(mean_i)
    bins = np.unique(scored.bin_i[known])
    in_bin = [known & (scored.bin_i == b) for b in bins]
    columns: dict[str, NDArray] = {
        "z_lower": scored.edges[bins],
        "z_upper": scored.edges[bins + 1],
        "inputs": np.array([int(i.sum()) for i in in_bin]),
        f"r_{who}": np.array([np.average(mean_i[i], weights=scored.weight_i[i]) for i in in_bin]),
        f"alpha_{who}": np.array([krippendorff_alpha(people[:, i]).alpha for i in in_bin]),
    }
    for one in found:
        pairs = [one.pair_b[b] for b in bins]
        columns[f"inputs_{one.name}"] = np.array([pair.n for pair in pairs])
        columns[f"r_{one.name}"] = one.r_b[bins]
        columns[f"bias_{one.name}"] = one.bias_b[bins]
        columns[f"bias_error_{one.name}"] = one.bias_error_b[bins]
        columns[f"rank_{one.name}"] = np.array([pair.rank_correlation for pair in pairs])
        columns[f"alpha_{one.name}"] = np.array([pair.alpha.alpha for pair in pairs])
    return columns


def people_lines(
    scored: Scored, judges: Sequence[str | None], found: Sequence[PeopleComparison]
) -> list[str]:
    """Return the lines on all bins together."""
    person_a, who = compared_with(judges)
    people = scored.score_ai[person_a]
    among = krippendorff_alpha(people)
    lines = []
    if among.n_items:
        lines.append(
            f"alpha among {len(people)} {who} {shown(among.alpha, '.3f')} "
            f"({interval(among.low, among.high, '.3f')})"
        )
    for one in found:
        kind, pair = "a person" if one.judge is None else f"judge: {one.judge}", one.all_bins
        if not pair.n:
            lines.append(f"{one.name} ({kind}): no input in common with {who}")
            continue
        others = f"the other {who}" if one.judge is None or who == "judges" else who
        lines.append(
            f"{one.name} ({kind}) against {others}: "
            f"{pair.n} inputs, bias {pair.bias:+.3f} +- "
            f"{shown(pair.bias_error, '.3f', '(not known)')}, off by {pair.distance:.3f} on "
            "average, rank "
            f"correlation {shown(pair.rank_correlation, '.3f')}, alpha "
            f"{shown(pair.alpha.alpha, '.3f')} "
            f"({interval(pair.alpha.low, pair.alpha.high, '.3f')})"
        )
    return lines
