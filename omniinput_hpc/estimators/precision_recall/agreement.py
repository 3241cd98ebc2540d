"""How far annotators (people or judges) agree: with each other, with themselves, with a truth.

A table of scores has a row per annotator and a column per item, NaN where not scored.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

FloatArray = NDArray[np.float64]
RESAMPLES = 1000


@dataclass(frozen=True)
class Alpha:
    """Krippendorff's alpha and its 95% interval.

    Attributes
    ----------
    alpha, low, high : float, 1 is full agreement, 0 what chance gives; NaN where not defined
        (no item was scored twice, or all scores are equal)
    n_items : items with two scores or more; n_scores : scores of these
    """

    alpha: float
    low: float
    high: float
    n_items: int
    n_scores: int


@dataclass(frozen=True)
class Pair:
    """One annotator's scores beside another's (or beside known ones), over common items.

    Attributes
    ----------
    n : int, common items
    bias, bias_error : float, mean of a - b and its standard error (NaN below 2 items)
    distance : float, mean of |a - b|
    rank_correlation : float, Spearman's (NaN where either is constant)
    alpha : Alpha of the two
    """

    n: int
    bias: float
    bias_error: float
    distance: float
    rank_correlation: float
    alpha: Alpha


def _alphas(score_ai: FloatArray, count_mi: NDArray[np.number]) -> FloatArray:
    """Return alpha [M] of the items taken count_mi times each.

    Squared differences between all pairs of m values sum to m times their squared deviations
    from the mean, so both sums over pairs are sums over items.
    """
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

    The ratio of the observed to the expected squared difference (Krippendorff, Content Analysis
    (2004), chapter 11); items with one score do not count. The interval is the bootstrap's over
    items.

    Parameters
    ----------
    score_ai : float64 [A, n], NaN where annotator a did not score item i
    seed : of the bootstrap
    """
    score_ai = np.asarray(score_ai, dtype=np.float64)
    paired = (~np.isnan(score_ai)).sum(axis=0) >= 2
    part, n = score_ai[:, paired], int(paired.sum())
    if not n:
        return Alpha(np.nan, np.nan, np.nan, 0, 0)
    alpha = float(_alphas(part, np.ones((1, n)))[0])
    rng = np.random.default_rng(seed)
    even = np.full(n, 1.0 / n)
    chunks = [min(RESAMPLES - i, 50) for i in range(0, RESAMPLES, 50)]  # bounds the memory
    drawn = np.concatenate([_alphas(part, rng.multinomial(n, even, size=c)) for c in chunks])
    known = drawn[np.isfinite(drawn)]
    enough = np.isfinite(alpha) and n > 1 and known.size > RESAMPLES // 2
    low, high = np.quantile(known, [0.025, 0.975]) if enough else (np.nan, np.nan)
    return Alpha(alpha, float(low), float(high), n, int((~np.isnan(part)).sum()))


def compare_pair(a_i: FloatArray, b_i: FloatArray, seed: int = 0) -> Pair:
    """Compare two annotators' scores [n] of the same items (NaN where not scored)."""
    both = ~np.isnan(a_i) & ~np.isnan(b_i)
    a, b, n = a_i[both], b_i[both], int(both.sum())
    difference = a - b
    error = float(difference.std(ddof=1) / np.sqrt(n)) if n > 1 else np.nan
    ranks = np.stack([rankdata(a), rankdata(b)]) if n > 1 else np.zeros((2, 1))
    varied = bool((np.ptp(ranks, axis=1) > 0).all())
    return Pair(
        n,
        float(difference.mean()) if n else np.nan,
        error,
        float(np.abs(difference).mean()) if n else np.nan,
        float(np.corrcoef(ranks)[0, 1]) if varied else np.nan,
        krippendorff_alpha(np.stack([a, b]), seed),
    )
