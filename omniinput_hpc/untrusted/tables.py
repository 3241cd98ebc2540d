"""Tables as programs and spreadsheets save them: commas, semicolons or tabs; 0.5 or 0,5."""

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
"""The line that Excel writes, or is told by, before the first row."""
_NUMBER = re.compile(r"[+-]?([0-9]+[.,]?[0-9]*|[.,][0-9]+)([eE][+-]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[+-]?(inf|nan)", re.IGNORECASE)
_GROUPED = re.compile(r"[+-]?[0-9]{1,3}([.,' \u00a0\u2009\u202f\u2019][0-9]{3})+([.,][0-9]*)?")
_THOUSANDS = re.compile(r"[+-]?[1-9][0-9]{0,2},[0-9]{3}")
"""What may be a number with a separator of thousands, or one with a decimal comma."""
_NO_THOUSANDS = "write numbers without separators of thousands"


@dataclass(frozen=True)
class Sheet:
    """The rows of a table, without those that hold nothing.

    Attributes
    ----------
    separator : of the cells
    rows : the first line of each, counted from 1, and its cells
    comments : lines before the first row that begin with #, without it
    n_empty : rows that hold no cell, or only empty ones
    """

    path: Path
    separator: str
    rows: Sequence[tuple[int, list[str]]]
    comments: Sequence[str] = ()
    n_empty: int = 0


@dataclass(frozen=True)
class Table:
    """A sheet with a first row of names.

    Attributes
    ----------
    names : of the columns, in lower case, words joined by underscores; "" where there is none
    rows : the first line of each row, and its cells, one for each name
    comments, n_empty : see `Sheet`
    """

    path: Path
    separator: str
    names: Sequence[str]
    rows: Sequence[tuple[int, list[str]]] = field(repr=False)
    comments: Sequence[str] = ()
    n_empty: int = 0

    def has_comma(self, names: Sequence[str]) -> bool:
        """Whether a number of some columns has a decimal comma."""
        cells = (cell for _, row in self.rows for cell in zip(self.names, row, strict=True))
        return any(name in names and "," in cell for name, cell in cells)

    def numbers(self, names: Sequence[str]) -> list[dict[str, float | str]]:
        """Return the numbers of some columns, for each row; other texts stay, empty cells do not.

        Decimals have a point or a comma, all alike.

        Raises
        ------
        UserError
            Both marks occur, or a number has thousands separators, or one that may be one.
        """
        places = [(name, i) for i, name in enumerate(self.names) if name in names]
        rows = [{name: cells[i].strip() for name, i in places} for _, cells in self.rows]
        first: dict[str, str] = {}  # where each mark was found
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
                f"{self.path}: decimals with a point ({first['.']}) and with a comma "
                f"({first[',']}); write all alike"
            )
        if "," in first and not certain:
            raise UserError(
                f"{self.path}, {first[',']}: a decimal comma, or thousands? Write decimals with a "
                f"point; {_NO_THOUSANDS}"
            )
        return [{k: _value(text) for k, text in row.items() if text} for row in rows]


def read_sheet(path: Path, what: str, limit: int, needed: Sequence[str] = ()) -> Sheet:
    """Return the rows of a CSV file, whatever separates its cells.

    Parameters
    ----------
    what, limit : see `omniinput_hpc.untrusted.files.read_bytes`
    needed : names that the first row should hold; the separator is the one that finds them

    Raises
    ------
    UserError
        It cannot be read, is no text (see `decode`), or its quotation marks are wrong.
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
    """Return a CSV file whose first row has names; see `read_sheet`.

    Raises
    ------
    UserError
        It lacks a column that is needed, has a name twice, or a row has other cells than the first:
        it ends before a column of `needed` and `optional` (before the last, if neither names any),
        or goes on behind the last name.
    """
    sheet = read_sheet(path, what, limit, needed)
    names = [folded(name) for name in sheet.rows[0][1]] if sheet.rows else []
    missing = [name for name in needed if name not in names]
    if missing:
        has = f" (it has {', '.join(filter(None, names))[:200]})" if any(names) else ""
        raise UserError(f"{path} has no column {' or '.join(missing)} in its first line{has}")
    twice = next((name for name in names if name and names.count(name) > 1), None)
    if twice is not None:
        raise UserError(f"{path} has several columns {twice}; leave one")
    read = {*needed, *optional}
    reach = max((i + 1 for i, name in enumerate(names) if name in read), default=len(names))
    rows = []
    for line, cells in sheet.rows[1:]:
        more = any(cell.strip() for cell in cells[len(names) :])
        if more or len(cells) < reach:
            hint = "; is a comma in a cell without quotation marks, as in 0,5?" if more else ""
            raise UserError(f"{path}, line {line}: cut short, or not as long as the first{hint}")
        rows.append((line, (cells + [""] * len(names))[: len(names)]))
    return Table(path, sheet.separator, names, rows, sheet.comments, sheet.n_empty)


def folded(name: str) -> str:
    """Return a column's name in lower case, its words joined by underscores."""
    return "_".join(name.split()).casefold()


def _separator(lines: Sequence[str], needed: Sequence[str]) -> str:
    """Return what separates the cells of the first row: what finds the names, then most cells."""

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
