"""How well annotators (people or judges) agree with each other and with known scores.

A table of scores has a row per annotator and a column per item, NaN if not scored. Every annotator
is also compared with the mean of the *other* people. A judge that agrees with people as well as one
person agrees with the others is as good as one more person. If no person has scored, each judge is
compared with the other judges.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import NDArray

from omniinput_hpc.estimators import EstimateError, FloatArray
from omniinput_hpc.estimators.precision_recall.from_scores import Scored, mean_score

N_RESAMPLES = 1000


@dataclass(frozen=True)
class Alpha:
    """Krippendorff's alpha and its 95% interval.

    Attributes
    ----------
    alpha, low, high : float, 1 is full agreement, 0 is chance agreement; NaN if not defined
        (no item was scored twice, or all scores are equal)
    n_items : number of items with two or more scores
    """

    alpha: float
    low: float
    high: float
    n_items: int


@dataclass(frozen=True)
class Pair:
    """One annotator's scores compared with another's (or with known ones), over common items.

    Attributes
    ----------
    n : int, common items
    bias, bias_error : float, mean of a - b and its standard error (NaN below 2 items)
    distance : float, mean of |a - b|
    rank_correlation : float, Spearman's (NaN if either is constant)
    alpha : Alpha of the two
    """

    n: int
    bias: float
    bias_error: float
    distance: float
    rank_correlation: float
    alpha: Alpha


def _alphas(score_ai: FloatArray, count_mi: NDArray[np.number]) -> FloatArray:
    """Return alpha [M] of the items, item i counted count_mi times."""
    # Squared differences over all pairs of m values sum to m times their squared deviations from
    # the mean, so both sums over pairs reduce to sums over items.
    known = ~np.isnan(score_ai)
    values = np.where(known, score_ai, 0.0)
    m_i, sum_i, square_i = known.sum(axis=0), values.sum(axis=0), (values**2).sum(axis=0)
    within_i = m_i / (m_i - 1.0) * (square_i - sum_i**2 / m_i)
    n, total, square, observed = (count_mi @ v for v in (m_i, sum_i, square_i, within_i))
    with np.errstate(divide="ignore", invalid="ignore"):
        expected = (square - total**2 / n) / (n - 1.0)
        flat = expected <= 1e-12 * np.maximum(square / n, 1e-300)
        return np.where(flat, np.nan, 1.0 - observed / n / expected)


def krippendorff_alpha(score_ai: FloatArray, seed: int = 0) -> Alpha:
    """Return Krippendorff's alpha for interval data.

    Alpha is 1 minus the ratio of the observed to the expected squared difference (Krippendorff,
    Content Analysis (2004), chapter 11); items with one score do not count. The interval is a
    bootstrap over items.

    Parameters
    ----------
    score_ai : float64 [A, n], NaN if annotator a did not score item i
    """
    score_ai = np.asarray(score_ai, dtype=np.float64)
    paired = (~np.isnan(score_ai)).sum(axis=0) >= 2
    part, n = score_ai[:, paired], int(paired.sum())
    if not n:
        return Alpha(np.nan, np.nan, np.nan, 0)
    alpha = float(_alphas(part, np.ones((1, n)))[0])
    rng = np.random.default_rng(seed)
    even = np.full(n, 1.0 / n)
    chunks = [min(N_RESAMPLES - i, 50) for i in range(0, N_RESAMPLES, 50)]  # bounds the memory
    drawn = np.concatenate([_alphas(part, rng.multinomial(n, even, size=c)) for c in chunks])
    known = drawn[np.isfinite(drawn)]
    enough = np.isfinite(alpha) and n > 1 and known.size > N_RESAMPLES // 2
    low, high = np.quantile(known, [0.025, 0.975]) if enough else (np.nan, np.nan)
    return Alpha(alpha, float(low), float(high), n)


def rank_correlation(a: FloatArray, b: FloatArray) -> float:
    """Return Spearman's rank correlation of two samples [n]; NaN if either is constant."""
    if len(a) < 2 or np.ptp(a) == 0.0 or np.ptp(b) == 0.0:
        return np.nan

    return float(scipy.stats.spearmanr(a, b).statistic)


def compare_pair(a_i: FloatArray, b_i: FloatArray) -> Pair:
    """Compare two annotators' scores [n] of the same items (NaN if not scored)."""
    both = ~np.isnan(a_i) & ~np.isnan(b_i)
    a, b, n = a_i[both], b_i[both], int(both.sum())
    difference = a - b
    error = float(difference.std(ddof=1) / np.sqrt(n)) if n > 1 else np.nan
    return Pair(
        n,
        float(difference.mean()) if n else np.nan,
        error,
        float(np.abs(difference).mean()) if n else np.nan,
        rank_correlation(a, b),
        krippendorff_alpha(np.stack([a, b])),
    )


@dataclass(frozen=True)
class PeopleComparison:
    """One annotator compared with the mean of the other people (of judges if there are no people).

    Attributes
    ----------
    judge : kind of judge; None for a person
    all_bins : Pair, over all inputs that both scored
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


def compared_with(judges: Sequence[str | None]) -> tuple[NDArray[np.bool_], str]:
    """Return which annotators the others are compared with, bool [A], and their name.

    The name is "people", or "judges" if no person has scored. `judges` gives each annotator's kind
    of judge, None for a person.
    """
    person_a = np.array([judge is None for judge in judges])
    return (person_a, "people") if person_a.any() else (~person_a, "judges")


def compare_with_people(scored: Scored, judges: Sequence[str | None]) -> list[PeopleComparison]:
    """Compare every annotator with the other people; a single person is left out.

    `judges` is as in `compared_with`. Without people, every judge is compared with the others.

    Raises
    ------
    EstimateError
        There is only one annotator, or no two annotators share an input.
    """
    person_a, who = compared_with(judges)
    if len(judges) < 2:
        one = "person" if who == "people" else "judge"
        raise EstimateError(
            f"there are scores of only one {one}: add those of another person or judge"
        )
    found = []
    for a, (name, judge) in enumerate(zip(scored.annotators, judges, strict=True)):
        others_a = person_a & (np.arange(len(person_a)) != a)
        if others_a.any():
            found.append(
                _compare_one(scored, a, name, judge, mean_score(scored.score_ai[others_a]))
            )
    if not any(one.all_bins.n for one in found):
        raise EstimateError("no input was scored by two annotators")
    return found


def _compare_one(
    scored: Scored, a: int, name: str, judge: str | None, people_i: FloatArray
) -> PeopleComparison:
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
    return PeopleComparison(
        name=name,
        judge=judge,
        all_bins=compare_pair(own_i, people_i),
        pair_b=[compare_pair(own[bin_i == b], people[bin_i == b]) for b in range(n_bins)],
        r_b=r_b,
        people_b=people_b,
        bias_b=r_b - people_b,
        bias_error_b=np.where(n_b > 1, error_b, np.nan),
    )
