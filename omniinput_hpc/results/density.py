"""A density: its columns, printed lines, part of the record, and picture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import scipy

from omniinput_hpc.config.output import Next
from omniinput_hpc.estimators import FloatArray
from omniinput_hpc.estimators.comparison.to_exact import Exact, compared_densities, offset
from omniinput_hpc.estimators.density.certified import predicted_sites
from omniinput_hpc.estimators.density.density import (
    MIN_EFFECTIVE_COUNT,
    Density,
    log_mean_exp,
)
from omniinput_hpc.estimators.density.draw_constants import constants_apart
from omniinput_hpc.estimators.density.known_ratio import Ends, exact_difference
from omniinput_hpc.estimators.density.mbar import free_energy_errors, mbar, read_samples
from omniinput_hpc.estimators.errors.convergence import MAX_BLOCKS, Check
from omniinput_hpc.estimators.errors.jackknife import Interval, t_quantile
from omniinput_hpc.estimators.populations import constants_of, is_annealed
from omniinput_hpc.estimators.run_data import RunData
from omniinput_hpc.results.canonical import CanonicalShare, share_lines
from omniinput_hpc.results.record import Record
from omniinput_hpc.results.result import Written
from omniinput_hpc.results.tables import Columns
from omniinput_hpc.text import shown, tens, tens_interval

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, repr=False)
class DensityResult(Written):
    """How many inputs have each output, or how probable they are: a row per bin with counts.

    Attributes
    ----------
    exact : exact values in the same bins, to compare with
    further : lines on other estimates from the same runs
    bins : name of bins other than the run's; "" for the run's own
    share : which share of the inputs is canonical, or why that is unknown; None: not asked
    remark : clause about such bins, for the source
    """

    NAME: ClassVar = "density"
    TITLE: ClassVar = "Density of"
    NOT_WRITTEN: ClassVar = frozenset({"z", "log_g_low", "log_g_high"})

    exact: Exact | None = None
    further: Sequence[str] = ()
    bins: str = ""
    remark: str = ""
    share: CanonicalShare | str | None = None

    @property
    def estimate(self) -> Density:
        """All bins, and the jackknife replicates."""
        return self.densities[0]

    @property
    def name(self) -> str:
        """The name of its files."""
        return f"{self.bins}.{self.NAME}" if self.bins else self.NAME

    @property
    def source(self) -> str:
        """The runs, their rounds, and their model."""
        return super().source + self.remark

    @property
    def checks(self) -> tuple[Check, ...]:
        """The checks of convergence: name, value, threshold, sentence and remedy of each."""
        return self.estimate.verdict.checks

    @property
    def absolute(self) -> bool:
        """Whether exp(log_g) is on the scale of the whole space; otherwise it sums to 1."""
        return self.estimate.absolute

    @property
    def measure(self) -> str:
        """What exp(log_g) is: a "count" of inputs, or a "probability" under the run's law."""
        return self.estimate.measure

    @property
    def z(self) -> FloatArray:
        """Mean output of each bin, float64 [n]."""
        return self._of(self.estimate.z_b)

    @property
    def log_g(self) -> FloatArray:
        """Natural log of the number of inputs, or probability, of each bin, float64 [n]."""
        return self._of(self.estimate.log_g_b)

    @property
    def log_g_error(self) -> FloatArray:
        """Standard error of log_g, float64 [n]; inf if unknown."""
        return self._of(self.estimate.log_g_error_b)

    def interval(self, level: float = 0.95) -> tuple[FloatArray, FloatArray]:
        """Return low and high ends of log_g's intervals, float64 [n] each; infinite if unknown.

        They are unreliable if `converged` is false, and in bins with few counts (see `log_g_upper`
        in the columns).
        """
        width = t_quantile(len(self.estimate.lanes_g), level) * self.log_g_error
        return self.log_g - width, self.log_g + width

    def _of(self, values_b: FloatArray) -> FloatArray:
        return values_b[self.estimate.count_b > 0]

    def columns(self) -> Columns:
        """Return the columns of RUN.density.csv, the mean output z, and log_g's 95 % interval.

        log_g_upper is NaN if log_g and its error give an interval, and a number if they do not.
        """
        density, (low, high) = self.estimate, self.interval()
        bins = np.flatnonzero(density.count_b)
        return {
            "z_lower": density.edges[bins],
            "z_upper": density.edges[bins + 1],
            "log_g": self.log_g,
            "log_g_error": self.log_g_error,
            "count": density.count_b[bins],
            "effective_count": density.effective_b[bins],
            "log_g_upper": density.log_g_upper_b[bins],
            "log10_g": self.log_g / np.log(10.0),
            "z": self.z,
            "log_g_low": low,
            "log_g_high": high,
        }

    def lines(self) -> list[str]:
        """Return what ``omniinput reweight`` prints."""
        lines = [self.source, *self.summary(), *self.more()]
        if self.exact is not None:
            lines += map(str, compared_densities(self.estimate, self.exact))
        return lines + check_lines(self.checks)

    def more(self) -> list[str]:
        """Return the numbers beside the summary: constants, targets, the canonical share."""
        constants = constants_lines(self.estimate.ends, self.estimate.pinned)
        return [*constants, *self._of_targets(), *self.further, *share_lines(self.share)]

    def _of_targets(self) -> list[str]:
        """Return how likely the targets of ``[output] name = "next"`` are under the run's law."""
        output, density = self.runs[0].config.output, self.estimate
        if not isinstance(output, Next) or density.measure != "probability":
            return []
        summed = output.aggregate == "sum" or len(output.targets) == 1
        if output.against or not summed or not density.absolute:
            return []
        found = log_mean_exp(density)
        ends = float(found.low), float(found.high)
        return [
            "probability that a target comes next, over all inputs of the law: "
            f"{tens(float(found.value), ends)}, {in_words(ends)}"
        ]

    def summary(self) -> list[str]:
        """Return the numbers and the verdict in words."""
        return self.numbers() + verdict_lines(self.estimate)

    def numbers(self) -> list[str]:
        """Return the summary without the verdict."""
        density, words = self.estimate, self.estimate.words
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
            seen = np.isfinite(density.share_inside) or density.whole == words.whole
            which = f"{words.whole} inside the bins" if seen else density.whole
            lines.append(
                f"log_g is absolute: ln of the {words.amount} per bin; {which}: "
                f"{tens(float(scipy.special.logsumexp(density.log_g_b)), digits=3)}"
            )
        else:
            lines.append("log_g is relative: no moves at beta = 0 inside the bins")
        if known.any():
            unknown = f"; not known in {(~known).sum()} bins" if not known.all() else ""
            lines.append(
                f"standard error of log_g: median {np.median(error[known]):.4f}, largest "
                f"{error[known].max():.4f}{unknown}"
            )
        if bounded_b.any():
            lines.append(
                f"{bounded_b.sum()} other bins have fewer than {MIN_EFFECTIVE_COUNT:.0f} effective "
                "counts: there, use the upper bound, log_g_upper of RUN.density.csv, not the error"
            )
        if not density.verdict.converged:
            lines.append("these errors are only the spread of the lanes: the run has not converged")
        return lines

    def about(self) -> list[str]:
        """Return the lines that describe the density and its errors."""
        density, verdict = self.estimate, self.estimate.verdict
        n_groups = len(density.lanes_g)
        bounded = int(np.isfinite(density.log_g_upper_b).sum())
        if density.absolute:
            whole = f"the space holds {tens(density.log_measure, digits=3)} inputs"
            if density.measure == "probability":
                whole = "log_g is ln of the probability under [law], 1 in the whole space"
            lines = [
                f"absolute: yes ({whole}; "
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
            f"errors: one standard error, jackknife over {n_groups} groups of lanes; Student's t "
            f"has {n_groups - 1} degrees of freedom; inf if only one group visited the bin",
            f"log_g_upper: 95% upper bound of log_g in the {bounded} bins with fewer than "
            f"{MIN_EFFECTIVE_COUNT:.0f} effective counts, whose log_g_error is not reliable; nan "
            "elsewhere, and in all bins of a run that has not converged, whose log_g_error is only "
            "the spread of its lanes",
            f"checked against: {blocks} (at most {MAX_BLOCKS}), median ratio of the errors "
            f"{verdict.ratio:.3g} over {verdict.n_bins} bins",
            f"source: {self.source}",
        ]
        return lines

    def record(self, into: Record) -> None:
        """Add the verdict, the numbers, and the canonical share."""
        super().record(into)
        if isinstance(self.share, CanonicalShare):
            self.share.record(into, self.names[0] if self.names else into.run_path.stem)

    def figure(self) -> Figure:
        """Return the density with its errors, or with its difference from the exact one."""
        from omniinput_hpc.plots.density import density_figure

        return density_figure(self.estimate, self.label, self.exact)


LOG_LARGE_SHARE = float(np.log(1e-3))
"""A share above this has an interval of its own beside the number's."""
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
        digits = 3
        while digits < 6 and one.value != one.threshold and _same(one, digits):
            digits += 1
        found = _number(one.value, "not tested" if one.passed else "not known", digits)
        if limit := _number(one.threshold, "", digits):
            limit = f"{'at least' if one.at_least else 'at most'} {limit}"
        rows.append([one.name, found, limit, "" if one.passed else "FAILED"])
    return rows


def _same(one: Check, digits: int) -> bool:
    return _number(one.value, "", digits) == _number(one.threshold, "", digits)


def _number(value: float, unknown: str, digits: int) -> str:
    return shown(value, f".{digits}g" if abs(value) < 1000 else f",.{digits - 3}f", unknown)


def check_lines(checks: Sequence[Check]) -> list[str]:
    """Return the checks of a verdict as a table for the terminal."""
    rows = [list(CHECKS), *check_rows(checks)]
    return [f"{row[0]:44s}{row[1]:>10}  {row[2]:18s}{row[3]}".rstrip() for row in rows]


def constants_lines(ends: Ends | None, pinned: bool) -> list[str]:
    """Return a line that compares a run's constants with the exact ones; none if unknown."""
    if ends is None:
        return []
    interval = t_quantile(ends.n_groups) * ends.error
    within = _within(ends.value - ends.exact, interval)
    used = "; the density is scaled at both ends" if pinned else ""
    return [
        f"log Z(0) - log Z({ends.beta:g}) = {ends.value:.4f}, 95% interval +- "
        f"{shown(interval, '.4f', '(not known)')}; "
        f"exact {ends.beta:g} ln {ends.n_values} = {ends.exact:.4f}{within}{used}"
    ]


def _within(apart: float, interval: float) -> str:
    """Return whether an exact value lies in an interval, as the end of a line; "" if unknown."""
    if not np.isfinite(interval):
        return ""
    return ", inside the interval" if abs(apart) <= interval else ", NOT inside the interval"


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
    within = _within(value - exact, interval)
    return [
        f"by the draws, without bins: log Z(0) - log Z({m:g}) = {value:.4f}, 95% interval "
        f"+- {shown(interval, '.4f', '(not known)')}; exact {m:g} ln {run.n_values} = "
        f"{exact:.4f}{within}"
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


def constants_of_run(run: RunData) -> list[str]:
    """Return lines on the normalization constants that a run's draws or populations give."""
    return populations_lines(run) + draw_constants_lines(run)


def mbar_line(run: RunData, f_k: FloatArray) -> str:
    """Return a line that compares free energies f_k from bins with those from samples."""
    samples = read_samples(run)
    solution = mbar(samples)
    error_k = free_energy_errors(samples, solution)
    inside_k = run.counts_kb.sum(axis=1)
    seen = np.flatnonzero(inside_k)
    f_k = f_k + np.log(np.maximum(inside_k, 1) / run.moves_k)  # of all outputs, as MBAR's are
    delta_k = np.abs((f_k - f_k[seen[0]]) - (solution.f_k - solution.f_k[seen[0]]))[seen]
    error_k = error_k[seen] if seen[0] == 0 else np.full(len(seen), np.nan)
    known = np.isfinite(error_k) & (error_k > 0)
    sigmas = f"{(delta_k[known] / error_k[known]).max():.2f}" if known.any() else "unknown"
    return (
        f"MBAR on {samples.n_gk.sum():,} recorded samples, without bins: free energies differ from "
        f"those of the bins by at most {delta_k.max():.2e} nats, {sigmas} standard errors"
    )


def total_line(
    density: Density, total: Interval, ends: Sequence[float], exact: Exact | None
) -> str:
    """Return a line with how many inputs, or which share, lie between two edges of bins."""
    words = density.words
    of = words.things if density.absolute else f"{words.share} in visited bins"
    interval = float(total.low), float(total.high)
    inside_b = (density.edges[:-1] >= ends[0]) & (density.edges[1:] <= ends[1])
    truth = ""
    if exact is not None:
        of_truth = float(scipy.special.logsumexp(exact.log_g_b[inside_b])) - offset(density, exact)
        truth = f"; exactly {tens(of_truth, interval)}"
    span, part = f"z from {ends[0]:.6g} to {ends[1]:.6g}", ""
    value = tens(float(total.value), interval)
    if density.absolute and density.measure == "count":
        low, high = interval[0] - density.log_measure, interval[1] - density.log_measure
        part = f", {tens(float(total.value) - density.log_measure, (low, high))} of all"
        part += f" ({tens_interval(low, high)})" if low > LOG_LARGE_SHARE else ""
    return f"{span}: {value} {of}{part}, {in_words(interval)}{truth}"


def in_words(interval: tuple[float, float]) -> str:
    """Return a 95 % interval, given by ln of its ends, in words."""
    known = np.isfinite(interval).any()
    return f"95% interval {tens_interval(*interval)}" if known else "interval not known"


def other_bins_clause(runs: Sequence[RunData]) -> str:
    """Return a clause that compares the runs' number of recorded samples with that of counts."""
    moves = sum(int(run.moves_k.sum()) for run in runs)
    recorded = sum(run.samples_per_round * len(run.beta_k) * run.rounds for run in runs)
    its = "its" if len(runs) == 1 else "their"
    if recorded >= moves:
        return f"in other bins, from {its} {recorded:,} recorded samples"
    return (
        f"in other bins, from only {its} {recorded:,} recorded samples: one in "
        f"{moves / max(recorded, 1):.3g} of {its} counts, so errors are larger"
    )
