"""The base of all results: columns, a data frame, text, and a table in a notebook."""

from __future__ import annotations

import html
import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from omniinput_hpc.errors import UserError
from omniinput_hpc.text import interval, shown

if TYPE_CHECKING:
    import pandas as pd

Columns = dict[str, NDArray[Any]]
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


class Result(ABC):
    """A result: lines for people, and a table of columns [n]."""

    @abstractmethod
    def lines(self) -> list[str]:
        """Return the result in plain lines; the first one is its title."""

    @abstractmethod
    def columns(self) -> Columns:
        """Return the table: each column's name and its values [n]."""

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
        return "\n".join([*self.lines(), *rows, *self._more()])

    def _more(self) -> list[str]:
        more = len(self) - SHOWN_ROWS
        return [f"... and {more} more rows"] if more > 0 else []

    def _repr_html_(self) -> str:
        """Return the text as HTML for a notebook; everything is escaped."""
        columns, escape = self.columns(), html.escape
        title, *lines = self.lines()
        head = "".join(f"<th>{escape(name)}</th>" for name in columns)
        rows = [
            "".join(f"<td>{escape(_cell(values[i]))}</td>" for values in columns.values())
            for i in range(min(len(self), SHOWN_ROWS))
        ]
        body = "".join(f"<tr>{row}</tr>" for row in rows)
        said = "".join(f"<li>{escape(line)}</li>" for line in [*lines, *self._more()])
        return (
            f"<div><strong>{escape(title)}</strong><ul>{said}</ul>"
            f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
        )


def _cell(value: Any) -> str:
    if isinstance(value, np.ndarray):
        shown = " ".join(str(v) for v in value[:8])
        return shown + (" ..." if len(value) > 8 else "")
    return f"{value:.6g}" if isinstance(value, float | np.floating) else str(value)
