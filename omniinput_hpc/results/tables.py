"""CSV files: a line of column names, then the rows; RUN.results.json records what they mean."""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from omniinput_hpc.annotation.display import DescribedRun
from omniinput_hpc.errors import UserError
from omniinput_hpc.estimators import EstimateError, FloatArray
from omniinput_hpc.estimators.comparison.to_exact import Exact
from omniinput_hpc.text import read_cell, safe_cell, write_atomically
from omniinput_hpc.untrusted import tables

Columns = dict[str, NDArray[Any]]
"""A table: name of each column to its values [n]."""
MAX_CSV_BYTES = 1 << 28
_FORMATS = {"i": "%d", "u": "%d", "U": "%s"}


def beside(run_path: Path, ending: str) -> Path:
    """Return the path of a result: ``runs/toy.h5`` and ``.pr.csv`` give ``runs/toy.pr.csv``."""
    return run_path.with_name(run_path.stem + ending)


def write_table(path: Path, columns: Mapping[str, NDArray]) -> None:
    """Write a CSV file atomically: the names of the columns, then the rows of the columns [n].

    Integers and texts are written as they are, other numbers with 12 digits.
    """
    write_atomically(path, table_text(columns))


def table_text(columns: Mapping[str, NDArray]) -> str:
    """Return the text of such a file; texts with commas or quotation marks are quoted.

    Texts that a spreadsheet would run are made safe (see `omniinput_hpc.text.safe_cell`).
    """
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(columns)
    formats = [_FORMATS.get(v.dtype.kind, "%.12g") for v in columns.values()]
    for row in zip(*columns.values(), strict=True):
        writer.writerow(
            [
                safe_cell(value) if isinstance(value, str) else f % value
                for f, value in zip(formats, row, strict=True)
            ]
        )
    return file.getvalue()


def read_table(path: Path, needed: Sequence[str]) -> tuple[list[str], dict[str, FloatArray]]:
    """Read a CSV file: its comments (leading lines with #), and its columns, float64 [n].

    Raises
    ------
    EstimateError
        The file or a needed column is missing, there are no rows, or a needed cell is not a number.
    """
    table = _table(path, needed)
    if not table.rows:
        raise EstimateError(f"{path} holds no rows")
    return list(table.comments), _columns(table, needed)


def read_exact(path: Path, edges: FloatArray, needed: Sequence[str] = ()) -> Exact:
    """Read an exact density: a density CSV file with an optional column r.

    Its bins must be among those of the run, whose edges are float64 [B + 1]. `needed` names further
    required columns.

    Raises
    ------
    EstimateError
        The file is unreadable, or has bins that are not the run's.
    """
    _, columns = read_table(path, ["z_lower", "z_upper", "log_g", *needed])
    for name in ("z_lower", "z_upper", "log_g"):
        if not np.isfinite(columns[name]).all():
            raise EstimateError(f"{path}: {name} holds numbers that are not finite")
    lower, upper = columns["z_lower"], columns["z_upper"]
    b = np.clip(np.rint(np.interp(lower, edges, np.arange(len(edges)))), 0, len(edges) - 2)
    bins = b.astype(np.int64)
    near = 1e-6 * np.diff(edges).min()
    fits = (np.abs(edges[bins] - lower) < near) & (np.abs(edges[bins + 1] - upper) < near)
    if not fits.all():
        i = int(np.argmin(fits))
        raise EstimateError(
            f"{path}: its bin {lower[i]:g} to {upper[i]:g} is not one of the run's bins "
            f"({edges[0]:g} to {edges[-1]:g}, width {edges[1] - edges[0]:g}); "
            "enumerate with the run's own input file"
        )
    log_g_b, r_b = np.full(len(edges) - 1, -np.inf), np.full(len(edges) - 1, np.nan)
    log_g_b[bins] = columns["log_g"]
    r_b[bins] = columns.get("r", np.full(len(bins), np.nan))
    return Exact(log_g_b, r_b)


def read_test_sets(path: Path) -> dict[str, FloatArray]:
    """Read the outputs z, float64 [n], of each test set that ``omniinput test-sets`` wrote.

    If a set has inputs of several roles, its parts are named ``SET (ROLE)``.

    Raises
    ------
    EstimateError
        The file is missing, or a row is not ``set,role,z``.
    """
    found: dict[tuple[str, str], list[float]] = {}
    table = _table(path, ["set", "role", "z"])
    z_n, at = _columns(table, ["z"])["z"], [table.names.index(name) for name in ("set", "role")]
    for (line, cells), z in zip(table.rows, z_n.tolist(), strict=True):
        if not np.isfinite(z):
            raise EstimateError(f"{path}, line {line}: z must be a finite number, found {z}")
        found.setdefault((read_cell(cells[at[0]]), cells[at[1]]), []).append(z)
    if not found:
        raise EstimateError(f"{path} holds no outputs")
    roles = Counter(name for name, _ in found)
    return {
        f"{name} ({role})" if roles[name] > 1 else name: np.array(z)
        for (name, role), z in found.items()
    }


def _table(path: Path, needed: Sequence[str]) -> tables.Table:
    try:
        return tables.read_table(path, "CSV file", MAX_CSV_BYTES, needed)
    except UserError as error:
        raise EstimateError(str(error)) from None


def _columns(table: tables.Table, needed: Sequence[str]) -> dict[str, FloatArray]:
    """Return the numeric columns, float64 [n]; EstimateError if a needed one is not numeric."""
    names = [name for name in table.names if name]
    try:
        rows = table.numbers(names)
    except UserError as error:
        raise EstimateError(str(error)) from None
    found = {}
    for name in names:
        cells = [row.get(name, "") for row in rows]
        wrong = next((i for i, cell in enumerate(cells) if isinstance(cell, str)), None)
        if wrong is None:
            found[name] = np.array(cells, dtype=np.float64)
        elif name in needed:
            where, got = f"{table.path}, line {table.rows[wrong][0]}", cells[wrong]
            raise EstimateError(f"{where}: {name} must be a number, got {json.dumps(got)[:60]}")
    return found


def describe_run(*runs: DescribedRun) -> str:
    """Return one line on the source of the numbers."""
    first = runs[0]
    noisy = any(run.config.noisy for run in runs)
    return (
        "; ".join(_rounds_of(run) for run in runs)
        + f", {first.n_sites} sites of {first.n_values} values, model {first.fingerprint}"
        + (" (model.noise = true: z is not a function of the input)" if noisy else "")
    )


def _rounds_of(run: DescribedRun) -> str:
    unfinished = "" if run.rounds == run.rounds_planned else ", not finished"
    return f"{run.path}, {run.rounds} of {run.rounds_planned} rounds{unfinished}"
