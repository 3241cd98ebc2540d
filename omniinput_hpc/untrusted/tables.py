"""Reading CSV tables from programs and spreadsheets: commas, semicolons or tabs; 0.5 or 0,5."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from omniinput_hpc.errors import UserError
from omniinput_hpc.untrusted.files import read_bytes
from omniinput_hpc.untrusted.texts import decode

SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs"}
WORKBOOKS = (".xlsx", ".xlsm", ".xls", ".ods", ".numbers")
_NAMED_SEPARATOR = re.compile(r'"?sep=([,;\t])"?[,;\t]*', re.IGNORECASE)
"""Excel's line before the first row, which names the separator."""
_NUMBER = re.compile(r"[+-]?([0-9]+[.,]?[0-9]*|[.,][0-9]+)([eE][+-]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[+-]?(inf|nan)", re.IGNORECASE)
_GROUPED = re.compile(r"[+-]?[0-9]{1,3}([.,' \u00a0\u2009\u202f\u2019][0-9]{3})+([.,][0-9]*)?")
_THOUSANDS = re.compile(r"[+-]?[1-9][0-9]{0,2},[0-9]{3}")
"""An ambiguous number: its comma may separate thousands or decimals."""
_NO_THOUSANDS = "write numbers without thousands separators"


@dataclass(frozen=True)
class Sheet:
    """The rows of a table, without empty rows.

    Attributes
    ----------
    separator : of the cells
    rows : the number of each row's first line, counted from 1, and its cells
    comments : lines before the first row that begin with #, without the #
    n_empty : the number of empty rows
    """

    path: Path
    separator: str
    rows: Sequence[tuple[int, list[str]]]
    comments: Sequence[str] = ()
    n_empty: int = 0


@dataclass(frozen=True)
class Table:
    """A sheet whose first row names the columns.

    Attributes
    ----------
    names : of the columns, in lower case, words joined by underscores; "" for a nameless column
    rows : the number of each row's first line, and its cells, one per name
    comments, n_empty : see `Sheet`
    """

    path: Path
    separator: str
    names: Sequence[str]
    rows: Sequence[tuple[int, list[str]]] = field(repr=False)
    comments: Sequence[str] = ()
    n_empty: int = 0

    def has_comma(self, names: Sequence[str]) -> bool:
        """Whether a cell in some columns contains a comma."""
        cells = (cell for _, row in self.rows for cell in zip(self.names, row, strict=True))
        return any(name in names and "," in cell for name, cell in cells)

    def numbers(self, names: Sequence[str]) -> list[dict[str, float | str]]:
        """Return the values of some columns, by name, for each row, without empty cells.

        Numbers become floats; other texts stay.

        Raises
        ------
        UserError
            Decimal points and commas both occur, or a number may have thousands separators.
        """
        places = [(name, i) for i, name in enumerate(self.names) if name in names]
        rows = [{name: cells[i].strip() for name, i in places} for _, cells in self.rows]
        first: dict[str, str] = {}  # where each mark occurs first
        certain = self.separator == ";"
        for (line, _), row in zip(self.rows, rows, strict=True):
            for text in row.values():
                mark = next((mark for mark in ",." if mark in text), None)
                if _NUMBER.fullmatch(text):
                    if mark:
                        first.setdefault(mark, f"line {line}: {text}")
                    certain = certain or (mark == "," and not _THOUSANDS.fullmatch(text))
                elif _GROUPED.fullmatch(text):
                    raise UserError(f"{self.path}, line {line}: {text}: {_NO_THOUSANDS}")
        if len(first) > 1:
            raise UserError(
                f"{self.path}: some decimals have a point ({first['.']}), some a comma "
                f"({first[',']}); use only one of them"
            )
        if "," in first and not certain:
            raise UserError(
                f"{self.path}, {first[',']}: does the comma mark decimals or thousands? Write "
                f"decimals with a point; {_NO_THOUSANDS}"
            )
        return [{k: _value(text) for k, text in row.items() if text} for row in rows]


def read_sheet(path: Path, what: str, limit: int, needed: Sequence[str] = ()) -> Sheet:
    """Return the rows of a CSV file, with the separator detected.

    Parameters
    ----------
    what, limit : see `omniinput_hpc.untrusted.files.read_bytes`
    needed : names that the first row should contain; the separator is chosen to find them

    Raises
    ------
    UserError
        The file cannot be read, is not text (see `decode`), or has unbalanced quotation marks.
    """
    lines = list(io.StringIO(decode(read_bytes(path, what, limit), path), newline=""))
    comments: list[str] = []
    named, begin, n_empty = None, 0, 0
    for line in lines:
        bare = line.strip()
        found = _NAMED_SEPARATOR.fullmatch(bare)
        if found and named is None:
            named = found[1]
        elif bare.lstrip('"').startswith("#"):
            comments.append(bare.strip('",;\t').removeprefix("#").strip())
        elif bare.strip('",;\t '):
            break
        else:
            n_empty += 1
        begin += 1
    separator = named or _separator(lines[begin:], needed)
    reader = csv.reader(lines[begin:], delimiter=separator, strict=True)
    rows, number = [], begin + 1
    try:
        for cells in reader:
            if any(cell.strip() for cell in cells):
                rows.append((number, cells))
            else:
                n_empty += 1
            number = begin + reader.line_num + 1
    except csv.Error as error:
        raise UserError(f"{path}, line {number}: cannot be read as CSV: {error}") from None
    return Sheet(path, separator, rows, comments, n_empty)


def read_table(
    path: Path, what: str, limit: int, needed: Sequence[str], optional: Sequence[str] = ()
) -> Table:
    """Return a CSV file whose first row names the columns; see `read_sheet`.

    Raises
    ------
    UserError
        A column of `needed` is missing, a name occurs twice, or a row is too long or ends before
        the last column of `needed` and `optional`.
    """
    sheet = read_sheet(path, what, limit, needed)
    names = [folded(name) for name in sheet.rows[0][1]] if sheet.rows else []
    missing = [name for name in needed if name not in names]
    if missing:
        has = f" (it has {', '.join(filter(None, names))[:200]})" if any(names) else ""
        raise UserError(f"{path} has no column {' or '.join(missing)} in its first line{has}")
    twice = next((name for name in names if name and names.count(name) > 1), None)
    if twice is not None:
        raise UserError(f"{path} has several columns {twice}; keep one")
    read = {*needed, *optional}
    reach = max((i + 1 for i, name in enumerate(names) if name in read), default=len(names))
    rows = []
    for line, cells in sheet.rows[1:]:
        more = any(cell.strip() for cell in cells[len(names) :])
        if more or len(cells) < reach:
            hint = "; does a cell hold a comma without quotation marks, as in 0,5?" if more else ""
            raise UserError(f"{path}, line {line}: cut short, or longer than the first line{hint}")
        rows.append((line, (cells + [""] * len(names))[: len(names)]))
    return Table(path, sheet.separator, names, rows, sheet.comments, sheet.n_empty)


def folded(name: str) -> str:
    """Return a column's name in lower case, its words joined by underscores."""
    return "_".join(name.split()).casefold()


def _separator(lines: Sequence[str], needed: Sequence[str]) -> str:
    """Return the separator that finds the needed names; among several, the most cells decide."""

    def cells(separator: str) -> list[str]:
        try:
            return next(csv.reader(lines, delimiter=separator), [])
        except csv.Error:
            return []

    def order(separator: str) -> tuple[bool, int]:
        names = [folded(name) for name in cells(separator)]
        return all(name in names for name in needed), len(names)

    return max(SEPARATORS, key=order)


def _value(text: str) -> float | str:
    if _NUMBER.fullmatch(text):
        return float(text.replace(",", "."))
    return float(text) if _NOT_FINITE.fullmatch(text) else text
