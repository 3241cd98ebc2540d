"""Runs and scores whose true r, precision, recall and AUPR are known, and two laws of their errors.

Densities are estimated from independent draws of a lattice of 16 sites (49 levels, exact counts).
Scores are drawn from a population in which an input of a level is right with a given probability,
and each annotator errs by chance: the mean score of a level is that probability, exactly.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import scipy.stats
from lattice import Lattice, independent_run

from omniinput_hpc.estimators.density.density import density_of_run
from omniinput_hpc.estimators.errors.jackknife import N_DRAWS, TAILS, draw_log_g
from omniinput_hpc.estimators.precision_recall import curves
from omniinput_hpc.estimators.precision_recall.from_scores import Scored, scored_curve
from omniinput_hpc.estimators.precision_recall.intervals import bands_of_draws
from omniinput_hpc.estimators.precision_recall.prediction_powered import JudgedScores

LATTICE = Lattice(n_sites=16)
BETA_K = np.array([-10.0, -6.0, -4.0, -2.0, 0.0, 2.0, 4.0, 6.0, 9.0, 13.0])
LEVEL_EDGES = (np.arange(len(LATTICE.z_l()) + 1) - 0.5) * LATTICE.unit
N_LEVELS = 48  # of the 49, so that 12, 24 and 48 bins are of as many levels each
QUANTITIES = ("r", "precision", "recall", "AUPR")


@dataclass(frozen=True)
class World:
    """What the scores of a run are drawn from.

    Attributes
    ----------
    r_l : float64 [48], mean score of each level
    n_bins : 12, 24 or 48
    per_bin : fewest and most scores of a bin
    annotators : 1 to 5
    law : "by-weight", or "uniform": drawn alike, with weights that differ
    alike : probability that an input is as right as its lane's others in the bin
    """

    r_l: np.ndarray
    n_bins: int = 24
    per_bin: tuple[int, int] = (10, 50)
    annotators: int = 1
    law: str = "by-weight"
    alike: float = 0.0

    @property
    def edges(self):
        return LEVEL_EDGES[np.append(self.first_level_b, N_LEVELS)]

    @property
    def first_level_b(self):
        """The bins' first levels [B]; a level of no input belongs to the bin before it."""
        first_b = np.arange(0, N_LEVELS, N_LEVELS // self.n_bins)
        g_b = np.add.reduceat(LATTICE.count_l()[:N_LEVELS], first_b)
        return first_b[g_b > 0]

    def truth(self):
        """Return the exact log g and r of the bins, float64 [B] each."""
        g_l = LATTICE.count_l()[:N_LEVELS]
        g_b = np.add.reduceat(g_l, self.first_level_b)
        return np.log(g_b), np.add.reduceat(g_l * self.r_l, self.first_level_b) / g_b


@cache
def density_of_levels(seed):
    """Return a density estimated from independent draws of the rungs' exact distributions."""
    run = independent_run(
        LATTICE, BETA_K, LEVEL_EDGES, rounds=6, walkers=16, moves=25, seed=10_000 + seed
    )
    return density_of_run(run)


def draw_scores(world, rng, lanes=16):
    """Return scored inputs of a world."""
    first_b = world.first_level_b
    n_bins = len(first_b)
    n_b = rng.integers(world.per_bin[0], world.per_bin[1] + 1, n_bins)
    bin_i = np.repeat(np.arange(n_bins), n_b)
    tilt_l = np.exp(-2.0 * LATTICE.z_l()[:N_LEVELS]) if world.law == "uniform" else np.ones(48)
    level_i, u_i = np.empty(len(bin_i), dtype=np.int64), rng.random(len(bin_i))
    for b, first in enumerate(first_b):
        stop = np.append(first_b, N_LEVELS)[b + 1]
        upto_l = np.cumsum(LATTICE.count_l()[first:stop] * tilt_l[first:stop])
        mine = bin_i == b
        level_i[mine] = first + np.searchsorted(upto_l[:-1] / upto_l[-1], u_i[mine], side="right")
    weight_i = np.ones(len(bin_i))
    if world.law == "uniform":
        weight_i = np.exp(0.5 * rng.normal(size=len(bin_i))) / tilt_l[level_i]
    lane_i = rng.integers(lanes, size=len(bin_i))
    r_i = world.r_l[level_i]
    u_i = rng.random(len(bin_i))
    u_bw = rng.random((n_bins, lanes))
    same_i = rng.random(len(bin_i)) < world.alike
    right_i = np.where(same_i, u_bw[bin_i, lane_i], u_i) < r_i
    # each annotator errs alone, so that the mean score stays r
    yes_i = np.where(right_i, 1.0 - 0.1 * (1.0 - r_i), 0.1 * r_i)
    if world.annotators == 1:
        yes_i = right_i.astype(float)
    score_ai = (rng.random((world.annotators, len(bin_i))) < yes_i).astype(float)
    names = [f"a{a}" for a in range(world.annotators)]
    return Scored(world.edges, bin_i, lane_i, weight_i, score_ai, names)


def jeffreys_in_every_bin(result, seed):
    """Return a curve's bands and AUPR's interval by half a right and half a wrong score a bin.

    The wrong law: r_low_b, r_high_b, bands, aupr_low, aupr_high.
    """
    scores, bins, rng = result.scores, np.flatnonzero(result.used_b), np.random.default_rng(seed)
    coarse, curve = result.density, result.curve
    right_b, wrong_b = scores.right_b[bins], (scores.count_b - scores.right_b)[bins]
    r_mb = rng.beta(right_b + 0.5, wrong_b + 0.5, size=(N_DRAWS, len(bins)))
    move_ab = scores.annotators.move_ab[:, bins]
    if len(move_ab) > 1:
        r_mb += rng.normal(size=(N_DRAWS, len(move_ab))) @ move_ab
    r_mb = np.clip(r_mb, 0.0, 1.0)
    log_g_mb = draw_log_g(coarse.log_g_b[bins], coarse.log_g_jb[:, bins], coarse.lanes_g, rng)
    low_b, high_b = np.quantile(r_mb, TAILS, axis=0)
    r_b = curve.r_b[bins]
    draws = curves.trace(log_g_mb, r_mb, "low")
    ends = curves.curve_range(curve.precision_t, curve.log_recall_t)
    aupr_m = curves.areas(draws.precision_t, draws.log_recall_t, ends)
    low, high = (0.0, 1.0) if np.isnan(aupr_m).any() else np.quantile(aupr_m, TAILS)
    bands = bands_of_draws(draws)
    return (
        np.minimum(low_b, r_b), np.maximum(high_b, r_b), bands,
        float(np.fmin(low, curve.aupr)), float(np.fmax(high, curve.aupr)),
    )  # fmt: skip


def held(world, result, intervals):
    """Return which shares of the intervals hold the truth [4]: of r, precision, recall, AUPR."""
    r_low_b, r_high_b, bands, aupr_low, aupr_high = intervals
    log_g_b, r_b = world.truth()
    right = curves.trace(log_g_b, r_b, "low")

    def share(low, value, high):
        return np.mean((low - 1e-12 <= value) & (value <= high + 1e-12))

    curve = result.curve
    ends = curves.curve_range(curve.precision_t, curve.log_recall_t)
    own = curves.curve_range(right.precision_t, right.log_recall_t)
    shared = curves.common_range(own, ends)
    ends = shared if shared[1] > shared[0] else own
    aupr = curves.area(right.precision_t, right.log_recall_t, *ends)
    pair = bands.low, bands.high
    return np.array([
        share(r_low_b, r_b, r_high_b),
        share(pair[0].precision_t, right.precision_t, pair[1].precision_t),
        share(pair[0].log_recall_t, right.log_recall_t, pair[1].log_recall_t),
        share(aupr_low, aupr, aupr_high),
    ])  # fmt: skip


def one_sided(result):
    """Return which shares of the intervals are one-sided: nothing right, or nothing wrong."""
    r_b, p_t = result.curve.r_b[result.used_b], result.curve.precision_t
    return np.array([
        np.mean((r_b == 0) | (r_b == 1)),
        np.mean((p_t == 0) | (p_t == 1)),
        np.mean(p_t == 0),
        float((p_t == 0).all() or (p_t == 1).all()),
    ])  # fmt: skip


@cache
def binomial_coverage(n, p):
    """Return how often the two-sided mid-p interval of n right-or-wrong scores holds p, exactly.

    It holds p if, for the number k of right ones, P(more) + P(k) / 2 and P(fewer) + P(k) / 2 are
    both at least 2.5%; where none or all were right it is the one-sided bound of 95%.
    """
    k = np.arange(n + 1)
    mass = scipy.stats.binom.pmf(k, n, p)
    more, fewer = scipy.stats.binom.sf(k, n, p), scipy.stats.binom.cdf(k - 1, n, p)
    holds = np.minimum(more, fewer) + 0.5 * mass >= 0.025
    holds[0], holds[-1] = mass[0] >= 0.05, mass[-1] >= 0.05
    return float(mass[holds].sum())


def reference(world, result):
    """Return what `binomial_coverage` is for as many equal scores as a run's are worth [4].

    A sum over bins is worth (sum g)^2 / sum (g^2 / n) scores; the AUPR is the mean of precisions.
    """
    log_g_b, r_b = world.truth()
    g_b = np.exp(log_g_b - log_g_b.max())
    n_b = np.maximum(result.scores.count_b, 1.0)
    n_t = np.cumsum(g_b) ** 2 / np.cumsum(g_b**2 / n_b)
    p_t = np.cumsum(g_b * r_b) / np.cumsum(g_b)
    of_b = [binomial_coverage(round(n), round(float(p), 4)) for n, p in zip(n_b, r_b, strict=True)]
    of_t = [binomial_coverage(round(n), round(float(p), 4)) for n, p in zip(n_t, p_t, strict=True)]
    return np.array([np.mean(of_b), np.mean(of_t), np.mean(of_t), np.mean(of_t)])


def coverage(world, n_runs, seed=0, n_densities=None):
    """Return shares [4, 4] of intervals that hold the truth: by the wrong law, by the program's;
    the shares that are one-sided; and what the binomial's own intervals hold of as many scores.

    Each run has its own density, unless `n_densities` take turns.
    """
    found = np.zeros((4, len(QUANTITIES)))
    for i in range(n_runs):
        rng = np.random.default_rng([seed, i])
        scored = draw_scores(world, rng)
        result = scored_curve(
            density_of_levels(i % (n_densities or n_runs)), scored, "low", 1, 1, seed=i
        )
        if not result.used_b.all():
            raise RuntimeError("a bin of the lattice has no counts")
        found[0] += held(world, result, jeffreys_in_every_bin(result, i))
        found[1] += held(world, result, intervals_of(result))
        found[2] += one_sided(result)
        found[3] += reference(world, result)
    return found / n_runs


def _flipped(right_i, share, rng):
    return np.where(rng.random(len(right_i)) < share, 1.0 - right_i, right_i)


JUDGES = {
    "perfect": lambda right_i, bin_i, rng: right_i,
    "good": lambda right_i, bin_i, rng: _flipped(right_i, 0.03, rng),
    "graded": lambda right_i, bin_i, rng: np.clip(
        0.3 + 0.4 * right_i + 0.1 * rng.normal(size=len(right_i)), 0.0, 1.0
    ),
    "useless": lambda right_i, bin_i, rng: (rng.random(len(right_i)) < 0.5) * 1.0,
    "biased": lambda right_i, bin_i, rng: np.maximum(right_i, rng.random(len(right_i)) < 0.4),
    "adversarial": lambda right_i, bin_i, rng: 1.0 - right_i,
    "adversarial in every second bin": lambda right_i, bin_i, rng: np.where(
        bin_i % 2, 1.0 - right_i, right_i
    ),
    "blind in every third bin": lambda right_i, bin_i, rng: np.where(bin_i % 3, right_i, 0.0),
}
"""Judges' scores [n] of inputs that are right or wrong."""


def draw_judged(world, judge, people, rng):
    """Return scores of all inputs by a judge, and of `people` (fewest, most) a bin by a person."""
    scored = draw_scores(world, rng)
    order = rng.permutation(len(scored.bin_i))
    place_i = np.empty(len(order), dtype=np.int64)
    for b in range(len(scored.edges) - 1):
        mine = order[scored.bin_i[order] == b]
        place_i[mine] = np.arange(len(mine))
    n_b = rng.integers(people[0], people[1] + 1, len(scored.edges) - 1)
    seen_ai = np.where(place_i < n_b[scored.bin_i], scored.score_ai, np.nan)
    judge_i = JUDGES[judge](scored.score_ai[0], scored.bin_i, rng)
    known = vars(scored) | {"score_ai": seen_ai}
    return JudgedScores(**known, judge_i=judge_i, judges=["judge"])


def without_judge(scored):
    """Return only people's scores."""
    return Scored(**{name: getattr(scored, name) for name in Scored.__dataclass_fields__})


def uncorrected(scored):
    """Return the judge's scores instead of people's."""
    return replace(without_judge(scored), score_ai=scored.judge_i[None])


def intervals_of(result):
    """Return the program's intervals, as `held` takes them."""
    curve, bins = result.curve, result.used_b
    return (curve.r_low_b[bins], curve.r_high_b[bins], curve.bands, curve.aupr_low,
            curve.aupr_high)  # fmt: skip


def judged_coverage(world, judge, people, n_runs, change=lambda scored: scored, seed=0):
    """Return how often the intervals hold the truth [4], and the mean widths of r and the AUPR.

    `change` is applied to the scores of each run. Five densities take turns.
    """
    shares, widths = np.zeros(len(QUANTITIES)), np.zeros(2)
    for i in range(n_runs):
        scored = change(draw_judged(world, judge, people, np.random.default_rng([seed, i])))
        result = scored_curve(density_of_levels(i % 5), scored, "low", 1, 1, seed=i)
        found = intervals_of(result)
        shares += held(world, result, found)
        widths += np.mean(found[1] - found[0]), found[4] - found[3]
    return shares / n_runs, widths / n_runs
