"""Files of Potts models (direct coupling analysis): fields h_i(a) and couplings J_ij(a, b).

| file | contents |
| --- | --- |
| text, of adabmDCA | lines ``J i j a b value`` and ``h i a value``; sites count from 0, values \
are numbers from 0 or letters; couplings that are left out are 0 |
| ``.npz`` | ``h`` [L, q] and ``J`` [L, L, q, q], each pair once or twice; perhaps \
``alphabet``, a text |
| binary, of plmc (``-o``) | as its script read_params.m reads it |

This module does not import torch.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from omniinput_hpc.config import Potts
from omniinput_hpc.errors import UserError
from omniinput_hpc.models.display import Display, letters_of, values_as_text
from omniinput_hpc.models.language.hf_folder import fingerprint
from omniinput_hpc.untrusted import texts
from omniinput_hpc.untrusted.files import read_bytes

MAX_BYTES = 1 << 32
MAX_ROWS = 1 << 15
"""Sites times values, at most: the couplings of so many take 4 GiB."""
ALPHABETS = {21: "-ACDEFGHIKLMNPQRSTVWY", 5: "-ACGU"}
"""Of files that only number their values: those of adabmDCA for proteins and RNA."""
ENDINGS = (".dat", ".npz")
"""Usual endings of such files."""
_PLMC_HEAD = 40
# What zipfile and numpy raise for archives that are damaged, or packed in ways they do not know
_BROKEN = (KeyError, ValueError, OSError, EOFError, NotImplementedError)


@dataclass(frozen=True)
class Parameters:
    """The parameters of a Potts model of L sites and q values.

    Attributes
    ----------
    h : float32 [L, q]
    coupling : float32 [L, q, L, q], symmetric, 0 within a site
    alphabet : a character for each value; None if unknown
    """

    h: NDArray[np.float32]
    coupling: NDArray[np.float32]
    alphabet: str | None


def _is_text(data: bytes) -> bool:
    """Return whether a file is one of adabmDCA, the letters of which have an order of their own."""
    return data[:1] in (b"J", b"h") and data[1:2].isspace()


def read(options: Potts) -> Parameters:
    """Read a file; a `UserError` names it if it is broken, or if the alphabet does not fit."""
    path = Path(options.path)
    data = read_bytes(path, "file of a Potts model", MAX_BYTES)
    if data[:2] == b"PK":
        found = _of_npz(path, data)
    elif _is_text(data):
        found = _of_text(path, data, options.alphabet)
    else:
        found = _of_plmc(path, data)
    h, coupling, alphabet = found
    q = h.shape[1]
    alphabet = options.alphabet or alphabet or ALPHABETS.get(q)
    if alphabet is not None and not len(set(alphabet)) == len(alphabet) == q:
        raise UserError(
            f"{path}: its sites have {q} values, which the alphabet {alphabet!r} does not name; "
            f"give model.alphabet with {q} different characters"
        )
    if not (np.isfinite(h).all() and np.isfinite(coupling).all()):
        raise UserError(f"{path}: a field or a coupling is not finite")
    return Parameters(h, coupling, alphabet)


def alphabet_of(options: Potts) -> str | None:
    """Return the alphabet of a file without `model.alphabet`, which is read once."""
    try:
        status = Path(options.path).stat()
    except OSError as error:
        raise UserError(f"{options.path}: {error.strerror}") from None
    return _alphabet(options.path, status.st_mtime_ns, status.st_size)


@lru_cache
def _alphabet(path: str, *_of_file: int) -> str | None:
    return read(Potts(kind="potts", path=path)).alphabet


def preflight(options: Potts) -> dict[str, Any]:
    """Check the file (see `models.table.preflight`)."""
    found = read(options)
    n_sites, n_values = found.h.shape
    given = ""
    if options.alphabet and _is_text(Path(options.path).read_bytes()[:2]):
        given = f" alphabet:{options.alphabet}"
    return {
        "fingerprint": fingerprint([Path(options.path)]) + given, "bytes": found.coupling.nbytes,
        "n_sites": n_sites, "n_values": n_values,
    }  # fmt: skip


def display(options: Potts) -> Display:
    """Show inputs by the letters of the alphabet; by their values without one."""
    return shown_by(read(options).alphabet)


def shown_by(alphabet: str | None) -> Display:
    """Return how inputs are shown by an alphabet, or without one."""
    if alphabet is None:
        return Display("text", values_as_text, None, "values are shown; model.alphabet names them")

    def show(x_nd: NDArray[np.int64]) -> list[str]:
        return ["".join(alphabet[v] for v in x_d) for x_d in x_nd.tolist()]

    note = f"shown by the alphabet {alphabet}"
    return Display("text", show, None, note, letters=letters_of(alphabet))


def encoder(options: Potts) -> Callable[[str], list[int]]:
    """Return a function from a sequence of letters to its values; -1: no letter of the alphabet."""
    alphabet = read(options).alphabet
    if alphabet is None:
        raise UserError(f"{options.path} numbers its values: name them with model.alphabet")
    return lambda text: [alphabet.find(letter) for letter in text]


Found = tuple[NDArray[np.float32], NDArray[np.float32], str | None]


def _of_text(path: Path, data: bytes, alphabet: str | None) -> Found:
    lines = texts.with_line_feeds(texts.decode(data, path), path).split("\n")
    fields = [words for words in map(str.split, (x for x in lines if x[:1] == "h")) if words[3:]]
    names = list(dict.fromkeys(name for _, _, name, *_ in fields))
    numbered = all(map(_is_number, names))
    alphabet = None if numbered else alphabet or "".join(names)
    values = {a: int(a) if numbered else v for v, a in enumerate(alphabet or names)}
    sites = {site: int(site) for _, site, *_ in fields if _is_number(site)}
    n_sites, q = max(sites.values(), default=0) + 1, max(values.values(), default=0) + 1
    if len(fields) != n_sites * q:
        raise UserError(
            f"{path}: found {len(fields)} lines h, but {n_sites} sites (counted from 0) of {q} "
            f"values need {n_sites * q}"
        )
    _check_size(path, n_sites, q)
    tables = np.full((n_sites, q), np.nan), np.full((n_sites, q, n_sites, q), np.nan, np.float32)
    for number, line in enumerate(lines, 1):
        try:
            _enter(line.split(), sites, values, *tables)
        except (KeyError, ValueError):
            raise UserError(
                f"{path}, line {number}: expected h i a value, or J i j a b value with different "
                f"sites, and each number once; found {line[:60]!r}"
            ) from None
    h, coupling = (np.where(np.isnan(table), 0.0, table).astype(np.float32) for table in tables)
    return h, coupling + coupling.transpose(2, 3, 0, 1), alphabet


def _is_number(word: str) -> bool:
    return word.isdecimal() and len(word) < len(str(MAX_ROWS)) + 1


def _enter(
    words: list[str],
    sites: dict[str, int],
    values: dict[str, int],
    h: NDArray[Any],
    coupling: NDArray[Any],
) -> None:
    """Enter the number of a line into its table of NaN; a KeyError or ValueError if it is wrong."""
    match words:
        case []:
            return
        case ["h", i, a, number]:
            table, at = h, [sites[i], values[a]]
        case ["J", i, j, a, b, number] if i != j:
            pairs = sorted([(sites[i], values[a]), (sites[j], values[b])])
            table, at = coupling, [index for pair in pairs for index in pair]
        case _:
            raise ValueError
    value = float(number)
    if not (np.isnan(table[tuple(at)]) and np.isfinite(value)):
        raise ValueError
    table[tuple(at)] = value


def _of_npz(path: Path, data: bytes) -> Found:
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as members:
            if sum(member.file_size for member in members.infolist()) > 2 * MAX_BYTES:
                raise ValueError("it is too large")
        arrays = dict(np.load(io.BytesIO(data), allow_pickle=False))
        h, coupling = arrays["h"], arrays["J"].transpose(0, 2, 1, 3)
        if h.ndim != 2 or coupling.shape != h.shape * 2:
            raise ValueError(f"h {list(h.shape)} does not fit J {list(arrays['J'].shape)}")
        h, coupling = h.astype(np.float32), coupling.astype(np.float32)
    except (*_BROKEN, zipfile.BadZipFile) as error:
        raise UserError(
            f"{path} is not a Potts model: expected arrays h [L, q] and J [L, L, q, q] ({error})"
        ) from None
    _check_size(path, *h.shape)
    coupling[(within := np.arange(len(h))), :, within] = 0.0
    turned = coupling.transpose(2, 3, 0, 1)
    if not ((coupling != 0) & (turned != 0)).any():  # each pair stands there once
        coupling = coupling + turned
    elif not np.allclose(coupling, turned, rtol=1e-4, atol=1e-6):
        raise UserError(f"{path}: J_ij(a, b) differs from J_ji(b, a)")
    return h, coupling, str(arrays["alphabet"]) if "alphabet" in arrays else None


def _of_plmc(path: Path, data: bytes) -> Found:
    head = np.frombuffer(data[:_PLMC_HEAD].ljust(_PLMC_HEAD, b"\0"), dtype="<i4")
    n_sites, q, n_sequences = int(head[0]), int(head[1]), int(head[2]) + int(head[3])
    n_couplings = n_sites * (n_sites - 1) // 2 * q * q
    begin = _PLMC_HEAD + q + 4 * n_sequences + 5 * n_sites + 4 * n_sites * q  # of the fields
    if min(n_sites, q - 1, n_sequences) < 1 or len(data) != begin + 4 * (
        n_sites * q + 2 * n_couplings
    ):
        raise UserError(
            f"{path} is not a Potts model: expected a text of adabmDCA (lines J i j a b value and "
            "h i a value), an .npz file, or plmc's binary file of parameters"
        )
    _check_size(path, n_sites, q)
    h = np.frombuffer(data, "<f4", n_sites * q, begin).reshape(n_sites, q).copy()
    pairs = np.frombuffer(data, "<f4", n_couplings, len(data) - 4 * n_couplings)
    coupling = np.zeros((n_sites, q, n_sites, q), dtype=np.float32)
    i, j = np.triu_indices(n_sites, 1)
    coupling[i, :, j] = pairs.reshape(-1, q, q)
    alphabet = data[_PLMC_HEAD : _PLMC_HEAD + q].decode("latin-1")
    return h, coupling + coupling.transpose(2, 3, 0, 1), alphabet


def _check_size(path: Path, n_sites: int, q: int) -> None:
    if n_sites * q > MAX_ROWS:
        raise UserError(f"{path}: {n_sites:,} sites times {q:,} values are more than {MAX_ROWS:,}")
