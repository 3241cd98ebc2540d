"""CSV files: a line of column names, then the rows; RUN.results.json records what they mean."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from omniinput_hpc.errors import UserError
from omniinput_hpc.estimators import EstimateError, FloatArray
from omniinput_hpc.estimators.comparison.to_exact import Exact
from omniinput_hpc.estimators.density.certified import Certified
from omniinput_hpc.estimators.density.density import MIN_EFFECTIVE_COUNT, Density
from omniinput_hpc.estimators.errors.convergence import MAX_BLOCKS, Check
from omniinput_hpc.estimators.run_data import RunData
from omniinput_hpc.text import read_cell, safe_cell, shown, write_atomically
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

    Raises
    ------
    EstimateError
        The file is missing, or a row is not ``set,role,z``.
    """
    found: dict[str, list[float]] = {}
    table = _table(path, ["set", "role", "z"])
    z_n, at = _columns(table, ["z"])["z"], table.names.index("set")
    for (line, cells), z in zip(table.rows, z_n.tolist(), strict=True):
        if not np.isfinite(z):
            raise EstimateError(f"{path}, line {line}: z must be a finite number, found {z}")
        found.setdefault(read_cell(cells[at]), []).append(z)
    if not found:
        raise EstimateError(f"{path} holds no outputs")
    return {name: np.array(z) for name, z in found.items()}


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


def describe_density(density: Density, source: str) -> list[str]:
    """Return the lines that describe a density and its errors."""
    verdict, n_groups = density.verdict, len(density.lanes_g)
    bounded = int(np.isfinite(density.log_g_upper_b).sum())
    if density.absolute:
        lines = [
            f"absolute: yes (the space holds exp({density.log_inputs:.10g}) inputs; "
            "share of the beta = 0 rung's moves inside the bins: "
            f"{density.share_inside:.6g})"
        ]
    else:
        why = "no rung has beta = 0"
        if not np.isnan(density.share_inside):
            why = "all moves of the beta = 0 rung fell outside the bins"
        lines = [f"absolute: no ({why}); log_g is relative: the sum of exp(log_g) is 1"]
    lines += verdict_lines(density)
    blocks = f"{verdict.n_blocks} blocks of rounds" if verdict.n_blocks else "no blocks"
    lines += [
        f"errors: one standard error, jackknife over {n_groups} groups of lanes; Student's t has "
        f"{n_groups - 1} degrees of freedom; inf if only one group visited the bin",
        f"log_g_upper: 95% upper bound of log_g in the {bounded} bins with fewer than "
        f"{MIN_EFFECTIVE_COUNT:.0f} effective counts, whose log_g_error is not reliable; nan "
        "elsewhere, and in all bins of a run that has not converged, whose log_g_error is only the "
        "spread of its lanes",
        f"checked against: {blocks} (at most {MAX_BLOCKS}), median ratio of the errors "
        f"{verdict.ratio:.3g} over {verdict.n_bins} bins",
        f"source: {source}",
    ]
    return lines


def describe_run(*runs: RunData) -> str:
    """Return one line on the source of the numbers."""
    first = runs[0]
    noisy = any(run.config.get("model", {}).get("noise") for run in runs)
    return (
        "; ".join(_rounds_of(run) for run in runs)
        + f", {first.n_sites} sites of {first.n_values} values, model {first.fingerprint}"
        + (" (model.noise = true: z is not a function of the input)" if noisy else "")
    )


def _rounds_of(run: RunData) -> str:
    unfinished = "" if run.rounds == run.rounds_planned else ", not finished"
    return f"{run.path}, {run.rounds} of {run.rounds_planned} rounds{unfinished}"


def summarize_density(density: Density) -> list[str]:
    """Return the lines that the script prints."""
    filled = density.count_b > 0
    bounded_b = np.isfinite(density.log_g_upper_b)
    error = density.log_g_error_b[filled & ~bounded_b]
    known = np.isfinite(error)
    lines = [
        f"{filled.sum()} of {len(filled)} bins have counts, {density.count_b.sum():,} in all; "
        f"{density.outside_k2[:, 0].sum():,} moves below the bins, "
        f"{density.outside_k2[:, 1].sum():,} above"
    ]
    if density.absolute:
        lines.append(
            "log_g is absolute: ln of the number of inputs per bin, "
            f"ln(all inputs inside the bins) = {logsumexp(density.log_g_b):.6f}"
        )
    else:
        lines.append("log_g is relative: no moves at beta = 0 inside the bins")
    if known.any():
        lines.append(
            f"standard error of log_g: median {np.median(error[known]):.4f}, largest "
            f"{error[known].max():.4f}; not known in {(~known).sum()} bins"
        )
    if bounded_b.any():
        lines.append(
            f"{bounded_b.sum()} further bins have fewer than {MIN_EFFECTIVE_COUNT:.0f} effective "
            "counts: use their upper bounds, not their errors"
        )
    if not density.verdict.converged:
        lines.append("these errors are only the spread of the lanes: the run has not converged")
    return lines + verdict_lines(density)


VISITED = "for visited inputs only:"
"""Beginning of the line that says which inputs the verdict "converged" cannot cover."""


def verdict_lines(density: Density) -> list[str]:
    """Return the verdict as text, a line per reason."""
    if density.verdict.converged:
        return ["converged: yes", f"{VISITED} no check can see inputs that no walker came near"]
    return ["converged: no"] + [f"not converged: {reason}" for reason in density.verdict.reasons]


CHECKS = ("check", "found", "limit", "")
"""Names of the columns of `check_rows`."""


def check_rows(checks: Sequence[Check]) -> list[list[str]]:
    """Return a row of text for each check of a verdict: name, found, limit, and if it failed."""
    rows = []
    for one in checks:
        found, limit = (shown(number, ".3g", "-") for number in (one.value, one.threshold))
        rows.append([one.name, found, limit, "" if one.passed else "FAILED"])
    return rows


def check_lines(checks: Sequence[Check]) -> list[str]:
    """Return the checks of a verdict as a table for the terminal."""
    rows = [list(CHECKS), *check_rows(checks)]
    return [f"{row[0]:44s}{row[1]:>10}{row[2]:>10}  {row[3]}".rstrip() for row in rows]


def density_columns(density: Density) -> dict[str, NDArray]:
    """Return the columns of the density file: a row per bin that has counts.

    log_g_upper is NaN if log_g and its error give an interval, and a number if they do not.
    """
    bins = np.flatnonzero(density.count_b)
    return {
        "z_lower": density.edges[bins],
        "z_upper": density.edges[bins + 1],
        "log_g": density.log_g_b[bins],
        "log_g_error": density.log_g_error_b[bins],
        "count": density.count_b[bins],
        "effective_count": density.effective_b[bins],
        "log_g_upper": density.log_g_upper_b[bins],
    }


def certified_columns(found: Certified) -> dict[str, NDArray]:
    """Return the columns of RUN.certified.csv: a row per threshold."""
    return {
        "z": found.z_t,
        "log_inputs": found.log_n_t,
        "log_inputs_low": found.low_t,
        "log_inputs_high": found.high_t,
        "exact": found.exact_t.astype(np.int64),
    }


def describe_certified(found: Certified) -> list[str]:
    """Return lines that explain certified bounds; the first one is also printed."""
    return [
        "certified: each pair of bounds on the number of inputs with outputs up to z holds with "
        f"95% probability, from {found.n_groups:,} groups of independent draws, assuming only that "
        "the model's conditional probabilities add up to at most 1",
        "log_inputs: ln of the number, -inf if none was drawn; exact: 1 if a census lists all",
        f"z is below the draws' own loss by {found.apart:.2g} at most, which the bounds allow for",
    ]


def compare_certified(found: Certified, density: Density) -> list[str]:
    """Return a line on whether a density's numbers of inputs lie within certified bounds."""
    if not density.absolute:
        return []
    upto_b = np.logaddexp.accumulate(density.log_g_b)
    log_n_t = upto_b[np.searchsorted(density.edges[1:], found.z_t - 1e-9)]
    seen = np.isfinite(log_n_t)
    outside = seen & ((log_n_t < found.low_t) | (log_n_t > found.high_t))
    line = (
        f"the density is within these bounds at {(seen & ~outside).sum()} of {seen.sum()} "
        "thresholds"
    )
    if outside.any():
        z = found.z_t[outside]
        line += f"; it is not at z = {z[0]:.4g}" + (f" to {z[-1]:.4g}" if len(z) > 1 else "")
    return [line]
