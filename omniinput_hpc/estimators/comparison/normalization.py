"""Normalize two models' densities so that they can be compared.

The density of a run without beta = 0 is known only up to a constant factor. Let log g_A and log g_B
be known up to c_A and c_B. A *shift* is an estimate of c_A - c_B: added to log g_B, it brings it to
the scale of log g_A. There are four estimates:

- Cross-model (OmniInput, Liu et al., TMLR 2025, Eq. 5 and 6): X is the set of inputs that both
  models put in Z = [z-, z+]. Run A estimates its size in units of exp(c_A), run B in units of
  exp(c_B), so that shift = ln |X|_A - ln |X|_B, and H(z) / |X| is comparable between the models.
  Samples from a ladder are not uniform over the inputs: in both H and |X| each sample counts by
  w = 1 / sum_k N_k exp(f_k - beta_k z); an input that was sampled twice counts twice.
- Bennett's acceptance ratio (J. Comput. Phys. 22, 245 (1976), Eq. 12) between the mixtures of
  rungs M(x) = sum_k N_k exp(f_k - beta_k z(x)) of both runs, over all samples of both.
- Absolute: if both densities are, as with beta = 0 on both ladders, c_A = c_B = 0.
- Entire distribution (the same paper, section 2.3): the area of each is 1.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import scipy

from omniinput_hpc.estimators import EstimateError, FloatArray, IntArray
from omniinput_hpc.estimators.comparison.input_counts import (
    Common,
    Pairs,
    count_common,
    log_count_in,
    log_mean_mixture,
)
from omniinput_hpc.estimators.density.density import Density
from omniinput_hpc.estimators.density.result import least_errors
from omniinput_hpc.estimators.errors.jackknife import (
    Interval,
    Replicates,
    estimate,
    from_first_run,
    from_second_run,
)

CROSS, BENNETT, ABSOLUTE = "cross-model (Eq. 5, 6)", "Bennett's ratio", "absolute"
ENTIRE = "entire distribution (area 1)"
BEST_FIRST = (ABSOLUTE, BENNETT, CROSS, ENTIRE)
"""The order in which normalizations are chosen, as by `compare`; the papers' is to compare with."""


def _mixture_change(density: Density, j: int) -> Callable[[FloatArray], FloatArray]:
    """Return the change of ln M without lane group j as a function of z, linear between bins."""
    bins = np.flatnonzero(density.count_b)
    z_b, part = density.z_b[bins], density.n_k > 0
    assert density.rung_weights is not None  # see pairs_of
    weights, some = density.rung_weights, np.ix_(part, bins)
    # the replicate's free energies follow from its density: exp(-f_k) = sum_b g_b w_kb
    mean_kb = weights.mean_in_bins(density.inside)[some]
    f_k = -scipy.special.logsumexp(density.log_g_jb[j, bins] + mean_kb, axis=1)
    log_nf_k = np.log(density.n_k[part].astype(np.float64)) + f_k
    log_w_kb = weights.at_bins(density.z_b)[some]
    change_b = scipy.special.logsumexp(log_nf_k[:, None] + log_w_kb, axis=0) - density.log_mixture(
        z_b
    )
    return lambda z: np.asarray(np.interp(z, z_b, change_b))


def bennett_ratio(d_a: FloatArray, d_b: FloatArray, start: float | None = None) -> float:
    """Return ln(Z_A / Z_B) of two unnormalized distributions m_A, m_B from samples of both.

    Solves sum_{i in A} 1 / (1 + exp(d_i + L - c)) = sum_{j in B} 1 / (1 + exp(c - L - d_j)) with
    L = ln(n_A / n_B) for c (Bennett 1976, Eq. 12; Shirts et al., Phys. Rev. Lett. 91, 140601).

    Parameters
    ----------
    d_a, d_b : float64 [n_A], [n_B], ln m_A - ln m_B at the samples of each; +inf in d_a if
        m_B = 0, -inf in d_b if m_A = 0
    start : an approximate solution, which saves evaluations

    Raises
    ------
    EstimateError
        They do not overlap: no sample of one is possible under the other.
    """
    finite_a, finite_b = d_a[np.isfinite(d_a)], d_b[np.isfinite(d_b)]
    if not (finite_a.size and finite_b.size):
        raise EstimateError("no sample of one run lies inside the bins of the other model")
    offset = np.log(len(d_a) / len(d_b))

    def balance(c: float) -> float:
        """Return the left side minus the right side, which grows with c."""
        return float(
            scipy.special.expit(c - offset - finite_a).sum()
            - scipy.special.expit(offset + finite_b - c).sum()
        )

    low = min(finite_a.min(), finite_b.min()) + offset - 40.0
    high = max(finite_a.max(), finite_b.max()) + offset + 40.0
    if start is not None and balance(start - 1.0) < 0.0 < balance(start + 1.0):
        low, high = start - 1.0, start + 1.0

    return float(scipy.optimize.brentq(balance, low, high, xtol=1e-11))


def _known_replicates(density: Density) -> IntArray:
    """Return the lane groups that can be left out, int64; none if there is only one group."""
    known_j = np.isfinite(density.log_g_jb[:, density.count_b > 0]).any(axis=1)
    return np.flatnonzero(known_j & (len(density.lanes_g) > 1))


def bennett_shift(a: Density, b: Density, pairs_a: Pairs, pairs_b: Pairs) -> Replicates:
    """Return the shift by `bennett_ratio` over all samples of both runs; raises as it does."""
    own_a, other_a = log_mean_mixture(a, pairs_a.own_i), log_mean_mixture(b, pairs_a.other_i)
    own_b, other_b = log_mean_mixture(b, pairs_b.own_i), log_mean_mixture(a, pairs_b.other_i)
    d_a, d_b = own_a - other_a, other_b - own_b
    c = bennett_ratio(d_a, d_b)
    # Z_A = exp(-c_A): see log_mean_mixture with f_k of absolute densities, which sum to 1.
    a_j, b_j = np.full(len(a.lanes_g), np.nan), np.full(len(b.lanes_g), np.nan)
    for j in _known_replicates(a):
        keep, change = pairs_a.group_i != j, _mixture_change(a, j)
        rest = (d_a + change(pairs_a.own_i))[keep]
        a_j[j] = -bennett_ratio(rest, d_b + change(pairs_b.other_i), c)
    for j in _known_replicates(b):
        keep, change = pairs_b.group_i != j, _mixture_change(b, j)
        rest = (d_b - change(pairs_b.own_i))[keep]
        b_j[j] = -bennett_ratio(d_a - change(pairs_a.other_i), rest, c)
    return Replicates(np.asarray(-c), a_j, b_j)


def absolute_shift(a: Density, b: Density) -> Replicates:
    """Return the shift of two absolute densities: 0, without error; else raise EstimateError."""
    for density, name in ((a, "first"), (b, "second")):
        if not density.absolute:
            raise EstimateError(f"the {name} run has no moves at beta = 0 inside its bins")
    return Replicates(np.asarray(0.0), np.zeros(len(a.lanes_g)), np.zeros(len(b.lanes_g)))


def entire_shift(a: Density, b: Density) -> Replicates:
    """Return the shift that makes both areas 1; EstimateError with the reason if one cannot be."""
    for density, name in ((a, "first"), (b, "second")):
        reason = why_not_entire(density)
        if reason is not None:
            raise EstimateError(f"the {name} run does not cover the entire distribution: {reason}")
    total_a = from_first_run(
        scipy.special.logsumexp(a.log_g_b),
        scipy.special.logsumexp(a.log_g_jb, axis=1),
        len(b.lanes_g),
    )
    total_b = from_second_run(
        scipy.special.logsumexp(b.log_g_b),
        scipy.special.logsumexp(b.log_g_jb, axis=1),
        len(a.lanes_g),
    )
    return total_a - total_b


def why_not_entire(density: Density) -> str | None:
    """Return why a density's area must not be set to 1; None if it may.

    Counts outside the bins are inputs that the area lacks. If beta = 0 is not between the ladder's
    ends, the bulk of the inputs lies beyond the sampled range, where log g still rises.
    """
    outside = int(density.outside_k2.sum())
    if outside:
        uniform_k = density.beta_k == 0.0
        if uniform_k.any() and density.share_inside < 1.0:
            return f"{1.0 - density.share_inside:.3g} of all inputs lie outside the bins"
        share = outside / (outside + int(density.count_b.sum()))
        return f"{share:.3g} of the moves of all rungs fell outside the bins"
    if np.isnan(density.beta_k).any() and not (density.beta_k == 0.0).any():
        return "flat-histogram rungs do not show what lies outside their windows (no beta = 0)"
    if density.beta_k.min() > 0 or density.beta_k.max() < 0:
        high = density.beta_k.min() > 0
        filled = np.flatnonzero(density.count_b)
        last = filled[-1] if high else filled[0]
        share = float(np.exp(density.log_g_b[last] - scipy.special.logsumexp(density.log_g_b)))
        return (
            f"the {'high' if high else 'low'} tail was not reached (no beta "
            f"{'<=' if high else '>='} 0): its last bin, {density.edges[last]:g} to "
            f"{density.edges[last + 1]:g}, holds {share:.3g} of the area"
        )
    return None


def shifted_errors(a: Density, b: Density, shift: Replicates) -> FloatArray:
    """Return the standard errors of b's log_g plus the shift, float64 [B]; inf if unknown."""
    error_b = np.array(b.log_g_error_b)
    bins = np.flatnonzero(np.isfinite(error_b))
    log_g, log_g_j = b.log_g_b[bins], b.log_g_jb[:, bins]
    moved = Replicates(
        log_g + shift.value, log_g + shift.a_j[:, None], log_g_j + shift.b_j[:, None]
    )
    least = least_errors(b, b.effective_b)[bins]
    error_b[bins] = np.maximum(estimate(moved, a.lanes_g, b.lanes_g).error, least)
    return error_b


@dataclass(frozen=True)
class Row:
    """One normalization.

    Attributes
    ----------
    shift : Replicates, to be added to the second log_g; None if refused
    ratio : Interval, ln of (inputs of the first model in Z / those of the second); None if refused
    refused : why it was refused; "" if it was not
    """

    name: str
    shift: Replicates | None
    ratio: Interval | None
    refused: str


@dataclass(frozen=True)
class Normalizations:
    """The results of `normalize`.

    Attributes
    ----------
    low, high : float, Z
    common : inputs that both models put in Z; None if the runs have none
    log_count_a, log_count_b : Replicates, ln of the number of inputs in Z, in each run's own units
    differences : (name, name, Interval): differences of ln ratios between pairs of normalizations
    """

    low: float
    high: float
    rows: tuple[Row, ...]
    common: Common | None
    log_count_a: Replicates
    log_count_b: Replicates
    differences: tuple[tuple[str, str, Interval], ...]

    def best(self) -> Row:
        """Return the normalization to report: see `BEST_FIRST`; EstimateError if all are refused.

        Not that of the smallest error: a ratio's error is not the shift's.
        """
        usable = [row for row in self.rows if row.ratio is not None]
        if not usable:
            reasons = "; ".join(f"{row.name}: {row.refused}" for row in self.rows)
            raise EstimateError(f"the models cannot be normalized: {reasons}")
        return min(usable, key=lambda row: BEST_FIRST.index(row.name))


def normalize(
    a: Density, b: Density, pairs_a: Pairs, pairs_b: Pairs, low: float, high: float
) -> Normalizations:
    """Normalize two models' densities in every way that their runs permit, for Z = [low, high].

    Raises
    ------
    EstimateError
        A model has no counts in Z, or low >= high.
    """
    if not low < high:
        raise EstimateError(f"--range {low:g} {high:g}: the first must be below the second")
    own_a = from_first_run(*log_count_in(a, pairs_a, low, high), len(b.lanes_g))
    own_b = from_second_run(*log_count_in(b, pairs_b, low, high), len(a.lanes_g))
    common: list[Common] = []

    def cross() -> Replicates:
        common.append(count_common(a, b, pairs_a, pairs_b, low, high))
        return common[0].shift

    ways: list[tuple[str, Callable[[], Replicates]]] = [
        (CROSS, cross),
        (BENNETT, lambda: bennett_shift(a, b, pairs_a, pairs_b)),
        (ABSOLUTE, lambda: absolute_shift(a, b)),
        (ENTIRE, lambda: entire_shift(a, b)),
    ]
    rows, ratios = [], {}
    for name, way in ways:
        try:
            shift = way()
        except EstimateError as error:
            rows.append(Row(name, None, None, str(error)))
            continue
        ratios[name] = own_a - own_b - shift
        rows.append(Row(name, shift, estimate(ratios[name], a.lanes_g, b.lanes_g), ""))
    names = [name for name in ratios if name != ENTIRE]
    differences = tuple(
        (one, other, estimate(ratios[one] - ratios[other], a.lanes_g, b.lanes_g))
        for i, one in enumerate(names)
        for other in names[i + 1 :]
    )
    return Normalizations(
        low, high, tuple(rows), common[0] if common else None, own_a, own_b, differences
    )
