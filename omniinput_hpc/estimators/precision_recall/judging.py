"""Judges beside people, per bin: bias, rank correlation and alpha; people beside the other people.

Everybody is set beside the mean of the *other* people, so that a person is the yardstick for a
judge: a judge that agrees with people as far as one person with the others is as good as one more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from omniinput_hpc.estimators import EstimateError
from omniinput_hpc.estimators.precision_recall.agreement import (
    Pair,
    compare_pair,
    krippendorff_alpha,
)
from omniinput_hpc.estimators.precision_recall.from_scores import Scored

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class Beside:
    """One annotator beside the mean of the other people.

    Attributes
    ----------
    name : str
    judge : what kind of judge, None for a person
    all_bins : Pair, over all inputs that both scored
    pair_b : Pair of each bin
    r_b, people_b : float64 [B], weighted mean scores over the inputs that both scored
    bias_b, bias_error_b : float64 [B], r_b - people_b and its standard error over inputs
    """

    name: str
    judge: str | None
    all_bins: Pair
    pair_b: Sequence[Pair]
    r_b: FloatArray
    people_b: FloatArray
    bias_b: FloatArray
    bias_error_b: FloatArray


def beside_people(scored: Scored, judges: Sequence[str | None]) -> list[Beside]:
    """Set every annotator beside the other people; a lone person has none and is left out.

    Parameters
    ----------
    scored : Scored
    judges : what kind of judge each annotator is, None for a person

    Raises
    ------
    EstimateError
        No people, no judge and fewer than two people, or no input that a pair shares.
    """
    person_a = np.array([judge is None for judge in judges])
    if not person_a.any():
        raise EstimateError("all scores are judges': there are no people to set them beside")
    if person_a.sum() < 2 and person_a.all():
        raise EstimateError("one person's scores alone: there is nobody to set beside them")
    found = []
    for a, (name, judge) in enumerate(zip(scored.annotators, judges, strict=True)):
        others_a = person_a & (np.arange(len(person_a)) != a)
        if others_a.any():
            found.append(_beside(scored, a, name, judge, _mean(scored.score_ai[others_a])))
    if not any(one.all_bins.n for one in found):
        raise EstimateError("judges and people scored no input in common")
    return found


def _mean(score_ai: FloatArray) -> FloatArray:
    """Return the mean over annotators, NaN where nobody scored."""
    known = ~np.isnan(score_ai)
    with np.errstate(invalid="ignore"):
        return np.asarray(np.where(known, score_ai, 0.0).sum(axis=0) / known.sum(axis=0))


def _beside(scored: Scored, a: int, name: str, judge: str | None, people_i: FloatArray) -> Beside:
    own_i = scored.score_ai[a]
    both_i = ~np.isnan(own_i) & ~np.isnan(people_i)
    n_bins = len(scored.edges) - 1
    bin_i, w_i = scored.bin_i[both_i], scored.weight_i[both_i]
    own, people = own_i[both_i], people_i[both_i]

    def per_bin(value_i: FloatArray) -> FloatArray:
        return np.asarray(np.bincount(bin_i, value_i, n_bins), dtype=np.float64)

    with np.errstate(divide="ignore", invalid="ignore"):
        share_i = w_i / per_bin(w_i)[bin_i]
        n_b = np.bincount(bin_i, minlength=n_bins)
        r_b, people_b = (np.where(n_b > 0, per_bin(share_i * s), np.nan) for s in (own, people))
        off_i = own - people - (r_b - people_b)[bin_i]
        error_b = np.sqrt(per_bin((share_i * off_i) ** 2) * n_b / (n_b - 1.0))
    return Beside(
        name=name,
        judge=judge,
        all_bins=compare_pair(own_i, people_i),
        pair_b=[compare_pair(own[bin_i == b], people[bin_i == b]) for b in range(n_bins)],
        r_b=r_b,
        people_b=people_b,
        bias_b=r_b - people_b,
        bias_error_b=np.where(n_b > 1, error_b, np.nan),
    )


def judging_columns(
    scored: Scored, judges: Sequence[str | None], found: Sequence[Beside]
) -> dict[str, NDArray]:
    """Return a table, a row per bin that people scored.

    r_people is the mean over people, alpha_people theirs among each other; then for each annotator
    inputs, r, bias, bias_error, rank and alpha, as in `Beside`.
    """
    people = scored.score_ai[np.array([judge is None for judge in judges])]
    mean_i = _mean(people)
    known = ~np.isnan(mean_i)
    bins = np.unique(scored.bin_i[known])
    in_bin = [known & (scored.bin_i == b) for b in bins]
    columns: dict[str, NDArray] = {
        "z_lower": scored.edges[bins],
        "z_upper": scored.edges[bins + 1],
        "inputs": np.array([int(i.sum()) for i in in_bin]),
        "r_people": np.array([np.average(mean_i[i], weights=scored.weight_i[i]) for i in in_bin]),
        "alpha_people": np.array([krippendorff_alpha(people[:, i]).alpha for i in in_bin]),
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


def judging_lines(
    scored: Scored, judges: Sequence[str | None], found: Sequence[Beside]
) -> list[str]:
    """Return the plain lines on all bins together."""
    people = scored.score_ai[np.array([judge is None for judge in judges])]
    among = krippendorff_alpha(people)
    lines = []
    if among.n_items:
        lines.append(
            f"alpha among {len(people)} people {among.alpha:.3f} ({among.low:.3f} to "
            f"{among.high:.3f})"
        )
    for one in found:
        who, pair = "a person" if one.judge is None else f"judge: {one.judge}", one.all_bins
        if not pair.n:
            lines.append(f"{one.name} ({who}): no input in common with people")
            continue
        lines.append(
            f"{one.name} ({who}) beside {'the other ' if one.judge is None else ''}people: "
            f"{pair.n} inputs, bias {pair.bias:+.3f} +- {pair.bias_error:.3f}, off by "
            f"{pair.distance:.3f} on average, rank correlation {pair.rank_correlation:.3f}, alpha "
            f"{pair.alpha.alpha:.3f} ({pair.alpha.low:.3f} to {pair.alpha.high:.3f})"
        )
    return lines


def fid_line(r_b: FloatArray, fid_b: FloatArray) -> str:
    """Return how FID goes with people's r over bins: low FID should mean high r."""
    both = ~np.isnan(r_b) & ~np.isnan(fid_b)
    n = int(both.sum())
    if n < 3 or np.ptp(r_b[both]) == 0.0 or np.ptp(fid_b[both]) == 0.0:
        return f"FID and people's r: {n} bins with both, too few or too alike to tell"
    rho = float(np.corrcoef(rankdata(r_b[both]), rankdata(fid_b[both]))[0, 1])
    verdict = "agree" if rho < -0.5 else "disagree: FID misleads" if rho > 0.5 else "tell little"
    return f"FID and people's r over {n} bins: rank correlation {rho:+.2f}; they {verdict} here"
