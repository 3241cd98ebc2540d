"""Read another model's outputs of a run's draws from the side file, and report the changes."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from omniinput_hpc.estimators import EstimateError, FloatArray, IntArray
from omniinput_hpc.estimators.comparison.other_outputs import (
    AuprChange,
    Changes,
    aupr_change,
    changes,
    log_g_change,
    with_outputs,
)
from omniinput_hpc.estimators.density.density import Density, density_of_run
from omniinput_hpc.estimators.density.wide_bins import edges_for
from omniinput_hpc.estimators.precision_recall.curves import Range, Side
from omniinput_hpc.estimators.run_data import RunData, require_rounds
from omniinput_hpc.results.aupr import recall_unit
from omniinput_hpc.results.curves import confident_side
from omniinput_hpc.results.density import verdict_lines
from omniinput_hpc.results.record import Record
from omniinput_hpc.results.redact import mask
from omniinput_hpc.results.representatives import how_to_show
from omniinput_hpc.results.result import Written
from omniinput_hpc.results.rules import rule_of
from omniinput_hpc.results.tables import Columns, beside
from omniinput_hpc.runfile.reader import RunReader
from omniinput_hpc.runfile.rescored import open_rescored, outputs_of
from omniinput_hpc.text import range_words, shown

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Changed:
    """A run's draws with its own outputs and with another model's.

    Attributes
    ----------
    runs : the draws of the rescored rounds: with own outputs, with the other model's
    """

    runs: tuple[RunData, RunData]
    densities: tuple[Density, Density]
    changes: Changes


def read_changed(run: RunReader, path: Path, width: float | None) -> Changed:
    """Return both models' outputs of a run's draws; `width` is that of the bins of z.

    Raises
    ------
    UserError
        The side file is not of this run, or has no committed round.
    EstimateError
        The run has no committed round or no independent draws, or a density cannot be estimated.
    """
    require_rounds(run)
    with open_rescored(path, run.on_damage) as side:
        other_rks = outputs_of(side, run)
        config = run.config.model_copy(update={"model": side.config.model})
        fingerprint = side.fingerprint
    own_rks = run.data.z(slice(0, len(other_rks)))
    own = with_outputs(run.data, own_rks, run.config, run.fingerprint)
    other = with_outputs(run.data, other_rks, config, fingerprint)
    densities = density_of_run(own), density_of_run(other)
    edges = edges_for(densities[0], width=width) if width is not None else run.edges
    return Changed((own, other), densities, changes(densities[0], own, other_rks, edges))


def aupr_of(
    found: Changed, run: RunReader, rule: str, side: Side | None, asked: Range | None
) -> AuprChange:
    """Return how the AUPR by a rule changes; raises what `other_outputs.aupr_change` does.

    `side` overrides the run's own side; `asked` is the range of log recall.
    """
    end = confident_side(run, side).end
    return aupr_change(found.runs, found.densities, rule_of(rule, run.config), end, asked)


@dataclass(frozen=True, repr=False)
class ChangesResult(Written):
    """How another model's outputs of a run's draws differ: a row for each bin of z.

    Attributes
    ----------
    found : both models' outputs
    aupr : how the AUPR by a rule changes, or why it is not known; None without a rule
    """

    NAME: ClassVar = "changes"
    TITLE: ClassVar = "Changes of the outputs of"

    found: Changed
    aupr: AuprChange | EstimateError | None = None

    @property
    def name(self) -> str:
        """The name of its files, with the other model's."""
        return f"{self.NAME}.{self.names[1]}"

    def columns(self) -> Columns:
        """Return the table of z' - z, a row per bin of z that has draws."""
        c = self.found.changes
        bins = np.flatnonzero(c.draws_b)
        return {
            "z_lower": c.edges[bins],
            "z_upper": c.edges[bins + 1],
            "draws": c.draws_b[bins],
            "effective": c.effective_b[bins],
            "mean_change": c.mean_b[bins],
            "mean_change_error": c.error_b[bins],
            "sd_change": c.sd_b[bins],
        }

    def density_columns(self) -> Columns:
        """Return the table of both densities, a row per bin in which both have counts."""
        own, other = self.densities
        change_b, error_b = log_g_change(own, other)
        bins = np.flatnonzero(np.isfinite(change_b))
        return {
            "z_lower": own.edges[bins],
            "z_upper": own.edges[bins + 1],
            "log_g": own.log_g_b[bins],
            "log_g_error": own.log_g_error_b[bins],
            "other_log_g": other.log_g_b[bins],
            "change": change_b[bins],
            "change_error": error_b[bins],
            "effective": own.effective_b[bins],
            "other_effective": other.effective_b[bins],
        }

    def lines(self) -> list[str]:
        """Return the verdicts, z' - z on each rung, and the change of the AUPR."""
        lines = [self.source, f"{self.found.runs[0].rounds} rounds rescored"]
        for name, density in zip(self.names, self.densities, strict=True):
            lines += [f"{name}: {line}" for line in verdict_lines(density)]
        c, beta_k = self.found.changes, self.densities[0].beta_k
        lines.append("beta: z, z' - z of its draws, standard deviation of z' - z")
        lines += [
            f"{beta:7.4g}: {z:7.4f}, {mean:+.5f} +- {shown(error, '.5f', '(not known)')}, "
            f"{shown(sd, '.5f')}"
            for beta, z, mean, error, sd in zip(
                beta_k, c.z_k, c.mean_k, c.error_k, c.sd_k, strict=True
            )
        ]
        return lines + self._aupr_lines()

    def _aupr_lines(self) -> list[str]:
        found, names = self.aupr, self.names
        if not isinstance(found, AuprChange):
            return [] if found is None else [f"AUPR: {found}"]
        over = f"{range_words((found.lower, found.upper))}{recall_unit(*self.densities)}"
        return [
            f"AUPR of {names[0]} {found.own:.4f}, of {names[1]} {found.other:.4f}, change "
            f"{found.change}, over recall {over}"
        ]

    def about(self) -> list[str]:
        """Return what the columns mean, and the lines."""
        return ["z' - z over all inputs of a bin of z, z' of the other model", *self.lines()]

    def record(self, into: Record) -> None:
        """Add the change of the AUPR, and both densities."""
        if isinstance(self.aupr, AuprChange):
            into.add_interval("change of the AUPR", self.aupr.change)
        super().record(into)

    def figure(self) -> Figure:
        """Return z' - z against z, and the change of the density below."""
        from omniinput_hpc.plots.changes import changes_figure

        (own, other), (one, two) = self.densities, self.names
        change = log_g_change(own, other)
        return changes_figure(self.found.changes, own, change, (one, two), self.label)

    def write(self, into: Record, tag: str = "") -> list[str]:
        """Write also the densities, to RUN.log_g_changes.NAME.csv."""
        table = beside(into.run_path, f".log_g_{self.name}{tag}.csv")
        into.add_table(table, ["both models' densities, of the same draws"], self.density_columns())
        return [str(table), *super().write(into, tag)]


def extremes(run: RunReader, found: Changed, n: int, below: float) -> list[str]:
    """Return lines on the n draws with z <= `below` whose z' rose most, and n that fell most."""
    own, other = found.runs
    z_i, other_i = own.z().ravel(), other.z().ravel()
    d_i: FloatArray = other_i.astype(np.float64) - z_i
    some = np.flatnonzero(z_i <= below)
    order = some[np.argsort(d_i[some], kind="stable")]
    chosen = np.unique(np.concatenate([order[:n], order[len(order) - min(n, len(order)) :]]))
    if not n:
        return []
    chosen = chosen[np.argsort(-d_i[chosen], kind="stable")]
    return [
        f"{d_i[i]:+.4f} (z {z_i[i]:.3f}, z' {other_i[i]:.3f}): {text}"
        for i, text in zip(chosen, inputs_at(run, chosen), strict=True)
    ]


def inputs_at(run: RunReader, places: IntArray) -> list[str]:
    """Return inputs as quoted, masked texts; `places` are indices in [rounds, K, S] of `data`."""
    if not len(places):
        return []
    per_round = len(run.data.beta_k) * run.samples_per_round
    x_nd = np.stack([_input(run, *divmod(int(place), per_round)) for place in places])
    texts = how_to_show(run.config, render=False).show(x_nd)
    return [json.dumps(mask(text), ensure_ascii=False) for text in texts]


def _input(run: RunReader, round_: int, place: int) -> IntArray:
    x_ksd = run.slab("samples/x", round_)
    return np.asarray(x_ksd.reshape(-1, x_ksd.shape[2])[place], dtype=np.int64)
