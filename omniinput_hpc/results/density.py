"""A density as people and files get it: printed lines, columns, and its part of the record."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from omniinput_hpc.estimators import FloatArray
from omniinput_hpc.estimators.density.certified import Certified, predicted_sites
from omniinput_hpc.estimators.density.density import MIN_EFFECTIVE_COUNT, Density
from omniinput_hpc.estimators.density.draw_constants import constants_apart
from omniinput_hpc.estimators.density.known_ratio import Ends, exact_difference
from omniinput_hpc.estimators.density.mbar import free_energy_errors, mbar, read_samples
from omniinput_hpc.estimators.errors.convergence import MAX_BLOCKS, Check
from omniinput_hpc.estimators.errors.jackknife import t_quantile
from omniinput_hpc.estimators.populations import constants_of, is_annealed
from omniinput_hpc.estimators.run_data import RunData
from omniinput_hpc.text import shown


def describe_density(density: Density, source: str) -> list[str]:
    """Return the lines that describe a density and its errors."""
    verdict, n_groups = density.verdict, len(density.lanes_g)
    bounded = int(np.isfinite(density.log_g_upper_b).sum())
    if density.absolute:
        lines = [
            f"absolute: yes (the space holds exp({density.log_inputs:.10g}) inputs; "
            "share of the beta = 0 rung's moves inside the bins: "
            f"{density.share_inside:.6g})"
        ]
    else:
        why = "no rung has beta = 0"
        if not np.isnan(density.share_inside):
            why = "all moves of the beta = 0 rung fell outside the bins"
        lines = [f"absolute: no ({why}); log_g is relative: the sum of exp(log_g) is 1"]
    lines += verdict_lines(density)
    blocks = f"{verdict.n_blocks} blocks of rounds" if verdict.n_blocks else "no blocks"
    lines += [
        f"errors: one standard error, jackknife over {n_groups} groups of lanes; Student's t has "
        f"{n_groups - 1} degrees of freedom; inf if only one group visited the bin",
        f"log_g_upper: 95% upper bound of log_g in the {bounded} bins with fewer than "
        f"{MIN_EFFECTIVE_COUNT:.0f} effective counts, whose log_g_error is not reliable; nan "
        "elsewhere, and in all bins of a run that has not converged, whose log_g_error is only the "
        "spread of its lanes",
        f"checked against: {blocks} (at most {MAX_BLOCKS}), median ratio of the errors "
        f"{verdict.ratio:.3g} over {verdict.n_bins} bins",
        f"source: {source}",
    ]
    return lines


def summarize_density(density: Density) -> list[str]:
    """Return the lines that are printed."""
    filled = density.count_b > 0
    bounded_b = np.isfinite(density.log_g_upper_b)
    error = density.log_g_error_b[filled & ~bounded_b]
    known = np.isfinite(error)
    lines = [
        f"{filled.sum()} of {len(filled)} bins have counts, {density.count_b.sum():,} in all; "
        f"{density.outside_k2[:, 0].sum():,} moves below the bins, "
        f"{density.outside_k2[:, 1].sum():,} above"
    ]
    if density.absolute:
        lines.append(
            "log_g is absolute: ln of the number of inputs per bin, "
            f"ln(all inputs inside the bins) = {logsumexp(density.log_g_b):.6f}"
        )
    else:
        lines.append("log_g is relative: no moves at beta = 0 inside the bins")
    if known.any():
        lines.append(
            f"standard error of log_g: median {np.median(error[known]):.4f}, largest "
            f"{error[known].max():.4f}; not known in {(~known).sum()} bins"
        )
    if bounded_b.any():
        lines.append(
            f"{bounded_b.sum()} further bins have fewer than {MIN_EFFECTIVE_COUNT:.0f} effective "
            "counts: use their upper bounds, not their errors"
        )
    if not density.verdict.converged:
        lines.append("these errors are only the spread of the lanes: the run has not converged")
    return lines + verdict_lines(density)


VISITED = "for visited inputs only:"
"""Beginning of the line that says which inputs the verdict "converged" cannot cover."""


def verdict_lines(density: Density) -> list[str]:
    """Return the verdict as text, a line per reason."""
    if density.verdict.converged:
        return ["converged: yes", f"{VISITED} no check can see inputs that no walker came near"]
    return ["converged: no"] + [f"not converged: {reason}" for reason in density.verdict.reasons]


CHECKS = ("check", "found", "limit", "")
"""Names of the columns of `check_rows`."""


def check_rows(checks: Sequence[Check]) -> list[list[str]]:
    """Return a row of text for each check of a verdict: name, found, limit, and if it failed."""
    rows = []
    for one in checks:
        found, limit = (shown(number, ".3g", "-") for number in (one.value, one.threshold))
        rows.append([one.name, found, limit, "" if one.passed else "FAILED"])
    return rows


def check_lines(checks: Sequence[Check]) -> list[str]:
    """Return the checks of a verdict as a table for the terminal."""
    rows = [list(CHECKS), *check_rows(checks)]
    return [f"{row[0]:44s}{row[1]:>10}{row[2]:>10}  {row[3]}".rstrip() for row in rows]


def density_columns(density: Density) -> dict[str, NDArray]:
    """Return the columns of the density file: a row per bin that has counts.

    log_g_upper is NaN if log_g and its error give an interval, and a number if they do not.
    """
    bins = np.flatnonzero(density.count_b)
    return {
        "z_lower": density.edges[bins],
        "z_upper": density.edges[bins + 1],
        "log_g": density.log_g_b[bins],
        "log_g_error": density.log_g_error_b[bins],
        "count": density.count_b[bins],
        "effective_count": density.effective_b[bins],
        "log_g_upper": density.log_g_upper_b[bins],
    }


def constants_lines(ends: Ends | None, pinned: bool) -> list[str]:
    """Return a line that compares a run's constants with the exact ones; none if unknown."""
    if ends is None:
        return []
    interval = t_quantile(ends.n_groups) * ends.error
    within = "inside" if abs(ends.value - ends.exact) <= interval else "NOT inside"
    used = "; the density is scaled at both ends" if pinned else ""
    return [
        f"log Z(0) - log Z({ends.beta:g}) = {ends.value:.4f}, 95% interval +- "
        f"{shown(interval, '.4f', '(not known)')}; "
        f"exact {ends.beta:g} ln {ends.n_values} = {ends.exact:.4f}, {within} the interval{used}"
    ]


def draw_constants_lines(run: RunData) -> list[str]:
    """Return a line on an ancestral run's known constants; none if they are unknown.

    Nor is there a line if the ladder does not reach both beta = 0 and beta = m: draws of other
    rungs say next to nothing about that constant, and their errors are too small.
    """
    of_one = exact_difference(run, 1.0)  # of one predicted site
    drawn = run.ancestral and not is_annealed(run)
    if run.rounds == 0 or not drawn or not np.isfinite(of_one):
        return []
    m = float(predicted_sites(run))
    if run.beta_k.min() > 0.0 or run.beta_k.max() < m:
        return []
    exact = m * of_one
    value, error, n_groups = constants_apart(run, m)
    interval = t_quantile(n_groups) * error
    within = "inside" if abs(value - exact) <= interval else "NOT inside"
    return [
        f"by the draws, without bins: log Z(0) - log Z({m:g}) = {value:.4f}, 95% interval "
        f"+- {shown(interval, '.4f', '(not known)')}; exact {m:g} ln {run.n_values} = "
        f"{exact:.4f}, {within} the interval"
    ]


def populations_lines(run: RunData) -> list[str]:
    """Return lines with Z and its error on each rung of an annealed run; none for other runs."""
    if not is_annealed(run):
        return []
    found = constants_of(run)
    n = len(found.log_z_nk)
    return [
        f"beta = {beta:.6g}: ln Z = {log_z:.4f} +- {shown(error, '.4f', '(not known)')} (standard "
        f"error; {n:,} populations, {worth:.3g} effective)"
        for beta, log_z, error, worth in zip(
            run.beta_k, found.log_z_k, found.error_k, found.worth_k, strict=True
        )
    ]


def mbar_line(run: RunData, f_k: FloatArray) -> str:
    """Return a line that compares free energies f_k from bins with those from samples."""
    samples = read_samples(run)
    solution = mbar(samples)
    error_k = free_energy_errors(samples, solution)
    delta_k = np.abs((f_k - f_k[0]) - (solution.f_k - solution.f_k[0]))
    known = np.isfinite(error_k) & (error_k > 0)
    sigmas = f"{(delta_k[known] / error_k[known]).max():.2f}" if known.any() else "unknown"
    return (
        f"MBAR on {samples.n_gk.sum():,} recorded samples, without bins: free energies differ from "
        f"those of the bins by at most {delta_k.max():.2e} nats, {sigmas} standard errors"
    )


def other_bins_clause(run: RunData) -> str:
    """Return a clause that compares the number of recorded samples with that of counts."""
    moves, recorded = run.moves_k.sum(), run.samples_per_round * len(run.beta_k) * run.rounds
    return (
        f"in other bins, from only its {recorded:,} recorded samples: one in "
        f"{moves / max(recorded, 1):.3g} of its counts, so errors are larger"
    )


def certified_columns(found: Certified) -> dict[str, NDArray]:
    """Return the columns of RUN.certified.csv: a row per threshold."""
    return {
        "z": found.z_t,
        "log_inputs": found.log_n_t,
        "log_inputs_low": found.low_t,
        "log_inputs_high": found.high_t,
        "exact": found.exact_t.astype(np.int64),
    }


def describe_certified(found: Certified) -> list[str]:
    """Return lines that explain certified bounds; the first one is also printed."""
    return [
        "certified: each pair of bounds on the number of inputs with outputs up to z holds with "
        f"95% probability, from {found.n_groups:,} groups of independent draws, assuming only that "
        "the model's conditional probabilities add up to at most 1",
        "log_inputs: ln of the number, -inf if none was drawn; exact: 1 if a census lists all",
        f"z is below the draws' own loss by {found.apart:.2g} at most, which the bounds allow for",
    ]


def compare_certified(found: Certified, density: Density) -> list[str]:
    """Return a line on whether a density's numbers of inputs lie within certified bounds."""
    if not density.absolute:
        return []
    upto_b = np.logaddexp.accumulate(density.log_g_b)
    log_n_t = upto_b[np.searchsorted(density.edges[1:], found.z_t - 1e-9)]
    seen = np.isfinite(log_n_t)
    outside = seen & ((log_n_t < found.low_t) | (log_n_t > found.high_t))
    line = (
        f"the density is within these bounds at {(seen & ~outside).sum()} of {seen.sum()} "
        "thresholds"
    )
    if outside.any():
        z = found.z_t[outside]
        line += f"; it is not at z = {z[0]:.4g}" + (f" to {z[-1]:.4g}" if len(z) > 1 else "")
    return [line]
