"""Estimates for the report on a run: density, diagnosis, curve, representative inputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from omniinput_hpc.annotation.scores import read_scores
from omniinput_hpc.errors import UserError
from omniinput_hpc.estimators import FloatArray, IntArray
from omniinput_hpc.estimators.density.density import Density
from omniinput_hpc.estimators.density.wide_bins import edges_for
from omniinput_hpc.estimators.precision_recall.from_rule import Rule
from omniinput_hpc.results import representatives
from omniinput_hpc.results.canonical import canonical_share
from omniinput_hpc.results.curve import CurveResult
from omniinput_hpc.results.curves import CurveOptions, confident_side, curve_of, density_for
from omniinput_hpc.results.density import DensityResult, constants_of_run
from omniinput_hpc.results.diagnosis import DiagnosisResult, diagnose
from omniinput_hpc.results.extremes import extremes, own_rung, own_texts
from omniinput_hpc.results.rules import rule_of
from omniinput_hpc.runfile.reader import RunReader


@dataclass(frozen=True)
class ReportOptions:
    """The options of a report.

    Attributes
    ----------
    curve : options of the curve; without a rule or scores there is none
    tasks : a task file whose inputs are shown (default: inputs drawn from the run)
    z_range, width, per_bin : of the inputs shown: range of z, width of a bin, inputs per bin
    masked : whether to mask addresses and phone numbers
    render : whether a Python model may be built to render its inputs
    one_run : whether the report is about one run, so that all score files must be of its model
    thresholds : outputs at which precision and recall are reported
    test_sets : outputs of test data by name; those beyond the curve's ends give a warning
    losses : the loss of each token of inputs [n, D] of a run; None: tokens are not coloured
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
    losses: Callable[[RunReader, IntArray], NDArray[np.float32]] | None = None


@dataclass(frozen=True)
class Content:
    """The estimates from a run.

    Attributes
    ----------
    options : of the report
    density, diagnosis : of the run
    found : its curve; None without a rule or scores
    inputs : representative inputs
    ends : the recorded inputs of lowest z, and those of highest z
    own : a language model's own texts; None if the run has none
    """

    options: ReportOptions
    density: DensityResult
    diagnosis: DiagnosisResult
    found: CurveResult | None
    inputs: representatives.Representatives
    ends: Sequence[representatives.Representatives]
    own: representatives.Representatives | None = None


def content_of(run: RunReader, options: ReportOptions) -> Content:
    """Estimate the contents of a run's section; errors are those of a script for a single run."""
    density, by = density_for([run], options.curve), options.curve
    if not options.one_run:  # each of several runs has its own score files, or none
        # `comparison` applies the range of recall, once all runs are on one scale
        by = replace(by.of_model(run.fingerprint), recall_range=None)
    found = None
    if by.rule or by.labelled:
        found = curve_of([run], density, by)
        found = replace(found, thresholds=options.thresholds, test_sets=options.test_sets)
    shown = [_inputs(run, density, options, by.scores), *extremes(run, render=options.render)]
    own = own_rung(run)
    if own is not None:
        shown.append(own_texts(run, own, render=options.render))
    if by.rule:
        rule = rule_of(by.rule, run.config)
        shown = [_scored(one, rule) for one in shown]
    inputs, low, high, *texts = _finished(shown, run, options)
    mixing = DiagnosisResult([run], [], diagnose(run, density.verdict.rhat_k))
    side, how = confident_side(run).end, representatives.how_to_show(run.config, render=False)
    share = canonical_share([run.data], density, side, how)
    result = DensityResult([run], [density], further=constants_of_run(run.data), share=share)
    return Content(options, result, mixing, found, inputs, (low, high), next(iter(texts), None))


def _inputs(
    run: RunReader, density: Density, options: ReportOptions, scores: Sequence[Path]
) -> representatives.Representatives:
    """Return the inputs of the given task file, or else inputs drawn from the run."""
    per_bin = options.per_bin
    if options.tasks is None:
        edges = edges_for(density, options.z_range, options.width)
        return representatives.representatives(run, density, edges, per_bin, render=options.render)
    mean = _mean_scores(scores)
    of_run = representatives.of_tasks(options.tasks, run.fingerprint, mean.get, per_bin)
    if of_run is None:
        raise UserError(f"{options.tasks} has no inputs of {run.path}")
    return of_run


def _scored(inputs: representatives.Representatives, rule: Rule) -> representatives.Representatives:
    """Return inputs with the scores that a rule gives them."""
    if not inputs.items:
        return inputs
    scores = rule(np.stack([item.values for item in inputs.items]))
    rows = zip(inputs.items, np.asarray(scores, dtype=np.float64).tolist(), strict=True)
    return replace(inputs, items=[replace(item, score=score) for item, score in rows])


def _finished(
    found: Sequence[representatives.Representatives], run: RunReader, options: ReportOptions
) -> list[representatives.Representatives]:
    """Return inputs with the losses of their tokens, or masked, if the options say so."""
    if options.losses is None:
        return [one.masked() if options.masked else one for one in found]
    x_nd = np.stack([item.values for one in found for item in one.items])
    losses = options.losses(run, x_nd).astype(np.float64)  # at once: this loads the model
    parts = np.split(losses, np.cumsum([len(one.items) for one in found])[:-1])
    pairs = zip(found, parts, strict=True)
    return [representatives.with_tokens(one, run.config, part) for one, part in pairs]


def _mean_scores(paths: Sequence[Path]) -> dict[str, float]:
    """Return the mean score of each task over the annotators who scored it."""
    said: dict[str, list[float]] = {}
    for path in paths:
        for id_, score in read_scores(path).by_id().items():
            said.setdefault(id_, []).append(score)
    return {id_: float(np.mean(scores)) for id_, scores in said.items()}
