"""The base of all results: what is printed, written, recorded, drawn, and shown in a notebook.

One class per subject derives from it: density, curve, comparison, diagnosis, representatives,
scores. The verbs, the Python interface and the report take all lines, columns and figures from it.
"""

from __future__ import annotations

import html
import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from omniinput_hpc.annotation.display import DescribedRun
from omniinput_hpc.errors import UserError
from omniinput_hpc.estimators.density.density import Density
from omniinput_hpc.models.table import z_label
from omniinput_hpc.results.record import Record
from omniinput_hpc.results.tables import Columns, beside, describe_run
from omniinput_hpc.text import interval, shown

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

SHOWN_ROWS = 10
"""Rows of a table that its text shows."""


@dataclass(frozen=True)
class Interval:
    """A number with its standard error and its 95 % interval.

    Attributes
    ----------
    value, error : float
    low, high : float, the ends of the 95 % interval
    """

    value: float
    error: float
    low: float
    high: float

    def __repr__(self) -> str:
        error = f" ± {self.error:.2g}" if math.isfinite(self.error) else ""
        return f"{shown(self.value, '.6g')}{error} (95 %: {interval(self.low, self.high, '.6g')})"

    def __float__(self) -> float:
        return self.value


@dataclass(frozen=True, repr=False)
class Result(ABC):
    """What is known of one or several runs: lines for people, and a table of columns [n].

    Attributes
    ----------
    runs : of the result
    """

    TITLE: ClassVar[str]
    NOT_WRITTEN: ClassVar[frozenset[str]] = frozenset()
    """Columns that follow from others, and are left out of the CSV file."""

    runs: Sequence[DescribedRun]

    @property
    def title(self) -> str:
        """What this is, for a terminal or a notebook."""
        return f"{self.TITLE} {self.source}"

    @property
    def source(self) -> str:
        """The runs, their rounds, and their model."""
        return describe_run(*self.runs)

    @property
    def label(self) -> str:
        """Axis label of z, with its unit."""
        return z_label(self.runs[0].config)

    @abstractmethod
    def lines(self) -> list[str]:
        """Return what the verb prints; the first line is the source."""

    def summary(self) -> list[str]:
        """Return the lines that a terminal or a notebook shows below the title."""
        return self.lines()[1:]

    @abstractmethod
    def columns(self) -> Columns:
        """Return the table: each column's name and its values [n]."""

    def table(self) -> Columns:
        """Return the columns of the CSV file."""
        return {n: v for n, v in self.columns().items() if n not in self.NOT_WRITTEN}

    def to_dataframe(self) -> pd.DataFrame:
        """Return the table as a pandas data frame.

        Raises
        ------
        UserError
            pandas is not installed.
        """
        try:
            import pandas
        except ModuleNotFoundError:
            words = "pandas is not installed: python -m pip install pandas"
            raise UserError(words) from None
        whole = {name: list(v) if v.ndim > 1 else v for name, v in self.columns().items()}
        return pandas.DataFrame(whole)

    def __len__(self) -> int:
        return len(next(iter(self.columns().values())))

    def __repr__(self) -> str:
        columns = self.columns()
        width = [max(len(name), 12) for name in columns]
        pairs = list(zip(columns, width, strict=True))
        rows = ["  ".join(f"{name:>{w}}" for name, w in pairs)]
        rows += [
            "  ".join(f"{_cell(columns[name][i]):>{w}}" for name, w in pairs)
            for i in range(min(len(self), SHOWN_ROWS))
        ]
        return "\n".join([self.title, *self.summary(), *rows, *self._more()])

    def _more(self) -> list[str]:
        more = len(self) - SHOWN_ROWS
        return [f"... and {more} more rows"] if more > 0 else []

    def _repr_html_(self) -> str:
        """Return the text as HTML for a notebook; everything is escaped."""
        columns, escape = self.columns(), html.escape
        head = "".join(f"<th>{escape(name)}</th>" for name in columns)
        rows = [
            "".join(f"<td>{escape(_cell(values[i]))}</td>" for values in columns.values())
            for i in range(min(len(self), SHOWN_ROWS))
        ]
        body = "".join(f"<tr>{row}</tr>" for row in rows)
        said = "".join(f"<li>{escape(line)}</li>" for line in [*self.summary(), *self._more()])
        return (
            f"<div><strong>{escape(self.title)}</strong><ul>{said}</ul>"
            f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
        )


@dataclass(frozen=True, repr=False)
class Written(Result):
    """A result with files: a CSV file, pictures, and its part of RUN.results.json.

    Figures import `plots`, and thus matplotlib, only when they are drawn.

    Attributes
    ----------
    densities : of the runs, or of groups of joined runs
    names : of the densities; one alone has the name of the run's file
    """

    NAME: ClassVar[str]

    densities: Sequence[Density]
    names: Sequence[str] = field(default=(), kw_only=True)

    @property
    def name(self) -> str:
        """The part of the names of its files that says what it is, "pr" for RUN.pr.csv."""
        return self.NAME

    @property
    def converged(self) -> bool:
        """Whether the errors can be relied on."""
        return all(density.verdict.converged for density in self.densities)

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why the runs have not converged, one sentence each."""
        return tuple(reason for density in self.densities for reason in density.verdict.reasons)

    def about(self) -> list[str]:
        """Return the lines that RUN.results.json stores as the meaning of the CSV file."""
        return self.lines()

    def record(self, into: Record) -> None:
        """Add the numbers and verdicts to the record of the analysis."""
        names = self.names or [into.run_path.stem]
        for density, name in zip(self.densities, names, strict=False):
            into.add_density(density, name)

    @abstractmethod
    def figure(self) -> Figure:
        """Return the picture."""

    def figures(self) -> dict[str, Figure]:
        """Return all pictures, each by the name of its file, as `name`."""
        return {self.name: self.figure()}

    def drawn(self) -> Sequence[Density]:
        """Return the densities whose verdicts the pictures carry."""
        return self.densities

    def about_figure(self) -> str:
        """Return a further line of the pictures' title; "" for none."""
        return ""

    def plot(
        self, label: str | None = None, title: str | None = None, style: str | None = None
    ) -> Figure:
        """Return the picture that the verb draws; see `plots.look.drawn`."""
        from omniinput_hpc.plots import look

        return look.drawn(self.figure, label, title, style)

    def write(self, into: Record, tag: str = "") -> list[str]:
        """Write RUN.NAME.csv and the pictures, add all to the record; return the files' names.

        `tag` follows NAME, see `names.claim_name`.
        """
        table = beside(into.run_path, f".{self.name}{tag}.csv")
        into.add_table(table, self.about(), self.table())
        pictures = [self.save(one, into, name + tag) for name, one in self.figures().items()]
        self.record(into)
        return [str(table), *pictures]

    def save(self, figure: Figure, into: Record, name: str) -> str:
        """Save RUN.NAME.png and .pdf, with a caption about the runs; return the name of the PNG."""
        from omniinput_hpc.plots import style
        from omniinput_hpc.results.caption import caption_of

        picture = beside(into.run_path, f".{name}.png")
        style.save(figure, picture, caption_of(self.runs, self.drawn(), self.about_figure()))
        into.files.append(str(picture))
        return str(picture)


def _cell(value: Any) -> str:
    if isinstance(value, np.ndarray):
        shown = " ".join(str(v) for v in value[:8])
        return shown + (" ..." if len(value) > 8 else "")
    return f"{value:.6g}" if isinstance(value, float | np.floating) else str(value)
