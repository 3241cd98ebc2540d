"""Check whether a run has converged, so that its errors can be trusted.

Each check tests one property of the recorded data; a run has converged if all checks pass.

Errors are computed from groups of lanes, and again from blocks of rounds, which are independent
only if they are much longer than the autocorrelation time.

A language model's rungs colder than the model itself start in three parts: lanes start from the
model's own sequences, from repetitions of one or two tokens, or from texts found by a search. Swap
rates cannot reveal a barrier that no walker crosses, but parts that still differ at the end do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
import scipy

from omniinput_hpc.estimators import FloatArray, IntArray
from omniinput_hpc.estimators.errors.chains import rhat_limit
from omniinput_hpc.histogram import parts_of_groups
from omniinput_hpc.text import shown

MAX_ERROR_RATIO = 1.5
INDEPENDENT_BINS = 3
"""Number of independent bins that the errors of all bins together are worth."""
FALSE_ALARMS = 0.005
"""Probability that the two errors of a correct run are taken to disagree."""
DRIFT_ALARMS = 1e-4
"""Probability that a run without drift fails; small, because many lanes reveal tiny drifts."""
LEAST_ERROR = 1e-9
"""Smaller errors of log g are raised to this when two are compared: they are rounding."""
MAX_BLOCKS = 16
MIN_BLOCKS = 4
MIN_BLOCK_TIMES = 10.0  # shortest block, in autocorrelation times
WELL_FILLED = 10  # smallest count in every group and every block
MAX_DISTANCE = 5.0
"""Distance between the means of two parts, in standard errors, above which they differ."""
STARTS = ("the model's own text", "repetitions", "texts found by a search")
"""Where the parts of the lanes started from; if there are two, the first two."""


@dataclass(frozen=True)
class Check:
    """One check of a run, and its result.

    Attributes
    ----------
    name : what is checked, in a few words
    value, threshold : the number found, and its limit; NaN if there is none
    at_least : whether the limit is the lowest number that passes, not the highest
    sentence : what contradicts the result; empty if nothing does
    remedy : what to do about it; may be empty
    """

    name: str
    value: float = np.nan
    threshold: float = np.nan
    sentence: str = ""
    remedy: str = ""
    at_least: bool = False

    @property
    def passed(self) -> bool:
        """Whether nothing contradicts the result."""
        return not self.sentence

    @property
    def reason(self) -> str:
        """The sentence and the remedy."""
        return f"{self.sentence}; {self.remedy}" if self.remedy else self.sentence

    def failed(self, sentence: str, remedy: str = "") -> Check:
        """Return the check with what contradicts the result, and what to do about it."""
        return replace(self, sentence=sentence, remedy=remedy)


@dataclass(frozen=True)
class Verdict:
    """Whether the errors can be trusted, and if not, why.

    Attributes
    ----------
    checks : all checks; a check that failed in several ways is listed several times
    ratio : median of lane error / block error over well-filled bins; NaN if unknown
    n_bins : number of those bins
    n_blocks : number of blocks of rounds (0 if too few rounds)
    rhat_k : float64 [K], R-hat of z over lanes; NaN if unknown
    tau_k : float64 [K], autocorrelation time of z, in rounds; NaN if unknown
    """

    checks: tuple[Check, ...]
    ratio: float
    n_bins: int
    n_blocks: int
    rhat_k: FloatArray
    tau_k: FloatArray

    @property
    def converged(self) -> bool:
        """Whether every check has passed."""
        return all(check.passed for check in self.checks)

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why the run has not converged, one sentence with its remedy each; empty if it has."""
        return tuple(check.reason for check in self.checks if not check.passed)

    def also(self, *checks: Check) -> Verdict:
        """Return the verdict with further checks."""
        return replace(self, checks=(*self.checks, *checks))


@dataclass(frozen=True)
class Mixing:
    """How lanes and successive samples of the rungs depend on each other.

    Attributes
    ----------
    rhat_k, tau_k : float64 [K], see `chain_diagnostics`
    drift_k : float64 [K], see `chain_diagnostics`
    n_lanes_k : int64 [K], W of each rung's run
    n_groups : number of groups of lanes that errors come from
    independent : whether all samples are independent draws by construction
    """

    rhat_k: FloatArray
    tau_k: FloatArray
    drift_k: FloatArray
    n_lanes_k: IntArray
    n_groups: int
    independent: bool = False

    def wanted_rounds(self) -> str:
        """Return how many rounds would make enough blocks, in brackets; "" if unknown."""
        if not np.isfinite(self.tau_k).any():
            return ""
        longest = float(np.nanmax(self.tau_k))
        wanted = f"about {MIN_BLOCKS * int(np.ceil(MIN_BLOCK_TIMES * longest))} rounds are needed"
        if self.independent or longest < 1.0:  # independent samples give less
            return f" ({wanted})"
        return f" (z stays correlated for {longest:.2g} rounds: {wanted})"


def number_of_blocks(rounds: int, tau_k: FloatArray, rounds_per_block: int = 1) -> int:
    """Return the number of blocks of rounds: at most 16, each at least ten times the longest tau.

    It is 0 if fewer than 4 would be left. If no tau is known, one round may be a block. Blocks
    consist of whole histograms, each of `rounds_per_block` rounds.
    """
    known = tau_k[np.isfinite(tau_k)]
    length = max(1, int(np.ceil(MIN_BLOCK_TIMES * known.max()))) if known.size else 1
    n_blocks = min(MAX_BLOCKS, rounds // rounds_per_block // -(-length // rounds_per_block))
    return n_blocks if n_blocks >= MIN_BLOCKS else 0


def check_convergence(
    lane_error_b: FloatArray,
    block_error_b: FloatArray,
    n_blocks: int,
    mixing: Mixing,
    label_k: Sequence[str],
) -> Verdict:
    """Compare both error estimates, and the lanes.

    Parameters
    ----------
    lane_error_b, block_error_b : float64 [n], of the well-filled bins
    n_blocks : int, 0 if there were too few rounds for blocks
    mixing : of the rungs
    label_k : names of the rungs
    """
    use = np.isfinite(lane_error_b) & np.isfinite(block_error_b)
    n_bins, ratio = int(use.sum()), np.nan
    if n_blocks and n_bins:
        one_b, other_b = (np.maximum(e[use], LEAST_ERROR) for e in (lane_error_b, block_error_b))
        ratio = float(np.median(one_b / other_b))
    checks = (
        _enough_rounds(n_blocks, mixing),
        _errors_agree(ratio, n_bins, n_blocks, mixing.n_groups),
        _no_drift(mixing, label_k),
        _lanes_agree(mixing, label_k),
    )
    return Verdict(checks, ratio, n_bins, n_blocks, mixing.rhat_k, mixing.tau_k)


def _enough_rounds(n_blocks: int, mixing: Mixing) -> Check:
    check = Check("blocks of rounds", n_blocks, MIN_BLOCKS, at_least=True)
    if n_blocks:
        return check
    return check.failed(
        f"too few rounds to check the errors{mixing.wanted_rounds()}",
        "raise run.rounds",
    )


def _errors_agree(ratio: float, n_bins: int, n_blocks: int, n_groups: int) -> Check:
    """Check that the errors from G groups of lanes and from n blocks of rounds agree.

    The ratio of their squares has an F distribution, with the degrees of `INDEPENDENT_BINS` bins.
    """
    check = Check("errors of lanes and of blocks", ratio, MAX_ERROR_RATIO)
    if n_blocks == 0:
        return check
    if n_bins == 0:
        said = "no bin is filled well enough to check its error"
        wider = "or use wider bins, which need no new samples: omniinput reweight --bins"
        return check.failed(said, f"raise run.rounds, {wider}")
    degrees = INDEPENDENT_BINS * (n_groups - 1), INDEPENDENT_BINS * (n_blocks - 1)
    if ratio < 1.0:
        degrees = degrees[::-1]
    limit = max(
        MAX_ERROR_RATIO, float(np.sqrt(scipy.special.fdtri(*degrees, 1.0 - 0.5 * FALSE_ALARMS)))
    )
    check = replace(check, threshold=limit)
    if max(ratio, 1.0 / ratio) <= limit:
        return check
    return check.failed(
        f"errors from lanes and from blocks of rounds differ by a factor {ratio:.2f} "
        f"(median over {n_bins} bins)",
        "raise run.rounds and run.burn_in",
    )


def _no_drift(mixing: Mixing, label_k: Sequence[str]) -> Check:
    """Check that z is the same in both halves of the run on every rung (Student's t)."""
    t_k = np.abs(mixing.drift_k)
    n, name = int(np.isfinite(t_k).sum()), "drift of z (p-value)"
    if not n:
        return Check(name)
    p_k = 2.0 * n * scipy.special.stdtr(np.maximum(mixing.n_lanes_k - 1, 1), -t_k)
    worst = int(np.lexsort((-t_k, p_k))[0])  # of those whose p is rounded to 0 the largest t
    p = min(1.0, float(p_k[worst]))
    check = Check(name, p, DRIFT_ALARMS, at_least=True)
    if p >= DRIFT_ALARMS:
        return check
    way = "falls" if mixing.drift_k[worst] < 0 else "rises"
    return check.failed(
        f"z still {way} from the first half of the run to the second, in all lanes alike, at "
        f"{label_k[worst]} ({t_k[worst]:.1f} standard errors): burn-in was too short",
        "raise run.burn_in and run.rounds",
    )


def _lanes_agree(mixing: Mixing, label_k: Sequence[str]) -> Check:
    """Check that lanes sample the same outputs on every rung."""
    rhat_k, said = mixing.rhat_k, []
    limit_k = rhat_limit(len(rhat_k), mixing.n_lanes_k)
    bad_k = rhat_k > limit_k
    if bad_k.any():
        each = zip(label_k, rhat_k, bad_k, strict=True)
        bad = [f"{label} ({shown(r, '.2f', 'infinite')})" for label, r, is_bad in each if is_bad]
        more = f" and {len(bad) - 6} more" if len(bad) > 6 else ""
        over = f"R-hat over {limit_k[bad_k].min():.3g}"
        said.append(f"lanes disagree ({over}) at {', '.join(bad[:6])}{more}")
    unknown = int(np.isnan(rhat_k).sum())
    if unknown:
        said.append(f"too few samples to compare the lanes on {unknown} of {len(rhat_k)} rungs")
    worst = int(np.nanargmax(rhat_k - limit_k)) if unknown < len(rhat_k) else 0
    check = Check("R-hat of z", float(rhat_k[worst]), float(limit_k[worst]))
    return check.failed("; ".join(said), "raise run.burn_in and run.rounds") if said else check


def part_distances(counts_kgb: IntArray, z_b: FloatArray, n_parts: int) -> FloatArray:
    """Return the distances between the mean outputs of parts of the lanes, in standard errors.

    The error comes from the spread of the groups of lanes within each part (Welch, Biometrika 34,
    28 (1947)). It is at least a thousandth of the range of all outputs, so that parts without any
    spread do not differ by rounding.

    Parameters
    ----------
    counts_kgb : int64 [K, G, B], per group of lanes, see `histogram.parts_of_groups`
    z_b : float64 [B], output of each bin; NaN without counts
    n_parts : P

    Returns
    -------
    float64 [K, pairs], ordered as by `itertools.combinations`; NaN if a part has under 2 groups.
    """
    n_rungs, n_groups, _ = counts_kgb.shape
    pairs = list(combinations(range(n_parts), 2))
    part_g = parts_of_groups(n_groups, n_parts)
    if np.bincount(part_g, minlength=n_parts).min() < 2:
        return np.full((n_rungs, len(pairs)), np.nan)
    z = np.where(np.isfinite(z_b), z_b, 0.0)
    number_kg = counts_kgb.sum(axis=2)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean_kg = counts_kgb @ z / number_kg
    least = 1e-3 * float(np.ptp(z_b[np.isfinite(z_b)])) if np.isfinite(z_b).any() else 0.0
    of_part = [mean_kg[:, part_g == part] for part in range(n_parts)]
    variance_pk = [means.var(axis=1, ddof=1) / means.shape[1] for means in of_part]
    least = max(least**2, np.finfo(np.float64).tiny)
    columns = [
        np.abs(of_part[i].mean(axis=1) - of_part[j].mean(axis=1))
        / np.sqrt(variance_pk[i] + variance_pk[j] + least)
        for i, j in pairs
    ]
    return np.stack(columns, axis=1)


@dataclass(frozen=True)
class ColdRungs:
    """Whether the rungs colder than a language model itself have equilibrated.

    Attributes
    ----------
    floor : the output below which they have not equilibrated; -inf if they have
    reason : a sentence, empty if they have
    n_apart : number of rungs that have not equilibrated; NaN if the ladder has no cold rungs
    """

    floor: float = -np.inf
    reason: str = ""
    n_apart: float = np.nan


def check_cold_rungs(
    counts_kgb: IntArray,
    z_b: FloatArray,
    beta_k: FloatArray,
    model_beta: float,
    round_trips: int,
    n_parts: int,
) -> ColdRungs:
    """Return the output below which a ladder's cold rungs have not equilibrated, and why.

    This floor is the mean output of the warmest rung above `model_beta` whose parts differ. If no
    walker has made a round trip, it is that of the warmest rung above `model_beta`.

    Parameters
    ----------
    counts_kgb, z_b, n_parts : see `part_distances`
    beta_k : float64 [K], ascending
    model_beta : the model's own beta: parts of the lanes above it started apart; NaN if none
    round_trips : of all walkers
    """
    cold_k = np.flatnonzero(beta_k > model_beta)
    cold_k = cold_k[counts_kgb[cold_k].any(axis=(1, 2))]
    if cold_k.size == 0 or np.isnan(model_beta):
        return ColdRungs()
    apart_kp = part_distances(counts_kgb[cold_k], z_b, n_parts) > MAX_DISTANCE
    apart = np.flatnonzero(apart_kp.any(axis=1))
    if not apart.size and round_trips:
        if counts_kgb.shape[1] >= 2 * n_parts:
            return ColdRungs(n_apart=0)
        return ColdRungs(
            reason="too few walkers to compare lanes that started from different texts at beta = "
            f"{beta_k[cold_k[0]]:.4g} and above; raise sampler.walkers to {2 * n_parts} or more"
        )
    k = cold_k[apart[0]] if apart.size and round_trips else cold_k[0]
    why = "no walker has made a round trip of the ladder"
    if apart.size:
        pairs = list(combinations(STARTS[:n_parts], 2))
        one, other = pairs[int(np.argmax(apart_kp[apart[0]]))]
        why = f"lanes that started from {one} and from {other} still differ"
    counts_b = counts_kgb[k].sum(axis=0)
    floor = float(np.average(np.where(counts_b > 0, z_b, 0.0), weights=counts_b))
    return ColdRungs(
        floor,
        f"not equilibrated below z = {floor:.3g}: {why} from beta = {beta_k[k]:.4g} on; no errors "
        "are given there, and curves leave these outputs out",
        float(np.count_nonzero(cold_k >= k)),
    )
