"""Correct the density for the width of its bins, and check that this is enough.

A bin's number of inputs is the sum of 1 / M(z_i) over its counts, where M is the mixture of all
rungs' distributions. Histograms know the mean output of a bin only, and with M at this mean log g
is too low by about s^2 v / 2, with s = d ln M / dz and v the variance of the outputs inside the
bin. `RungWeights.mean_in_bins` corrects the weights of the equations for it, to second order.
Recorded samples show what is left. On a lattice of outputs with one value per bin, v is 0.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from omniinput_hpc.estimators import BoolArray, FloatArray, IntArray
from omniinput_hpc.estimators.density.rung_weights import InsideBins, RungWeights
from omniinput_hpc.estimators.errors.convergence import Check
from omniinput_hpc.estimators.run_data import RunData, evenly_spaced_rounds
from omniinput_hpc.histogram import bin_of

MAX_SAMPLES = 1_000_000  # samples to read per run; evenly spaced rounds of longer runs
MIN_BIAS = 0.02  # nats; a smaller bias is ignored, whatever the errors are
_MAX_EXPONENT = 50.0


def mixture_derivatives(
    weights: Sequence[RungWeights], counts_kb: IntArray, z_b: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return the first and second derivatives of ln M at z_b, float64 [B] each; 0 without counts.

    A rung's share of a bin's counts is its share of M there.

    weights : of each run, whose rungs follow each other in counts_kb, [K, B]
    """
    share_kb = counts_kb / np.maximum(counts_kb.sum(axis=0), 1)
    slope_kb = np.concatenate([some.slopes_at_bins(z_b) for some in weights])
    kappa_k = np.concatenate([some.kappa_k for some in weights])
    slope_b = (share_kb * slope_kb).sum(axis=0)
    spread_b = (share_kb * (slope_kb - slope_b) ** 2).sum(axis=0)
    return slope_b, spread_b - kappa_k @ share_kb


def inside_bins(
    runs: Sequence[RunData], z_b: FloatArray, derivatives: tuple[FloatArray, FloatArray]
) -> tuple[InsideBins, FloatArray]:
    """Return how recorded outputs are spread inside the bins, and the bias of log g that is left.

    The bias, float64 [B], is the difference to the exact mean of 1 / M over the samples, or the
    standard error of the correction if that is larger.

    Parameters
    ----------
    runs : with the same bins
    z_b : float64 [B], mean outputs
    derivatives : of `mixture_derivatives`
    """
    edges, (slope_b, curve_b) = runs[0].edges, derivatives
    n_bins = len(edges) - 1
    sums = np.zeros((4, n_bins))
    for run in runs:
        for round_ in evenly_spaced_rounds(run, MAX_SAMPLES):
            z_n = run.z_of(round_).ravel()
            bin_n = bin_of(z_n, edges)
            seen = (bin_n >= 0) & (bin_n < n_bins)
            seen[seen] = np.isfinite(z_b[bin_n[seen]])
            bin_n, dz_n = bin_n[seen], z_n[seen] - z_b[bin_n[seen]]
            log_m_n = slope_b[bin_n] * dz_n + 0.5 * curve_b[bin_n] * dz_n**2
            ratio_n = np.exp(np.minimum(-log_m_n, _MAX_EXPONENT))
            for row, value_n in enumerate((np.ones(len(dz_n)), dz_n, dz_n**2, ratio_n)):
                sums[row] += np.bincount(bin_n, value_n, n_bins)
    n_b = np.maximum(sums[0], 1.0)
    mean_b, ratio_b = sums[1] / n_b, np.where(sums[0] > 0, sums[3] / n_b, 1.0)
    variance_b = np.maximum(0.0, sums[2] / n_b - mean_b**2)
    found = InsideBins(z_b, variance_b, slope_b)
    square_b = slope_b**2 * variance_b
    corrected_b = -found.log_mean_ratio(slope_b) - 0.5 * curve_b * variance_b
    left_b = np.abs(np.log(ratio_b) + slope_b * mean_b - corrected_b)
    return found, np.maximum(left_b, square_b / np.sqrt(2.0 * n_b))


def too_wide(
    bias_b: FloatArray, error_b: FloatArray, firm_b: BoolArray, edges: FloatArray
) -> Check:
    """Check that the bias that the bins' width leaves in log g is smaller than its error.

    bias_b : float64 [B], of `inside_bins`
    firm_b : bool [B], bins with enough counts to be tested
    """
    use = firm_b & np.isfinite(error_b) & (bias_b > MIN_BIAS) & (bias_b > error_b)
    check = Check("bins too wide", int(use.sum()), 0)
    if not use.any():
        return check
    worst = int(np.argmax(np.where(use, bias_b, -np.inf)))
    width = edges[worst + 1] - edges[worst]
    # the bias that is left is of third order in the width
    narrow = 0.9 * width * np.cbrt(max(MIN_BIAS, error_b[worst]) / bias_b[worst])
    digit = 10.0 ** np.floor(np.log10(narrow))
    return check.failed(
        f"bins are too wide: weights vary so much inside them that log g may be off by more than "
        f"its error in {use.sum()} bins, by up to about {bias_b[worst]:.2g} at z = "
        f"{edges[worst]:.4g} to {edges[worst + 1]:.4g}",
        f"a [bins] width of {np.floor(narrow / digit) * digit:.1g} would suffice",
    )
