"""The difference D = z_A - z_B of two models: read both runs' rescored samples, and report it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from omniinput_hpc.estimators import FloatArray
from omniinput_hpc.estimators.comparison.difference import (
    OneWay,
    Pairs,
    Sameness,
    at_ends,
    divergence,
    model_beta,
    one_way,
    pair,
    sameness,
)
from omniinput_hpc.estimators.density.density import Density, density_of_run
from omniinput_hpc.estimators.density.known_ratio import probabilities_add_up
from omniinput_hpc.estimators.density.wide_bins import edges_for, in_bins
from omniinput_hpc.estimators.errors.jackknife import Interval
from omniinput_hpc.estimators.run_data import require_rounds
from omniinput_hpc.models.table import rounding
from omniinput_hpc.results.changes import inputs_at
from omniinput_hpc.results.comparison import NOT_CONVERGED
from omniinput_hpc.results.density import verdict_lines
from omniinput_hpc.results.observables import y_edges_of
from omniinput_hpc.results.record import Record
from omniinput_hpc.results.representatives import how_to_show
from omniinput_hpc.results.result import Written
from omniinput_hpc.results.run_groups import require_one_space
from omniinput_hpc.results.tables import Columns, beside, describe_run
from omniinput_hpc.runfile.reader import RunReader
from omniinput_hpc.runfile.rescored import find, open_rescored, outputs_of
from omniinput_hpc.text import interval, shown

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MAX_SAMPLES, MAX_CELLS = 1_000_000, 40
"""Recorded samples of a run that are read, and cells of D."""
LEVEL = 0.05
"""Below this p-value the densities are reported to differ."""


@dataclass(frozen=True, repr=False)
class DifferenceResult(Written):
    """D = z_A - z_B over the inputs in a range of either's z: a row for each side and cell of D.

    Attributes
    ----------
    edges : float64 [C + 1], of the cells of D
    ways : D over the inputs in the range of the first model's z, and in that of the second's
    same : whether both runs are of one model
    rescored : the files with the other model's outputs, and how many of the rounds they hold
    limits : what counts as rounding, in words
    """

    NAME: ClassVar = "difference"
    TITLE: ClassVar = "Difference of the outputs of"

    edges: FloatArray
    ways: tuple[OneWay, OneWay]
    same: Sameness | None
    rescored: tuple[str, str]
    limits: str

    @property
    def name(self) -> str:
        """The name of its files, with the second run's."""
        return f"{self.NAME}.{self.runs[1].path.stem}"

    @property
    def z_range(self) -> str:
        """The range of z, in words."""
        edges = self.ways[0].means.edges
        return f"{edges[0]:.6g} to {edges[-1]:.6g}"

    def columns(self) -> Columns:
        """Return the density of D; `model` 1 or 2 is the one whose z is in the range."""
        tables: list[Columns] = []
        for model, way in enumerate(self.ways, start=1):
            count_c = way.density.count_bc.sum(axis=0)
            c = np.flatnonzero(count_c)
            tables.append({
                "model": np.full(len(c), model),
                "d_lower": self.edges[c],
                "d_upper": self.edges[c + 1],
                "log_g": way.density.log_g_c[c],
                "log_g_error": way.density.error_c[c],
                "count": count_c[c],
            })  # fmt: skip
        return _joined(tables)

    def by_z(self) -> Columns:
        """Return the mean and the standard deviation of D in each bin of z of either model."""
        tables: list[Columns] = []
        for model, way in enumerate(self.ways, start=1):
            found, b = way.means, np.flatnonzero(way.means.count_b)
            tables.append({
                "model": np.full(len(b), model),
                "z_lower": found.edges[b],
                "z_upper": found.edges[b + 1],
                "mean": found.mean_b[b],
                "mean_low": found.low_b[b],
                "mean_high": found.high_b[b],
                "sd": way.sd_b[b],
                "count": found.count_b[b],
            })  # fmt: skip
        return _joined(tables)

    def lines(self) -> list[str]:
        """Return the runs, the verdicts, both sides, and whether the models are the same."""
        one, two = self.names
        lines = [*map(describe_run, self.runs), f"rescored: {'; '.join(self.rescored)}"]
        for name, density in zip(self.names, self.densities, strict=True):
            lines += [f"{name}: {line}" for line in verdict_lines(density)]
        law = self.densities[0].measure == "probability"
        counts = "; means and shares are under the law: inputs count by their probability" * law
        lines.append(f"D = z of {one} - z of {two}{counts}")
        for way, own, other in zip(self.ways, self.names, (two, one), strict=True):
            lines += self._of(way, own, other)
        return lines + self._sameness()

    def _of(self, way: OneWay, own: str, other: str) -> list[str]:
        lines = [
            f"inputs with z of {own} from {self.z_range}: mean of D {_words(way.means.whole)}, "
            f"standard deviation {way.sd:.5g}",
            f"  share whose z of {other} is outside this range: {_words(way.outside)}",
        ]
        if way.divergence is not None:
            kl = _words(way.divergence)
            lines.append(f"  KL({own} || {other}): {kl} nats per token")
        rows = self.by_z()
        mine = rows["model"] == (1 if own == self.names[0] else 2)
        lines.append("  z: mean of D with its 95 % interval, standard deviation of D")
        keys = ("z_lower", "z_upper", "mean", "mean_low", "mean_high", "sd")
        cells = (rows[key][mine] for key in keys)
        lines += [
            f"  {lower:.6g} to {upper:.6g}: {mean:+.5f} ({interval(low, high, '+.5f')}), {sd:.5f}"
            for lower, upper, mean, low, high, sd in zip(*cells, strict=True)
        ]
        return lines

    def _sameness(self) -> list[str]:
        """Return whether the models are the same, by their outputs and by their densities."""
        same, (one, two) = self.same, self.names
        if same is None:
            return ["same model: not tested, since model.noise = true: outputs depend on chance"]
        lines = [
            f"same model, by outputs (chance plays no part): largest |D| {same.largest:.3g}; "
            f"{100 * same.beyond:.3g} % of the samples differ by more than rounding, {self.limits}"
        ]
        if same.equal:
            bounds = " and ".join(f"{100 * share:.2g} %" for share in same.differing)
            lines.append(
                f"{one} and {two} have EQUAL OUTPUTS: with 95 % confidence at most {bounds} of the "
                "inputs of their ranges differ by more"
            )
        else:
            lines.append(f"{one} and {two} are DIFFERENT MODELS")
        if not np.isfinite(same.p):
            why = same.why or "errors are not known"
            return [*lines, f"same model, by densities: not tested: {why}"]
        verdict = "they differ" if same.p < LEVEL else "no difference is seen"
        lines.append(
            f"{'' if self.converged else NOT_CONVERGED}same model, by the densities of both runs "
            f"(Hotelling's T^2; p is below {LEVEL:g} for 5 % of pairs of runs of one model): "
            f"p = {same.p:.3g}, {verdict}"
        )
        return lines

    def about(self) -> list[str]:
        """Return what the columns mean, and the lines."""
        per_cell = [density.words.per_bin(density.absolute) for density in self.densities]
        if per_cell[0] != per_cell[1]:
            per_cell = [f"{what} (model {n})" for n, what in enumerate(per_cell, start=1)]
        return [
            f"log_g: ln of the {' or the '.join(dict.fromkeys(per_cell))} per cell of D = z of "
            f"{self.names[0]} - z of {self.names[1]}, with z of model 1 or 2 from {self.z_range}",
            *self.lines(),
        ]

    def record(self, into: Record) -> None:
        """Add the densities, the means, the shares, the divergences and the tests."""
        super().record(into)
        for way, name in zip(self.ways, self.names, strict=True):
            into.add_interval(f"{name}: mean of D", way.means.whole)
            into.add_value(f"{name}: standard deviation of D", way.sd)
            into.add_interval(f"{name}: share outside the other's range", way.outside)
            if way.divergence is not None:
                into.add_interval(f"{name}: KL divergence per token", way.divergence)
        if self.same is not None:
            into.add_value("largest size of D", self.same.largest)
            into.add_value("share of samples beyond rounding", self.same.beyond)
            into.add_value("p of equal densities", self.same.p)

    def figure(self) -> Figure:
        """Return the density of D on both sides, and its mean and spread at each z below."""
        from omniinput_hpc.plots.difference import difference_figure

        names = (self.names[0], self.names[1])
        return difference_figure(self.edges, self.ways, self.densities, names, self.label)

    def write(self, into: Record, tag: str = "") -> list[str]:
        """Write also the means at each z, to A.difference_by_z.B.csv."""
        table = beside(into.run_path, f".difference_by_z.{self.runs[1].path.stem}{tag}.csv")
        into.add_table(table, ["D in each bin of z of model 1 or 2"], self.by_z())
        return [str(table), *super().write(into, tag)]


def examples(result: DifferenceResult, runs: Sequence[RunReader], n: int) -> list[str]:
    """Return lines on n texts of each end of D on both sides, drawn by weight (see `at_ends`)."""
    lines: list[str] = []
    if not n or how_to_show(runs[0].config, render=False).kind != "text":
        return lines
    for way, run, name in zip(result.ways, runs, result.names, strict=True):
        found = way.pairs
        chosen = at_ends(found, n)
        chosen = chosen[np.argsort(-found.d_i[chosen], kind="stable")]
        lines.append(f"of the 1 % of {name}'s inputs with highest and lowest D:")
        lines += [
            f"{found.d_i[i]:+.4f} (z {found.own_i[i]:.3f}, z' {found.other_i[i]:.3f}): {text}"
            for i, text in zip(chosen, inputs_at(run, found.place_i[chosen]), strict=True)
        ]
    return lines


def difference_of(
    runs: tuple[RunReader, RunReader],
    names: tuple[str, str],
    z_range: tuple[float, float] | None = None,
    width: float | None = None,
    cells: int = MAX_CELLS,
) -> DifferenceResult:
    """Return the difference of two models' outputs over the inputs in a range of either's z.

    The default range is all bins in which the first run has counts. `width` is that of bins of z.

    Raises
    ------
    UserError
        The models have different inputs, or one has not evaluated the other run's samples.
    EstimateError
        A run has no committed round or no samples in the range, or the bins of z are not those of
        both runs.
    """
    require_one_space(runs)
    for run in runs:
        require_rounds(run)
    paths = find(runs[0], runs[1]), find(runs[1], runs[0])
    outputs = [_outputs(run, path) for run, path in zip(runs, paths, strict=True)]
    densities = density_of_run(runs[0].data), density_of_run(runs[1].data)
    edges = edges_for(densities[0], z_range, width)

    def pairs(bins: tuple[FloatArray, FloatArray]) -> tuple[Pairs, Pairs]:
        one, two = (
            pair(run.data, in_bins(density, of_z), z_rks, run is runs[0], MAX_SAMPLES)
            for run, density, z_rks, of_z in zip(runs, densities, outputs, bins, strict=True)
        )
        return one, two

    found = pairs((edges, edges))
    d_edges = y_edges_of(np.concatenate([one.d_i for one in found]), cells)
    whole = pairs((edges_for(densities[0]), edges_for(densities[1])))
    divergences = _divergences(runs, whole, densities)
    ways = [one_way(one, kl, d_edges) for one, kl in zip(found, divergences, strict=True)]
    limits = [rounding(run.config) for run in runs]
    absolute, relative = np.max([limit or (np.inf, np.inf) for limit in limits], axis=0)
    same = sameness(found, densities, (absolute, relative)) if None not in limits else None
    rescored = [
        str(path) if len(z_rks) == run.rounds else f"{path}, {len(z_rks)} of {run.rounds} rounds"
        for run, path, z_rks in zip(runs, paths, outputs, strict=True)
    ]
    return DifferenceResult(
        runs, densities, d_edges, (ways[0], ways[1]), same, (rescored[0], rescored[1]),
        f"{absolute:.2g} + {relative:.2g} |z|", names=names,
    )  # fmt: skip


def _outputs(run: RunReader, path: Path) -> NDArray[np.float32]:
    with open_rescored(path, run.on_damage) as side:
        return outputs_of(side, run)


def _divergences(
    runs: tuple[RunReader, RunReader],
    whole: tuple[Pairs, Pairs],
    densities: tuple[Density, Density],
) -> list[Interval | None]:
    """Return the divergence per token on either side; None if z is not both models' own loss."""
    configs = [run.config for run in runs]
    own = all(c.output is None and c.law is None for c in configs)
    one, two = (c.predicted_from for c in configs)
    if not own or one is None or one != two or not all(probabilities_add_up(r.data) for r in runs):
        return [None, None]
    m_n = [model_beta(run.data) for run in runs]
    return [
        divergence(found, density, m, found is whole[0]) if np.isfinite(m) else None
        for found, density, m in zip(whole, densities, m_n, strict=True)
    ]


def _words(found: Interval) -> str:
    ends = interval(float(found.low), float(found.high), ".5g")
    return f"{shown(float(found.value), '.5g')} (95 %: {ends})"


def _joined(tables: list[Columns]) -> Columns:
    return {name: np.concatenate([table[name] for table in tables]) for name in tables[0]}
