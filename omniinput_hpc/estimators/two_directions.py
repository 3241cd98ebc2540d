"""The joint density of z and y from a ladder in two directions, weights exp(-beta z - lambda y).

MBAR (Shirts & Chodera, J. Chem. Phys. 129, 124105 (2008), Eq. 11) over the recorded samples of all
rungs: a sample (z, y) represents 1 / sum_k N_k exp(f_k - beta_k z - lambda_k y) inputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy

from omniinput_hpc.estimators import BoolArray, FloatArray, IntArray
from omniinput_hpc.estimators.density.known_ratio import model_log_z
from omniinput_hpc.estimators.density.newton import minimize
from omniinput_hpc.estimators.density.result import upper_bounds
from omniinput_hpc.estimators.errors.chains import (
    autocorrelation_time,
    lanes_disagree,
    rank_normalized_rhat,
)
from omniinput_hpc.estimators.errors.jackknife import jackknife_error
from omniinput_hpc.estimators.observables import (
    FEWEST_EFFECTIVE,
    FEWEST_OF_A_PART,
    Joint,
    is_known,
    shares_of_cells,
)
from omniinput_hpc.estimators.run_data import RunData
from omniinput_hpc.estimators.samples import bin_within


@dataclass(frozen=True)
class TwoDirections:
    """The recorded samples of a run with a ladder in two directions.

    Attributes
    ----------
    run : with all its rungs
    lambda_k : float64 [K]
    z_ktw, y_ktw : float64 [K, T, W], outputs and observables of W lanes at T times
    pinned : whether a language model's own normalizer is used, as `Density.pinned`
    """

    run: RunData
    lambda_k: FloatArray
    z_ktw: FloatArray
    y_ktw: FloatArray
    pinned: bool = False

    @classmethod
    def of(
        cls, run: RunData, lambda_k: FloatArray, y_rks: FloatArray, rounds: Sequence[int],
        pinned: bool = False,
    ) -> TwoDirections:  # fmt: skip
        """Return the samples of some rounds of a run, given their observables [rounds, K, S]."""

        def by_lane(values_rks: FloatArray) -> FloatArray:
            return values_rks.swapaxes(0, 1).reshape(len(lambda_k), -1, run.walkers)

        z_rks = np.concatenate([run.z(slice(r, r + 1)) for r in rounds]).astype(np.float64)
        return cls(run, lambda_k, by_lane(z_rks), by_lane(y_rks), pinned)

    @cached_property
    def group_i(self) -> IntArray:
        """The group of lanes of each sample, int64 [K T W]."""
        group_w = self.run.group_s[: self.run.walkers]
        return np.broadcast_to(group_w, self.z_ktw.shape).ravel()

    @property
    def absolute(self) -> bool:
        """Whether the normalizer of a rung is known, and so the number of inputs."""
        return bool(np.isfinite(self._known_f_k).any())

    @property
    def _known_f_k(self) -> FloatArray:
        """Free energies of rungs that sample all inputs alike or as the model does, else NaN."""
        run, plain_k = self.run, self.lambda_k == 0.0
        known_k = np.where(plain_k & (run.beta_k == 0.0), -run.log_measure, np.nan)
        if self.pinned:
            known_k[plain_k & run.weights.is_canonical(run.model_beta)] = -model_log_z(run)
        return known_k

    @cached_property
    def correlated_i(self) -> FloatArray:
        """How many samples count as one, since lanes move slowly: float64 [K T W]."""
        times = [
            [autocorrelation_time(x_tw) for x_tw in (self.z_ktw[k], self.y_ktw[k])]
            for k in range(len(self.lambda_k))
        ]
        correlated_k = np.maximum(1.0, 2.0 * np.nan_to_num(times, nan=0.5).max(axis=1))
        return np.broadcast_to(correlated_k[:, None, None], self.z_ktw.shape).ravel()

    def solve(
        self, keep_g: BoolArray | None = None, f_k: FloatArray | None = None
    ) -> tuple[FloatArray, FloatArray]:
        """Return f_k, and ln of the inputs that each sample represents, -inf if left out [K T W].

        Only the groups of lanes in `keep_g` count. Raises an EstimateError if rungs do not overlap.
        """
        keep_i = np.ones(self.group_i.shape, bool) if keep_g is None else keep_g[self.group_i]
        z_i, y_i = self.z_ktw.ravel()[keep_i], self.y_ktw.ravel()[keep_i]
        beta_k1, lambda_k1 = self.run.beta_k[:, None], self.lambda_k[:, None]
        n_k = keep_i.reshape(len(self.lambda_k), -1).sum(axis=1).astype(np.float64)
        # Relative to the weights at the mean, so that all f_k are near 0
        z_0, y_0 = z_i.mean(), y_i.mean()
        shift_k = -(beta_k1 * z_0 + lambda_k1 * y_0)[:, 0]
        known_k = self._known_f_k
        if not self.absolute:
            known_k[0] = 0.0
        found = minimize(
            lambda a, b: -beta_k1 * (z_i[a:b] - z_0) - lambda_k1 * (y_i[a:b] - y_0),
            n_k,
            np.ones(len(z_i)),
            np.zeros(len(n_k)) if f_k is None else f_k + shift_k,
            known_k + shift_k,
        )
        log_v_i = np.full(keep_i.shape, -np.inf)
        log_v_i[keep_i] = -found.log_mix_b
        return found.f_k - shift_k, log_v_i

    def problem(self) -> str:
        """Return why the rungs with lambda are not to be trusted; "" if nothing speaks against it.

        Their lanes must agree about y and z, and neighbours must swap.
        """
        swaps_k = self.run.swaps_k2[:, 1] / np.maximum(self.run.swaps_k2[:, 0], 1)
        tilted_k = np.flatnonzero(self.lambda_k)
        stuck = [k for k in tilted_k if swaps_k[k - 1] == 0.0]
        if stuck:
            return f"{self.name(stuck[0] - 1)} and {self.name(stuck[0])} never swapped: add rungs"
        for what, values_ktw in (("y", self.y_ktw), ("z", self.z_ktw)):
            rhat_k = np.array([rank_normalized_rhat(values_ktw[k]) for k in tilted_k])
            if np.isnan(rhat_k).any():
                return "the run is too short to compare its lanes: raise run.rounds"
            if lanes_disagree(rhat_k, self.run.walkers).any():
                worst = f"{self.name(tilted_k[rhat_k.argmax()])} (R-hat {rhat_k.max():.3f})"
                return f"lanes disagree about {what} at {worst}: raise run.rounds"
        return ""

    def name(self, k: np.integer[Any]) -> str:
        """Return a rung's name in messages."""
        return f"beta = {self.run.beta_k[k]:g}, lambda = {self.lambda_k[k]:g}"


def joint_density(found: TwoDirections, z_edges: FloatArray, y_edges: FloatArray) -> Joint:
    """Return the joint density in cells of z and y, with errors from the jackknife over lanes.

    Raises an EstimateError if rungs do not overlap.
    """
    n_bins, n_cells, n_groups = len(z_edges) - 1, len(y_edges) - 1, int(found.group_i.max()) + 1
    z_i, y_i = found.z_ktw.ravel(), found.y_ktw.ravel()
    bin_i = bin_within(found.run, z_i, z_edges)
    cell_i = np.searchsorted(y_edges, y_i, side="right") - 1
    cell_i[y_i == y_edges[-1]] = n_cells - 1
    inside_i = (bin_i >= 0) & (bin_i < n_bins) & (cell_i >= 0) & (cell_i < n_cells)
    at_i = (bin_i * n_cells + cell_i)[inside_i]

    def sums(log_v_i: FloatArray) -> FloatArray:
        """Return ln of the inputs of each cell, float64 [B, C]."""
        log_v_i, largest = log_v_i[inside_i], np.full(n_bins * n_cells, -np.inf)
        np.maximum.at(largest, at_i, log_v_i)
        base = np.where(np.isfinite(largest), largest, 0.0)
        total = np.bincount(at_i, np.exp(log_v_i - base[at_i]), len(largest))
        with np.errstate(divide="ignore"):
            return np.asarray(base + np.log(total)).reshape(n_bins, n_cells)

    def density(log_v_i: FloatArray) -> FloatArray:
        log_g_bc = sums(log_v_i)
        return log_g_bc if found.absolute else log_g_bc - scipy.special.logsumexp(log_g_bc)

    f_k, log_v_i = found.solve()
    groups = np.arange(n_groups)
    log_g_bc = density(log_v_i)
    parts = groups[: n_groups * (n_groups > 1)]  # without another group errors are not known
    log_g_jbc = np.array([density(found.solve(groups != j, f_k)[1]) for j in parts])
    log_g_jbc = log_g_jbc.reshape(-1, n_bins, n_cells)
    lanes_g = np.bincount(found.run.group_s[: found.run.walkers])
    with np.errstate(invalid="ignore"):
        n_bc = np.exp(2 * sums(log_v_i) - sums(2 * log_v_i + np.log(found.correlated_i)))
        error_bc = jackknife_error(log_g_bc, log_g_jbc, lanes_g)
    n_bc = np.nan_to_num(n_bc)
    size = n_groups * log_g_bc.size
    w_gbc = np.bincount((found.group_i[inside_i] * log_g_bc.size) + at_i, minlength=size)
    w_gbc = w_gbc.reshape(n_groups, n_bins, n_cells)
    known_bc, some_bc = (
        is_known(n_bc, w_gbc.astype(np.float64), fewest)
        for fewest in (FEWEST_EFFECTIVE, FEWEST_OF_A_PART)
    )
    few = log_g_bc.ravel(), np.where(some_bc, error_bc, np.inf).ravel(), n_bc.ravel(), n_groups
    log_g_c = np.logaddexp.reduce(log_g_bc, axis=0)
    log_g_jc = np.logaddexp.reduce(log_g_jbc, axis=1)
    return Joint(
        z_edges=z_edges,
        y_edges=y_edges,
        log_g_bc=log_g_bc,
        error_bc=np.where(known_bc, error_bc, np.inf),
        upper_bc=upper_bounds(*few).reshape(log_g_bc.shape),
        count_bc=w_gbc.sum(axis=0).astype(np.int64),
        log_g_c=log_g_c,
        error_c=jackknife_error(log_g_c, log_g_jc, lanes_g),
        share_c=shares_of_cells(log_g_c, log_g_jc, lanes_g),
    )
