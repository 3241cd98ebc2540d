"""The results of a `Run`: density, precision and recall, diagnosis, recorded inputs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from omniinput_hpc.api.tables import Columns, Interval, Result
from omniinput_hpc.estimators import FloatArray, IntArray
from omniinput_hpc.estimators.density import density as estimate
from omniinput_hpc.estimators.errors.convergence import Check
from omniinput_hpc.estimators.errors.jackknife import t_quantile
from omniinput_hpc.results import curve_tables, curves, density, diagnosis

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, repr=False)
class Density(Result):
    """How many inputs have each output: a row for each bin that has counts.

    Attributes
    ----------
    estimate : `estimators.density.density.Density`, all bins and the jackknife replicates
    label : axis label of z, with its unit
    source : the run, its rounds, and its model
    """

    estimate: estimate.Density
    label: str
    source: str

    @property
    def converged(self) -> bool:
        """Whether the errors can be relied on."""
        return self.estimate.verdict.converged

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why the run has not converged, one sentence each."""
        return self.estimate.verdict.reasons

    @property
    def checks(self) -> tuple[Check, ...]:
        """The checks of convergence: name, value, threshold, sentence and remedy of each."""
        return self.estimate.verdict.checks

    @property
    def absolute(self) -> bool:
        """Whether exp(log_g) counts inputs; otherwise it sums to 1."""
        return self.estimate.absolute

    @property
    def z(self) -> FloatArray:
        """Mean output of each bin, float64 [n]."""
        return self._of(self.estimate.z_b)

    @property
    def log_g(self) -> FloatArray:
        """Natural log of the number of inputs in each bin, float64 [n]."""
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

    def lines(self) -> list[str]:
        """Return what ``omniinput reweight`` prints."""
        return [f"Density of {self.source}", *density.summarize_density(self.estimate)]

    def columns(self) -> Columns:
        """Return the columns of RUN.density.csv, the mean output z, and log_g's 95 % interval."""
        low, high = self.interval()
        more = {"z": self.z, "log_g_low": low, "log_g_high": high}
        return density.density_columns(self.estimate) | more

    def plot(
        self, label: str | None = None, title: str | None = None, style: str | None = None
    ) -> Figure:
        """Return the figure that ``omniinput reweight`` draws; see `plots.look.drawn`."""
        from omniinput_hpc.plots import look
        from omniinput_hpc.plots.density import density_figure

        return look.drawn(lambda: density_figure(self.estimate, self.label), label, title, style)


@dataclass(frozen=True, repr=False)
class PrecisionRecall(Result):
    """Precision and recall over all inputs: a row for each threshold, from the confident end on.

    Attributes
    ----------
    found : `results.curves.RunCurve`, with all replicates
    label, source : as in `Density`
    """

    found: curves.RunCurve
    label: str
    source: str

    @property
    def side(self) -> str:
        """The model's confident end, "low" or "high"; `found.side.why` gives the reason."""
        return self.found.side.end

    @property
    def aupr(self) -> Interval:
        """Mean precision over ln recall within `recall_range`."""
        curve = self.found.curve
        return Interval(curve.aupr, curve.aupr_error, curve.aupr_low, curve.aupr_high)

    @property
    def recall_range(self) -> tuple[float, float]:
        """The ends of ln recall between which the AUPR is taken."""
        return self.found.curve.aupr_range

    @property
    def threshold(self) -> FloatArray:
        """The output up to which inputs are accepted, float64 [n]."""
        return self.found.curve.threshold_t

    @property
    def precision(self) -> FloatArray:
        """Share of right inputs among those accepted, float64 [n]."""
        return self.found.curve.precision_t

    @property
    def log_recall(self) -> FloatArray:
        """Natural log of the number of right inputs among those accepted, float64 [n]."""
        return self.found.curve.log_recall_t

    @property
    def converged(self) -> bool:
        """Whether the run's errors can be relied on."""
        return self.found.density.verdict.converged

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why the run has not converged, one sentence each."""
        return self.found.density.verdict.reasons

    def lines(self) -> list[str]:
        """Return what ``omniinput precision-recall`` prints, with side and source of the scores."""
        density, curve = self.found.density, self.found.curve
        return [
            f"Precision and recall of {self.source}",
            f"scores: {self.found.by}",
            *curves.side_lines(self.found),
            *curves.notes_of(self.found),
            *curve_tables.summarize_curve(density, curve, self.found.fewest),
        ]

    def columns(self) -> Columns:
        """Return the columns of RUN.pr.csv."""
        return curve_tables.curve_columns(self.found.curve)

    def plot(
        self, label: str | None = None, title: str | None = None, style: str | None = None
    ) -> Figure:
        """Return precision over log10 recall with its 95 % band; see `plots.look.drawn`."""
        from omniinput_hpc.plots import look
        from omniinput_hpc.plots.scores import curve_figure

        density, curve = self.found.density, self.found.curve
        return look.drawn(lambda: curve_figure(density, curve), label, title, style)

    def plot_scores(
        self, label: str | None = None, title: str | None = None, style: str | None = None
    ) -> Figure:
        """Return the mean score r(z) of each bin; see `plots.look.drawn`."""
        from omniinput_hpc.plots import look
        from omniinput_hpc.plots.scores import r_figure

        density, curve = self.found.density, self.found.curve
        return look.drawn(lambda: r_figure(density, curve, self.label), label, title, style)


@dataclass(frozen=True, repr=False)
class Diagnosis(Result):
    """How well a run mixes: a row for each rung.

    Attributes
    ----------
    found : `results.diagnosis.Diagnosis`
    advice : changes to make, one sentence each; empty if nothing stands out
    label, source : as in `Density`
    """

    found: diagnosis.Diagnosis
    label: str
    source: str
    _traces: dict[int, FloatArray] = field(repr=False)
    _paths_rv: IntArray = field(repr=False)

    @property
    def advice(self) -> list[str]:
        """Changes to make, one sentence each; empty if nothing stands out."""
        return diagnosis.advice(self.found)

    def lines(self) -> list[str]:
        """Return the title and the advice."""
        return [f"Mixing of {self.source}", *(self.advice or ["nothing stands out"])]

    def columns(self) -> Columns:
        """Return the columns of RUN.diagnose.csv."""
        return dict(diagnosis.columns(self.found))

    def plot(self, title: str | None = None, style: str | None = None) -> Figure:
        """Return accepted moves, R-hat, traces and walkers' paths; see `plots.look.drawn`."""
        from omniinput_hpc.plots import look
        from omniinput_hpc.plots.diagnosis import diagnosis_figure

        parts = self.found, self._traces, self._paths_rv, self.label
        return look.drawn(lambda: diagnosis_figure(*parts), None, title, style)


@dataclass(frozen=True, repr=False)
class Samples(Result):
    """Recorded inputs, one per row. They are samples of their rungs, not of all inputs.

    Attributes
    ----------
    x : integers [n, D], the values of each input
    z : float64 [n], their outputs
    round, rung : int64 [n], of the recording
    beta : float64 [n], of that rung
    log_weight : float64 [n], up to one constant; weighted by exp(log_weight), the samples
        represent all inputs equally
    source : as in `Density`
    """

    x: NDArray[np.integer]
    z: FloatArray
    round: IntArray
    rung: IntArray
    beta: FloatArray
    log_weight: FloatArray
    source: str

    def lines(self) -> list[str]:
        """Return the title."""
        return [f"{len(self.z):,} recorded inputs of {self.source}"]

    def columns(self) -> Columns:
        """Return all arrays; x is a column of arrays."""
        return {
            "round": self.round, "rung": self.rung, "beta": self.beta, "z": self.z,
            "log_weight": self.log_weight, "x": self.x,
        }  # fmt: skip
