"""How far the choice of annotators moves the bins' mean scores, from the inputs that they share.

In a bin, annotator a scores input i as m_i + effect_a. The effects are fitted by least squares over
the inputs that two or more scored, so that not everybody has to score everything. Their variance
over annotators, times the squared shares that each has in the bin's mean, is the variance of having
asked these annotators and no others (a random effect; Searle, Casella & McCulloch, Variance
Components, Wiley 1992).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from omniinput_hpc.estimators import FloatArray, IntArray

MIN_EIGENVALUE = 1e-9
"""Of the normal equations, over the largest: below, what is fitted is not known."""


@dataclass(frozen=True)
class AnnotatorEffects:
    """Annotators' effects per bin.

    Attributes
    ----------
    effect_ab : float64 [A, B], differences from the mean annotator; 0 where none is known
    move_ab : float64 [A, B], one standard deviation of a bin's mean that comes of having asked
        annotator a: `normal_a @ move_ab` is a draw of what the choice moves all means by. A bin
        where no two annotators share an input takes the effects of the nearest bin where some do.
    known : whether two annotators share an input of any bin
    """

    effect_ab: FloatArray
    move_ab: FloatArray
    known: bool

    @property
    def error_b(self) -> FloatArray:
        """Standard error of a bin's mean by the choice of annotators [B], 0 where not known."""
        return np.asarray(np.sqrt((self.move_ab**2).sum(axis=0)))


def annotator_effects(
    score_ai: FloatArray, weight_i: FloatArray, bin_i: IntArray, n_bins: int
) -> AnnotatorEffects:
    """Fit the effects.

    Parameters
    ----------
    score_ai : float64 [A, n], NaN where annotator a did not score input i; each was scored by one
    weight_i : float64 [n], of an input in its bin's mean, of sum 1 in each bin
    bin_i : int64 [n]
    n_bins : B
    """
    known_ai = ~np.isnan(score_ai)
    n_i = known_ai.sum(axis=0)
    part_ab = np.stack([np.bincount(bin_i, known * weight_i / n_i, n_bins) for known in known_ai])
    effect_ab, freedom_b = np.zeros((len(score_ai), n_bins)), np.zeros(n_bins)
    order = np.argsort(bin_i, kind="stable")
    order = order[n_i[order] > 1]
    bins, starts = np.unique(bin_i[order], return_index=True)
    for b, i in zip(bins, np.split(order, starts[1:]), strict=False):  # none: split gives one
        effect_ab[:, b], freedom_b[b] = _fit(score_ai[:, i], weight_i[i])
    fitted = np.flatnonzero(freedom_b)
    if not fitted.size:
        return AnnotatorEffects(effect_ab, np.zeros_like(effect_ab), False)
    nearest_b = fitted[np.abs(fitted[:, None] - np.arange(n_bins)).argmin(axis=0)]
    spread_ab = effect_ab[:, nearest_b] / np.sqrt(freedom_b[nearest_b])
    return AnnotatorEffects(effect_ab, spread_ab * np.sqrt((part_ab**2).sum(axis=0)), True)


def _fit(score_ai: FloatArray, weight_i: FloatArray) -> tuple[FloatArray, int]:
    """Return the effects [A] in one bin, and how many differences between annotators are known."""
    known_ai = ~np.isnan(score_ai)
    n_i = known_ai.sum(axis=0)
    score_ai = np.where(known_ai, score_ai, 0.0)
    weighted_ai = known_ai * weight_i
    # the inputs' own means m_i are eliminated from the normal equations
    normal_aa = np.diag(weighted_ai.sum(axis=1)) - (weighted_ai / n_i) @ known_ai.T
    right_a = (weighted_ai * (score_ai - score_ai.sum(axis=0) / n_i)).sum(axis=1)
    value, vector = np.linalg.eigh(normal_aa)
    use = value > MIN_EIGENVALUE * value[-1]
    if not value[-1] > 0:
        return np.zeros(len(right_a)), 0
    vector = vector[:, use]
    return vector @ (vector.T @ right_a / value[use]), int(use.sum())
