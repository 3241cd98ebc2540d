"""Compare a sampled result with exact values in the same bins."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy

from omniinput_hpc.estimators import EstimateError, FloatArray, IntArray
from omniinput_hpc.estimators.density.density import MIN_EFFECTIVE_COUNT, Density
from omniinput_hpc.estimators.density.wide_bins import spans_of
from omniinput_hpc.estimators.errors.convergence import LEAST_ERROR
from omniinput_hpc.estimators.precision_recall import curves
from omniinput_hpc.estimators.precision_recall.curves import Curve, Side
from omniinput_hpc.text import range_words, shown

MIN_TRUE_INPUTS = 1_000  # fewest inputs in a bin, or accepted at a threshold, for a comparison
LARGE_SPACE = 1_000_000
"""In a space with at least this many inputs inside the bins, bins with few inputs are skipped."""
ANOTHER_MODEL = 10  # rms z-score above which the exact file is probably of another model


@dataclass(frozen=True)
class Exact:
    """Exact values in the bins of a run.

    Attributes
    ----------
    log_g_b : float64 [B], -inf where no input lies in the bin
    r_b : float64 [B], exact mean score; NaN if not defined, or if the file has no column r
    """

    log_g_b: FloatArray
    r_b: FloatArray


@dataclass(frozen=True)
class Comparison:
    """How a sampled density differs from the exact one, over bins with at least ``fewest`` inputs.

    Attributes
    ----------
    fewest : 0 for all bins that are not empty
    n_bins : bins that both have
    n_missing : bins with inputs that have no counts
    largest_delta : largest abs(log_g - exact)
    rms_z : root mean square of (log_g - exact) / error, over bins whose error is known
    largest_error : largest standard error of log_g
    chi_square : mean of ((log_g - exact) / error)^2 over bins with an interval (at least 50
        effective counts): chi-square per bin
    expected, spread : mean and standard deviation of chi_square if the errors are right, with the
        correlations between bins taken into account; NaN if there are too few lane groups
    n_independent : effective number of independent bins among these
    """

    fewest: float
    n_bins: int
    n_missing: int
    largest_delta: float
    rms_z: float
    largest_error: float
    chi_square: float
    expected: float
    spread: float
    n_independent: float

    def __str__(self) -> str:
        """Return one line."""
        truth = f"truth >= {self.fewest:,.0f} inputs" if self.fewest else "truth above 0"
        if not self.n_bins + self.n_missing:
            return f"{truth}: no such bin"
        missing = f", {self.n_missing} bins missed" if self.n_missing else ""
        doubt = f"; more than {ANOTHER_MODEL} errors apart: is the exact file of this run's model?"
        doubt *= self.rms_z > ANOTHER_MODEL
        return (
            f"{truth}: {self.n_bins} bins compared{missing}, largest "
            f"|delta log_g| {shown(self.largest_delta, '.4f')}, rms z-score "
            f"{shown(self.rms_z, '.3f')}, largest standard error "
            f"{shown(self.largest_error, '.4f')}; {self._chi_square()}{doubt}"
        )

    def _chi_square(self) -> str:
        """Return the end of that line."""
        found = shown(self.chi_square, ".2f")
        if not np.isfinite(self.expected):
            return f"chi-square per bin {found}, expected: not known from so few lanes"
        return (
            f"chi-square per bin {found}, expected {self.expected:.2f} +- "
            f"{shown(self.spread, '.2f')} (errors of bins are correlated: worth "
            f"{shown(self.n_independent, '.0f')} independent bins)"
        )


def coarsen_exact(exact: Exact, fine: FloatArray, edges: FloatArray) -> Exact:
    """Return exact values in wider bins."""
    spans = spans_of(fine, edges)
    with np.errstate(divide="ignore", invalid="ignore"):
        log_right_b = np.where(
            np.isfinite(exact.log_g_b), exact.log_g_b + np.log(exact.r_b), -np.inf
        )
        log_g_b = np.array([scipy.special.logsumexp(exact.log_g_b[s]) for s in spans])
        r_b = np.exp(np.array([scipy.special.logsumexp(log_right_b[s]) for s in spans]) - log_g_b)
    return Exact(log_g_b, r_b)


def offset(density: Density, exact: Exact) -> float:
    """Return the constant that brings a relative log_g to the exact scale (0 if absolute).

    It is the mean difference over the bins, weighted by 1 / error^2.
    """
    if density.absolute:
        return 0.0
    error = density.log_g_error_b
    use = np.isfinite(density.log_g_b) & np.isfinite(exact.log_g_b)
    known = use & np.isfinite(error) & (error > 0)
    if not use.any():
        raise EstimateError("the run and the exact file have no bin in common")
    weight = 1.0 / error[known] ** 2 if known.any() else np.ones(int(use.sum()))
    chosen = known if known.any() else use
    return float(np.average(exact.log_g_b[chosen] - density.log_g_b[chosen], weights=weight))


def compared_densities(density: Density, exact: Exact) -> list[Comparison]:
    """Compare over the bins with many inputs; in a small space or under a law over all bins."""
    if density.measure == "probability":
        return [compare_density(density, exact, 0)]
    small = scipy.special.logsumexp(exact.log_g_b) < np.log(LARGE_SPACE)
    fewest = (10_000, MIN_TRUE_INPUTS, *([1] if small else []))
    return [compare_density(density, exact, n) for n in fewest]


def compare_density(density: Density, exact: Exact, fewest: float) -> Comparison:
    """Compare over the bins that truly hold at least ``fewest`` inputs."""
    wanted = np.isfinite(exact.log_g_b) & (exact.log_g_b >= _least_log_g(fewest))
    both = wanted & np.isfinite(density.log_g_b)
    delta = density.log_g_b[both] + offset(density, exact) - exact.log_g_b[both]
    error = density.log_g_error_b[both]
    known = np.isfinite(error) & (error > 0)
    score = delta[known] / np.maximum(error[known], LEAST_ERROR)
    rms = np.sqrt(np.mean(score**2)) if known.any() else np.nan
    firm = (density.effective_b[both] >= MIN_EFFECTIVE_COUNT)[known]
    n_independent = independent_bins(density, np.flatnonzero(both)[known][firm])
    expected, spread = _chi_square_moments(len(density.lanes_g), n_independent)
    return Comparison(
        fewest,
        int(both.sum()),
        int((wanted & ~both).sum()),
        float(np.abs(delta).max()) if both.any() else np.nan,
        float(rms),
        float(error.max()) if both.any() else np.nan,
        float(np.mean(score[firm] ** 2)) if firm.any() else np.nan,
        expected,
        spread,
        n_independent,
    )


def _least_log_g(fewest: float) -> float:
    return float(np.log(fewest)) - 1e-9 if fewest else -np.inf


def independent_bins(density: Density, bins: IntArray) -> float:
    """Return the effective number of independent bins, B^2 / sum_bc rho_bc^2.

    rho_bc is the correlation of log_g between bins over the J replicates. By chance alone its
    square averages 1 / (J - 1), which is subtracted. (A full chi-square would need the inverse of
    the covariance of the bins, which J replicates do not determine.)
    """
    theta_jb = density.log_g_jb[:, bins]
    n_groups = len(theta_jb)
    if n_groups < 3 or not len(bins) or not np.isfinite(theta_jb).all():
        return np.nan
    theta_jb = theta_jb - theta_jb.mean(axis=0)
    length_b = np.sqrt((theta_jb**2).sum(axis=0))
    vary = length_b > LEAST_ERROR  # the other bins are known up to rounding
    if not vary.any():
        return np.nan
    theta_jb = theta_jb[:, vary] / length_b[vary]
    squares = float(np.sum((theta_jb @ theta_jb.T) ** 2))  # = sum over pairs of bins of r^2
    n, chance = int(vary.sum()), 1.0 / (n_groups - 1)
    pairs = max(0.0, (squares - n - n * (n - 1) * chance) / (1.0 - chance))
    return n * n / (n + pairs)


def _chi_square_moments(n_groups: int, n_independent: float) -> tuple[float, float]:
    """Return mean and sd of the mean of n_independent squares of Student's t, G - 1 degrees."""
    nu = n_groups - 1
    if nu < 5:
        return np.nan, np.nan
    variance = 2.0 * nu**2 * (nu - 1) / ((nu - 2) ** 2 * (nu - 4))
    return nu / (nu - 2), float(np.sqrt(variance / n_independent))


@dataclass(frozen=True)
class Coverage:
    """How sampled values with 95% bands differ from exact ones.

    Attributes
    ----------
    n : number of values compared
    largest : largest abs(sampled - exact)
    held : share of the bands that contain the exact value
    """

    n: int
    largest: float
    held: float

    def __str__(self) -> str:
        """Return a part of a line."""
        if not self.n:
            return "none to compare"
        return (
            f"largest difference {self.largest:.4f}, {self.held:.1%} of {self.n} bands contain it"
        )


def coverage(value: FloatArray, low: FloatArray, high: FloatArray, exact: FloatArray) -> Coverage:
    """Compare the finite values of [n] with exact ones, up to rounding."""
    known = np.isfinite(value) & np.isfinite(exact)
    if not known.any():
        return Coverage(0, np.nan, np.nan)
    near = 1e-9 * np.maximum(1.0, np.abs(exact))
    held = (low - near <= exact) & (exact <= high + near)
    largest = float(np.abs(value - exact)[known].max())
    return Coverage(int(known.sum()), largest, float(held[known].mean()))


@dataclass(frozen=True)
class ExactCurve:
    """The exact precision-recall curve and the sampled one's distance from it.

    Attributes
    ----------
    precision_t, log_recall_t : float64 [T], without inputs that the sampled curve leaves out
    aupr : float, of all inputs, between the exact curve's own ends
    lower, upper : float, the range of log recall that both curves cover (NaN if none)
    aupr_common, sampled_common : float, both curves' AUPR over that range, without those inputs
    all_count : whether the sampled curve leaves out none
    r : Coverage, of bins that truly hold `fewest` inputs or more and have 50 effective counts
    precision, log_recall : Coverage, at thresholds that truly accept `fewest` inputs or more
    fewest : 1,000; 0 under a law
    """

    precision_t: FloatArray
    log_recall_t: FloatArray
    aupr: float
    lower: float
    upper: float
    aupr_common: float
    sampled_common: float
    all_count: bool
    r: Coverage
    precision: Coverage
    log_recall: Coverage
    fewest: int = MIN_TRUE_INPUTS

    def __str__(self) -> str:
        """Return the lines."""
        few = f" where {self.fewest:,} or more are accepted" if self.fewest else ""
        bins = f" in bins of {self.fewest:,} inputs or more" if self.fewest else ""
        return (
            f"against the truth, r(z){bins}: {self.r}\n"
            f"precision{few}: {self.precision}\n"
            f"ln recall there: {self.log_recall}\n"
            f"exact AUPR{'' if self.all_count else ' of all inputs'} "
            f"{shown(self.aupr, '.6f', 'not defined')}; {self._common()}"
        )

    def _common(self) -> str:
        """Return a text on both curves' AUPRs over their common range."""
        difference = self.sampled_common - self.aupr_common
        if not np.isfinite(difference):
            return "the curves have no common range of recall"
        counted = "" if self.all_count else "of the inputs that the sampled curve counts, "
        return (
            f"{counted}over the common range of recall {range_words((self.lower, self.upper))}: "
            f"exact {self.aupr_common:.6f}, sampled {self.sampled_common:.6f}, difference "
            f"{difference:+.6f}"
        )


def compare_curve(density: Density, curve: Curve, exact: Exact, side: Side) -> ExactCurve:
    """Return the exact curve, and both AUPRs over the common range of log recall.

    A sampled curve of a relative density is first shifted by `offset`.
    """
    some_b, counted_b = np.isfinite(exact.log_g_b), np.zeros(len(exact.log_g_b), dtype=bool)
    counted_b[curve.bin_t], last = True, curve.bin_t[-1]
    beyond_b = np.arange(len(some_b)) > last if side == "low" else np.arange(len(some_b)) < last
    every, true = (
        curves.accumulate(exact.log_g_b[use_b], exact.r_b[use_b], side)
        for use_b in (some_b, some_b & (counted_b | beyond_b))
    )
    sampled = (curve.precision_t, curve.log_recall_t + offset(density, exact))
    ends = curves.common_range(curves.curve_range(*true), curves.curve_range(*sampled))
    areas = curves.area(*every), *ends, curves.area(*true, *ends), curves.area(*sampled, *ends)
    all_count = len(every[0]) == len(true[0])
    fewest = MIN_TRUE_INPUTS if density.measure == "count" else 0
    return ExactCurve(
        *true, *areas, all_count, *_coverages(density, curve, exact, side, fewest), fewest
    )


def _coverages(
    density: Density, curve: Curve, exact: Exact, side: Side, fewest: int
) -> tuple[Coverage, Coverage, Coverage]:
    """Compare r per bin, and precision and log recall per threshold, with the exact ones."""
    least = _least_log_g(fewest)
    firm = (exact.log_g_b >= least) & (density.effective_b >= MIN_EFFECTIVE_COUNT)
    r = [v[firm] for v in (curve.r_b, curve.r_low_b, curve.r_high_b, exact.r_b)]

    order = curves.counting_order(side)
    empty = np.isneginf(exact.log_g_b)
    precision_b, log_recall_b = curves.accumulate(
        exact.log_g_b, np.where(empty, 0.0, exact.r_b), side
    )
    log_all_b = np.logaddexp.accumulate(exact.log_g_b[order])
    at = curve.bin_t if side == "low" else len(empty) - 1 - curve.bin_t
    many = log_all_b[at] >= least
    shift = offset(density, exact)
    ends = (curve.trace, curve.bands.low, curve.bands.high)
    p = [*(values.precision_t for values in ends), precision_b[at]]
    x = [*(values.log_recall_t + shift for values in ends), log_recall_b[at]]
    return coverage(*r), coverage(*(v[many] for v in p)), coverage(*(v[many] for v in x))
