"""Observables of a run's recorded inputs by name, and what is known of them at each output z."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from omniinput_hpc.errors import UserError
from omniinput_hpc.estimators import EstimateError, FloatArray
from omniinput_hpc.estimators.density.density import density_of_run
from omniinput_hpc.estimators.density.wide_bins import in_bins
from omniinput_hpc.estimators.observables import (
    Averages,
    Joint,
    Observable,
    Observed,
    averages,
    joint_density,
    observe,
)
from omniinput_hpc.estimators.precision_recall.from_rule import call_rule
from omniinput_hpc.estimators.samples import RecordedSamples
from omniinput_hpc.models.display import Display
from omniinput_hpc.plugins import load_function
from omniinput_hpc.results.density import verdict_lines
from omniinput_hpc.results.record import Record
from omniinput_hpc.results.representatives import edges_for, how_to_show
from omniinput_hpc.results.result import Written
from omniinput_hpc.results.tables import Columns
from omniinput_hpc.runfile.reader import RunReader
from omniinput_hpc.runfile.rescored import open_rescored
from omniinput_hpc.text import interval, shown

if TYPE_CHECKING:
    from matplotlib.figure import Figure

OPTION = "--observable"
MAX_SAMPLES, MAX_CELLS = 200_000, 30
"""Recorded samples of which y is found, and cells of y in a joint density."""


def longest_run(values: Sequence[Any]) -> int:
    """Return the length of the longest run of one value."""
    longest = run = 1 if len(values) else 0
    for one, two in pairwise(values):
        run = run + 1 if one == two else 1
        longest = max(longest, run)
    return longest


def readability(text: str) -> float:
    """Return the automated readability index, about the school grade (Smith and Senter 1967)."""
    words = re.findall(r"\w+", text)
    sentences = max(1, len(re.findall(r"[.!?]+(?:\s|$)", text)))
    if not words:
        return 0.0
    return 4.71 * sum(map(len, words)) / len(words) + 0.5 * len(words) / sentences - 21.43


def overlap(text: str, other: str, n: int = 4) -> float:
    """Return the share of a text's runs of n characters that another text has, too."""
    parts = [text[i : i + n] for i in range(max(1, len(text) - n + 1))]
    return sum(part in other for part in parts) / len(parts)


OF_TEXTS: dict[str, Callable[[str], float]] = {
    "length": len,
    "letters": lambda text: sum(map(str.isalpha, text)) / max(1, len(text)),
    "readability": readability,
}
OF_TEXTS_AND: dict[str, Callable[[str, str], float]] = {
    "contains": lambda text, part: part in text,
    "matches": lambda text, pattern: re.search(pattern, text) is not None,
    "overlap": overlap,
}
OF_VALUES: dict[str, Callable[[NDArray[Any]], float]] = {
    "distinct": lambda x_d: len(set(x_d.tolist())),
    "longest-run": lambda x_d: longest_run(x_d.tolist()),
}
OF_PICTURES: dict[str, Callable[[NDArray[Any]], float]] = {
    "brightness": lambda picture: picture.mean(),
    "edges": lambda picture: np.mean([np.abs(np.diff(picture, axis=a)).mean() for a in (0, 1)]),
}
NAMES = (
    *OF_TEXTS, *(f"{name}:TEXT" for name in OF_TEXTS_AND), "canonical", *OF_PICTURES, *OF_VALUES,
    "RUN.rescored.NAME.h5", "MODULE:FUNCTION",
)  # fmt: skip
"""What an observable may be called."""


def observable(name: str, run: RunReader, render: bool = False) -> Observable:
    """Return an observable by its name, one of `NAMES`.

    A function gets inputs, int64 [n, D], and returns y [n].

    Raises
    ------
    UserError
        There is no such observable, or it is not for this run's inputs.
    """
    if name.endswith(".h5"):
        return _other_output(Path(name), run)
    word, _, argument = name.partition(":")
    if name in OF_VALUES:
        return _each(OF_VALUES[name], lambda x: x)
    if name in OF_TEXTS or word in OF_TEXTS_AND or name in OF_PICTURES or name == "canonical":
        return _of_shown(name, word, argument, how_to_show(run.config, render))
    if not argument:
        raise UserError(f"{OPTION} {name}: expected one of {', '.join(NAMES)}")
    return _own(name)


def _each(function: Callable[[Any], float], show: Callable[[Any], Sequence[Any]]) -> Observable:
    def y(part: RecordedSamples) -> FloatArray:
        return np.array([function(one) for one in show(part.x_id.astype(np.int64))], np.float64)

    return y


def _of_shown(name: str, word: str, argument: str, how: Display) -> Observable:
    """Return an observable of what people see of an input."""
    if name == "canonical":
        is_canonical = how.canonical
        if is_canonical is None:
            raise UserError(f"{OPTION} canonical needs the model's tokenizer, which is not here")
        return lambda part: is_canonical(part.x_id.astype(np.int64)).astype(np.float64)
    kind = "image" if name in OF_PICTURES else "text"
    if how.kind != kind:
        raise UserError(f"{OPTION} {name} is for {kind}s; this run's inputs are {how.kind}s")
    if name in OF_PICTURES:
        return _each(lambda picture: OF_PICTURES[name](picture.astype(np.float64)), how.show)
    if name in OF_TEXTS:
        return _each(OF_TEXTS[name], how.show)
    if not argument:
        raise UserError(f"{OPTION} {word}: expected {word}:TEXT")
    if word == "matches":
        try:
            re.compile(argument)
        except re.error as error:
            raise UserError(f"{OPTION} {name}: not a regular expression: {error}") from None
    return _each(lambda text: OF_TEXTS_AND[word](text, argument), how.show)


def _other_output(path: Path, run: RunReader) -> Observable:
    """Return another model's z of the recorded samples, from the file of `omniinput rescore`."""
    with open_rescored(path, run.on_damage) as side:
        if not side.belongs_to(run):
            raise UserError(f"{path} holds outputs of another run's samples, not of {run.path}")
        if side.rounds < run.rounds:
            done = f"{side.rounds} of {run.rounds}"
            raise UserError(f"{path} has only {done} rounds: resume omniinput rescore")
        z_rks = np.stack([side.z(r) for r in range(run.rounds)])
    return lambda part: z_rks[part.round_, part.rung, part.index_i].astype(np.float64)


def _own(name: str) -> Observable:
    function = load_function(name, OPTION)

    def y(part: RecordedSamples) -> FloatArray:
        given = part.x_id.astype(np.int64)
        found = call_rule(function, given, name, OPTION)
        try:
            y_i = np.asarray(found, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise EstimateError(f"{OPTION} {name}: not numbers: {error}") from error
        if y_i.shape != (len(given),) or not np.isfinite(y_i).all():
            raise EstimateError(
                f"{OPTION} {name}: expected {len(given)} finite numbers, found shape {y_i.shape}"
            )
        return y_i

    return y


def observed(
    run: RunReader, name: str, z_range: tuple[float, float] | None, width: float | None,
    render: bool = False,
) -> Observed:  # fmt: skip
    """Return y of a run's recorded samples in bins of z; see `representatives.edges_for`."""
    y, density = observable(name, run, render), density_of_run(run.data)
    density = in_bins(density, edges_for(density, z_range, width))
    return observe(run.data, density, y, MAX_SAMPLES)


@dataclass(frozen=True, repr=False)
class _OfObservable(Written):
    """A result about an observable."""

    observable: str

    @property
    def name(self) -> str:
        """The name of its files, with the observable's."""
        return f"{self.NAME}.{file_word(self.observable)}"

    def about(self) -> list[str]:
        """Return what y is, and the lines."""
        return [f"y is {self.observable}", *self.lines()]


def file_word(name: str) -> str:
    """Return an observable's name as a part of file names."""
    name = name.removesuffix(".h5").rpartition(".rescored.")[2] if name.endswith(".h5") else name
    return re.sub(r"[^\w.+=-]+", "-", name).strip("-")[:60]


@dataclass(frozen=True, repr=False)
class AverageResult(_OfObservable):
    """The mean of an observable over the inputs of each bin of z."""

    NAME: ClassVar = "average"
    TITLE: ClassVar = "Averages over"

    found: Averages

    def columns(self) -> Columns:
        """Return a row for each bin with samples."""
        a = self.found
        bins = np.flatnonzero(a.count_b)
        return {
            "z_lower": a.edges[bins],
            "z_upper": a.edges[bins + 1],
            "mean": a.mean_b[bins],
            "mean_low": a.low_b[bins],
            "mean_high": a.high_b[bins],
        }

    def lines(self) -> list[str]:
        """Return the verdict, and the mean over all inputs of the bins."""
        a = self.found
        ends = interval(float(a.whole.low), float(a.whole.high), ".5g")
        over = f"inputs with z from {a.edges[0]:.6g} to {a.edges[-1]:.6g}"
        return [
            self.source,
            *verdict_lines(self.densities[0]),
            f"mean of {self.observable} over all {over}: {shown(float(a.whole.value), '.5g')} "
            f"(95 %: {ends})",
        ]

    def record(self, into: Record) -> None:
        """Add the mean over all bins."""
        super().record(into)
        into.add_interval(f"mean of {self.observable}", self.found.whole)

    def figure(self) -> Figure:
        """Return the mean and quantiles of y against z."""
        from omniinput_hpc.plots.observables import average_figure

        return average_figure(self.found, self.observable, self.label)


@dataclass(frozen=True, repr=False)
class JointResult(_OfObservable):
    """The joint density of z and an observable: a row for each cell with samples."""

    NAME: ClassVar = "joint"
    TITLE: ClassVar = "Joint density of"

    found: Joint
    averages: Averages

    def columns(self) -> Columns:
        """Return a row for each cell with samples."""
        j = self.found
        b, c = np.nonzero(j.count_bc)
        return {
            "z_lower": j.z_edges[b],
            "z_upper": j.z_edges[b + 1],
            "y_lower": j.y_edges[c],
            "y_upper": j.y_edges[c + 1],
            "log_g": j.log_g_bc[b, c],
            "log_g_error": j.error_bc[b, c],
            "count": j.count_bc[b, c],
        }

    def lines(self) -> list[str]:
        """Return the verdict, and how many cells are known."""
        j = self.found
        n, known = int((j.count_bc > 0).sum()), int(np.isfinite(j.error_bc).sum())
        return [
            self.source,
            *verdict_lines(self.densities[0]),
            f"{n} cells of z and {self.observable} have samples, {j.count_bc.sum():,} in all; the "
            f"error of {known} is known, in the others it is inf: too few samples",
        ]

    def figure(self) -> Figure:
        """Return a map of the density, with the mean of y at each z, and the density of y."""
        from omniinput_hpc.plots.observables import joint_figure

        density = self.densities[0]
        return joint_figure(self.found, self.averages, density, self.observable, self.label)


def average_of(
    run: RunReader, name: str, z_range: tuple[float, float] | None = None,
    width: float | None = None, render: bool = False,
) -> AverageResult:  # fmt: skip
    """Return the mean of an observable in bins of z."""
    seen = observed(run, name, z_range, width, render)
    return AverageResult([run], [seen.density], name, averages(seen))


def joint_of(
    run: RunReader, name: str, z_range: tuple[float, float] | None = None,
    width: float | None = None, cells: int = MAX_CELLS, render: bool = False,
) -> JointResult:  # fmt: skip
    """Return the joint density of z and an observable, with at most `cells` cells of y."""
    seen = observed(run, name, z_range, width, render)
    found = joint_density(seen, y_edges_of(seen.y_i, cells))
    return JointResult([run], [seen.density], name, found, averages(seen))


def y_edges_of(y_i: FloatArray, cells: int) -> FloatArray:
    """Return edges of at most `cells` cells that hold all y; one cell a value if there are few."""
    values = np.unique(y_i)
    if len(values) <= cells and (values == np.rint(values)).all():
        span = np.arange(values[0], values[-1] + 2) - 0.5
        if len(span) - 1 <= cells:
            return span
    if len(values) == 1:
        return np.array([values[0] - 0.5, values[0] + 0.5])
    return np.linspace(values[0], values[-1], cells + 1)
