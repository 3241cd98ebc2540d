"""The user's own test data as inputs of a model: texts, pictures or values from files.

| file | what |
| --- | --- |
| ``.txt`` | a text a line |
| ``.jsonl`` | an object a line: ``text`` or ``values`` (a list), perhaps ``label`` (1 positive, 0 negative) |
| ``.npy`` | values, integers [n, D], or pictures, uint8 [n, h, w] or [n, h, w, 3] |
| ``.csv`` | values, a row an input; a first row of names may name one column ``label`` |
| a folder | pictures, ``*.png``, in the order of their names |

No torch is imported here.
"""  # noqa: E501

from __future__ import annotations

import csv
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from omniinput_hpc.annotation.png import file_data_uri, pixels
from omniinput_hpc.config import CausalLm, Config, ImageClassifier, SequenceClassifier
from omniinput_hpc.errors import UserError
from omniinput_hpc.models.images.files import Shape, shape_of
from omniinput_hpc.models.language import hf_folder
from omniinput_hpc.untrusted.files import read_text
from omniinput_hpc.untrusted.npy import read_array
from omniinput_hpc.untrusted.parsing import parse_json

MAX_BYTES = 1 << 28
ENDINGS = (".txt", ".jsonl", ".npy", ".csv")
ROLES = {None: "data", 0: "negative", 1: "positive"}


@dataclass(frozen=True)
class OwnData:
    """Inputs of a model, from a file.

    Attributes
    ----------
    x : int64 [n, D], values
    role : [n], "positive" or "negative" where the file has labels, else "data"
    notes : what was left out or cut, for the user
    """

    x: NDArray[np.int64]
    role: list[str]
    notes: list[str] = field(default_factory=list)


def is_file_of_data(text: str) -> bool:
    """Whether a command's argument is a file that `read` knows by its ending, or a folder."""
    return Path(text).suffix.lower() in ENDINGS or Path(text).is_dir()


def read(path: Path, config: Config, n_sites: int, n_values: int) -> OwnData:
    """Return the inputs of a model of D = `n_sites` sites that a file holds.

    A text of more tokens than sites is cut behind the last site, one of fewer is left out. Raises a
    `UserError` that names the file where it cannot be read or does not fit the model.
    """
    items, label = _items(path)
    if (isinstance(items, np.ndarray) and not items.ndim) or not len(items):
        raise UserError(f"{path} holds no inputs")
    notes: list[str] = []
    if isinstance(items, list) and isinstance(items[0], str):
        kept, x = _of_texts(path, items, config, n_sites, notes)
        label = [label[i] for i in kept]
    else:
        array = _as_array(path, items)
        x = _of_array(path, array, config, n_sites)
    if x.shape[1] != n_sites:
        raise UserError(
            f"{path}: its inputs have {x.shape[1]} values each; the model has {n_sites}"
        )
    outside = (x < 0) | (x >= n_values)
    if outside.any():
        row = int(np.argmax(outside.any(axis=1)))
        raise UserError(
            f"{path}, input {row + 1}: the value {x[row][outside[row]][0]} is not from 0 to "
            f"{n_values - 1}"
        )
    return OwnData(x, [ROLES[one] for one in label], notes)


def _items(path: Path) -> tuple[Any, list[int | None]]:
    """Return texts, lists of values, or an array, with a label (or None) for each."""
    ending = path.suffix.lower()
    if path.is_dir():
        pictures = [pixels(file_data_uri(file)) for file in sorted(path.glob("*.png"))]
        shapes = sorted({picture.shape for picture in pictures})
        if len(shapes) > 1:
            raise UserError(f"{path}: pictures of several shapes ({shapes[0]} and {shapes[1]})")
        if not pictures:
            raise UserError(f"{path}: the folder holds no *.png")
        return np.stack(pictures), [None] * len(pictures)
    if ending not in ENDINGS:
        raise UserError(f"{path}: expected a folder of *.png, or one of {', '.join(ENDINGS)}")
    if ending == ".npy":
        array = read_array(path, str(path))
        return array, [None] * (len(array) if array.ndim else 0)
    text = read_text(path, "test data", MAX_BYTES)
    if ending == ".txt":
        texts = [line for line in text.split("\n") if line.strip()]
        return texts, [None] * len(texts)
    return _of_jsonl(path, text) if ending == ".jsonl" else _of_csv(path, text)


def _of_jsonl(path: Path, text: str) -> tuple[list[Any], list[int | None]]:
    items: list[Any] = []
    labels: list[int | None] = []
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
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


def _of_csv(path: Path, text: str) -> tuple[list[list[str]], list[int | None]]:
    try:
        rows = [row for row in csv.reader(text.splitlines()) if row and not row[0].startswith("#")]
    except csv.Error as error:
        raise UserError(f"{path} cannot be read as CSV: {error}") from None
    names = [name.strip() for name in rows[0]] if rows else []
    at = names.index("label") if "label" in names else None
    if at is not None and min(map(len, rows)) <= at:
        raise UserError(f"{path}: a row has no label")
    if rows and not any(map(_is_number, names)):
        rows = rows[1:]
    labels = [_label(row[at].strip() if at is not None else None, str(path)) for row in rows]
    return [[cell for i, cell in enumerate(row) if i != at] for row in rows], labels


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _label(value: Any, where: str) -> int | None:
    if value is None or value in (0, 1):
        return None if value is None else int(value)
    if value in ("0", "1"):
        return int(value)
    raise UserError(f"{where}: the label {str(value)[:40]!r} is neither 0 (negative) nor 1")


def _as_array(path: Path, items: Any) -> NDArray[Any]:
    """Return lists of whole numbers as int64 [n, D]; an array as it is."""
    if isinstance(items, np.ndarray):
        return items
    try:
        if any(type(value) in (bool, float) for row in items for value in row):
            raise ValueError
        return np.array([[int(value) for value in row] for row in items], dtype=np.int64)
    except (ValueError, TypeError, OverflowError):
        raise UserError(
            f"{path}: each input must be a row of as many whole numbers as the others"
        ) from None


def _of_array(path: Path, array: NDArray[Any], config: Config, n_sites: int) -> NDArray[np.int64]:
    if array.ndim == 2 and array.dtype.kind in "iu":
        if array.dtype == np.uint64 and array.size and array.max() > np.iinfo(np.int64).max:
            raise UserError(f"{path}: its values are too large")
        return array.astype(np.int64)
    if isinstance(config.model, ImageClassifier) and array.dtype == np.uint8 and array.ndim > 2:
        return _of_pictures(path, array, shape_of(config.model))
    raise UserError(
        f"{path} holds {array.dtype} {list(array.shape)}; this model takes values, integers "
        f"[n, {n_sites}]"
    )


def _of_pictures(path: Path, pictures: NDArray[np.uint8], shape: Shape) -> NDArray[np.int64]:
    """Return the grey levels of pictures, uint8 [n, h, w] or [n, h, w, 3]."""
    if pictures.ndim == 4 and shape.channels == 1 and (pictures == pictures[..., :1]).all():
        pictures = pictures[..., 0]  # grey, stored as red, green and blue
    last = (3,) if shape.channels == 3 else ()
    if pictures.shape[1:] != (shape.height, shape.width, *last):
        raise UserError(
            f"{path}: pictures of {list(pictures.shape[1:])}; the model takes "
            f"{[shape.height, shape.width, *last]}"
        )
    levels = np.rint(pictures * ((shape.n_values - 1) / 255.0))
    return np.asarray(levels, dtype=np.int64).reshape(len(pictures), -1)


def _of_texts(
    path: Path, texts: list[str], config: Config, n_sites: int, notes: list[str]
) -> tuple[list[int], NDArray[np.int64]]:
    """Return which texts are inputs of the model, and their values [n, D]."""
    if not isinstance(config.model, CausalLm | SequenceClassifier):
        raise UserError(f'{path} holds texts, and model.kind = "{config.model.kind}" takes none')
    encode = hf_folder.encoder(config.model)
    found = [encode(text) for text in texts]
    kept = [i for i, values in enumerate(found) if len(values) >= n_sites]
    kept = [i for i in kept if min(found[i][:n_sites]) >= 0]
    short = sum(len(values) < n_sites for values in found)
    cut = sum(len(found[i]) > n_sites for i in kept)
    other = len(texts) - short - len(kept)
    for number, words in (
        (short, f"of fewer than {n_sites} tokens left out"),
        (other, "left out: a token is none that a site may take"),
        (cut, f"cut after {n_sites} tokens"),
    ):
        if number:
            notes.append(f"{path}: {number} of {len(texts)} texts {words}")
    if not kept:
        raise UserError(f"{path}: no text has {n_sites} tokens that the sites may take")
    return kept, np.array([found[i][:n_sites] for i in kept], dtype=np.int64)
