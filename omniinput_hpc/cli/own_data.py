"""Read a user's own test data as inputs of a model: texts, pictures or values from files.

| file | contents |
| --- | --- |
| ``.txt`` | one text per line; lines end with LF, CR LF or CR |
| ``.jsonl`` | one object per line: ``text`` or ``values`` (a list), optionally ``label`` (1 positive, 0 negative) |
| ``.fasta``, ``.fa``, ... | sequences of letters, in FASTA |
| ``.npy`` | values, integers [n, D], or pictures, uint8 [n, h, w] or [n, h, w, 3] |
| ``.csv``, ``.tsv`` | one input per row: values, or a column ``text``; a header row may name a column \
``label``; cells are separated by commas, semicolons or tabs |
| a folder | pictures that Pillow reads (PNG, JPEG, TIFF, ...), in the order of their names |

Texts may be UTF-8 or UTF-16. Notes report how many empty lines, rows and other items are left out.
This module does not import torch.
"""  # noqa: E501

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from omniinput_hpc.config import Config
from omniinput_hpc.config.space import Space
from omniinput_hpc.errors import UserError
from omniinput_hpc.models import constraint, table
from omniinput_hpc.models.images import own_pictures
from omniinput_hpc.models.images.own_pictures import Inputs, Render
from omniinput_hpc.text import counted
from omniinput_hpc.untrusted import fasta, tables
from omniinput_hpc.untrusted.files import read_text
from omniinput_hpc.untrusted.npy import read_array
from omniinput_hpc.untrusted.parsing import parse_json

MAX_BYTES = 1 << 28
ENDINGS = (".txt", ".jsonl", ".npy", ".csv", ".tsv", *fasta.ENDINGS)
_WHOLE = re.compile(r"[+-]?[0-9]{1,300}")
_NUMBER = re.compile(r"[+-]?[0-9.,]+([eE][+-]?[0-9]+)?")
ROLES = {None: "data", 0: "negative", 1: "positive"}


@dataclass(frozen=True)
class OwnData:
    """Inputs of a model, read from a file.

    Attributes
    ----------
    x : int64 [n, D], values
    role : [n], "positive" or "negative" according to the label, "data" without a label
    notes : messages to the user about items that were left out or cut
    of_texts : whether the file holds texts
    names : the header of each input of a FASTA file; empty for other files
    """

    x: NDArray[np.int64]
    role: list[str]
    notes: list[str] = field(default_factory=list)
    of_texts: bool = False
    names: list[str] = field(default_factory=list)


def is_file_of_data(text: str) -> bool:
    """Return whether an argument is a folder, or ends like a file that `read` can read."""
    return Path(text).suffix.lower() in ENDINGS or Path(text).is_dir()


def check_space(name: str, config: Config) -> None:
    """Raise a UserError if the space is constrained: data of this name may lie outside it."""
    if config.constrained:
        raise UserError(
            f"{name}: a run with {config.constraint} cannot be compared with test data, which may "
            "lie outside its space"
        )


def read(
    path: Path, config: Config, n_sites: int, space: Space, render: Render | None = None
) -> OwnData:
    """Read a file as inputs of a model with D = `n_sites` sites; `render` is the model's.

    A text with more tokens than sites is cut after the last site; one with fewer is left out.
    Raises a `UserError` that names the file if it cannot be read or does not fit the model.
    """
    notes: list[str] = []
    inputs = Inputs(config.model, n_sites, space.n_ids, render)
    names: list[str] = []
    if path.suffix.lower() in fasta.ENDINGS:
        names, items = fasta.read(path, "test data", MAX_BYTES)
        label: list[int | None] = [None] * len(items)
    else:
        items, label = _items(path, inputs, notes)
    if (isinstance(items, np.ndarray) and not items.ndim) or not len(items):
        raise UserError(f"{path} holds no inputs")
    if isinstance(items, list) and isinstance(items[0], str):
        kept, x = _of_texts(path, items, config, n_sites, notes)
        label, names = [label[i] for i in kept], [names[i] for i in kept] if names else []
    else:
        constraint.require_token_ids(config, str(path), "give texts")
        array = _as_array(path, items)
        ids = _of_array(path, array, inputs)
        x = space.to_values(ids)
    if x.shape[1] != n_sites:
        raise UserError(
            f"{path}: its inputs have {x.shape[1]} values each; the model has {n_sites}"
        )
    if not isinstance(items[0], str):  # tokens of texts are already checked
        _refuse(path, ids, (ids < 0) | (ids >= space.n_ids), f"is not from 0 to {space.n_ids - 1}")
        _refuse(path, ids, x < 0, "is not allowed at any site (space.allowed)")
    return OwnData(x, [ROLES[one] for one in label], notes, isinstance(items[0], str), names)


def _refuse(path: Path, x: NDArray[Any], wrong: NDArray[np.bool_], why: str) -> None:
    """Raise a UserError that names the first wrong value, if there is one."""
    if wrong.any():
        row = int(np.argmax(wrong.any(axis=1)))
        raise UserError(f"{path}, input {row + 1}: the value {x[row][wrong[row]][0]} {why}")


def _items(path: Path, inputs: Inputs, notes: list[str]) -> tuple[Any, list[int | None]]:
    """Return texts, lists of values, or an array, with a label (or None) for each."""
    ending = path.suffix.lower()
    if path.is_dir():
        x, n_other = own_pictures.of_folder(path, inputs)
        _note(notes, path, n_other, "other file")
        return x, [None] * len(x)
    if ending not in ENDINGS:
        remedy = "; save it as CSV (UTF-8)" if ending in tables.WORKBOOKS else ""
        remedy = "; unpack it first" if ending in (".gz", ".bz2", ".xz", ".zst", ".zip") else remedy
        kinds = f"a folder of pictures, or one of {', '.join(ENDINGS)}"
        raise UserError(f"{path}: expected {kinds}{remedy}")
    if ending == ".npy":
        array = read_array(path, str(path))
        return array, [None] * (len(array) if array.ndim else 0)
    if ending in (".csv", ".tsv"):
        return _of_csv(tables.read_sheet(path, "test data", MAX_BYTES), notes)
    text = read_text(path, "test data", MAX_BYTES)
    lines = [(n, line) for n, line in enumerate(text.split("\n"), 1) if line.strip()]
    _note(notes, path, text.removesuffix("\n").count("\n") + 1 - len(lines), "empty line")
    if ending == ".txt":
        return [line for _, line in lines], [None] * len(lines)
    return _of_jsonl(path, lines)


def _note(notes: list[str], path: Path, number: int, thing: str) -> None:
    if number:
        notes.append(f"{path}: {counted(number, thing)} left out")


def _of_jsonl(path: Path, lines: list[tuple[int, str]]) -> tuple[list[Any], list[int | None]]:
    items: list[Any] = []
    labels: list[int | None] = []
    for number, line in lines:
        where = f"{path}, line {number}"
        try:
            found = parse_json(line.encode())
        except ValueError as error:
            raise UserError(f"{where}: not valid JSON: {error}") from None
        known = {"text": str, "values": list}
        key = next((k for k in known if isinstance(found, dict) and k in found), None)
        if key is None or not isinstance(found[key], known[key]):
            raise UserError(f'{where}: expected an object with "text" or "values" (a list)')
        if items and type(items[0]) is not type(found[key]):
            raise UserError(f'{where}: "text" and "values" cannot be mixed in one file')
        items.append(found[key])
        labels.append(_label(found.get("label"), where))
    return items, labels


def _of_csv(sheet: tables.Sheet, notes: list[str]) -> tuple[list[Any], list[int | None]]:
    """Return the column of texts or the values of each row, and the labels."""
    path = sheet.path
    rows = [(n, cells) for n, cells in sheet.rows if not cells[0].startswith("#")]
    _note(notes, path, sheet.n_empty, "empty row")
    _note(notes, path, len(sheet.rows) - len(rows), "comment row")
    if not rows:
        return [], []
    names = [tables.folded(name) for name in rows[0][1]]
    named = {"label", "text"} & set(names) or not any(map(_NUMBER.fullmatch, names))
    width = max(i for _, cells in rows for i, cell in enumerate(cells, 1) if cell.strip())
    long = (n for n, cells in rows if any(cell.strip() for cell in cells[len(names) :]))
    if named and (line := next(long, None)) is not None:
        raise UserError(
            f"{path}, line {line}: longer than the first line; does a cell hold a comma without "
            "quotation marks?"
        )
    rows = [(n, cells[:width]) for n, cells in rows]  # spreadsheets may append empty cells
    if named:
        rows = rows[1:]
    elif names[:width] == [str(i) for i in range(width)]:
        ends = f"0 to {width - 1}"
        notes.append(f"{path}: the first row, {ends}, is read as an input, not as names of columns")
    for name in ("label", "text"):
        if names.count(name) > 1:
            raise UserError(f"{path} has several columns {name}; keep one")
    at = names.index("label") if "label" in names else None
    labels: list[int | None] = [None] * len(rows)
    if at is not None:
        short = next((n for n, cells in rows if len(cells) <= at), None)
        if short is not None:
            raise UserError(f"{path}, line {short}: a row has no label")
        labels = [_label(cells[at].strip(), f"{path}, line {n}") for n, cells in rows]
    if "text" in names:
        text = names.index("text")
        return [cells[text] if len(cells) > text else "" for _, cells in rows], labels
    values = [
        [_whole(cell, f"{path}, line {n}") for i, cell in enumerate(cells) if i != at]
        for n, cells in rows
    ]
    return values, labels


def _whole(cell: str, where: str) -> int:
    """Return a cell's whole number; `int` would also accept 1_000 and digits of other scripts."""
    if not _WHOLE.fullmatch(cell.strip()):
        raise UserError(
            f"{where}: each row must hold the same number of whole numbers, found "
            f"{cell.strip()[:40]!r}"
        )
    return int(cell)


def _label(value: Any, where: str) -> int | None:
    if value is None or value in (0, 1):
        return None if value is None else int(value)
    if value in ("0", "1"):
        return int(value)
    raise UserError(f"{where}: the label {str(value)[:40]!r} is neither 0 (negative) nor 1")


def _as_array(path: Path, items: Any) -> NDArray[Any]:
    """Return lists of whole numbers as int64 [n, D]; return an array unchanged."""
    if isinstance(items, np.ndarray):
        return items
    try:
        if any(type(value) is not int for row in items for value in row):
            raise ValueError
        return np.array(items, dtype=np.int64)
    except (ValueError, TypeError, OverflowError):
        raise UserError(f"{path}: each row must hold the same number of whole numbers") from None


def _of_array(path: Path, array: NDArray[Any], inputs: Inputs) -> NDArray[np.int64]:
    if array.ndim == 2 and array.dtype.kind in "iu":
        if array.dtype == np.uint64 and array.size and array.max() > np.iinfo(np.int64).max:
            raise UserError(f"{path}: its values are too large")
        return array.astype(np.int64)
    if inputs.from_pictures and array.dtype == np.uint8 and array.ndim > 2:
        return own_pictures.of_array(array, str(path), inputs)
    raise UserError(
        f"{path} holds {array.dtype} {list(array.shape)}; this model takes values, integers "
        f"[n, {inputs.n_sites}]"
    )


def _of_texts(
    path: Path, texts: list[str], config: Config, n_sites: int, notes: list[str]
) -> tuple[list[int], NDArray[np.int64]]:
    """Return the indices of texts that are inputs of the model, and their values, int64 [n, D]."""
    try:
        encode = table.encoder(config)
    except UserError as error:
        raise UserError(f"{path} holds texts, but {error}") from None
    found = [encode(text) for text in texts]
    kept = [i for i, values in enumerate(found) if len(values) >= n_sites]
    kept = [i for i in kept if min(found[i][:n_sites]) >= 0]
    short = sum(len(values) < n_sites for values in found)
    cut = sum(len(found[i]) > n_sites for i in kept)
    other = len(texts) - short - len(kept)
    for number, words in (
        (short, f"left out: fewer than {n_sites} tokens"),
        (other, "left out: a token is not allowed at any site"),
        (cut, f"cut after {n_sites} tokens"),
    ):
        if number:
            notes.append(f"{path}: {number} of {len(texts)} texts {words}")
    if not kept:
        raise UserError(f"{path}: no text has {n_sites} tokens that are allowed at the sites")
    return kept, np.array([found[i][:n_sites] for i in kept], dtype=np.int64)
