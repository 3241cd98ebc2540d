"""Precision and recall over a model's whole input space, by a rule that scores every sample.

`from_scores` does the same with scores that people gave to some of the samples.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from omniinput_hpc.errors import UserError
from omniinput_hpc.estimators import BoolArray, EstimateError, FloatArray, IntArray
from omniinput_hpc.estimators.density.density import Density
from omniinput_hpc.estimators.errors.jackknife import (
    N_DRAWS,
    TAILS,
    draw_log_g,
    jackknife_error,
)
from omniinput_hpc.estimators.precision_recall import curves, mid_p
from omniinput_hpc.estimators.precision_recall.curves import Curve, Range, Side
from omniinput_hpc.estimators.precision_recall.intervals import DrawsOfR, curve_errors
from omniinput_hpc.estimators.precision_recall.pooled_draws import draw_pooled
from omniinput_hpc.estimators.precision_recall.rule_worth import ScoreSums, Worth, worth_of
from omniinput_hpc.estimators.run_data import RunData
from omniinput_hpc.estimators.samples import AlikeDraws, samples_in_bins
from omniinput_hpc.plugins import own_surroundings

Rule = Callable[[IntArray], FloatArray]
"""Scores inputs [n, D]: float64 [n] in [0, 1]."""


def call_rule(function: Callable[..., object], given: object, name: str, option: str) -> object:
    """Return the result of a user's function; whatever it raises becomes a `UserError`."""
    try:
        with own_surroundings():
            return function(given)
    except (EstimateError, UserError):
        raise
    except Exception as error:  # a user's own function may raise anything
        raise UserError(f"{option} {name} failed: {type(error).__name__}: {error}") from error


def check_scores(scores: object, n: int, name: str) -> FloatArray:
    """Return the scores as float64 [n], or raise an EstimateError."""
    try:
        r = np.asarray(scores, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise EstimateError(f"rule {name}: its scores are not numbers: {error}") from error
    if r.shape != (n,):
        raise EstimateError(f"rule {name}: expected {n} scores of shape ({n},), got {r.shape}")
    wrong = ~((r >= 0.0) & (r <= 1.0))
    if wrong.any():
        raise EstimateError(f"rule {name}: scores must lie in [0, 1], got {r[wrong][0]:g}")
    return r


def sum_scores(
    run: RunData, density: Density, rule: Rule, counted: int = curves.FEWEST_INPUTS
) -> ScoreSums:
    """Score every recorded sample of a run inside its bins: see `sum_scores_of_runs`."""
    return sum_scores_of_runs([run], density, rule, counted)


def sum_scores_of_runs(
    runs: Sequence[RunData],
    density: Density,
    rule: Rule,
    counted: int = curves.FEWEST_INPUTS,
    most: int | None = None,
) -> ScoreSums:
    """Score every recorded sample of a density's runs, one round and rung at a time.

    Sample i of run r has the weight w_i = 1 / sum_k n_k p_k(x_i), with k over the rungs of *its
    own* run. Rung k draws n_k inputs from p_k. So the expectation of sum_i w_i h(x_i) over a run's
    samples in bin b is the sum over all inputs x of the bin of

        h(x) sum_k n_k p_k(x) / sum_k n_k p_k(x) = h(x),

    whatever rungs the run has (times the share of moves that are recorded). So every run by itself
    gives r_b, as R_rb / W_rb with R_rb = sum w_i r_i and W_rb = sum w_i. So does

        r_b = sum_r a_rb R_rb / sum_r a_rb W_rb

    with any factors a_rb > 0. Here a_rb = m_rb / W_rb: each run's mean is weighted by m_rb, the
    smaller of its recorded samples in the bin and its effective number of independent counts
    (which is lower for draws of uneven weights and for chains that hardly move). The factors'
    errors enter in second order, because d r_b / d ln a_rb is proportional to R_rb / W_rb - r_b,
    itself an error; so replicates keep the factors fixed. With another run's weights, or one weight
    for all, sum_k n_k p_k would not cancel: the joint mean of a hot and a cold run would be biased.

    Weights are relative to those at the bin's mean z, against overflow. A bin's distinct inputs are
    counted up to `counted`; of a run about `most` samples are scored. Lanes of runs are different.

    Parameters
    ----------
    runs : those of the density, in the same order
    density : in the runs' own bins

    Raises
    ------
    EstimateError
        There are no samples inside the bins.
    """
    distinct: list[set[bytes]] = [set() for _ in density.count_b]
    each = [
        _sums_of_run(run, density, number, rule, distinct, counted, most)
        for number, run in enumerate(runs)
    ]
    if not any(sums.count_gb.any() for sums in each):
        names = " and ".join(str(run.path) for run in runs)
        have = "has" if len(runs) == 1 else "have"
        raise EstimateError(f"{names} {have} no recorded samples inside the bins")
    if len(each) > 1:
        each = [_scaled(s, part.effective_b) for s, part in zip(each, density.parts, strict=True)]
    total = {name: np.sum([vars(sums)[name] for sums in each], axis=0) for name in vars(each[0])}
    return ScoreSums(**total | {"inputs_b": np.array([len(inputs) for inputs in distinct])})


def _sums_of_run(
    run: RunData, density: Density, number: int, rule: Rule, distinct: list[set[bytes]],
    counted: int, most: int | None,
) -> ScoreSums:  # fmt: skip
    """Return the sums over one run's samples; their inputs are added to the sets in `distinct`."""
    n_bins, n_groups = len(density.count_b), len(density.lanes_g)
    # each of n counts in a bin represents about g / n inputs
    reference_b = density.log_g_b - np.log(np.maximum(density.count_b, 1))
    group_w = density.parts[number].group_w
    size = n_groups * n_bins
    weight, score = np.zeros(size), np.zeros(size)
    square_b, score2_b = np.zeros(n_bins), np.zeros(n_bins)
    count = np.zeros(size, dtype=np.int64)
    seen_bw = np.zeros((n_bins, run.walkers), dtype=bool)
    draws = AlikeDraws(run, density.edges) if density.parts[number].ancestral else None
    for part in samples_in_bins(run, density.edges, most):
        r_i = rule(part.x_id.astype(np.int64))
        log_w_i = -density.log_mixture(part.z_i, part.log_q_ik, number)
        w_i = np.exp(log_w_i - reference_b[part.bin_i])
        cell_i = group_w[part.lane_i] * n_bins + part.bin_i
        weight += np.bincount(cell_i, w_i, size)
        score += np.bincount(cell_i, w_i * r_i, size)
        count += np.bincount(cell_i, minlength=size)
        square_b += np.bincount(part.bin_i, w_i**2, n_bins)
        score2_b += np.bincount(part.bin_i, w_i * r_i**2, n_bins)
        if draws is not None:
            draws.add(part.z_i, w_i)
        seen_bw[part.bin_i, part.lane_i] = True
        _note_inputs(distinct, part.x_id, part.bin_i, counted)
    count_gb, effective_b = count.reshape(n_groups, n_bins), _effective(density, number)
    count_b = np.maximum(count_gb.sum(axis=0), 1)
    per_one_b = count_b / np.maximum(np.minimum(effective_b, count_b), 1e-300)
    if draws is not None:
        per_one_b = draws.per_one(effective_b)
    return ScoreSums(
        weight.reshape(count_gb.shape),
        score.reshape(count_gb.shape),
        count_gb,
        square_b,
        score2_b,
        square_b * per_one_b,
        np.zeros(n_bins, dtype=np.int64),  # counted over all runs together, see `distinct`
        seen_bw.sum(axis=1),
    )


def _effective(density: Density, number: int) -> FloatArray:
    """Return the effective number of a run's counts in the bins of a density of several [B]."""
    sum_b = np.sum([part.effective_b for part in density.parts], axis=0)
    share_b = density.parts[number].effective_b / np.maximum(sum_b, 1e-300)
    return np.asarray(density.effective_b * share_b)


def _scaled(sums: ScoreSums, effective_b: FloatArray) -> ScoreSums:
    """Return a run's sums, scaled so that each bin's weights sum to its effective samples."""
    worth_b = np.minimum(sums.count_gb.sum(axis=0), effective_b)
    factor_b = worth_b / np.maximum(sums.weight_gb.sum(axis=0), 1e-300)
    return replace(
        sums,
        weight_gb=sums.weight_gb * factor_b,
        score_gb=sums.score_gb * factor_b,
        square_b=sums.square_b * factor_b**2,
        score2_b=sums.score2_b * factor_b,
        alike_b=sums.alike_b * factor_b**2,
    )


def _note_inputs(
    distinct: list[set[bytes]], x_id: NDArray[np.integer], bin_i: IntArray, counted: int
) -> None:
    """Add inputs to the sets of their bins until a set holds `counted` of them."""
    for b in np.unique(bin_i):
        if len(distinct[b]) < counted:
            distinct[b].update(x.tobytes() for x in x_id[bin_i == b])


def mean_scores(
    weight_b: FloatArray, score_b: FloatArray, z_b: FloatArray, wanted_b: BoolArray
) -> FloatArray:
    """Return r_b = sum w r / sum w in the wanted bins, [B]; `fill_gaps` fills the rest of them."""
    sampled_b = weight_b > 0
    with np.errstate(divide="ignore", invalid="ignore"):
        r_b = np.clip(score_b / weight_b, 0.0, 1.0)
    return curves.fill_gaps(r_b, z_b, wanted_b, sampled_b)


def rule_curve(
    density: Density,
    sums: ScoreSums,
    side: Side = "low",
    fewest: tuple[int, int] = (curves.FEWEST_INPUTS, curves.FEWEST_LANES),
    whole: bool = False,
    recall_range: Range | None = None,
) -> Curve:
    """Return the curve with its 95% intervals, computed as in `intervals`.

    The density's error is drawn from its replicates without each lane group, and the error of the
    scores from their effective number (see `rule_worth`). The within-bin weights keep the full
    run's f_k: their change with f_k is of second order in the bin width.

    Parameters
    ----------
    density, sums : of the same run or runs
    fewest : distinct inputs and lanes that a bin needs; a bin with fewer is marked as thin
    whole : whether to use all bins with counts; by default the range ends, on each side, with the
        last bin that meets `fewest` (all are used if no bin meets it)
    recall_range : range of log recall for the AUPR (default: the curve's own ends)

    Raises
    ------
    EstimateError
        The curve does not cover all of `recall_range`.
    """
    enough_b = (sums.inputs_b >= fewest[0]) & (sums.lanes_b >= fewest[1])
    used_b = density.believed_b
    if not whole and (used_b & enough_b).any():
        used_b = curves.counted_bins(used_b, enough_b)
    bins, z_b, rng = np.flatnonzero(used_b), density.z_b, np.random.default_rng(0)
    r_b = mean_scores(sums.weight_gb.sum(axis=0), sums.score_gb.sum(axis=0), z_b, used_b)
    worth = _worth(density, sums, bins, side)
    log_g_b, log_g_jb = density.log_g_b[bins], density.log_g_jb[:, bins]
    log_g_mb = draw_log_g(log_g_b, log_g_jb, density.lanes_g, rng)
    drawn, (low_b, high_b) = _draws_of_r(r_b, worth, z_b, used_b, rng)
    if len(density.lanes_g) < 2:  # the correlation of the samples is unknown
        low_b, high_b = np.where(used_b, 0.0, np.nan), np.where(used_b, 1.0, np.nan)
    values = curves.trace(log_g_b, r_b[bins], side)
    errors = curve_errors(values, log_g_b, log_g_mb, drawn, side, recall_range)
    means = curves.BinMeans(
        r_b=r_b,
        r_error_b=_r_errors(density, sums, r_b, used_b),
        r_low_b=low_b,
        r_high_b=high_b,
        interpolated_b=used_b & (sums.count_gb.sum(axis=0) == 0),
        thin_b=used_b & ~enough_b,
        inputs_b=sums.inputs_b,
        lanes_b=sums.lanes_b,
        scores_b=sums.count_gb.sum(axis=0),
        worth_b=worth.alone_b,
    )
    return curves.build_curve(density.edges, used_b, side, values, means, errors, recall_range)


def _worth(density: Density, sums: ScoreSums, bins: IntArray, side: Side) -> Worth:
    """Return the effective numbers of scores [B], 0 outside the curve's bins."""
    order = bins[curves.counting_order(side)]
    found = worth_of(sums.of(order), density.log_g_b[order])
    parts = np.zeros((3, len(density.count_b)))
    parts[:, order] = [found.alone_b, found.summed_b, found.curve_b]
    return Worth(*parts)


def _draws_of_r(
    r_b: FloatArray, worth: Worth, z_b: FloatArray, used_b: BoolArray, rng: np.random.Generator
) -> tuple[DrawsOfR, FloatArray]:
    """Return draws of the used bins' r, and the ends of its 95% intervals [2, B]."""
    bins, scored_b = np.flatnonzero(used_b), worth.alone_b > 0
    share_b = np.where(scored_b, np.nan_to_num(r_b), 0.0)
    alone, summed = (
        mid_p.draw_mid_p(share_b * count_b, count_b, rng, N_DRAWS)
        for count_b in (worth.alone_b, worth.summed_b)
    )

    def filled(value_b: FloatArray) -> FloatArray:
        return curves.fill_gaps(value_b, z_b, used_b, scored_b)

    ends_b = np.quantile(filled(alone.with_extra_mb), TAILS, axis=0)
    sums = mid_p.MidPDraws(*(filled(value)[..., bins] for value in vars(summed).values()))
    right_b, count_b = (share_b * worth.curve_b)[bins], worth.curve_b[bins]
    joint_mb = draw_pooled(right_b, count_b, rng, N_DRAWS)
    return DrawsOfR(sums, joint_mb, right_b, count_b), ends_b


def _r_errors(density: Density, sums: ScoreSums, r_b: FloatArray, used_b: BoolArray) -> FloatArray:
    """Return the jackknife standard errors of r [B]; inf if only one group has samples."""
    r_jb, seen_gb = _without_each(sums, density.z_b, used_b), sums.count_gb > 0
    r_jb[seen_gb & (seen_gb.sum(axis=0) == 1)] = np.nan
    return jackknife_error(r_b, r_jb, density.lanes_g)


def areas_without_each(density: Density, sums: ScoreSums, curve: Curve, ends: Range) -> FloatArray:
    """Return the AUPR of a `rule_curve` over `ends` without each lane group, float64 [G].

    A replicate that does not reach an end keeps its outermost precision up to it.
    """
    bins = np.sort(curve.bin_t)
    used_b = np.isin(np.arange(len(density.count_b)), bins)
    r_jb = _without_each(sums, density.z_b, used_b)
    traced = curves.accumulate(density.log_g_jb[:, bins], r_jb[:, bins], curve.side)
    return curves.areas(*traced, ends, continued=True)


def _without_each(sums: ScoreSums, z_b: FloatArray, used_b: BoolArray) -> FloatArray:
    """Return the mean scores without each lane group, [G, B]; NaN if there is only one group."""
    n_groups = len(sums.weight_gb)
    r_jb = np.full((n_groups, len(used_b)), np.nan)
    for j in range(n_groups if n_groups > 1 else 0):
        rest = np.arange(n_groups) != j
        weight_b, score_b = sums.weight_gb[rest].sum(axis=0), sums.score_gb[rest].sum(axis=0)
        r_jb[j] = mean_scores(weight_b, score_b, z_b, used_b)
    return r_jb
