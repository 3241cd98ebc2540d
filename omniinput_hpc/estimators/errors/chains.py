"""R-hat over lanes and autocorrelation times of z, per rung, from the recorded samples."""

from __future__ import annotations

import numpy as np
import scipy

from omniinput_hpc.estimators import BoolArray, FloatArray, IntArray
from omniinput_hpc.estimators.run_data import RunData

MAX_RHAT = 1.05
"""Limit of the true R-hat of lanes; the largest of many estimates may exceed it (`rhat_limit`)."""
FALSE_ALARMS = 0.01
"""Probability that the largest R-hat exceeds its limit although no true one exceeds `MAX_RHAT`."""
MAX_RHAT_VALUES = 20_000
"""Approximate number of values per rung that R-hat ranks; longer series are thinned in time."""
MAX_KEPT = 4096  # values kept per lane; longer series are averaged over neighbours
MAX_BYTES = 1 << 27  # held in memory at once, approximately
LARGE_SHARE = 0.3  # of a rung's moves, above which groups of lanes differ less than counts do
NEIGHBOURS = 5  # bins on either side over which dispersions are averaged
EPS_RELATIVE = float(np.finfo(np.float32).eps)  # z is stored as float32


def rank_normalized_rhat(z_tw: FloatArray) -> float:
    """Return the rank-normalized split R-hat of chains.

    It is the larger of two split R-hats: of the normal scores of the values (agreement in
    location), and of those of their distances from the median (in scale). See Vehtari, Gelman,
    Simpson, Carpenter & Buerkner, Bayesian Analysis 16, 667 (2021), section 4. Each chain is cut in
    two halves, without the middle value if their number is odd.

    Parameters
    ----------
    z_tw : [T, W], W chains of T values

    Returns
    -------
    float; 1 for constants (within the rounding of float32), inf if chains are constant and differ,
    NaN if T < 4
    """
    if len(z_tw) < 4:
        return np.nan
    chains = half_chains(z_tw).astype(np.float64)
    if chains.std() < EPS_RELATIVE * np.abs(chains).max():
        return 1.0
    folded = np.abs(chains - np.median(chains))
    return float(max(rhat(_normal_scores(chains)), rhat(_normal_scores(folded))))


def _normal_scores(values: FloatArray) -> FloatArray:
    """Return the normal quantiles of the values' ranks, with Blom's offsets."""
    _, which, count = np.unique(values.ravel(), return_inverse=True, return_counts=True)
    middle = np.cumsum(count) - 0.5 * (count - 1)  # equal values share the mean of their ranks
    rank = middle[which].reshape(values.shape)
    return np.asarray(scipy.special.ndtri((rank - 0.375) / (values.size + 0.25)))


def half_chains(x_tw: FloatArray) -> FloatArray:
    """Return the halves of chains [T, W, ...], [T // 2, 2 W, ...], without a middle value."""
    half = len(x_tw) // 2
    return np.concatenate([x_tw[:half], x_tw[-half:]], axis=1)


def rhat(x_tc: FloatArray) -> FloatArray:
    """Return R-hat of chains [T, C, ...] (Gelman et al., Bayesian Data Analysis (2013), 11.4).

    It is 1 for constants, and inf if chains are constant and differ.
    """
    within = x_tc.var(axis=0, ddof=1).mean(axis=0)
    between = x_tc.mean(axis=0).var(axis=0, ddof=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        moving = np.sqrt((len(x_tc) - 1) / len(x_tc) + between / within)
    still = (x_tc == x_tc[0]).all(axis=(0, 1))
    alike = (x_tc[0] == x_tc[0, 0]).all(axis=0)
    return np.where(still, np.where(alike, 1.0, np.inf), moving)


def rhat_limit(n_tests: int, n_lanes: int | IntArray, most: float = MAX_RHAT) -> FloatArray:
    """Return the limit of the largest of `n_tests` R-hats, if no true one should exceed `most`.

    It has the shape of `n_lanes`, the number of lanes that an R-hat compares.

    R-hat^2 - 1 is the variance between half lanes over that within them. Estimated from C half
    lanes, it is its true value times chi^2 / (C - 1) with C - 1 degrees of freedom.
    """
    degrees = np.maximum(2 * np.asarray(n_lanes) - 1, 1)
    spread = scipy.special.chdtri(degrees, FALSE_ALARMS / max(n_tests, 1)) / degrees
    return np.asarray(np.sqrt(1.0 + (most**2 - 1.0) * np.maximum(spread, 1.0)))


def lanes_disagree(rhat_k: FloatArray, n_lanes: int) -> BoolArray:
    """Return which rungs have lanes with different distributions [K]; False for NaN."""
    return np.asarray(rhat_k > rhat_limit(len(rhat_k), n_lanes))


def autocorrelation_time(z_tw: FloatArray) -> float:
    """Return the integrated autocorrelation time 1/2 + sum_t rho(t), in steps of the series.

    Independent values give 1/2. The sum ends at the first t >= 5 tau(t) (Sokal, Monte Carlo Methods
    in Statistical Mechanics (1996), section 3). Deviations are taken from the mean over all chains,
    so that chains that stay apart count as correlated over their whole length.

    Parameters
    ----------
    z_tw : [T, W], W chains of one distribution

    Returns
    -------
    float; too low if chains are shorter than the true time; 1/2 for constants, NaN if T < 8
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


def chain_diagnostics(run: RunData) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return R-hat, autocorrelation time and drift of z over lanes, per rung.

    A lane's recorded outputs of all rounds form one series of T values. Some rounds and rungs are
    read at a time, so that memory is bounded. R-hat uses every s-th value if the rung has more than
    20,000. If T exceeds 4096, the autocovariances are computed from means over m neighbours each.
    The sum of all autocovariances is T times the variance of the series' mean, which is the same
    for both series. Only the variance C(0) needs the full series:

        tau = (sum over all lags of C(t)) / (2 C(0)) = m tau_means C_means(0) / C(0)

    Returns
    -------
    rhat_k : float64 [K], see `rank_normalized_rhat`; NaN if T < 4
    tau_k : float64 [K], in rounds, at least that of independent samples; NaN if T < 8
    drift_k : float64 [K], mean over lanes of z in the second half minus that in the first, over its
        standard error (Student's t); NaN if T < 8 or for one lane
    """
    n_rungs, walkers = len(run.beta_k), run.walkers
    rhat_k, tau_k, drift_k = np.full((3, n_rungs), np.nan)
    per_round = run.samples_per_round // walkers
    length = run.rounds * per_round
    if not length:
        return rhat_k, tau_k, drift_k
    kept_bytes = 8 * (walkers * min(length, MAX_KEPT) + 2 * MAX_RHAT_VALUES)
    at_once = max(1, MAX_BYTES // (2 * kept_bytes))
    for first in range(0, n_rungs, at_once):
        rungs = slice(first, min(first + at_once, n_rungs))
        series = _Series(length, rungs.stop - first, walkers)
        chunk = max(1, MAX_BYTES // (24 * (rungs.stop - first) * run.samples_per_round))
        for begin in range(0, run.rounds, chunk):
            z_rks = run.z(slice(begin, min(begin + chunk, run.rounds)), rungs)
            z_ktw = z_rks.swapaxes(0, 1).reshape(z_rks.shape[1], -1, walkers)
            series.add(z_ktw.astype(np.float64))
        rhat_k[rungs] = series.rhat()
        tau_k[rungs] = series.tau() / per_round
        drift_k[rungs] = series.drift()
    return rhat_k, tau_k, drift_k


class _Series:
    """Running sums of K rungs' W lanes, and every s-th value, added in order of time.

    Deviations are taken from each rung's first value, so that squares do not cancel.
    """

    def __init__(self, length: int, n_rungs: int, walkers: int) -> None:
        self._length, self._seen = length, 0
        self._m = -(-length // MAX_KEPT)
        self._means = np.zeros((n_rungs, length // self._m, walkers))
        self._sums = np.zeros((2, n_rungs, walkers))  # of x, and of x^2
        self._stride = max(1, min(length * walkers // MAX_RHAT_VALUES, length // 4))
        self._thinned: list[FloatArray] = []
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
        self._thinned.append(z_ktw[:, time % self._stride == 0])
        self._sums += x.sum(axis=1), (x**2).sum(axis=1)
        block = time // self._m
        whole = block < self._means.shape[1]
        if whole.any():
            blocks, starts = np.unique(block[whole], return_index=True)
            self._means[:, blocks] += np.add.reduceat(x[:, whole], starts, axis=1) / self._m
        self._seen += n

    def rhat(self) -> FloatArray:
        """Return R-hat [K]."""
        z_ktw = np.concatenate(self._thinned, axis=1)
        return np.array([rank_normalized_rhat(z_tw) for z_tw in z_ktw])

    def tau(self) -> FloatArray:
        """Return the autocorrelation time in steps of the series [K]."""
        if self._length < 8:
            return np.full(len(self._largest), np.nan)
        mean, square = self._sums.sum(axis=2) / (self._length * self._means.shape[2])
        tau = np.full(len(mean), 0.5)
        for k, means_tw in enumerate(self._means):
            variance = square[k] - mean[k] ** 2
            if variance > (EPS_RELATIVE * self._largest[k]) ** 2:
                ratio = self._m * means_tw.var() / variance
                tau[k] = max(0.5, ratio * autocorrelation_time(means_tw))
        return tau

    def drift(self) -> FloatArray:
        """Return Student's t of the lanes' means in the second half minus the first [K]."""
        n, n_lanes = self._means.shape[1:]
        if self._length < 8 or n_lanes < 2:
            return np.full(len(self._largest), np.nan)
        first_kw = self._means[:, : n // 2].mean(axis=1)
        apart_kw = self._means[:, n - n // 2 :].mean(axis=1) - first_kw
        least_k = EPS_RELATIVE * self._largest
        error_k = apart_kw.std(axis=1, ddof=1) / np.sqrt(n_lanes)
        drift_k = apart_kw.mean(axis=1) / np.maximum(error_k, np.maximum(least_k, 1e-300))
        return np.asarray(drift_k)


def inefficiency(tau_k: FloatArray, moves_per_round: float) -> FloatArray:
    """Return each rung's statistical inefficiency g = 1 + 2 tau' = 2 tau, in moves of a lane [K].

    tau' omits the 1/2 of lag 0. If only some moves are recorded, g is an upper bound, equally so on
    all rungs. It only weights rungs relative to each other; errors come from lanes.
    """
    return np.maximum(1.0, 2.0 * tau_k * moves_per_round)


def effective_counts(
    counts_gb: IntArray,
    size_g: IntArray,
    counts_kb: IntArray,
    moves_k: IntArray,
    apart_k: FloatArray,
    neighbours: int = NEIGHBOURS,
) -> FloatArray:
    """Return the effective number of independent counts per bin [B]: counts over `dispersion`.

    Lanes cannot differ in a bin that holds nearly all moves of a rung. If it holds more than
    `LARGE_SHARE` of them, its counts are worth at most one each `apart_k` moves.

    Parameters
    ----------
    counts_gb, size_g : counts of groups of lanes, int64 [G, B], and their sizes [G]
    counts_kb, moves_k : counts of rungs, int64 [K, B], and their moves, int64 [K]
    apart_k : float64 [K], moves between two independent values of z
    """
    spread_b = dispersion(counts_gb, size_g, neighbours)
    most_kb = counts_kb > LARGE_SHARE * moves_k[:, None]
    apart_kb = np.where(most_kb, np.maximum(spread_b, apart_k[:, None]), spread_b)
    return np.asarray((counts_kb / apart_kb).sum(axis=0))


def dispersion(counts_gb: IntArray, size_g: IntArray, neighbours: int = NEIGHBOURS) -> FloatArray:
    """Return the variance of counts between groups of lanes over that of independent counts [B].

    This is Pearson's chi-square of the groups' shares over its degrees of freedom, averaged over
    some bins on either side with the counts as weights, and at least 1. Rarely visited bins need
    their neighbours: a few correlated counts look like as many independent visits.
    """
    count_b = counts_gb.sum(axis=0)
    expected_gb = np.outer(size_g / size_g.sum(), count_b)
    with np.errstate(divide="ignore", invalid="ignore"):
        chi_b = ((counts_gb - expected_gb) ** 2 / expected_gb).sum(axis=0) / (len(size_g) - 1)
    weighted = np.where(count_b > 0, chi_b * count_b, 0.0)
    window = np.ones(2 * neighbours + 1)
    padded = np.zeros((2, len(count_b) + 2 * neighbours))  # np.pad takes longer than all else
    padded[:, neighbours : neighbours + len(count_b)] = weighted, count_b
    top, bottom = (np.convolve(row, window, mode="valid") for row in padded)
    return np.asarray(np.maximum(1.0, top / np.maximum(bottom, 1.0)))
