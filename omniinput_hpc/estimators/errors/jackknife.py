"""Errors from independent lanes, a second estimate from blocks of rounds, and the verdict.

Lanes are independent copies of the whole ladder, so leaving out one group of lanes at a time
gives the error of anything computed from all of them, correlations included. Blocks of rounds
are independent only if they are much longer than the autocorrelation time; where both estimates
disagree, or lanes sample different things, the run has not converged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

FloatArray = NDArray[np.float64]
LARGEST_RATIO = 1.5
LARGEST_RHAT = 1.05
MOST_BLOCKS = 16
FEWEST_BLOCKS = 4
BLOCK_LENGTH = 10.0  # in autocorrelation times
WELL_FILLED = 10  # counts in every group and in every block
EPS_RELATIVE = float(np.finfo(np.float32).eps)  # z is stored as float32


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
    rhat_k : float64 [K], split R-hat of z over lanes; NaN if not known
    tau_k : float64 [K], autocorrelation time of z, in rounds; NaN if not known
    """

    converged: bool
    reasons: tuple[str, ...]
    ratio: float
    n_bins: int
    n_blocks: int
    rhat_k: FloatArray
    tau_k: FloatArray


def jackknife_error(
    estimate: FloatArray | float, replicate_j: FloatArray, size_j: NDArray[np.integer] | None = None
) -> FloatArray:
    """Return the delete-one-group jackknife's standard error.

    For groups of unequal size m_j, the weighted form of Busing, Meijer & van der Leeden, Stat.
    Comput. 9, 3 (1999); for equal ones, sqrt((J - 1) / J sum_j (theta_j - mean)^2).

    Parameters
    ----------
    estimate : [...]
        From all groups.
    replicate_j : [J, ...]
        From all groups but j.
    size_j : [J], optional
        Group sizes (default equal).

    Returns
    -------
    float64 [...]
        inf where a replicate is not finite or there are fewer than 2 groups; NaN where the
        estimate itself is not finite.
    """
    theta = np.asarray(estimate, dtype=np.float64)
    theta_j = np.asarray(replicate_j, dtype=np.float64)
    n_groups = len(theta_j)
    if n_groups < 2:
        return np.where(np.isfinite(theta), np.inf, np.nan)
    size = np.ones(n_groups) if size_j is None else np.asarray(size_j, dtype=np.float64)
    h_j = (size.sum() / size).reshape((-1,) + (1,) * theta.ndim)
    known = np.isfinite(theta_j).all(axis=0) & np.isfinite(theta)
    theta_j = np.where(known, theta_j, 0.0)
    theta_0 = np.where(known, theta, 0.0)
    centre = n_groups * theta_0 - ((1.0 - 1.0 / h_j) * theta_j).sum(axis=0)
    pseudo_j = h_j * theta_0 - (h_j - 1.0) * theta_j
    variance = ((pseudo_j - centre) ** 2 / (h_j - 1.0)).mean(axis=0)
    error: FloatArray = np.where(known, np.sqrt(variance), np.inf)
    return np.where(np.isfinite(theta), error, np.nan)


def t_quantile(n_groups: int, level: float = 0.95) -> float:
    """Return the factor from standard error to interval: Student's t, n_groups - 1 degrees."""
    return float(stdtrit(n_groups - 1, 0.5 + 0.5 * level)) if n_groups > 1 else np.inf


def autocorrelation_time(z_tw: FloatArray) -> float:
    """Return the integrated autocorrelation time 1/2 + sum_t rho(t), in steps of the series.

    Independent values give 1/2. The sum ends at the first t >= 5 tau(t) (Sokal, Monte Carlo
    Methods in Statistical Mechanics (1996), section 3). Deviations are taken from the mean over
    all chains, so that chains which stay apart count as correlated for their whole length.

    Parameters
    ----------
    z_tw : [T, W]
        W chains of one law.

    Returns
    -------
    float
        A lower bound where chains are shorter than the true time; 1/2 for constants, NaN if T < 8.
    """
    n = len(z_tw)
    if n < 8:
        return np.nan
    x = z_tw - z_tw.mean()
    spectrum = np.fft.rfft(x, 2 * n, axis=0)
    covariance = np.fft.irfft((np.abs(spectrum) ** 2).sum(axis=1), 2 * n)[:n]
    if covariance[0] <= x.size * (EPS_RELATIVE * np.abs(z_tw).max()) ** 2:
        return 0.5
    rho_t = covariance / covariance[0] * n / np.arange(n, 0, -1)
    tau_t = np.cumsum(rho_t) - 0.5
    closed = np.flatnonzero(np.arange(n) >= 5.0 * tau_t)
    return max(0.5, float(tau_t[closed[0]] if closed.size else tau_t.max()))


def split_rhat(z_tw: FloatArray) -> float:
    """Return the split R-hat of chains (Gelman et al., Bayesian Data Analysis (2013), 11.4).

    Parameters
    ----------
    z_tw : [T, W]
        W chains of T values; each is cut in two halves.

    Returns
    -------
    float
        1 if halves agree, inf if halves are constant and differ, NaN if T < 4.
    """
    half = len(z_tw) // 2
    if half < 2:
        return np.nan
    chains = np.concatenate([z_tw[:half], z_tw[-half:]], axis=1).astype(np.float64)
    within = chains.var(axis=0, ddof=1).mean()
    between = chains.mean(axis=0).var(ddof=1)  # B / n
    if within == 0.0:
        return 1.0 if between == 0.0 else np.inf
    return float(np.sqrt((half - 1) / half + between / within))


def choose_blocks(rounds: int, tau_k: FloatArray) -> int:
    """Return into how many blocks of rounds to cut: at most 16, each ten of the longest times.

    0 where that leaves fewer than 4. Without a known time, one round may be a block.
    """
    known = tau_k[np.isfinite(tau_k)]
    length = max(1, int(np.ceil(BLOCK_LENGTH * known.max()))) if known.size else 1
    n_blocks = min(MOST_BLOCKS, rounds // length)
    return n_blocks if n_blocks >= FEWEST_BLOCKS else 0


def judge(
    lane_error_b: FloatArray,
    block_error_b: FloatArray,
    well_filled_b: NDArray[np.bool_],
    n_blocks: int,
    rhat_k: FloatArray,
    tau_k: FloatArray,
    label_k: Sequence[str],
    known_reasons: Sequence[str] = (),
) -> Verdict:
    """Compare both error estimates and the lanes.

    Parameters
    ----------
    lane_error_b, block_error_b : float64 [B]
    well_filled_b : bool [B], the bins whose errors are compared
    n_blocks : int, 0 if there were too few rounds for blocks
    rhat_k, tau_k : float64 [K]
    label_k : names of the rungs
    known_reasons : what the caller found already

    Returns
    -------
    Verdict
    """
    reasons = list(known_reasons)
    ratio = np.nan
    use = well_filled_b & np.isfinite(lane_error_b) & np.isfinite(block_error_b)
    use &= (lane_error_b > 0) & (block_error_b > 0)
    n_bins = int(use.sum())
    if n_blocks == 0:
        longest = np.nanmax(tau_k) if np.isfinite(tau_k).any() else np.nan
        seen = f" (z stays correlated for {longest:.2g} rounds)"
        reasons.append(
            f"too few rounds for {FEWEST_BLOCKS} blocks of ten autocorrelation times"
            f"{seen if np.isfinite(longest) else ''}, so the errors could not be checked"
        )
    elif n_bins == 0:
        reasons.append("no bin is filled well enough to check its error")
    else:
        ratio = float(np.median(lane_error_b[use] / block_error_b[use]))
        if not 1.0 / LARGEST_RATIO <= ratio <= LARGEST_RATIO:
            reasons.append(
                f"errors from lanes and from blocks of rounds differ by a factor {ratio:.2f} "
                f"(median over {n_bins} bins)"
            )
    both = zip(label_k, rhat_k, strict=True)
    bad = [f"{label} ({rhat:.2f})" for label, rhat in both if rhat > LARGEST_RHAT]
    if bad:
        more = f" and {len(bad) - 6} more" if len(bad) > 6 else ""
        reasons.append(f"lanes disagree (R-hat over {LARGEST_RHAT}) at {', '.join(bad[:6])}{more}")
    unknown = int(np.isnan(rhat_k).sum())
    if unknown:
        reasons.append(f"too few samples to compare the lanes, on {unknown} of {len(rhat_k)} rungs")
    return Verdict(not reasons, tuple(reasons), ratio, n_bins, n_blocks, rhat_k, tau_k)
