"""Normalize two models' densities by samples that both have evaluated: lines and columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from omniinput_hpc.errors import UserError
from omniinput_hpc.estimators import EstimateError
from omniinput_hpc.estimators.comparison.input_counts import Pairs, pairs_of
from omniinput_hpc.estimators.comparison.normalization import (
    Normalizations,
    bennett_shift,
    normalize,
    shifted_errors,
)
from omniinput_hpc.estimators.density.density import Density
from omniinput_hpc.estimators.errors.convergence import LEAST_ERROR
from omniinput_hpc.estimators.errors.jackknife import estimate
from omniinput_hpc.results.density import verdict_lines
from omniinput_hpc.results.record import Record
from omniinput_hpc.results.result import Written
from omniinput_hpc.results.tables import Columns, describe_run
from omniinput_hpc.runfile.reader import RunReader
from omniinput_hpc.runfile.rescored import find, open_rescored
from omniinput_hpc.text import interval, shown, tens

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MAX_PAIRED_SAMPLES = 5_000_000
"""Most samples of a run that are read for a normalization."""


MAX_ERRORS_APART = 3.0
"""Two normalizations that differ by more standard errors than this are reported to disagree."""


def read_pairs(
    run: RunReader, other: RunReader, density: Density, max_samples: int = MAX_PAIRED_SAMPLES
) -> tuple[Pairs, str]:
    """Return a run's samples with both models' outputs, and a line on the source of the outputs.

    If not all rounds were rescored, only those that were are used. If they hold more than
    `max_samples` samples, evenly spaced rounds are read, to bound the memory.

    Raises
    ------
    UserError
        The other model has not evaluated the samples (see `omniinput rescore`).
    """
    path = find(run, other)
    with open_rescored(path, run.on_damage) as side:
        rescored = min(side.rounds, run.rounds)
        n_rounds = min(rescored, max(1, max_samples // (len(run.beta_k) * run.samples_per_round)))
        rounds = np.unique(np.linspace(0, rescored - 1, n_rounds).astype(int))
        other_rks = np.stack([side.z(r)[: len(run.data.beta_k)] for r in rounds])
    own_rks = np.concatenate([run.data.z(slice(r, r + 1)) for r in rounds])
    pairs = pairs_of(density, own_rks, other_rks, run.walkers)
    missing = f", {rescored} of {run.rounds} rounds" if rescored < run.rounds else ""
    if len(rounds) < rescored:
        missing += f", {len(rounds)} evenly spaced rounds read"
    return pairs, f"{path}{missing}"


def shift_of(
    groups: tuple[Sequence[RunReader], Sequence[RunReader]],
    densities: tuple[Density, Density],
    z_range: Sequence[float] | None,
) -> tuple[float, float, str]:
    """Return the shift to add to the second model's log g, its standard error, and the method.

    `groups` are the runs of each density. The shift of two absolute densities is 0. Other densities
    need both models' outputs of both runs' samples. If a range Z is given, the papers' cross-model
    normalization is used; otherwise Bennett's acceptance ratio.

    Raises
    ------
    UserError
        The other model has not evaluated the samples, or they come from several runs.
    EstimateError
        The data do not determine the shift.
    """
    a, b = densities
    if z_range is None and a.absolute and b.absolute:
        return 0.0, 0.0, "absolute densities"
    joined = next((group for group in groups if len(group) > 1), None)
    if joined is not None:
        name = "+".join(str(run.path) for run in joined)
        why = "--range was given" if z_range is not None else "a ladder has no beta = 0"
        raise UserError(
            f"{name}: {why}, so the models are normalized by samples that both have evaluated, "
            "which needs single runs: compare those, or absolute densities without --range"
        )
    one, other = groups[0][0], groups[1][0]
    pairs_a, _ = read_pairs(one, other, a)
    pairs_b, _ = read_pairs(other, one, b)
    if z_range is None:
        shift, name = bennett_shift(a, b, pairs_a, pairs_b), "Bennett's ratio"
    else:
        row = normalize(a, b, pairs_a, pairs_b, *z_range).rows[0]
        if row.shift is None:
            raise EstimateError(row.refused)
        shift, name = row.shift, row.name
    result = estimate(shift, a.lanes_g, b.lanes_g)
    return float(result.value), float(result.error), name


@dataclass(frozen=True, repr=False)
class NormalizationResult(Written):
    """Two models' densities on one scale: the bins with counts, of the first and of the second.

    Attributes
    ----------
    found : the ratio of their numbers of inputs by each normalization
    rescored : the source of the other model's outputs of each run's samples
    """

    NAME: ClassVar = "normalized"
    TITLE: ClassVar = "Normalization of"

    found: Normalizations
    rescored: tuple[str, str]

    @property
    def name(self) -> str:
        """The name of its files, with the second run's."""
        return f"{self.NAME}.{self.runs[1].path.stem}"

    @property
    def shift(self) -> float:
        """What is added to the second log_g."""
        shift = self.found.best().shift
        return 0.0 if shift is None else float(shift.value)

    def _with_errors(self) -> tuple[Density, Density]:
        """Return both densities, the second one with the errors of its log_g plus the shift."""
        (a, b), shift = self.densities, self.found.best().shift
        if shift is None:
            return a, b
        return a, replace(b, log_g_error_b=shifted_errors(a, b, shift))

    def columns(self) -> Columns:
        """Return both densities, on the scale of the first."""
        parts = [(d, np.flatnonzero(d.count_b)) for d in self._with_errors()]
        shifted = zip(parts, (0.0, self.shift), strict=True)
        return {
            "model": np.concatenate(
                [np.full(len(i), m) for m, (_, i) in enumerate(parts, start=1)]
            ),
            "z_lower": np.concatenate([d.edges[i] for d, i in parts]),
            "z_upper": np.concatenate([d.edges[i + 1] for d, i in parts]),
            "log_g": np.concatenate([d.log_g_b[i] + s for (d, i), s in shifted]),
            "log_g_error": np.concatenate([d.log_g_error_b[i] for d, i in parts]),
        }

    def lines(self) -> list[str]:
        """Return the runs, and what ``omniinput normalize`` prints of them."""
        return [*self._sources(), *self.summary()]

    def _sources(self) -> list[str]:
        return [*map(describe_run, self.runs), f"rescored: {'; '.join(self.rescored)}"]

    def summary(self) -> list[str]:
        """Return the ratios, and the verdicts on both densities."""
        one, other = self.names
        lines = normalization_lines(self.found, one, other, self.densities[0].words.things)
        for name, density in zip(self.names, self.densities, strict=True):
            lines += [f"{name}: {line}" for line in verdict_lines(density)]
        return lines

    def about(self) -> list[str]:
        """Return the scale of the table, and the lines."""
        one, two = (run.path for run in self.runs)
        best = self.found.best().name
        scale = f"model 1: {one}, model 2: {two}, on the scale of model 1 by: {best}"
        return [scale, *self.summary(), *self._sources()]

    def record(self, into: Record) -> None:
        """Add the densities, the shift, and the ratio."""
        super().record(into)
        best = self.found.best()
        if best.shift is not None:
            into.add_value("shift of the second log_g", self.shift)
        if best.ratio is not None:
            things = self.densities[0].words.things
            into.add_interval(f"ln ratio of {things} in the range, first by second", best.ratio)

    def figure(self) -> Figure:
        """Return both densities on one scale, with the ratio by each normalization below."""
        from omniinput_hpc.plots.comparison import normalization_figure

        (a, b), (one, other) = self._with_errors(), self.names
        return normalization_figure(a, b, self.found, (one, other), self.label)


def normalization_lines(found: Normalizations, name_a: str, name_b: str, things: str) -> list[str]:
    """Return the lines that are printed; `things` are inputs, or their probability."""
    lines = [
        f"ln({things} of {name_a} / {things} of {name_b}) with output in {found.low:g} to "
        f"{found.high:g}:",
        f"  {'normalization':<30}{'ln ratio':>10}{'error':>9}  {'95% interval':<22} ratio",
    ]
    for row in found.rows:
        if row.ratio is None:
            lines.append(f"  {row.name:<30}refused: {row.refused}")
            continue
        r = row.ratio
        ends = interval(float(r.low), float(r.high), ".4f")
        error = shown(float(r.error), ".4f", "-")
        lines.append(
            f"  {row.name:<30}{float(r.value):>10.4f}{error:>9}  {ends:<22} {tens(float(r.value))}"
        )
    if found.common is not None:
        c = found.common
        lines.append(
            f"inputs that both put in the range: {c.samples_a:,} samples of {name_a} "
            f"({100 * c.share_a:.3g}% of its {things} there), {c.samples_b:,} of {name_b} "
            f"({100 * c.share_b:.3g}%)"
        )
    for one, other, d in found.differences:
        known = np.isfinite(d.error)
        far = known and abs(float(d.value)) > MAX_ERRORS_APART * max(float(d.error), LEAST_ERROR)
        error = f" +- {float(d.error):.4f}" if np.isfinite(d.error) else ""
        verdict = "they DISAGREE" if far else ("they agree" if known else "error not known")
        lines.append(f"{one} minus {other}: {float(d.value):+.4f}{error}: {verdict}")
    return lines
