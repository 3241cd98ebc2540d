"""Estimates from a run, or from several joined runs of one model: density and curve."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from omniinput_hpc.errors import UserError
from omniinput_hpc.estimators.comparison.joined import joined_density
from omniinput_hpc.estimators.precision_recall.curves import FEWEST_INPUTS, FEWEST_LANES
from omniinput_hpc.results import curves
from omniinput_hpc.results.curve import CurveResult
from omniinput_hpc.results.density import DensityResult
from omniinput_hpc.results.rules import checked_rule
from omniinput_hpc.runfile.reader import RunReader

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Estimates:
    """The density and the curve of one or more open runs of one model.

    Attributes
    ----------
    readers : list of `runfile.reader.RunReader`
    """

    def __init__(self, readers: Sequence[RunReader]) -> None:
        self.readers = list(readers)
        self._density: DensityResult | None = None

    def density(self) -> DensityResult:
        """Return how many inputs have each output, or their probability, errors and the verdict.

        Raises
        ------
        EstimateError
            No committed round, no counts inside the bins, or rungs that share no bin; several runs
            of different models, with different bins, or with the same seed.
        """
        if self._density is None:
            found = joined_density([run.data for run in self.readers])
            self._density = DensityResult(self.readers, [found])
        return self._density

    def precision_recall(
        self,
        rule: str | Callable[[NDArray[np.int64]], object] | None = None,
        scores: Sequence[str | Path] = (),
        key: str | Path | None = None,
        side: curves.Side | None = None,
        fewest_inputs: int = FEWEST_INPUTS,
        fewest_lanes: int = FEWEST_LANES,
        recall_range: tuple[float, float] | None = None,
    ) -> CurveResult:
        """Return precision and recall over all inputs, by a rule or by score files.

        Parameters
        ----------
        rule : a function from inputs, int64 [n, D], or from their texts if its argument is called
            ``texts``, to scores [n] in [0, 1]; or a name: "module:function", "regex:PATTERN",
            "contains:TEXT", "words:FILE"
        scores, key : score files of one or more annotators, and the key of their tasks
            (default: the one beside them)
        side : the model's confident end of the outputs, "low" or "high" (default: from the run)
        fewest_inputs, fewest_lanes : the numbers that a bin must have
        recall_range : range of ln recall for the AUPR (default: the curve's own)

        Raises
        ------
        UserError, EstimateError
            Neither rule nor scores, or both; a rule that fails; score files of another run; runs
            with different sides.
        """
        if (rule is None) == (not scores):
            raise UserError("precision_recall takes a rule or score files: give one of them")
        density, files = self.density().estimate, [Path(path) for path in scores]
        by = curves.CurveOptions(
            rule if isinstance(rule, str) else None, files, None if key is None else Path(key),
            side, (fewest_inputs, fewest_lanes), recall_range,
        )  # fmt: skip
        if rule is None or isinstance(rule, str):
            return curves.curve_of(self.readers, density, by)
        name = getattr(rule, "__qualname__", type(rule).__name__)
        checked = checked_rule(rule, self.readers[0].config, name)
        return curves.curve_by_rule(self.readers, density, checked, name, by)

    def precision_recall_with_judge(
        self,
        scores: Sequence[str | Path],
        judges: Sequence[str | Path],
        key: str | Path | None = None,
        side: curves.Side | None = None,
        fewest_inputs: int = FEWEST_INPUTS,
        fewest_lanes: int = FEWEST_LANES,
        recall_range: tuple[float, float] | None = None,
    ) -> CurveResult:
        """Return the curve by people's scores of some tasks and judges' scores of all of them.

        People's scores correct the judge, so that the intervals hold however wrong it is.

        Parameters
        ----------
        scores : score files of people, who scored a random part of the tasks
        judges : score files of one or more judges, whose mean counts
        key, side, fewest_inputs, fewest_lanes, recall_range : as in `precision_recall`; the numbers
            are of inputs that people scored

        Raises
        ------
        UserError, EstimateError
            As in `precision_recall`; or people and judges have too few tasks in common.
        """
        by = curves.CurveOptions(
            None, [Path(path) for path in scores], None if key is None else Path(key), side,
            (fewest_inputs, fewest_lanes), recall_range, judges=[Path(path) for path in judges],
        )  # fmt: skip
        return curves.curve_of(self.readers, self.density().estimate, by)

    def precision_recall_by_bank(
        self,
        bank: str | Path,
        side: curves.Side | None = None,
        fewest_inputs: int = FEWEST_INPUTS,
        fewest_lanes: int = FEWEST_LANES,
        recall_range: tuple[float, float] | None = None,
        width: float | None = None,
    ) -> CurveResult:
        """Return the curve by labels that were made for any runs, weighed for this model.

        Parameters
        ----------
        bank : written by ``omniinput bank``
        side, fewest_inputs, fewest_lanes, recall_range : as in `precision_recall`
        width : of the bins (default: that of the bank's first tasks)

        Raises
        ------
        UserError, EstimateError
            As in `precision_recall`; or samples of the bank's runs were not rescored.
        """
        by = curves.CurveOptions(
            None, (), None, side, (fewest_inputs, fewest_lanes), recall_range, width=width,
            bank=Path(bank),
        )  # fmt: skip
        return curves.curve_of(self.readers, self.density().estimate, by)

    def plot(self) -> Figure:
        """Return the figure of the density."""
        return self.density().plot()


class JoinedRuns(Estimates):
    """Several runs of one model, analysed as one: see `omniinput_hpc.join`. The runs stay open."""

    def __repr__(self) -> str:
        names = [
            f"  {run.path}: {run.rounds} of {run.rounds_planned} rounds" for run in self.readers
        ]
        return "\n".join(["Joined runs", *names])
