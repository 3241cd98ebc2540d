"""People's scores with a judge's: joined from their files, and what is printed of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from omniinput_hpc.annotation.join import Joined, join_scores, scores_of_model
from omniinput_hpc.annotation.scores import read_scores
from omniinput_hpc.errors import UserError
from omniinput_hpc.estimators.precision_recall.allocation import Allocation
from omniinput_hpc.estimators.precision_recall.from_scores import Scored, ScoredCurve, mean_score
from omniinput_hpc.estimators.precision_recall.prediction_powered import (
    JudgedScores,
    PoweredScores,
    aupr_gain,
)
from omniinput_hpc.runfile.reader import RunReader
from omniinput_hpc.text import counted, shown

NOT_RANDOM = 0.001
"""If people's inputs differ from the others with a probability below this, it is a warning."""


def join_with_judges(
    run: RunReader, people: Sequence[Path], judges: Sequence[Path], key: Path | None
) -> Joined:
    """Join people's score files, with the judges' scores of the same tasks beside them.

    The annotators are the people. Judges' files of other models' tasks are left out.

    Raises
    ------
    UserError
        A judge's file is among those of people, or the other way around; no judge's file is for
        this model's tasks; else as in `join_scores`.
    """
    for path in people:
        if read_scores(path).judge:
            raise UserError(f"{path} holds scores of a judge: give it only as --judge-scores")
    for path in judges:
        if not read_scores(path).judge:
            raise UserError(f"{path} holds no scores of a judge: people's files are for --scores")
    of_model = scores_of_model(run.fingerprint, judges, key)
    if not of_model:
        names = ", ".join(map(str, judges))
        raise UserError(f"{names}: no task belongs to this run's model ({run.fingerprint})")
    joined = join_scores(run.fingerprint, [*people, *of_model], key, run.n_sites)
    scored, person_a = joined.scored, np.array([judge is None for judge in joined.judges])
    mine = np.flatnonzero(person_a)
    return replace(
        joined,
        scored=JudgedScores(
            **vars(scored.by(mine)),
            judge_i=mean_score(scored.score_ai[~person_a]),
            judges=sorted({read_scores(path).annotator for path in of_model}),
        ),
        judges=[None for _ in mine],
        first_ar=joined.first_ar[mine],
        second_ar=joined.second_ar[mine],
        given_ag=joined.given_ag[mine],
    )


def with_judges(joined: Joined) -> str:
    """Return words that name the judges; "" without."""
    scored = joined.scored
    return f" with the judge {_names(scored)}" if isinstance(scored, JudgedScores) else ""


def _names(scored: JudgedScores) -> str:
    return ", ".join(scored.judges)


def judge_lines(result: ScoredCurve, scored: Scored) -> list[str]:
    """Return the lines on the judge's weight, and on how many labels it saved; none without."""
    scores = result.scores
    if not isinstance(scores, PoweredScores) or not isinstance(scored, JudgedScores):
        return []
    used_b = result.used_b & (scores.inputs_b > 0)
    weight_b, gain_b = scores.lambda_b[used_b], scores.gain_b[used_b]
    labels, gain = int(scores.inputs_b[used_b].sum()), aupr_gain(result, scores)
    lines = [
        f"the judge {_names(scored)} scored {counted(scores.judged, 'input')}, which people's "
        f"scores correct; its weight lambda is {np.median(weight_b):.2f} in the median bin (0: it "
        "is not used)",
    ]
    if np.isfinite(gain):
        lines.append(
            f"with the judge, {labels:,} people's scores determine the AUPR as well as "
            f"{gain * labels:,.0f} without: {max(gain - 1.0, 0.0) * labels:,.0f} saved, {gain:.1f} "
            f"times (r of single bins: {gain_b.min():.1f} to {gain_b.max():.1f} times)"
        )
    if not (np.isnan(scored.score_i) & ~np.isnan(scored.judge_i)).any():
        lines.append("people scored all that the judge scored, so there is nothing to gain")
    if scores.selection_p < NOT_RANDOM:
        lines.append(
            "warning: the judge's scores of the inputs that people scored differ from those of the "
            f"rest (p = {scores.selection_p:.1g}): people must score a random part of the tasks, "
            "chosen without regard to the judge"
        )
    return lines


def error_of_judged_lines(result: ScoredCurve, found: Allocation) -> list[str]:
    """Return a line on the error that only further inputs, scored by the judge, can reduce."""
    scores = result.scores
    if not isinstance(scores, PoweredScores):
        return []
    part_b = found.slope_b**2 * scores.sampling_error_b[found.bin_b] ** 2 - found.variance_b
    error = float(np.sqrt(np.maximum(part_b[scores.inputs_b[found.bin_b] > 0].sum(), 0.0)))
    return [
        "people's scores cannot reduce the part from the number of inputs that the judge scored, "
        f"{shown(error, '.2g')}: choose more tasks for it"
    ]
