"""The sampling weights of rungs as functions of the output z."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from omniinput_hpc.estimators import BoolArray, FloatArray, IntArray
from omniinput_hpc.histogram import bin_of

ROUNDING = 1e-12
"""Betas below this share of the largest count as 0: older run files hold rounded zeros."""


@dataclass(frozen=True)
class InsideBins:
    """How outputs are spread inside the bins.

    The counted inputs of a bin are distributed as all its inputs times M, the mixture of all rungs'
    distributions. So the mean of exp(c z) over all inputs of a bin is, to second order,
    exp(c z_b + v ((c - s)^2 - s^2) / 2).

    Attributes
    ----------
    z_b : float64 [B], mean z_b of the counted outputs; NaN without counts
    variance_b : float64 [B], their variance v; 0 if there is one output per bin
    slope_b : float64 [B], s = d ln M / dz at z_b
    """

    z_b: FloatArray
    variance_b: FloatArray
    slope_b: FloatArray

    def log_mean_ratio(self, slope: float | FloatArray) -> FloatArray:
        """Return the log of the mean of exp(slope (z - z_b)) over all inputs of a bin [..., B].

        Each term is at most 1/2: in wider bins the second order means nothing (see `bin_width`).
        """
        squares = (slope - self.slope_b) ** 2, self.slope_b**2
        plus, minus = (0.5 * np.minimum(self.variance_b * square, 1.0) for square in squares)
        return np.asarray(plus - minus)

    def log_mean_exp(self, slope: float) -> FloatArray:
        """Return the log of the mean of exp(slope z) over all inputs of a bin [B]; 0 for NaN."""
        known_b = np.where(np.isfinite(self.z_b), self.z_b, 0.0)
        return np.asarray(slope * known_b + self.log_mean_ratio(slope))


@dataclass(frozen=True)
class RungWeights:
    """Log-weights of all rungs: -beta z - kappa (z - z0)^2 / 2, or frozen ones per bin.

    Attributes
    ----------
    beta_k : float64 [K]; NaN marks a flat-histogram rung
    kappa_k, z0_k : float64 [K]; kappa = 0 is canonical
    log_weight_kb : float64 [K, B], used for flat-histogram rungs: constant within a bin, -inf
        outside the rung's window
    edges : float64 [B + 1]
    """

    beta_k: FloatArray
    kappa_k: FloatArray
    z0_k: FloatArray
    log_weight_kb: FloatArray
    edges: FloatArray

    @property
    def uniform_k(self) -> BoolArray:
        """Rungs that give all inputs the same weight, up to rounding of beta, bool [K]."""
        rounding = ROUNDING * np.abs(self.beta_k[np.isfinite(self.beta_k)]).max(initial=0.0)
        return np.asarray((np.abs(self.beta_k) <= rounding) & (self.kappa_k == 0.0))

    def first_rungs(self, n: int) -> RungWeights:
        """Return the weights of the first n rungs."""
        parts = (self.beta_k[:n], self.kappa_k[:n], self.z0_k[:n])
        return RungWeights(*parts, self.log_weight_kb[:n], self.edges)

    def is_canonical(self, beta: float) -> BoolArray:
        """Return which rungs have the weight exp(-beta z), bool [K]; none for NaN."""
        return np.asarray((self.beta_k == beta) & (self.kappa_k == 0.0))

    @property
    def label_k(self) -> list[str]:
        """The rungs' names for messages."""
        names = []
        rungs = zip(self.beta_k, self.kappa_k, self.z0_k, strict=True)
        for k, (beta, kappa, z0) in enumerate(rungs):
            if np.isnan(beta):
                names.append(f"flat rung {k}")
            elif kappa:
                names.append(f"beta = {beta:.6g}, kappa = {kappa:.6g} at z0 = {z0:.6g}")
            else:
                names.append(f"beta = {beta:.6g}")
        return names

    def at(self, z_i: FloatArray) -> FloatArray:
        """Return log w_k(z_i), float64 [K, n]; -inf outside a flat rung's window."""
        z_i = np.asarray(z_i, dtype=np.float64)
        return self._at(z_i, bin_of(z_i, self.edges))

    def at_bins(self, z_b: FloatArray) -> FloatArray:
        """Return log w_k of each bin at its mean output z_b, float64 [K, B]; z = 0 replaces NaN."""
        known_b = np.where(np.isfinite(z_b), z_b, 0.0)
        return self._at(known_b, np.arange(len(z_b)))

    def slopes_at_bins(self, z_b: FloatArray) -> FloatArray:
        """Return d log w_k / dz at z_b, float64 [K, B]; 0 for a flat rung, z = 0 replaces NaN."""
        known_b = np.where(np.isfinite(z_b), z_b, 0.0)
        beta, kappa, z0 = (a[:, None] for a in (self.beta_k, self.kappa_k, self.z0_k))
        return np.asarray(np.where(np.isnan(beta), 0.0, -beta - kappa * (known_b - z0)))

    def mean_in_bins(self, inside: InsideBins) -> FloatArray:
        """Return the log of the mean of w_k over all inputs of each bin, float64 [K, B]."""
        curved_kb = np.minimum(self.kappa_k[:, None] * inside.variance_b, 1.0)
        ratio_kb = inside.log_mean_ratio(self.slopes_at_bins(inside.z_b)) - 0.5 * curved_kb
        return self.at_bins(inside.z_b) + ratio_kb

    def _at(self, z_i: FloatArray, bin_i: IntArray) -> FloatArray:
        flat = np.isnan(self.beta_k)
        beta = np.where(flat, 0.0, self.beta_k)[:, None]
        log_w_ki = -beta * z_i
        if self.kappa_k.any():
            log_w_ki -= 0.5 * self.kappa_k[:, None] * (z_i - self.z0_k[:, None]) ** 2
        if flat.any():
            inside = (bin_i >= 0) & (bin_i < self.log_weight_kb.shape[1])
            rows = np.full((int(flat.sum()), len(z_i)), -np.inf)
            rows[:, inside] = self.log_weight_kb[np.ix_(flat, bin_i[inside])]
            log_w_ki[flat] = rows
        return log_w_ki
