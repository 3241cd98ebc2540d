"""What the report says of a run, estimated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from omniinput_hpc.annotation.join import Joined, join_scores, scores_of_model
from omniinput_hpc.annotation.scores import read_scores
from omniinput_hpc.errors import UserError
from omniinput_hpc.estimators.density.density import Density, density_of_run
from omniinput_hpc.estimators.precision_recall.curves import Curve, Side
from omniinput_hpc.estimators.precision_recall.from_rule import load_rule, rule_curve, sum_scores
from omniinput_hpc.estimators.precision_recall.from_scores import ScoredCurve, scored_curve
from omniinput_hpc.results import representatives
from omniinput_hpc.results.diagnosis import Diagnosis, diagnose
from omniinput_hpc.runfile.reader import RunReader


@dataclass(frozen=True)
class ReportOptions:
    """What a user asks a report for.

    Attributes
    ----------
    rule : "module:function" that scores inputs, or None
    scores, key : score files and their key (default: the one beside each)
    side : the confident end
    fewest : distinct scored inputs, and lanes that they come from, that a bin needs
    tasks : a task file whose inputs are shown (default: they are drawn from the run)
    z_range, width, per_bin : range of z, width of a bin and inputs a bin, of the inputs shown
    masked : whether to mask addresses and phone numbers
    render : whether a python model may be built, to render its inputs
    one_run : whether the report is about one run, so that all score files must be of its model
    """

    rule: str | None
    scores: Sequence[Path]
    key: Path | None
    side: Side
    fewest: tuple[int, int]
    tasks: Path | None
    z_range: tuple[float, float] | None
    width: float | None
    per_bin: int
    masked: bool
    render: bool
    one_run: bool


@dataclass(frozen=True)
class Content:
    """What was estimated of a run.

    Attributes
    ----------
    options : what was asked for
    density : of the run; curve_density : in the curve's bins
    curve : by the scores of `by`; None without scores
    joined, result : of annotators' scores, or None
    """

    options: ReportOptions
    density: Density
    curve_density: Density
    diagnosis: Diagnosis
    curve: Curve | None
    by: str
    joined: Joined | None
    result: ScoredCurve | None
    inputs: representatives.Representatives


def content_of(run: RunReader, options: ReportOptions) -> Content:
    """Estimate what the page shows of a run; errors are those of a script on this run alone."""
    curve_density = density = density_of_run(run)
    curve, by, joined, result = None, "", None, None
    scores = options.scores
    if not options.one_run:  # of several runs, each has its own score files, or none
        scores = scores_of_model(run.fingerprint, options.scores, options.key)
    if options.rule:
        sums = sum_scores(run, density, load_rule(options.rule), options.fewest[0])
        curve = rule_curve(density, sums, options.side, options.fewest, whole=False)
        by = f"the rule {options.rule}"
    elif scores:
        joined = join_scores(run.fingerprint, scores, options.key)
        result = scored_curve(density, joined.scored, options.side, *options.fewest)
        curve_density, curve = result.density, result.curve
        by = ", ".join(joined.scored.annotators)
    inputs, diagnosis = _inputs(run, density, options, scores), diagnose(run)
    return Content(options, density, curve_density, diagnosis, curve, by, joined, result, inputs)


def _inputs(
    run: RunReader, density: Density, options: ReportOptions, scores: Sequence[Path]
) -> representatives.Representatives:
    """Return inputs of the task file that was named, else inputs drawn from the run."""
    per_bin = options.per_bin
    if options.tasks is None:
        edges = representatives.edges_for(density, options.z_range, options.width)
        found = representatives.representatives(run, density, edges, per_bin, render=options.render)
    else:
        mean = _mean_scores(scores)
        of_run = representatives.of_tasks(options.tasks, run.fingerprint, mean.get, per_bin)
        if of_run is None:
            raise UserError(f"{options.tasks} has no inputs of {run.path}")
        found = of_run
    return found.masked() if options.masked else found


def _mean_scores(paths: Sequence[Path]) -> dict[str, float]:
    """Return the mean score of each task over the annotators who scored it."""
    said: dict[str, list[float]] = {}
    for path in paths:
        for id_, score in read_scores(path).by_id().items():
            said.setdefault(id_, []).append(score)
    return {id_: float(np.mean(scores)) for id_, scores in said.items()}
