"""Mean scores per bin, and curves, from the scores that annotators gave to some inputs of a run.

The inputs were drawn bin by bin (in bins wider than the run's own). Every bin's r has two errors:
from having scored only some inputs (larger if inputs of one lane are alike), and from having asked
only some annotators. `mid_p` makes the intervals of r, precision and recall; `pooled_draws` makes
the joint draws of the curve, which give the AUPR's interval.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np

from omniinput_hpc.estimators import BoolArray, EstimateError, FloatArray, IntArray
from omniinput_hpc.estimators.density.density import Density
from omniinput_hpc.estimators.density.wide_bins import coarsen
from omniinput_hpc.estimators.errors.jackknife import N_DRAWS, TAILS, draw_log_g
from omniinput_hpc.estimators.precision_recall import curves, mid_p
from omniinput_hpc.estimators.precision_recall.annotator_effects import (
    AnnotatorEffects,
    annotator_effects,
)
from omniinput_hpc.estimators.precision_recall.curves import Curve, Range, Side
from omniinput_hpc.estimators.precision_recall.intervals import DrawsOfR, areas_of, curve_errors
from omniinput_hpc.estimators.precision_recall.pooled_draws import draw_pooled


def mean_score(score_ai: FloatArray) -> FloatArray:
    """Return each input's mean over the annotators who scored it [n]; NaN if none did."""
    known = ~np.isnan(score_ai)
    with np.errstate(invalid="ignore"):
        return np.asarray(np.where(known, score_ai, 0.0).sum(axis=0) / known.sum(axis=0))


@dataclass(frozen=True)
class Scored:
    """Scores of distinct inputs of one model, a column each.

    Attributes
    ----------
    edges : float64 [B + 1], of the bins that inputs were drawn from
    bin_i : int64 [n]
    lane_i : int64 [n]; lanes of several runs are numbered consecutively
    weight_i : float64 [n], weight of an input in its bin's mean: the number of times it was drawn
        if drawn by weight, its weight if drawn with equal probability. So nothing is weighted twice
    score_ai : float64 [A, n] in [0, 1], NaN if annotator a did not score input i
    weight_ai : float64 [A, n], the weights by only those draws that annotator a scored; None if
        these are `weight_i`
    """

    edges: FloatArray
    bin_i: IntArray
    lane_i: IntArray
    weight_i: FloatArray
    score_ai: FloatArray
    annotators: Sequence[str]
    weight_ai: FloatArray | None = field(default=None, kw_only=True)

    @property
    def score_i(self) -> FloatArray:
        """Each input's mean over the annotators who scored it (NaN if none did)."""
        return mean_score(self.score_ai)

    def part(self, keep_i: BoolArray) -> Self:
        """Return the inputs to keep."""
        return replace(
            self,
            bin_i=self.bin_i[keep_i],
            lane_i=self.lane_i[keep_i],
            weight_i=self.weight_i[keep_i],
            score_ai=self.score_ai[:, keep_i],
            weight_ai=None if self.weight_ai is None else self.weight_ai[:, keep_i],
        )

    def by(self, annotators: IntArray) -> Self:
        """Return the scores of some annotators; the weights stay."""
        return replace(
            self,
            score_ai=self.score_ai[annotators],
            annotators=[self.annotators[int(a)] for a in annotators],
            weight_ai=None if self.weight_ai is None else self.weight_ai[annotators],
        )

    def of(self, annotator: int) -> Scored:
        """Return only one annotator's scores, without a judge's, weighed by their own draws."""
        score_ai, name = self.score_ai[[annotator]], self.annotators[annotator]
        weight_i = self.weight_i if self.weight_ai is None else self.weight_ai[annotator]
        alone = Scored(self.edges, self.bin_i, self.lane_i, weight_i, score_ai, [name])
        return alone.part(~np.isnan(score_ai[0]))

    def means(self) -> BinScores:
        """Return each bin's mean score and its errors."""
        return bin_scores(self)


@dataclass(frozen=True)
class BinScores:
    """Mean scores per bin and the parts of their errors.

    Attributes
    ----------
    r_b : float64 [B], NaN if nothing was scored
    inputs_b, lanes_b : int64 [B], distinct scored inputs, and lanes that they come from
    spread_b : float64 [B], standard deviation of one input's score, never quite 0
    effective_b : float64 [B], effective number of independent inputs
    worth_b : float64 [B], number of right-or-wrong scores that one score is worth (1 or more)
    sampling_error_b : float64 [B], standard error from having scored only some inputs
    annotators : AnnotatorEffects, shifts of the means due to the choice of annotators
    design_effect : factor by which correlation within lanes increases the variances (1: none)
    """

    r_b: FloatArray
    inputs_b: IntArray
    lanes_b: IntArray
    spread_b: FloatArray
    effective_b: FloatArray
    worth_b: FloatArray
    sampling_error_b: FloatArray
    annotators: AnnotatorEffects
    design_effect: float

    @property
    def annotator_error_b(self) -> FloatArray:
        """Standard error from having asked only some annotators [B]; 0 if there is only one."""
        return self.annotators.error_b

    @property
    def count_b(self) -> FloatArray:
        """Effective number of independent right-or-wrong scores per bin [B]; 0 if none."""
        return np.where(self.inputs_b > 0, self.effective_b * self.worth_b, 0.0)

    @property
    def right_b(self) -> FloatArray:
        """Effective number of these that are right [B]."""
        return np.where(self.inputs_b > 0, self.count_b * self.r_b, 0.0)

    def draws(self, rng: np.random.Generator, n: int) -> mid_p.MidPDraws:
        """Return n draws of every bin's r, without the choice of annotators."""
        return mid_p.draw_mid_p(self.right_b, self.count_b, rng, n)

    def enough(self, inputs: int, lanes: int) -> BoolArray:
        """Return the bins that have enough scores, bool [B]."""
        enough_b: BoolArray = (self.inputs_b >= inputs) & (self.lanes_b >= lanes)
        return enough_b

    def order(
        self, log_g_b: FloatArray, side: Side, filled: Callable[[FloatArray], FloatArray]
    ) -> Callable[[FloatArray], FloatArray] | None:
        """Return what puts draws of the used bins' r in the order of a bank's other curves."""
        return None


def bin_scores(scored: Scored) -> BinScores:
    """Return each bin's mean score and its errors; inputs without a score are left out."""
    scored = scored.part(~np.isnan(scored.score_i))
    n_bins = len(scored.edges) - 1
    bin_i, s_i = scored.bin_i, scored.score_i

    def per_bin(value_i: FloatArray) -> FloatArray:
        return np.asarray(np.bincount(bin_i, value_i, n_bins), dtype=np.float64)

    n_b = np.bincount(bin_i, minlength=n_bins)
    with np.errstate(divide="ignore", invalid="ignore"):
        total_b = per_bin(scored.weight_i)
        w_i = scored.weight_i / total_b[bin_i]
        # numerator and denominator use the same sums, so r is exactly 1 if nothing is wrong
        r_b = np.where(n_b > 0, np.clip(per_bin(scored.weight_i * s_i) / total_b, 0, 1), np.nan)
        kish_b = np.where(n_b > 0, 1.0 / per_bin(w_i**2), 0.0)
    deviation_i = w_i * (s_i - r_b[bin_i])
    effect = design_effect(bin_i, scored.lane_i, deviation_i, n_bins)
    effective_b = kish_b / effect
    inner_b = per_bin(w_i * (s_i - r_b[bin_i]) ** 2)
    # Scores between 0 and 1 vary less than right-or-wrong scores, so each is worth more than one of
    # those. The factor is the ratio of the variances: over all bins for a bin with few scores, and
    # the bin's own for one with many. 1/4, the variance of a coin toss, is added to both variances,
    # because even 40 equal scores do not give certainty. Of n scores n - 1 show the spread: a
    # single one shows none, and has the factor of the others.
    tossed_b = np.where(n_b > 0, (kish_b - 1.0) * r_b * (1.0 - r_b) + inner_b, 0.0)
    inner_b = np.where(n_b > 0, kish_b * inner_b, 0.0)
    worth = (tossed_b.sum() + 0.25) / (inner_b.sum() + 0.25)
    worth_b = np.maximum(1.0, (tossed_b + 0.25 * worth) / (inner_b + 0.25))
    shrunk_b = (kish_b * r_b + 0.5) / (kish_b + 1.0)
    variance_b = shrunk_b * (1.0 - shrunk_b) / worth_b
    lanes = np.unique(np.stack([bin_i, scored.lane_i]), axis=1)
    return BinScores(
        r_b=r_b,
        inputs_b=n_b,
        lanes_b=np.bincount(lanes[0], minlength=n_bins),
        spread_b=np.where(n_b > 0, np.sqrt(variance_b), np.nan),
        effective_b=effective_b,
        worth_b=worth_b,
        sampling_error_b=np.sqrt(variance_b / np.maximum(effective_b, 1e-300)),
        annotators=annotator_effects(scored.score_ai, w_i, bin_i, n_bins),
        design_effect=effect,
    )


def design_effect(bin_i: IntArray, lane_i: IntArray, deviation_i: FloatArray, n_bins: int) -> float:
    """Return the variance of the bins' means with lanes as clusters, relative to that without."""
    # pooled over the bins, since that of a single bin is too noisy
    cells, cell_i = np.unique(np.stack([bin_i, lane_i]), axis=1, return_inverse=True)
    cell_i = cell_i.ravel()
    sum_c = np.bincount(cell_i, deviation_i, cells.shape[1])
    lanes_b = np.bincount(cells[0], minlength=n_bins)
    n_b = np.bincount(bin_i, minlength=n_bins)
    use = lanes_b >= 2
    lanes, n = lanes_b[use], n_b[use]
    clustered_b = np.bincount(cells[0], sum_c**2, n_bins)[use] * lanes / (lanes - 1.0)
    alone_b = np.bincount(bin_i, deviation_i**2, n_bins)[use] * n / (n - 1.0)
    return max(1.0, float(clustered_b.sum() / alone_b.sum())) if alone_b.sum() > 0 else 1.0


def draw_r(
    scores: BinScores, rng: np.random.Generator, n: int = N_DRAWS
) -> tuple[mid_p.MidPDraws, FloatArray]:
    """Return draws of the r of all bins, and the annotators' shifts among them [n, B].

    Draws follow `mid_p`, plus the shifts, which are drawn jointly for all bins. Those of bins
    without scores mean nothing.
    """
    drawn = scores.draws(rng, n)
    moves_mb = annotator_moves(scores, rng, n)
    moved = replace(
        drawn,
        with_extra_mb=np.clip(drawn.with_extra_mb + moves_mb, 0.0, 1.0),
        without_extra_mb=np.clip(drawn.without_extra_mb + moves_mb, 0.0, 1.0),
    )
    return moved, moves_mb


def annotator_moves(scores: BinScores, rng: np.random.Generator, n: int) -> FloatArray:
    """Return draws of the shift of r due to the choice of annotators [n, B].

    Two or three annotators say little about the spread among all; their own spread is used.
    """
    move_ab = scores.annotators.move_ab
    if len(move_ab) < 2:
        return np.zeros((n, len(scores.r_b)))
    return np.asarray(rng.normal(size=(n, len(move_ab))) @ move_ab)


@dataclass(frozen=True)
class ScoredCurve:
    """A curve from annotators' scores, in the tasks' bins.

    Attributes
    ----------
    density : Density in these bins
    used_b : bool [B], bins that the curve counts: from the first well-scored one to the last
    density_share : share of the AUPR's variance that is due to the density's error
    """

    density: Density
    curve: Curve
    scores: BinScores
    used_b: BoolArray
    density_share: float


def scored_curve(
    density: Density,
    scored: Scored,
    side: Side = "low",
    fewest_inputs: int = curves.FEWEST_INPUTS,
    fewest_lanes: int = curves.FEWEST_LANES,
    seed: int = 0,
    recall_range: Range | None = None,
) -> ScoredCurve:
    """Return the precision-recall curve of scored inputs, with 95% bands.

    Parameters
    ----------
    density, scored : of one run, the density in its own bins
    fewest_inputs, fewest_lanes : requirements of a bin. The range ends, on each side, with the last
        bin that meets them; a bin in between that does not is counted and marked as thin.
    recall_range : range of log recall for the AUPR (default: the curve's own ends)

    Raises
    ------
    EstimateError
        No bin has enough scores, the bins do not match the run's, or the curve does not cover all
        of `recall_range`.
    """
    coarse = coarsen(density, scored.edges)
    scores = scored.means()
    enough_b = scores.enough(fewest_inputs, fewest_lanes)
    used_b = curves.counted_bins(coarse.believed_b, enough_b)
    if not used_b.any():
        raise EstimateError(_too_few_scores(scores, coarse, enough_b, fewest_inputs, fewest_lanes))
    bins, rng = np.flatnonzero(used_b), np.random.default_rng(seed)
    r_b = curves.fill_gaps(scores.r_b, coarse.z_b, used_b, scores.inputs_b > 0)
    log_g_b = coarse.log_g_b[bins]
    log_g_mb = draw_log_g(log_g_b, coarse.log_g_jb[:, bins], coarse.lanes_g, rng)
    drawn = _draws_of_r(scores, coarse, used_b, side, rng)
    means = _bin_means(scores, r_b, drawn.sums, used_b, enough_b)
    values = curves.trace(log_g_b, r_b[bins], side)
    errors = curve_errors(values, log_g_b, log_g_mb, drawn, side, recall_range)
    curve = curves.build_curve(coarse.edges, used_b, side, values, means, errors, recall_range)
    r_mb = np.broadcast_to(r_b[bins], log_g_mb.shape)
    by_density = curves.JointDraws(curves.trace(log_g_mb, r_mb, side), None, 0.0)
    fixed_m, aupr_m = (
        areas_of(draws, curve.aupr_range, curve.range_given)[0]
        for draws in (by_density, errors.draws)
    )
    return ScoredCurve(
        density=coarse,
        curve=curve,
        scores=scores,
        used_b=used_b,
        density_share=_share_of_variance(fixed_m, aupr_m),
    )


def _bin_means(
    scores: BinScores, r_b: FloatArray, per_value: mid_p.MidPDraws, used_b: BoolArray,
    enough_b: BoolArray,
) -> curves.BinMeans:  # fmt: skip
    """Return the bins' means, with intervals from the draws of the used bins."""
    bins, scored_b = np.flatnonzero(used_b), scores.inputs_b > 0
    low_b, high_b = np.full((2, len(used_b)), np.nan)
    low_b[bins], high_b[bins] = np.quantile(per_value.with_extra_mb, TAILS, axis=0)
    return curves.BinMeans(
        r_b=r_b,
        r_error_b=np.hypot(scores.sampling_error_b, scores.annotator_error_b),
        r_low_b=low_b,
        r_high_b=high_b,
        interpolated_b=used_b & ~scored_b,
        thin_b=used_b & ~enough_b,
        inputs_b=scores.inputs_b,
        lanes_b=scores.lanes_b,
        scores_b=scores.inputs_b,
        worth_b=scores.count_b,
    )


def _share_of_variance(part_m: FloatArray, whole_m: FloatArray) -> float:
    """Return the variance of some draws relative to that of others; NaN if the others are equal."""
    variance = float(np.var(whole_m))
    return float(np.var(part_m)) / variance if variance > 0 else np.nan


def _draws_of_r(
    scores: BinScores, coarse: Density, used_b: BoolArray, side: Side, rng: np.random.Generator
) -> DrawsOfR:
    """Return draws of the used bins' r."""
    bins, scored_b = np.flatnonzero(used_b), scores.inputs_b > 0
    drawn, moves_mb = draw_r(scores, rng)

    def filled(value_b: FloatArray) -> FloatArray:
        return curves.fill_gaps(value_b, coarse.z_b, used_b, scored_b)[..., bins]

    sums = mid_p.MidPDraws(*(filled(value) for value in vars(drawn).values()))
    right_b, count_b = scores.right_b[bins], scores.count_b[bins]
    joint_mb = draw_pooled(right_b, count_b, rng, N_DRAWS) + moves_mb[:, bins]
    joint_mb = np.clip(joint_mb, 0.0, 1.0)
    order = scores.order(coarse.log_g_b[bins], side, filled)
    return DrawsOfR(sums, order(joint_mb) if order else joint_mb, right_b, count_b, order)


def unequilibrated(coarse: Density, scores: BinScores) -> BoolArray:
    """Return the bins with scores in which the rungs have not equilibrated, bool [B].

    coarse : the density in the bins of the scores
    """
    return (scores.inputs_b > 0) & (coarse.count_b > 0) & ~coarse.believed_b


def kept_scores(coarse: Density, scores: BinScores) -> str:
    """Return a sentence on scores below the floor, kept but not counted; "" if there are none."""
    below_b = unequilibrated(coarse, scores)
    if not below_b.any():
        return ""
    return (
        f"{scores.inputs_b[below_b].sum()} scored inputs in {below_b.sum()} bins below z = "
        f"{coarse.floor:.4g} are kept but not counted, because the run has not equilibrated there: "
        "raise run.rounds and run the same command again, or count them now with "
        "--trust-unequilibrated"
    )


def _too_few_scores(
    scores: BinScores, coarse: Density, enough_b: BoolArray, inputs: int, lanes: int
) -> str:
    """Return the message that no bin has scores of enough inputs from enough lanes, and why."""
    edges, kept = coarse.edges, kept_scores(coarse, scores)
    if kept and (enough_b & ~coarse.believed_b).any():
        return f"the run has not equilibrated in any bin with enough scores: {kept}"
    best = int(np.argmax(scores.inputs_b))
    if scores.inputs_b[best] >= inputs and scores.lanes_b[best] >= lanes:
        return "in every bin with enough labels, some inputs cannot be among those that were drawn"
    return (
        f"no bin has scores of {inputs} distinct inputs from {lanes} lanes; the "
        f"best bin, {edges[best]:g} to {edges[best + 1]:g}, has "
        f"{scores.inputs_b[best]} from {scores.lanes_b[best]}: score more, or lower "
        "--fewest-inputs and --fewest-lanes"
    )
