"""The FID of each bin beside people's scores."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import scipy

from omniinput_hpc.estimators import EstimateError, FloatArray
from omniinput_hpc.estimators.precision_recall.agreement import rank_correlation
from omniinput_hpc.results.tables import Columns, read_table

CHANCE = 0.05
"""How likely a rank correlation may be among unrelated numbers to be called a relation."""


def fid_columns(path: Path, run: int | None, z_lower_b: FloatArray) -> Columns:
    """Return columns ``fid`` and ``fid_of_reference`` [B] of a table of ``omniinput judge``.

    Parameters
    ----------
    run : number of the run in it; None if it holds only one
    z_lower_b : float64 [B], lower edges of the bins; a bin that is not in the table gets NaN

    Raises
    ------
    EstimateError
        As in `read_table`; or the table does not hold this run, or several if none is named.
    """
    _, fid = read_table(path, ["run", "z_lower", "fid", "fid_of_reference"])
    numbers = np.unique(fid["run"])
    known = ", ".join(f"{n:g}" for n in numbers)
    if run is None and len(numbers) > 1:
        raise EstimateError(f"{path} holds the runs {known}: say by --fid-run which is this one")
    mine = fid["run"] == (numbers[0] if run is None and len(numbers) else run)
    if not mine.any():
        raise EstimateError(f"{path} holds no run {run}; it has: {known}")
    near = np.abs(z_lower_b[:, None] - fid["z_lower"][mine]) < 1e-6
    row_b = np.where(near.any(axis=1), near.argmax(axis=1), -1)
    return {n: np.append(fid[n][mine], np.nan)[row_b] for n in ("fid", "fid_of_reference")}


def fid_line(r_b: FloatArray, fid_b: FloatArray, who: str = "people") -> str:
    """Return a line on whether FID agrees with people's (or judges') r: low FID, high r."""
    both = ~np.isnan(r_b) & ~np.isnan(fid_b)
    n = int(both.sum())
    rho = rank_correlation(r_b[both], fid_b[both])
    owners = "people's" if who == "people" else "judges'"
    if n < 3 or np.isnan(rho):
        return f"FID and {owners} r: {n} bins with both, too few or too alike to tell"
    by_chance = scipy.stats.permutation_test(
        (r_b[both],), lambda r: rank_correlation(r, fid_b[both]), permutation_type="pairings",
        vectorized=False, rng=0,
    ).pvalue  # fmt: skip
    said = f"FID and {owners} r over {n} bins: rank correlation {rho:+.2f}, p = {by_chance:.2g}"
    if by_chance > CHANCE:
        return f"{said}: the data cannot tell whether they are related here"
    return f"{said}; they {'agree' if rho < 0 else 'disagree: FID misleads'} here"
