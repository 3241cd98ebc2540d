"""Check whether bins are too wide for rung weights that vary inside them.

The density treats all inputs of a bin as if they had its mean output. A bin's number of inputs is
the sum of 1 / M(z_i) over its counts, where M is the mixture of all rungs' distributions.
Evaluating M at the mean output makes log g too low by about s^2 v / 2 (second order), with
s = d ln M / dz there and v the variance of the outputs inside the bin. On a lattice of outputs with
one value per bin, v is 0.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from omniinput_hpc.estimators import BoolArray, FloatArray
from omniinput_hpc.estimators.density.rung_weights import RungWeights
from omniinput_hpc.estimators.errors.convergence import Check
from omniinput_hpc.estimators.run_data import RunData, evenly_spaced_rounds
from omniinput_hpc.histogram import bin_of

MAX_SAMPLES = 1_000_000  # samples to read; evenly spaced rounds of longer runs
MIN_BIAS = 0.02  # nats; a smaller bias is ignored, whatever the errors are


def variance_within(run: RunData, edges: FloatArray, max_samples: int = MAX_SAMPLES) -> FloatArray:
    """Return the variance of recorded outputs inside each bin, float64 [B]; 0 without samples."""
    n_bins = len(edges) - 1
    middle_b = 0.5 * (edges[:-1] + edges[1:])
    sums = np.zeros((3, n_bins))
    for round_ in evenly_spaced_rounds(run, max_samples):
        z_n = run.samples_z(slice(round_, round_ + 1)).ravel().astype(np.float64)
        bin_n = bin_of(z_n, edges)
        inside = (bin_n >= 0) & (bin_n < n_bins)
        bin_n, dz_n = bin_n[inside], z_n[inside] - middle_b[bin_n[inside]]
        for power in range(3):
            sums[power] += np.bincount(bin_n, dz_n**power, n_bins)
    n = np.maximum(sums[0], 1.0)
    return np.asarray(np.maximum(0.0, sums[2] / n - (sums[1] / n) ** 2))


def mixture_slope(
    weights: RungWeights, n_k: NDArray[np.integer], f_k: FloatArray, z_b: FloatArray
) -> FloatArray:
    """Return d ln M / dz in each bin [B]; 0 where z_b is NaN."""
    part = n_k > 0
    log_nf_k = np.log(n_k[part].astype(np.float64)) + f_k[part]
    width_b = np.diff(weights.edges)
    known_b = np.where(np.isfinite(z_b), z_b, weights.edges[:-1] + 0.5 * width_b)
    ends = []
    for side in (-1e-3, 1e-3):  # stay in the bin: a flat rung's weight is constant there
        near_b = np.clip(
            known_b + side * width_b,
            weights.edges[:-1] + 1e-6 * width_b,
            weights.edges[1:] - 1e-6 * width_b,
        )
        ends.append((near_b, logsumexp(log_nf_k[:, None] + weights.at(near_b)[part], axis=0)))
    with np.errstate(invalid="ignore", divide="ignore"):
        slope_b = (ends[1][1] - ends[0][1]) / (ends[1][0] - ends[0][0])
    return np.where(np.isfinite(z_b) & np.isfinite(slope_b), slope_b, 0.0)


def too_wide(
    bias_b: FloatArray, error_b: FloatArray, firm_b: BoolArray, edges: FloatArray
) -> Check:
    """Check that the bias of log g from the bins' width is smaller than its error.

    firm_b : bool [B], bins with enough counts to be tested
    """
    use = firm_b & np.isfinite(error_b) & (bias_b > MIN_BIAS) & (bias_b > error_b)
    if not use.any():
        return Check("bins too wide", 0, 0)
    worst = int(np.argmax(np.where(use, bias_b, -np.inf)))
    width = edges[worst + 1] - edges[worst]
    narrow = width * np.sqrt(max(MIN_BIAS, error_b[worst]) / bias_b[worst])
    return Check(
        "bins too wide", int(use.sum()), 0,
        f"bins are too wide: weights vary so much inside them that log g is too low by more than "
        f"its error in {use.sum()} bins, by about {bias_b[worst]:.2g} at z = {edges[worst]:.4g} to "
        f"{edges[worst + 1]:.4g}", f"a [bins] width of {narrow:.1g} would do",
    )  # fmt: skip
