"""How much the choice of annotators shifts the bins' mean scores, from the inputs that they share.

In a bin, annotator a scores input i as m_i + effect_a. The effects are fitted by least squares over
the inputs that two or more annotators scored, so not everybody has to score everything. The
variance due to the choice of annotators is the variance of the effects, times the sum of the
annotators' squared shares in the bin's mean (a random effect; Searle, Casella & McCulloch, Variance
Components, Wiley 1992).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from omniinput_hpc.estimators import FloatArray, IntArray

MIN_EIGENVALUE = 1e-9
"""Smallest usable eigenvalue of the normal equations, relative to the largest."""


@dataclass(frozen=True)
class AnnotatorEffects:
    """Annotators' effects per bin.

    Attributes
    ----------
    effect_ab : float64 [A, B], differences from the mean annotator; 0 if not known
    move_ab : float64 [A, B], one standard deviation of a bin's mean due to the choice of annotator
        a: `normal_a @ move_ab` draws the shifts of all means. A bin in which no two annotators
        share an input takes the effects of the nearest bin in which some do.
    known : whether two annotators share an input in any bin
    """

    effect_ab: FloatArray
    move_ab: FloatArray
    known: bool

    @property
    def error_b(self) -> FloatArray:
        """Standard error of a bin's mean from the choice of annotators [B]; 0 if not known."""
        return np.asarray(np.sqrt((self.move_ab**2).sum(axis=0)))


def annotator_effects(
    score_ai: FloatArray, weight_i: FloatArray, bin_i: IntArray, n_bins: int
) -> AnnotatorEffects:
    """Fit the effects.

    Parameters
    ----------
    score_ai : float64 [A, n], NaN if annotator a did not score input i; each input has a score
    weight_i : float64 [n], weight of an input in its bin's mean; they sum to 1 in each bin
    bin_i : int64 [n]
    """
    known_ai = ~np.isnan(score_ai)
    n_i = known_ai.sum(axis=0)
    part_ab = np.stack([np.bincount(bin_i, known * weight_i / n_i, n_bins) for known in known_ai])
    effect_ab, freedom_b = np.zeros((len(score_ai), n_bins)), np.zeros(n_bins)
    order = np.argsort(bin_i, kind="stable")
    order = order[n_i[order] > 1]
    bins, starts = np.unique(bin_i[order], return_index=True)
    for b, i in zip(bins, np.split(order, starts[1:]), strict=False):  # no bins: split gives one
        effect_ab[:, b], freedom_b[b] = _fit(score_ai[:, i], weight_i[i])
    fitted = np.flatnonzero(freedom_b)
    if not fitted.size:
        return AnnotatorEffects(effect_ab, np.zeros_like(effect_ab), False)
    nearest_b = fitted[np.abs(fitted[:, None] - np.arange(n_bins)).argmin(axis=0)]
    spread_ab = effect_ab[:, nearest_b] / np.sqrt(freedom_b[nearest_b])
    return AnnotatorEffects(effect_ab, spread_ab * np.sqrt((part_ab**2).sum(axis=0)), True)


def _fit(score_ai: FloatArray, weight_i: FloatArray) -> tuple[FloatArray, int]:
    """Return the effects [A] in one bin, and the number of independent differences among them."""
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
