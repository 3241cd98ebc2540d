"""Observables of a run's recorded inputs by name, and what is known of them at each output z."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from omniinput_hpc.config.observables import NAME_FORM
from omniinput_hpc.errors import UserError
from omniinput_hpc.estimators import EstimateError, FloatArray, two_directions
from omniinput_hpc.estimators.density.density import density_of_run
from omniinput_hpc.estimators.density.wide_bins import edges_for, in_bins
from omniinput_hpc.estimators.observables import (
    Averages,
    Joint,
    Observable,
    Observed,
    averages,
    believed,
    joint_density,
    means_or_shares,
    observe,
)
from omniinput_hpc.estimators.run_data import evenly_spaced_rounds
from omniinput_hpc.estimators.samples import RecordedSamples
from omniinput_hpc.estimators.two_directions import TwoDirections
from omniinput_hpc.models.observables import LABEL, OF_TEXTS, OF_TEXTS_AND, SHARES, build
from omniinput_hpc.models.observables import NAMES as OF_INPUTS
from omniinput_hpc.results.density import verdict_lines
from omniinput_hpc.results.names import MAX_LENGTH, NOT_KEPT, digest
from omniinput_hpc.results.record import Record
from omniinput_hpc.results.representatives import how_to_show
from omniinput_hpc.results.result import Written
from omniinput_hpc.results.tables import Columns
from omniinput_hpc.runfile import observed as side_file
from omniinput_hpc.runfile.layout import dataset_of
from omniinput_hpc.runfile.reader import RunReader
from omniinput_hpc.runfile.rescored import open_rescored, outputs_of
from omniinput_hpc.text import interval, shown

if TYPE_CHECKING:
    from collections.abc import Callable

    from matplotlib.figure import Figure

OPTION = "--observable"
MAX_SAMPLES, MAX_CELLS, FEWEST_ROUNDS = 200_000, 30, 8
"""Recorded samples of which y is found, cells of y in a joint density, and rounds that are read to
compare the lanes of rungs with lambda."""
MOST_VALUES = 10
"""Values of y whose shares are printed."""

NAMES = (*OF_INPUTS, "RUN.rescored.NAME.h5")
"""What an observable may be called, besides those that the run has recorded."""


def observable(name: str, run: RunReader, render: bool = False) -> Observable:
    """Return an observable by its name.

    A name of the run's own (`[[observables]]`, or `omniinput observe`) comes before one of `NAMES`.

    Raises
    ------
    UserError
        There is no such observable, or it is not for this run's inputs.
    """
    if name in run.geometry.observables:
        return _of_rounds(lambda round_: run.slab(dataset_of(name), round_))
    if name.endswith(".h5"):
        return _of_rounds(_other_output(Path(name), run))
    if NAME_FORM.fullmatch(name) and side_file.path_of(run.path, name).is_file():
        y_rks = side_file.read(run, name)
        return _of_rounds(lambda round_: y_rks[round_])
    y = build(name, run.config, OPTION, render)
    return lambda part: y(part.x_id.astype(np.int64))


def _of_rounds(y_ks: Callable[[int], NDArray[Any]]) -> Observable:
    """Return an observable, given its values of a round's samples, [K, S]."""
    kept = lru_cache(maxsize=1)(y_ks)  # rungs of one round follow each other

    def y(part: RecordedSamples) -> FloatArray:
        return np.asarray(kept(part.round_)[part.rung, part.index_i], dtype=np.float64)

    return y


def _other_output(path: Path, run: RunReader) -> Callable[[int], NDArray[Any]]:
    """Return another model's z of a round's samples, from the file of `omniinput rescore`."""
    with open_rescored(path, run.on_damage) as side:
        z_rks = outputs_of(side, run)
    if len(z_rks) < run.rounds:
        done = f"{len(z_rks)} of {run.rounds}"
        raise UserError(f"{path} has only {done} rounds: resume omniinput rescore")
    return lambda round_: z_rks[round_]


def observe_all(run: RunReader, name: str, function: str | None, render: bool) -> Path:
    """Compute an observable of all recorded samples, and write it beside the run; see `observed`.

    Raises
    ------
    UserError
        The name cannot be that of a file, or is the run's own; the run has no samples yet; or as
        for `build`.
    """
    if not NAME_FORM.fullmatch(name):
        raise UserError(f"--add {name}: expected at most 60 letters, digits and . _ + = -")
    if name in run.geometry.observables:
        raise UserError(f"--add {name}: {run.path} has recorded it already")
    if not run.rounds:
        raise UserError(f"{run.path} has no committed round yet")
    option, what = ("--function", function) if function else ("--add", name)
    y = build(what, run.config, option, render)
    y_rks = np.empty((run.rounds, run.geometry.n_rungs, run.samples_per_round))
    for round_, (x_ksd, _) in enumerate(run.samples()):
        for k, x_sd in enumerate(x_ksd):
            y_rks[round_, k] = y(x_sd.astype(np.int64))
    return side_file.write(run, name, what, y_rks)


def observed(
    run: RunReader, name: str, z_range: tuple[float, float] | None, width: float | None,
    render: bool = False,
) -> Observed:  # fmt: skip
    """Return y of a run's recorded samples in bins of z; see `wide_bins.edges_for`."""
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

    def _notes(self) -> list[str]:
        """Return whether texts are token ids, and how many rungs do not count."""
        config, lines = self.runs[0].config, []
        if self.observable.partition(":")[0] in {*OF_TEXTS, *OF_TEXTS_AND}:
            note = how_to_show(config, render=False).note
            lines += [f"texts are {note}"] * note.startswith("shown as token ids")
        n = int(np.count_nonzero(config.ladder.lambda_k)) if config.ladder else 0
        return lines + [f"{n} rungs, those with lambda, do not count here"] * (n > 0)


def file_word(name: str) -> str:
    """Return an observable's name as a part of file names, with a digest where others may clash."""
    name = name.removesuffix(".h5").rpartition(".rescored.")[2] if name.endswith(".h5") else name
    word = re.sub(NOT_KEPT, "-", name).strip("-")
    plain = word == name.replace(":", "-", 1) and len(word) <= MAX_LENGTH
    return word if plain else f"{word[:40].strip('-')}-{digest(name)}"


@dataclass(frozen=True, repr=False)
class AverageResult(_OfObservable):
    """The mean of an observable over the inputs of each bin of z."""

    NAME: ClassVar = "average"
    TITLE: ClassVar = "Averages over"

    found: Averages
    looks_like_share: bool = False

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
        of = "all inputs" if self.densities[0].measure == "count" else "draws of the law"
        over = f"{of} with z from {a.edges[0]:.6g} to {a.edges[-1]:.6g}"
        share = [f"{self.observable} is 0 or 1 in all samples: its mean is the share of 1"]
        share *= self.looks_like_share
        return [
            self.source,
            *verdict_lines(self.densities[0]),
            *self._notes(),
            *share,
            f"mean of {self.observable} over {over}: {shown(float(a.whole.value), '.5g')} "
            f"(95 %: {ends})",
        ]

    def record(self, into: Record) -> None:
        """Add the mean over all bins."""
        super().record(into)
        into.add_interval(f"mean of {self.observable}", self.found.whole)

    def figure(self) -> Figure:
        """Return the mean and quantiles of y against z."""
        from omniinput_hpc.plots.observables import average_figure

        return average_figure(self.found, self.observable, self.label, self.densities[0].measure)


@dataclass(frozen=True, repr=False)
class JointResult(_OfObservable):
    """The joint density of z and an observable: a row for each cell with samples."""

    NAME: ClassVar = "joint"
    TITLE: ClassVar = "Joint density of"

    found: Joint
    averages: Averages | None
    two: TwoDirections | None = None

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
            "log_g_upper": j.upper_bc[b, c],
        }

    def lines(self) -> list[str]:
        """Return the verdict, and how many cells are known."""
        j = self.found
        n, known_bc = int((j.count_bc > 0).sum()), np.isfinite(j.error_bc)
        bounded = int((np.isfinite(j.upper_bc) & ~known_bc).sum())
        others = f"; for {bounded} others, use the 95 % upper bound log_g_upper" * (bounded > 0)
        return [
            self.source,
            *verdict_lines(self.densities[0]),
            *(self._about_two() or self._notes()),
            *self._by_value(),
            f"{n} cells of z and {self.observable} have samples, {j.count_bc.sum():,} in all; "
            f"log_g_error is known in {known_bc.sum()}{others}",
        ]

    def _by_value(self) -> list[str]:
        """Return the shares of the commonest values of y, if y has a few whole values."""
        j = self.found
        whole = (j.y_edges % 1.0 == 0.5).all() and (np.diff(j.y_edges) == 1.0).all()
        if len(j.log_g_c) > MAX_CELLS or not whole:
            return []
        found = 100 * np.stack([j.share_c.value, j.share_c.low, j.share_c.high], axis=1)
        parts = []
        for c in sorted(np.argsort(-found[:, 0])[:MOST_VALUES]):
            if (value := found[c, 0]) > 0:
                low, high = found[c, 1:]
                ends = f" ({interval(low, high, '.3g')})" if np.isfinite(high) else ""
                parts.append(f"{j.y_edges[c] + 0.5:g}: {value:.3g} %{ends}")
        more = ", and rarer ones" if (j.share_c.value > 0).sum() > len(parts) else ""
        known = " (95 % intervals)" if np.isfinite(j.share_c.high).any() else ""
        seen = "" if self.densities[0].absolute else " in visited bins"
        return [f"inputs{seen} by {self.observable}{known}: {', '.join(parts)}{more}"]

    def _about_two(self) -> list[str]:
        """Return what is known of the rungs of a second direction; empty without one."""
        if self.two is None:
            return []
        lambda_k, problem = self.two.lambda_k, self.two.problem()
        n = int(np.count_nonzero(lambda_k))
        return [
            f"{n} of {len(lambda_k)} rungs weigh inputs by {self.observable}, too; the verdict is "
            "about the others",
            f"these {n} rungs: " + (f"not converged: {problem}" if problem else "lanes agree"),
        ]

    def figure(self) -> Figure:
        """Return a map of the density, the mean of y at each z, and the density of y."""
        from omniinput_hpc.plots.observables import joint_figure

        averages = None if self.observable == LABEL else self.averages
        return joint_figure(self.found, averages, self.densities[0], self.observable, self.label)


def average_of(
    run: RunReader, name: str, z_range: tuple[float, float] | None = None,
    width: float | None = None, render: bool = False,
) -> AverageResult:  # fmt: skip
    """Return the mean of an observable in bins of z; raise a UserError if it is a label."""
    if name == LABEL:
        raise UserError(f"--observable {LABEL}: a label has no mean; omniinput joint counts each")
    seen = observed(run, name, z_range, width, render)
    is_share = name.partition(":")[0] not in SHARES and bool(np.isin(seen.y_i, (0.0, 1.0)).all())
    return AverageResult([run], [seen.density], name, means_or_shares(seen), is_share)


def joint_of(
    run: RunReader, name: str, z_range: tuple[float, float] | None = None,
    width: float | None = None, cells: int = MAX_CELLS, render: bool = False,
) -> JointResult:  # fmt: skip
    """Return the joint density of z and an observable, with at most `cells` cells of y."""
    ladder = run.config.ladder
    if ladder is not None and ladder.observable == name and run.rounds:
        return _joint_of_two(run, name, ladder.lambda_k, z_range, width, cells)
    seen = observed(run, name, z_range, width, render)
    found = joint_density(seen, y_edges_of(seen.y_i, cells))
    return JointResult([run], [seen.density], name, found, means_or_shares(seen))


def _joint_of_two(
    run: RunReader, name: str, lambda_k: FloatArray, z_range: tuple[float, float] | None,
    width: float | None, cells: int,
) -> JointResult:  # fmt: skip
    """Return the joint density from all rungs of a ladder in two directions."""
    every, b = run.all_rungs(), run.counts_kb().any(axis=0)
    fewest = FEWEST_ROUNDS * len(every.beta_k) * run.samples_per_round
    rounds = evenly_spaced_rounds(every, max(MAX_SAMPLES, fewest)).tolist()
    y_rks = np.stack([run.slab(dataset_of(name), round_) for round_ in rounds])
    if z_range is None:
        z_range = float(run.edges[:-1][b].min()), float(run.edges[1:][b].max())
    density = density_of_run(run.data)
    density = in_bins(density, edges_for(density, z_range, width))
    try:
        means = averages(observe(run.data, density, observable(name, run), MAX_SAMPLES))
    except EstimateError:  # only rungs with lambda reached these bins
        means = None
    y_edges = y_edges_of(y_rks.ravel(), cells)
    two = TwoDirections.of(every, lambda_k, y_rks, rounds, density.pinned)
    found = two_directions.joint_density(two, density.edges, y_edges)
    found = believed(found, density, density.verdict.converged and not two.problem())
    return JointResult([run], [density], name, found, means, two)


def y_edges_of(y_i: FloatArray, cells: int) -> FloatArray:
    """Return edges of at most `cells` cells that hold all y.

    If y is a whole number, each cell holds as many of them: one if there are few.
    """
    values = np.unique(y_i)
    span = values[-1] - values[0] + 1
    if (values == np.rint(values)).all() and span < 2.0**40:
        each = np.ceil(span / cells)
        edges: FloatArray = each * np.arange(np.ceil(span / each) + 1) + (values[0] - 0.5)
        if (np.diff(edges) == each).all():  # else they are too large to be told apart by 0.5
            return edges
    if len(values) == 1:
        half = max(0.5, float(np.spacing(np.abs(values[0]))))
        return np.array([values[0] - half, values[0] + half])
    return np.linspace(values[0], values[-1], cells + 1)
