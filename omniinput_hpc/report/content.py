"""What the report says of a run, estimated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from omniinput_hpc.annotation.scores import read_scores
from omniinput_hpc.errors import UserError
from omniinput_hpc.estimators import FloatArray
from omniinput_hpc.estimators.density.density import Density
from omniinput_hpc.results import representatives
from omniinput_hpc.results.curves import CurveOptions, RunCurve, curve_of, density_for
from omniinput_hpc.results.diagnosis import Diagnosis, diagnose
from omniinput_hpc.runfile.reader import RunReader


@dataclass(frozen=True)
class ReportOptions:
    """What a user asks a report for.

    Attributes
    ----------
    curve : what the curve is made from; there may be neither a rule nor scores
    tasks : a task file whose inputs are shown (default: they are drawn from the run)
    z_range, width, per_bin : range of z, width of a bin and inputs a bin, of the inputs shown
    masked : whether to mask addresses and phone numbers
    render : whether a python model may be built, to render its inputs
    one_run : whether the report is about one run, so that all score files must be of its model
    thresholds, test_sets : outputs at which precision and recall are said; those of test data
    """

    curve: CurveOptions
    tasks: Path | None
    z_range: tuple[float, float] | None
    width: float | None
    per_bin: int
    masked: bool
    render: bool
    one_run: bool
    thresholds: Sequence[float] = ()
    test_sets: Mapping[str, FloatArray] = field(default_factory=dict)


@dataclass(frozen=True)
class Content:
    """What was estimated of a run.

    Attributes
    ----------
    options : what was asked for
    density, diagnosis : of the run
    found : its curve; None without a rule or scores
    inputs : representative inputs
    """

    options: ReportOptions
    density: Density
    diagnosis: Diagnosis
    found: RunCurve | None
    inputs: representatives.Representatives


def content_of(run: RunReader, options: ReportOptions) -> Content:
    """Estimate what the page shows of a run; errors are those of a script on this run alone."""
    density, by = density_for([run], options.curve), options.curve
    if not options.one_run:  # of several runs, each has its own score files, or none
        # a range of recall is the same for all once they are on one scale: see `comparison`
        by = replace(by.of_model(run.fingerprint), recall_range=None)
    found = curve_of([run], density, by) if by.rule or by.scores else None
    inputs = _inputs(run, density, options, by.scores)
    return Content(options, density, diagnose(run, density.verdict.rhat_k), found, inputs)


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
