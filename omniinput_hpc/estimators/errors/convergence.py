"""Whether a run has converged, so that its errors can be believed.

Errors come from groups of lanes, and a second time from blocks of rounds, which are independent
only if they are much longer than the autocorrelation time. Where both disagree, or lanes sample
different distributions (R-hat), the run has not converged.

A language model's rungs colder than the model itself start in three parts: lanes from the model's
own sequences, from repetitions of one or two tokens, and from texts that a search found. Swap rates
cannot show a barrier that no walker crosses; parts that still differ at the end do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from omniinput_hpc.estimators import FloatArray, IntArray
from omniinput_hpc.estimators.errors.chains import MAX_RHAT, lanes_disagree
from omniinput_hpc.histogram import parts_of_groups
from omniinput_hpc.text import shown

MAX_ERROR_RATIO = 1.5
LEAST_ERROR = 1e-9
"""What an error of log g counts as at least when two are compared: less is rounding."""
MAX_BLOCKS = 16
MIN_BLOCKS = 4
MIN_BLOCK_TIMES = 10.0  # length of a block in autocorrelation times
WELL_FILLED = 10  # counts in every group and in every block
MAX_DISTANCE = 5.0
"""Standard errors between two parts' means from which on the parts count as different."""
STARTS = ("the model's own text", "repetitions", "texts found by a search")
"""What the parts of the lanes started from; where there are two, the first two."""


@dataclass(frozen=True)
class Verdict:
    """Whether the errors can be believed, and if not, why.

    Attributes
    ----------
    converged : bool
    reasons : plain sentences, empty if converged
    ratio : median of lane error / block error over well-filled bins; NaN if not known
    n_bins : number of those bins
    n_blocks : blocks of rounds that were used (0 if too few rounds)
    rhat_k : float64 [K], R-hat of z over lanes; NaN if not known
    tau_k : float64 [K], autocorrelation time of z, in rounds; NaN if not known
    """

    converged: bool
    reasons: tuple[str, ...]
    ratio: float
    n_bins: int
    n_blocks: int
    rhat_k: FloatArray
    tau_k: FloatArray


@dataclass(frozen=True)
class Mixing:
    """How lanes and successive samples of the rungs depend on each other.

    Attributes
    ----------
    rhat_k, tau_k : float64 [K], see `chain_diagnostics`
    independent : whether all samples are independent draws, by the way that they were made
    """

    rhat_k: FloatArray
    tau_k: FloatArray
    independent: bool = False

    def wanted_rounds(self) -> str:
        """Return how many rounds would make enough blocks, in brackets; "" if not known."""
        if not np.isfinite(self.tau_k).any():
            return ""
        longest = float(np.nanmax(self.tau_k))
        wanted = f"about {MIN_BLOCKS * int(np.ceil(MIN_BLOCK_TIMES * longest))} rounds would do"
        if self.independent or longest < 1.0:  # what independent samples give is less
            return f" ({wanted})"
        return f" (z stays correlated for {longest:.2g} rounds: {wanted})"


def number_of_blocks(rounds: int, tau_k: FloatArray, rounds_per_block: int = 1) -> int:
    """Return into how many blocks of rounds to cut: at most 16, each ten of the longest times.

    0 where that leaves fewer than 4. Without a known time, one round may be a block. Blocks are
    of whole histograms, of which each is of `rounds_per_block` rounds.
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
    known_reasons: Sequence[str] = (),
) -> Verdict:
    """Compare both error estimates and the lanes.

    Parameters
    ----------
    lane_error_b, block_error_b : float64 [n], of the bins that are filled well enough
    n_blocks : int, 0 if there were too few rounds for blocks
    mixing : of the rungs
    label_k : names of the rungs
    known_reasons : other reasons for which the run has not converged
    """
    reasons = list(known_reasons)
    ratio = np.nan
    use = np.isfinite(lane_error_b) & np.isfinite(block_error_b)
    rhat_k, tau_k = mixing.rhat_k, mixing.tau_k
    n_bins = int(use.sum())
    if n_blocks == 0:
        reasons.append(
            f"too few rounds for {MIN_BLOCKS} blocks of ten autocorrelation times"
            f"{mixing.wanted_rounds()}, so the errors could not be checked"
        )
    elif n_bins == 0:
        reasons.append("no bin is filled well enough to check its error")
    else:
        one_b, other_b = (np.maximum(e[use], LEAST_ERROR) for e in (lane_error_b, block_error_b))
        ratio = float(np.median(one_b / other_b))
        if not 1.0 / MAX_ERROR_RATIO <= ratio <= MAX_ERROR_RATIO:
            reasons.append(
                f"errors from lanes and from blocks of rounds differ by a factor {ratio:.2f} "
                f"(median over {n_bins} bins)"
            )
    each = zip(label_k, rhat_k, lanes_disagree(rhat_k), strict=True)
    bad = [f"{label} ({shown(r, '.2f', 'infinite')})" for label, r, disagree in each if disagree]
    if bad:
        more = f" and {len(bad) - 6} more" if len(bad) > 6 else ""
        reasons.append(f"lanes disagree (R-hat over {MAX_RHAT}) at {', '.join(bad[:6])}{more}")
    unknown = int(np.isnan(rhat_k).sum())
    if unknown:
        reasons.append(f"too few samples to compare the lanes, on {unknown} of {len(rhat_k)} rungs")
    return Verdict(not reasons, tuple(reasons), ratio, n_bins, n_blocks, rhat_k, tau_k)


def part_distances(counts_kgb: IntArray, z_b: FloatArray, n_parts: int) -> FloatArray:
    """Return how many standard errors the mean outputs of parts of the lanes are apart.

    The error comes from the spread of the groups of lanes within each part (Welch, Biometrika 34,
    28 (1947)); it is taken to be at least a thousandth of the spread of all rungs' outputs, so that
    parts without any spread do not differ by rounding.

    Parameters
    ----------
    counts_kgb : int64 [K, G, B], per group of lanes, see `histogram.parts_of_groups`
    z_b : float64 [B], output of each bin; NaN without counts
    n_parts : P

    Returns
    -------
    float64 [K, pairs of parts], in the order of `itertools.combinations`; NaN where a part has
    fewer than 2 groups.
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
    """

    floor: float = -np.inf
    reason: str = ""


def check_cold_rungs(
    counts_kgb: IntArray,
    z_b: FloatArray,
    beta_k: FloatArray,
    model_beta: float,
    round_trips: int,
    n_parts: int,
) -> ColdRungs:
    """Return below which output a ladder's cold rungs have not equilibrated.

    That is the mean output of the warmest rung above `model_beta` whose parts are apart, or, where
    no walker has made a round trip, of the warmest rung above it.

    Parameters
    ----------
    counts_kgb, z_b, n_parts : see `part_distances`
    beta_k : float64 [K], ascending
    model_beta : the model's own beta: lanes above it started apart. NaN: there is none
    round_trips : of all walkers
    """
    cold_k = np.flatnonzero(beta_k > model_beta)
    cold_k = cold_k[counts_kgb[cold_k].any(axis=(1, 2))]
    if cold_k.size == 0 or np.isnan(model_beta):
        return ColdRungs()
    apart_kp = part_distances(counts_kgb[cold_k], z_b, n_parts) > MAX_DISTANCE
    apart = np.flatnonzero(apart_kp.any(axis=1))
    if not apart.size and round_trips:
        return ColdRungs()
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
    )
