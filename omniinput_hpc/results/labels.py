"""The labels that a bank holds for a run's model, in each bin of z."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from omniinput_hpc.annotation.join import Joined
from omniinput_hpc.estimators import BoolArray
from omniinput_hpc.estimators.density.density import Density
from omniinput_hpc.estimators.density.wide_bins import coarsen
from omniinput_hpc.estimators.precision_recall.banked import BankedMeans, BankedScores
from omniinput_hpc.results.record import Record
from omniinput_hpc.results.result import Written
from omniinput_hpc.results.tables import Columns
from omniinput_hpc.runfile.reader import RunReader
from omniinput_hpc.text import counted, shown

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, repr=False)
class LabelsResult(Written):
    """A row for each bin in which the run has counts.

    Attributes
    ----------
    joined : the labels, weighed for the run's model
    scores : their means
    """

    NAME: ClassVar = "bank"
    TITLE: ClassVar = "Labels for"

    joined: Joined
    scores: BankedMeans

    @classmethod
    def of(cls, run: RunReader, density: Density, joined: Joined) -> LabelsResult:
        """Return the result for labels from `banked.labels_for`; `density` has the run's bins."""
        scored = joined.scored
        assert isinstance(scored, BankedScores)
        return cls([run], [coarsen(density, scored.edges)], joined, scored.means())

    @property
    def _rows(self) -> BoolArray:
        rows: BoolArray = self.densities[0].count_b > 0
        return rows

    def columns(self) -> Columns:
        """Return the columns of RUN.bank.csv."""
        density, scores, rows = self.densities[0], self.scores, self._rows
        effective_b = np.where(scores.inputs_b > 0, scores.effective_b, 0.0)
        found = {
            "z_lower": density.edges[:-1],
            "z_upper": density.edges[1:],
            "labels": scores.inputs_b,
            "effective": effective_b,
            "represented": scores.represented_b,
            "represented_error": scores.represented_error_b,
            "missing": scores.missing_b.astype(np.int64),
            "r": scores.r_b,
            "r_error": scores.sampling_error_b,
        }
        return {name: value_b[rows] for name, value_b in found.items()}

    def lines(self) -> list[str]:
        """Return who scored, the table, and what its columns mean."""
        columns = self.columns()
        n, who = int(self.scores.inputs_b.sum()), ", ".join(self.joined.scored.annotators)
        lines = [self.source, *self.joined.notes, f"{counted(n, 'labelled input')} by {who}"]
        things = self.densities[0].words.things
        lines += [
            "effective: number of labels of this model's own draws that the labels are worth; "
            f"represented: share of the bin's {things} that they stand for, 1 up to chance; "
            "missing: 1 if this is certainly below 0.9, so that inputs of the bin lie where none "
            "were drawn"
        ]
        cells = [[shown(float(value), ".4g") for value in column] for column in columns.values()]
        table = [[name, *column] for name, column in zip(columns, cells, strict=True)]
        sizes = [2 + max(map(len, column)) for column in table]
        for row in zip(*table, strict=True):
            lines.append("".join(f"{cell:>{n}}" for cell, n in zip(row, sizes, strict=True)))
        return lines

    def record(self, into: Record) -> None:
        """Add the density and the number of labels."""
        super().record(into)
        into.add_value("labelled inputs", int(self.scores.inputs_b.sum()))

    def figure(self) -> Figure:
        """Return the numbers of labels, and below the share of the inputs that they stand for."""
        from omniinput_hpc.plots.labels import labels_figure

        return labels_figure(self.columns(), self.label, self.densities[0].measure)
