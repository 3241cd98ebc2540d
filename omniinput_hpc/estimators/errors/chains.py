"""Split R-hat and autocorrelation times of z per rung, streamed: memory is bounded."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from omniinput_hpc.estimators.errors.jackknife import EPS_RELATIVE, autocorrelation_time

FloatArray = NDArray[np.float64]
LONGEST = 4096  # values of a lane that are kept; longer series are averaged over neighbours
BUDGET = 1 << 27  # bytes held at once, about


class Outputs(Protocol):
    """Where recorded outputs come from; `omniinput_hpc.runfile.reader.RunReader` is one."""

    @property
    def rounds(self) -> int: ...  # noqa: D102
    @property
    def walkers(self) -> int: ...  # noqa: D102
    @property
    def beta_k(self) -> FloatArray: ...  # noqa: D102
    @property
    def samples_per_round(self) -> int: ...  # noqa: D102
    def samples_z(  # noqa: D102
        self, rounds: slice = slice(None), rungs: slice = slice(None)
    ) -> NDArray[np.float32]: ...


def chain_diagnostics(run: Outputs) -> tuple[FloatArray, FloatArray]:
    """Return split R-hat and the autocorrelation time of z over lanes, per rung.

    A lane's recorded outputs of all rounds are one series of T values. Where T exceeds 4096 the
    autocovariances are taken from means over m neighbours each: the sum of all autocovariances,
    which is T times the variance of the series' mean, is the same for both, and

        tau = (sum over all lags of C(t)) / (2 C(0)) = m tau_means C_means(0) / C(0)

    needs the full series for its variance C(0) alone. (Gelman et al. (2013) for R-hat; Sokal
    (1996) for tau; see `uncertainty`.)

    Parameters
    ----------
    run : Outputs

    Returns
    -------
    rhat_k : float64 [K], NaN where T < 4
    tau_k : float64 [K], in rounds, at least that of independent samples; NaN where T < 8
    """
    n_rungs, walkers = len(run.beta_k), run.walkers
    rhat_k, tau_k = np.full(n_rungs, np.nan), np.full(n_rungs, np.nan)
    per_round = run.samples_per_round // walkers
    length = run.rounds * per_round
    if not length:
        return rhat_k, tau_k
    kept = 8 * walkers * min(length, LONGEST)
    at_once = max(1, BUDGET // (2 * kept))
    for first in range(0, n_rungs, at_once):
        rungs = slice(first, min(first + at_once, n_rungs))
        series = _Series(length, rungs.stop - first, walkers)
        chunk = max(1, BUDGET // (24 * (rungs.stop - first) * run.samples_per_round))
        for begin in range(0, run.rounds, chunk):
            z_rks = run.samples_z(slice(begin, min(begin + chunk, run.rounds)), rungs)
            z_ktw = z_rks.swapaxes(0, 1).reshape(z_rks.shape[1], -1, walkers)
            series.add(z_ktw.astype(np.float64))
        rhat_k[rungs] = series.rhat()
        tau_k[rungs] = series.tau() / per_round
    return rhat_k, tau_k


class _Series:
    """Running sums of K rungs' W lanes, fed in order of time.

    Deviations are from each rung's first value, so that squares do not cancel.
    """

    def __init__(self, length: int, n_rungs: int, walkers: int) -> None:
        self._length, self._seen = length, 0
        self._m = -(-length // LONGEST)
        self._means = np.zeros((n_rungs, length // self._m, walkers))
        self._sums = np.zeros((2, 3, n_rungs, walkers))  # halves and all; of x, and of x^2
        self._origin: FloatArray | None = None
        self._largest = np.zeros(n_rungs)

    def add(self, z_ktw: FloatArray) -> None:
        """Add the next values, float64 [K, t, W]."""
        if self._origin is None:
            self._origin = z_ktw[:, :1, :1].copy()
        x = z_ktw - self._origin
        n = x.shape[1]
        self._largest = np.maximum(self._largest, np.abs(z_ktw).max(axis=(1, 2)))
        time = np.arange(self._seen, self._seen + n)
        half = self._length // 2
        for i, part in enumerate((time < half, time >= self._length - half, time >= 0)):
            self._sums[0, i] += x[:, part].sum(axis=1)
            self._sums[1, i] += (x[:, part] ** 2).sum(axis=1)
        block = time // self._m
        whole = block < self._means.shape[1]
        if whole.any():
            blocks, starts = np.unique(block[whole], return_index=True)
            self._means[:, blocks] += np.add.reduceat(x[:, whole], starts, axis=1) / self._m
        self._seen += n

    def rhat(self) -> FloatArray:
        """Return split R-hat [K]."""
        half = self._length // 2
        n_rungs = len(self._largest)
        if half < 2:
            return np.full(n_rungs, np.nan)
        mean = np.concatenate(list(self._sums[0, :2] / half), axis=1)  # [K, 2 W]
        square = np.concatenate(list(self._sums[1, :2] / half), axis=1)
        spread = np.maximum(square - mean**2, 0.0)
        spread[spread < (EPS_RELATIVE * self._largest[:, None]) ** 2] = 0.0
        within = spread.mean(axis=1) * half / (half - 1)
        between = mean.var(axis=1, ddof=1)
        between[between < (EPS_RELATIVE * self._largest) ** 2] = 0.0
        with np.errstate(divide="ignore", invalid="ignore"):
            rhat = np.sqrt((half - 1) / half + between / within)
        return np.where(within > 0, rhat, np.where(between > 0, np.inf, 1.0))

    def tau(self) -> FloatArray:
        """Return the autocorrelation time in steps of the series [K]."""
        if self._length < 8:
            return np.full(len(self._largest), np.nan)
        walkers = self._means.shape[2]
        mean = self._sums[0, 2].sum(axis=1) / (self._length * walkers)
        square = self._sums[1, 2].sum(axis=1) / (self._length * walkers)
        tau = np.full(len(mean), 0.5)
        for k, means_tw in enumerate(self._means):
            variance = square[k] - mean[k] ** 2
            if variance > (EPS_RELATIVE * self._largest[k]) ** 2:
                ratio = self._m * means_tw.var() / variance
                tau[k] = max(0.5, ratio * autocorrelation_time(means_tw))
        return tau


def inefficiency(tau_k: FloatArray, moves_per_round: float) -> FloatArray:
    """Return each rung's statistical inefficiency g = 1 + 2 tau' = 2 tau, in moves of a lane [K].

    tau' leaves out the half of lag 0. Where moves are not recorded one by one, g is an upper
    bound, by as much for all rungs. It only weighs rungs against each other: errors come from
    lanes. Without a known time on all rungs, none is weighed (1).
    """
    if not np.isfinite(tau_k).all():
        return np.ones(len(tau_k))
    return np.maximum(1.0, 2.0 * tau_k * moves_per_round)
