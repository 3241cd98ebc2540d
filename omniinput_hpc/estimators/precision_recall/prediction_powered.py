"""Mean scores per bin from people's scores of some inputs and a judge's scores of all of them.

In a bin, people scored a random part of the inputs that the judge scored. The estimate is

    r = mean of people's scores y - lambda (mean judge's score f where people scored - where not),

which is unbiased for every judge, because both means of f estimate the same number
(prediction-powered inference: Angelopoulos et al., Science 382, 669 (2023)). lambda is chosen for
the smallest variance (PPI++: Angelopoulos, Duchi & Zrnic, arXiv 2311.01453): the slope of y on f,
times the share of inputs without people's scores. It is 0 for a useless judge and negative for a
judge that prefers wrong inputs. Each input's lambda is fitted without its own score, and is drawn
towards that of the other bins, so that few scores do not fit their own noise.

Draws of r are Dirichlet-weighted means of the residuals y - lambda f, with one extra residual: that
of any input of the bin, as the judge scored it, which is equally likely right or wrong. For
right-or-wrong scores without a judge these are the draws of `mid_p`, and for any scores Gaffke's
bound in its mid-p form (Gaffke, 2005; Learned-Miller & Thomas, arXiv 1905.06208): a judge that
agreed with all of a bin's n scores may still be wrong about some of its inputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import scipy

from omniinput_hpc.estimators import BoolArray, EstimateError, FloatArray, IntArray
from omniinput_hpc.estimators.precision_recall import curves, mid_p
from omniinput_hpc.estimators.precision_recall.allocation import aupr_slopes
from omniinput_hpc.estimators.precision_recall.from_scores import (
    BinScores,
    Scored,
    ScoredCurve,
    bin_scores,
    design_effect,
)

FEWEST_SHARED = 10
"""Inputs that both people and the judge must have scored."""
PRIOR_SCORES = 5.0
"""Weight of the other bins' lambda in that of a bin, in scores."""
_CHUNK = 2_000_000  # random numbers at once
_TINY = 1e-300  # instead of a sum of 0
_ROUNDING = 1e-12  # largest variance that equal scores, at most 1, have by rounding


@dataclass(frozen=True)
class JudgedScores(Scored):
    """People's scores, and a judge's of the same inputs and of more.

    Attributes
    ----------
    judge_i : float64 [n] in [0, 1], mean over the judges; NaN if not scored
    judges : their names
    """

    judge_i: FloatArray
    judges: Sequence[str]

    def part(self, keep_i: BoolArray) -> Self:
        """Return the inputs to keep."""
        return replace(super().part(keep_i), judge_i=self.judge_i[keep_i])

    def means(self) -> PoweredScores:
        """Return each bin's mean score and its errors, with the judge.

        Raises
        ------
        EstimateError
            People and the judge have too few inputs in common.
        """
        return powered_scores(self)


@dataclass(frozen=True)
class PoweredScores(BinScores):
    """Mean scores with a judge. Numbers of inputs are of those that people scored.

    `spread_b` is that of a residual: what further scores of people reduce.

    Attributes
    ----------
    lambda_b : float64 [B], the judge's weight (mean over inputs); 0 if it is not used
    gain_b : float64 [B], number of people's scores without the judge that one is worth with it
    judge_b : float64 [B], the judge's own mean score, which may be biased; NaN without scores
    judge_error_b : float64 [B], standard error of the judge's mean over inputs without people's
        scores, times its weight in the estimate
    bin_i, share_i, residual_i : [n], of the inputs that people scored: bin, weight in the bin's
        mean, and residual
    every_bin_i, every_share_i, moved_i : [N], of all inputs: bin, weight in the bin's mean, and
        what the residual lacks of the score, if people score it
    judged : number of inputs that the judge scored
    selection_p : probability that people's inputs differ this much from the others in the judge's
        scores, if they are a random part
    """

    lambda_b: FloatArray
    gain_b: FloatArray
    judge_b: FloatArray
    judge_error_b: FloatArray
    bin_i: IntArray
    share_i: FloatArray
    residual_i: FloatArray
    every_bin_i: IntArray
    every_share_i: FloatArray
    moved_i: FloatArray
    judged: int
    selection_p: float

    def draws(self, rng: np.random.Generator, n: int) -> mid_p.MidPDraws:
        """Return n draws of every bin's r, without the choice of annotators."""
        with_mb, without_mb = np.zeros((2, n, len(self.r_b)))
        judge_mb = rng.normal(size=(n, len(self.r_b))) * self.judge_error_b
        for b in np.flatnonzero(self.inputs_b):
            mine = self.bin_i == b
            value_i, shape_i = self.residual_i[mine], self.share_i[mine] * self.effective_b[b]
            mean_m, total_m = _dirichlet_means(value_i, shape_i, rng, n)
            weight_m, theirs = rng.gamma(1.0, size=n), self.every_bin_i == b
            moved_m = rng.choice(self.moved_i[theirs], n, p=self.every_share_i[theirs])
            extra_m = rng.integers(2, size=n) - moved_m
            with_mb[:, b] = (mean_m * total_m + extra_m * weight_m) / (total_m + weight_m)
            # match the unbiased variance of a mean, as `mid_p` does
            strength = max(self.effective_b[b] - 2.0, 0.05) / self.effective_b[b]
            without_mb[:, b] = _dirichlet_means(value_i, strength * shape_i, rng, n)[0]
        with_mb, without_mb = (np.clip(mb + judge_mb, 0.0, 1.0) for mb in (with_mb, without_mb))
        return mid_p.MidPDraws(with_mb, without_mb, self.effective_b)


def _dirichlet_means(
    value_i: FloatArray, shape_i: FloatArray, rng: np.random.Generator, n: int
) -> tuple[FloatArray, FloatArray]:
    """Return n means of the values with random weights, and the weights' totals [n] each."""
    rows = max(1, _CHUNK // len(value_i))
    means, totals = [], []
    for start in range(0, n, rows):
        weight_mi = rng.gamma(shape_i, size=(min(rows, n - start), len(value_i))) + _TINY
        totals.append(weight_mi.sum(axis=1))
        means.append(weight_mi @ value_i / totals[-1])
    return np.concatenate(means), np.concatenate(totals)


@dataclass(frozen=True)
class _Group:
    """Some inputs: their bins and weights [n]."""

    bin_i: IntArray
    weight_i: FloatArray
    n_bins: int

    def part(self, keep_i: BoolArray) -> _Group:
        """Return the inputs to keep."""
        return _Group(self.bin_i[keep_i], self.weight_i[keep_i], self.n_bins)

    def sum_b(self, value_i: FloatArray) -> FloatArray:
        """Return the bins' sums [B]."""
        return np.asarray(np.bincount(self.bin_i, value_i, self.n_bins), dtype=np.float64)

    @property
    def weight_b(self) -> FloatArray:
        """The bins' weights [B], never quite 0."""
        return np.maximum(self.sum_b(self.weight_i), _TINY)

    @property
    def share_i(self) -> FloatArray:
        """Each input's share of its bin's weight [n]."""
        return np.asarray(self.weight_i / self.weight_b[self.bin_i])

    @property
    def kish_b(self) -> FloatArray:
        """Kish's effective number of inputs [B]; 0 without inputs."""
        square_b = self.sum_b(self.share_i**2)
        return np.where(square_b > 0, 1.0 / np.maximum(square_b, _TINY), 0.0)

    def spread_out(self, value_i: FloatArray, place_n: BoolArray) -> FloatArray:
        """Return each value's part of its bin's mean, at its place among all inputs, else 0 [n]."""
        found_n = np.zeros(len(place_n))
        found_n[place_n] = self.share_i * value_i
        return found_n

    def mean_b(self, value_i: FloatArray) -> FloatArray:
        """Return the bins' weighted means [B]; 0 without inputs."""
        return self.sum_b(self.share_i * value_i)

    def variance_b(self, value_i: FloatArray) -> FloatArray:
        """Return the values' variance around the bins' means [B]; 0 if it is only rounding."""
        variance_b = self.mean_b((value_i - self.mean_b(value_i)[self.bin_i]) ** 2)
        return np.where(variance_b > _ROUNDING, variance_b, 0.0)


@dataclass(frozen=True)
class _Fit:
    """The judge's part of people's scores.

    Attributes
    ----------
    every, both, rest : all inputs, those that people scored, and the others
    known_i, judge_i : of all inputs, whether people scored it, and the judge's score
    lambda_i : of people's inputs
    residual_i, moved_i : of people's inputs, y - lambda (f - mean of the others), whose mean is r;
        and of all inputs what is subtracted there
    left_i : of people's inputs, the residual if the judge scored infinitely many others
    """

    every: _Group
    both: _Group
    rest: _Group
    known_i: BoolArray
    judge_i: FloatArray
    lambda_i: FloatArray
    residual_i: FloatArray
    moved_i: FloatArray
    left_i: FloatArray


def _fit(scored: JudgedScores) -> _Fit:
    """Fit the scores of inputs that people or the judge scored."""
    known_i = ~np.isnan(scored.score_i)
    every = _Group(scored.bin_i, scored.weight_i, len(scored.edges) - 1)
    both, rest = every.part(known_i), every.part(~known_i)
    judge_i, y_i = _filled(scored.judge_i, every), scored.score_i[known_i]
    off_i = judge_i - rest.mean_b(judge_i[~known_i])[every.bin_i]
    lambda_i = _lambdas(both, y_i, off_i[known_i], every.variance_b(judge_i))
    used_i = lambda_i * (rest.sum_b(rest.weight_i) / every.weight_b)[both.bin_i]
    return _Fit(
        every, both, rest, known_i, judge_i, lambda_i,
        residual_i=y_i - used_i * off_i[known_i],
        moved_i=both.mean_b(used_i)[every.bin_i] * off_i,
        left_i=y_i - lambda_i * off_i[known_i],
    )  # fmt: skip


def powered_scores(scored: JudgedScores) -> PoweredScores:
    """Return each bin's mean score and its errors, with the judge; raises as `JudgedScores.means`.

    An input that people scored and the judge did not gets the judge's mean of its bin.
    """
    _check_shared(scored)
    people = bin_scores(scored)
    scored = scored.part(~np.isnan(scored.score_i) | ~np.isnan(scored.judge_i))
    fit = _fit(scored)
    every, both, rest, known_i = fit.every, fit.both, fit.rest, fit.known_i
    r_b = both.mean_b(fit.residual_i)
    deviation_i = rest.spread_out(fit.moved_i[~known_i], ~known_i)
    deviation_i += both.spread_out(fit.residual_i - r_b[both.bin_i], known_i)
    effect = design_effect(every.bin_i, scored.lane_i, deviation_i, every.n_bins)
    freedom_b = np.maximum(rest.kish_b / effect - 1.0, 1.0)
    moved_b = rest.variance_b(fit.moved_i[~known_i])
    # one other input does not show the others' spread: a bound from all inputs of the bin
    moved_b = np.where(rest.kish_b < 2.0, 2.0 * every.variance_b(fit.moved_i), moved_b)
    judge_error_b = np.sqrt(moved_b / freedom_b)
    r_b, effective_b = _within(r_b, people, every.kish_b), both.kish_b / effect
    worth = _worth(both, scored.score_i[known_i])
    residual_b, coin_b = _variances(r_b, both, fit.residual_i, worth)
    left_b, _ = _variances(r_b, both, fit.left_i, worth)
    with np.errstate(divide="ignore", invalid="ignore"):  # nan in bins without people's scores
        variance_b = residual_b / effective_b + judge_error_b**2
        worth_b = coin_b / variance_b / effective_b
        gain_b = people.sampling_error_b**2 / variance_b
    changed = {
        "r_b": r_b, "spread_b": np.sqrt(left_b), "effective_b": effective_b, "worth_b": worth_b,
        "sampling_error_b": np.sqrt(variance_b), "design_effect": effect,
    }  # fmt: skip
    return PoweredScores(
        **(vars(people) | changed),
        lambda_b=both.mean_b(fit.lambda_i),
        gain_b=gain_b,
        judge_b=np.where(every.kish_b > 0, every.mean_b(fit.judge_i), np.nan),
        judge_error_b=judge_error_b,
        bin_i=both.bin_i,
        share_i=both.share_i,
        residual_i=fit.residual_i,
        every_bin_i=every.bin_i,
        every_share_i=every.share_i,
        moved_i=fit.moved_i,
        judged=int((~np.isnan(scored.judge_i)).sum()),
        selection_p=_selection_p(fit, scored.lane_i),
    )


def _check_shared(scored: JudgedScores) -> None:
    """Raise an EstimateError if people and the judge have too few inputs in common."""
    shared = int((~np.isnan(scored.score_i) & ~np.isnan(scored.judge_i)).sum())
    if shared < FEWEST_SHARED:
        raise EstimateError(
            f"people and {', '.join(scored.judges)} have scored {shared or 'no'} inputs in common; "
            f"to correct a judge, at least {FEWEST_SHARED} are needed: let the judge score all "
            "tasks, and people a random part of them"
        )


def _filled(judge_i: FloatArray, every: _Group) -> FloatArray:
    """Return the judge's scores, with the mean of their bin instead of unknown ones [n]."""
    known_i = ~np.isnan(judge_i)
    mean_b = every.part(known_i).mean_b(judge_i[known_i])
    return np.where(known_i, judge_i, mean_b[every.bin_i])


def _lambdas(both: _Group, y_i: FloatArray, f_i: FloatArray, variance_b: FloatArray) -> FloatArray:
    """Return the slope of y on f for each input, fitted without it [n].

    variance_b : float64 [B], variance of f over all inputs that the judge scored
    """
    bin_i, share_i, kish_b = both.bin_i, both.share_i, both.kish_b
    product_i = (y_i - both.mean_b(y_i)[bin_i]) * (f_i - both.mean_b(f_i)[bin_i])
    rest_i = np.maximum(1.0 - share_i, _TINY)
    without_i = (both.mean_b(product_i)[bin_i] - share_i * product_i / rest_i) / rest_i
    left_i = kish_b[bin_i] - 1.0  # effective number of the bin's other scores
    without_i *= np.where(left_i > 1.0, left_i / np.maximum(left_i - 1.0, _TINY), 0.0)
    top_b = kish_b * both.mean_b(product_i)
    bottom_b = kish_b * variance_b
    other_b = np.maximum(bottom_b.sum() - bottom_b, 0.0)
    elsewhere_b = np.where(other_b > 0, (top_b.sum() - top_b) / np.maximum(other_b, _TINY), 0.0)
    variance_i = variance_b[bin_i]
    slope_i = np.where(variance_i > 0, without_i / np.maximum(variance_i, _TINY), 0.0)
    prior_i = PRIOR_SCORES * elsewhere_b[bin_i]
    return np.asarray((left_i * slope_i + prior_i) / (left_i + PRIOR_SCORES))


def _within(r_b: FloatArray, people: BinScores, kish_b: FloatArray) -> FloatArray:
    """Return r inside [0, 1]; 0 or 1 only if people saw nothing right or nothing wrong."""
    half_b = 0.5 / np.maximum(kish_b, 1.0)
    low_b, high_b = half_b * (people.r_b > 0), 1.0 - half_b * (people.r_b < 1)
    return np.where(people.inputs_b > 0, np.clip(r_b, low_b, high_b), np.nan)


def _worth(both: _Group, y_i: FloatArray) -> float:
    """Return how many right-or-wrong scores one of people's is worth, as in `bin_scores`."""
    r_b = both.mean_b(y_i)
    variance_b = both.variance_b(y_i)
    tossed_b = np.maximum(both.kish_b - 1.0, 0.0) * r_b * (1.0 - r_b) + variance_b
    return float((tossed_b.sum() + 0.25) / (both.kish_b @ variance_b + 0.25))


def _variances(
    r_b: FloatArray, both: _Group, residual_i: FloatArray, worth: float
) -> tuple[FloatArray, FloatArray]:
    """Return the variances of a residual, and of a right-or-wrong score of mean r, never quite 0.

    As in `bin_scores`, the variance of a coin toss is added to both, and r is shrunk. Without a
    judge this is the variance there. How good a judge is elsewhere says nothing about this bin.
    """
    kish_b = both.kish_b
    inner_b = both.variance_b(residual_i)
    tossed_b = np.maximum(kish_b - 1.0, 0.0) * r_b * (1.0 - r_b) + inner_b
    shrunk_b = (kish_b * r_b + 0.5) / (kish_b + 1.0)
    coin_b = shrunk_b * (1.0 - shrunk_b)
    return coin_b * (kish_b * inner_b + 0.25) / (tossed_b + 0.25 * worth), coin_b


def _selection_p(fit: _Fit, lane_i: IntArray) -> float:
    """Return the p-value of a chi-square test that people's inputs are judged as the others are."""
    every, both, rest, known_i, judge_i = fit.every, fit.both, fit.rest, fit.known_i, fit.judge_i
    mean_b, rest_b = both.mean_b(judge_i[known_i]), rest.mean_b(judge_i[~known_i])
    deviation_i = both.spread_out(judge_i[known_i] - mean_b[both.bin_i], known_i)
    deviation_i -= rest.spread_out(judge_i[~known_i] - rest_b[rest.bin_i], ~known_i)
    effect = design_effect(every.bin_i, lane_i, deviation_i, every.n_bins)
    variance_b = every.variance_b(judge_i) * effect
    use_b = (both.kish_b > 1) & (rest.kish_b > 1) & (variance_b > 0)
    number_b = 1.0 / (1.0 / both.kish_b[use_b] + 1.0 / rest.kish_b[use_b])
    square = (mean_b - rest_b)[use_b] ** 2 * number_b / variance_b[use_b]
    return float(scipy.special.chdtrc(int(use_b.sum()), square.sum())) if use_b.any() else 1.0


def aupr_gain(result: ScoredCurve, scores: PoweredScores) -> float:
    """Return how many people's scores without the judge one is worth, for the AUPR's error.

    To first order, the scores' part of the AUPR's variance is the sum of the squared slopes times
    the bins' variances. NaN if it is 0.
    """
    bins, curve = np.flatnonzero(result.used_b), result.curve
    ends = curves.curve_range(curve.precision_t, curve.log_recall_t)
    slope_b = aupr_slopes(result.density.log_g_b[bins], curve.r_b[bins], curve.side, ends)
    part_b = (np.nan_to_num(slope_b) * scores.sampling_error_b[bins]) ** 2
    known = (scores.inputs_b[bins] > 0) & (part_b > 0)
    whole = float(part_b[known].sum())
    return float((part_b * scores.gain_b[bins])[known].sum()) / whole if whole else np.nan
