"""The curve of one run, or of several joined runs, by a rule or by scores of people or judges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from zlib import crc32

import numpy as np

from omniinput_hpc.annotation.join import Joined, join_scores, scores_of_model
from omniinput_hpc.errors import UserError
from omniinput_hpc.estimators import EstimateError, FloatArray
from omniinput_hpc.estimators.comparison.joined import joined_density
from omniinput_hpc.estimators.density.density import Density
from omniinput_hpc.estimators.density.wide_bins import in_width
from omniinput_hpc.estimators.precision_recall.curves import Range, Side
from omniinput_hpc.estimators.precision_recall.from_rule import (
    Rule,
    rule_curve,
    sum_scores_of_runs,
)
from omniinput_hpc.estimators.precision_recall.from_scores import (
    ScoredCurve,
    scored_curve,
)
from omniinput_hpc.models.table import ConfidentSide, side_of
from omniinput_hpc.results.banked import labels_for
from omniinput_hpc.results.curve import CurveResult
from omniinput_hpc.results.judged import join_with_judges, with_judges
from omniinput_hpc.results.rules import rule_of
from omniinput_hpc.runfile.reader import RunReader


@dataclass(frozen=True)
class CurveOptions:
    """Options of a curve: how right and wrong inputs are told apart, and which bins count.

    Attributes
    ----------
    rule : name of a rule, see `rules.rule_of`, or None
    scores, key : score files and their key (default: the one next to each)
    side : the confident end; None: that of the run's model
    fewest : distinct scored inputs, and lanes that they come from, that a bin needs
    recall_range : range of ln recall for the AUPR; None: the curve's own ends
    trust : whether bins in which the run has not equilibrated count, too
    width : of the bins of a curve by a rule; None: that of the run's bins
    judges : score files of judges, which people's scores correct
    bank : a bank of labels, instead of score files; `width` is then that of the labels' bins
    """

    rule: str | None
    scores: Sequence[Path]
    key: Path | None
    side: Side | None
    fewest: tuple[int, int]
    recall_range: Range | None = None
    trust: bool = False
    width: float | None = None
    judges: Sequence[Path] = ()
    bank: Path | None = None

    @property
    def labelled(self) -> bool:
        """Whether there are labels: score files, or a bank."""
        return bool(self.scores) or self.bank is not None

    def of_model(self, fingerprint: str) -> CurveOptions:
        """Return these options with only the score files of one model, which may be none."""
        return replace(self, scores=scores_of_model(fingerprint, self.scores, self.key))


def density_for(runs: Sequence[RunReader], options: CurveOptions) -> Density:
    """Return the density of one or several runs; with `options.trust`, all bins are believed."""
    density = joined_density([run.data for run in runs])
    return density.trusting() if options.trust else density


def confident_side(run: RunReader, given: Side | None = None) -> ConfidentSide:
    """Return the side given by --side, else that of the run's model."""
    return side_of(run.config, given)


def joint_side(runs: Sequence[RunReader], given: Side | None = None) -> ConfidentSide:
    """Return the side given by --side, else the one that all runs share.

    Raises
    ------
    UserError
        Two runs have different sides, and --side is not given.
    """
    first, *others = (confident_side(run, given) for run in runs)
    for run, side in zip(runs[1:], others, strict=True):
        if side.end != first.end:
            raise UserError(
                f"{runs[0].path} is counted from the {first.end} side and {run.path} from the "
                f"{side.end} side: choose one for both by --side"
            )
    return first


def other_side(runs: Sequence[RunReader], given: Side | None) -> str:
    """Return the side given by --side if it differs from a run's own side, else ""."""
    own = {confident_side(run).end for run in runs}
    return given if given is not None and own != {given} else ""


def chosen_thresholds(words: Sequence[str], sets: Mapping[str, FloatArray]) -> list[float]:
    """Return the outputs named by --threshold: numbers, or SET:Q for a quantile of a test set.

    Raises
    ------
    UserError
        A word is neither a finite number nor a quantile in [0, 1] of one of `sets`.
    """
    found = []
    for word in words:
        name, _, share = word.rpartition(":")
        try:
            z = float(share)
        except ValueError:
            z = np.nan
        if name:
            if name not in sets:
                known = f"it has: {', '.join(sets)}" if sets else "give the file with --test-sets"
                raise UserError(f"--threshold {word}: no test set {name}; {known}")
            z = float(np.quantile(sets[name], z)) if 0.0 <= z <= 1.0 else np.nan
        if not np.isfinite(z):
            raise UserError(
                f"--threshold {word}: expected an output, or SET:Q with Q from 0 to 1, the "
                "quantile of a test set"
            )
        found.append(z)
    return found


def curve_of(runs: Sequence[RunReader], density: Density, options: CurveOptions) -> CurveResult:
    """Return the curve by the rule, if there is one, else by the score files or the bank.

    Raises
    ------
    UserError, EstimateError
        As in `curve_by_scores`; or the rule cannot be imported or gives no scores; or no bin of the
        density is believed.
    """
    if not density.believed_b.any():
        raise EstimateError(
            "no curve can be drawn: the run has not equilibrated at any output that it visited; "
            "raise run.rounds, or count its bins anyway with --trust-unequilibrated"
        )
    if options.rule:
        config = runs[0].config
        return curve_by_rule(runs, density, rule_of(options.rule, config), options.rule, options)
    side = joint_side(runs, options.side)
    joined, result = curve_by_scores(runs, density, options)
    by = ", ".join(joined.scored.annotators) + with_judges(joined)
    return CurveResult(
        runs, [result.density], result.curve, by, side, joined, result, options.fewest,
        fine=density,
    )  # fmt: skip


def curve_by_rule(
    runs: Sequence[RunReader], density: Density, rule: Rule, name: str, options: CurveOptions
) -> CurveResult:
    """Return the curve by a rule, whose name is `name`; raises as `curve_of` does."""
    side, fine = joint_side(runs, options.side), density
    if options.width is not None:
        density = in_width(density, options.width)
    sums = sum_scores_of_runs([run.data for run in runs], density, rule, options.fewest[0])
    ends = options.recall_range
    curve = rule_curve(density, sums, side.end, options.fewest, recall_range=ends)
    return CurveResult(runs, [density], curve, name, side, fewest=options.fewest, fine=fine)


def curve_by_scores(
    runs: Sequence[RunReader], density: Density, options: CurveOptions
) -> tuple[Joined, ScoredCurve]:
    """Read the score files or the bank; return them joined, and the curve that they give.

    Raises
    ------
    UserError, EstimateError
        The files do not belong to the runs' model, the runs have different sides, people and judges
        are mixed, or there are too few scores.
    """
    if options.bank is not None:
        joined = labels_for(options.bank, runs, density, options.width)
    elif options.judges:
        joined = join_with_judges(runs[0], options.scores, options.judges, options.key)
    else:
        first = runs[0]
        joined = join_scores(first.fingerprint, options.scores, options.key, first.n_sites)
    judges = [n for n, j in zip(joined.scored.annotators, joined.judges, strict=True) if j]
    if judges and len(judges) < len(joined.judges):
        raise UserError(
            f"scores of people and of judges ({', '.join(judges)}) are not averaged: leave out "
            "the judges' files, give them as --judge-scores, which people's scores correct, or "
            "compare them with people by omniinput agreement"
        )
    side = joint_side(runs, options.side).end
    ends = options.recall_range
    # a bank's curves are paired by their labels, so their densities must be drawn independently
    seed = crc32(runs[0].fingerprint.encode()) if options.bank is not None else 0
    curve = scored_curve(density, joined.scored, side, *options.fewest, seed, ends)
    return joined, curve
