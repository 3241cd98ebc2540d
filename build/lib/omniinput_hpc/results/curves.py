"""A run's precision-recall curve, by a rule or by the scores of people or judges."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from omniinput_hpc.annotation.join import Joined, join_scores, scores_of_model
from omniinput_hpc.errors import UserError
from omniinput_hpc.estimators.density.density import Density
from omniinput_hpc.estimators.precision_recall.curves import Curve, Side
from omniinput_hpc.estimators.precision_recall.from_rule import load_rule, rule_curve, sum_scores
from omniinput_hpc.estimators.precision_recall.from_scores import ScoredCurve, scored_curve
from omniinput_hpc.results.score_tables import summarize_scores
from omniinput_hpc.runfile.reader import RunReader


@dataclass(frozen=True)
class CurveOptions:
    """What tells right inputs from wrong ones, and which bins count.

    Attributes
    ----------
    rule : "module:function" that scores inputs, or None
    scores, key : score files and their key (default: the one beside each)
    side : the confident end
    fewest : distinct scored inputs, and lanes that they come from, that a bin needs
    """

    rule: str | None
    scores: Sequence[Path]
    key: Path | None
    side: Side
    fewest: tuple[int, int]

    def of_model(self, fingerprint: str) -> CurveOptions:
        """Return these options with the score files of one model alone: some, all or none."""
        return replace(self, scores=scores_of_model(fingerprint, self.scores, self.key))


@dataclass(frozen=True)
class RunCurve:
    """A run's curve.

    Attributes
    ----------
    curve : the curve
    density : of the run, in the curve's bins
    by : the rule, or who scored
    joined, result : the scores and what they gave; None with a rule
    """

    curve: Curve
    density: Density
    by: str
    joined: Joined | None = None
    result: ScoredCurve | None = None


def notes_of(found: RunCurve, side: Side) -> list[str]:
    """Return the plain lines on what was scored by whom; none with a rule."""
    if found.joined is None or found.result is None:
        return []
    return [*found.joined.notes, *summarize_scores(found.result, found.joined.scored, side)]


def curve_of(run: RunReader, density: Density, options: CurveOptions) -> RunCurve:
    """Return a run's curve by the rule, if there is one, else by the score files.

    Raises
    ------
    UserError, EstimateError
        As `curve_by_scores`; or a rule that cannot be imported or gives no scores.
    """
    if options.rule:
        sums = sum_scores(run, density, load_rule(options.rule), options.fewest[0])
        curve = rule_curve(density, sums, options.side, options.fewest)
        return RunCurve(curve, density, options.rule)
    joined, result = curve_by_scores(run, density, options)
    by = ", ".join(joined.scored.annotators)
    return RunCurve(result.curve, result.density, by, joined, result)


def curve_by_scores(
    run: RunReader, density: Density, options: CurveOptions
) -> tuple[Joined, ScoredCurve]:
    """Read the score files; return them, joined, and the curve they give.

    Raises
    ------
    UserError, EstimateError
        Files that do not belong to the run, people and judges together, or too few scores.
    """
    joined = join_scores(run.fingerprint, options.scores, options.key)
    judges = [n for n, j in zip(joined.scored.annotators, joined.judges, strict=True) if j]
    if judges and len(judges) < len(joined.judges):
        raise UserError(
            f"scores of people and of judges ({', '.join(judges)}) are not averaged: leave the "
            "judges' files out, or compare them with people by agreement.py"
        )
    return joined, scored_curve(density, joined.scored, options.side, *options.fewest)
