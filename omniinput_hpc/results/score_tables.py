"""Report scores: lines of text and columns of tables."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from omniinput_hpc.estimators import EstimateError, FloatArray
from omniinput_hpc.estimators.precision_recall.agreement import compare_pair, krippendorff_alpha
from omniinput_hpc.estimators.precision_recall.allocation import Allocation
from omniinput_hpc.estimators.precision_recall.curves import Side, area
from omniinput_hpc.estimators.precision_recall.from_scores import Scored, ScoredCurve, scored_curve
from omniinput_hpc.results.tables import Columns, read_table
from omniinput_hpc.text import interval, range_words, shown


def summarize_scores(result: ScoredCurve, scored: Scored, side: Side) -> list[str]:
    """Return the lines on what was scored by whom, and on the parts of the error."""
    used, edges = np.flatnonzero(result.used_b), result.density.edges
    inputs = result.scores.inputs_b[used]
    lines = [
        f"{int((~np.isnan(scored.score_i)).sum())} inputs scored by "
        f"{', '.join(scored.annotators)}; the curve counts the bins from {edges[used[0]]:g} to "
        f"{edges[used[-1] + 1]:g}, {inputs.min()} to {inputs.max()} inputs each",
        _variance_line(result),
        *_bound_lines(result),
    ]
    if len(scored.annotators) > 1:
        lines.append(_annotators_line(result, scored, side))
        if not result.scores.annotators.known:
            lines.append(
                "note: no input was scored by two annotators, so the errors do not include the "
                "choice of annotators"
            )
    return lines


def _annotators_line(result: ScoredCurve, scored: Scored, side: Side) -> str:
    """Return the AUPR by each annotator's scores, over the recall range of the joint curve."""
    ends = result.curve.aupr_range
    each = []
    for a in range(len(scored.annotators)):
        alone = scored.of(a)
        alone = alone.part(result.used_b[alone.bin_i])
        if not len(alone.bin_i):
            each.append(np.nan)  # no scores in the curve's bins
            continue
        curve = scored_curve(result.density, alone, side, 1, 1).curve
        each.append(area(curve.precision_t, curve.log_recall_t, *ends))
    known = [aupr for aupr in each if np.isfinite(aupr)]
    names = zip(scored.annotators, each, strict=True)
    said = (
        f"{name} {aupr:.4f}" if np.isfinite(aupr) else f"{name} not known" for name, aupr in names
    )
    deviation = f"; standard deviation {np.std(known, ddof=1):.4f}" if len(known) > 1 else ""
    return f"AUPR by annotator, over ln recall {range_words(ends)}: {', '.join(said)}{deviation}"


def _variance_line(result: ScoredCurve) -> str:
    """Return a line on the parts of the AUPR's error."""
    factor = f"by a factor {result.scores.design_effect:.2f} (design effect)"
    widened = f"correlation within lanes widens the scores' variance {factor}"
    if not np.isfinite(result.density_share):
        return widened
    share = f"{100 * result.density_share:.0f} %"
    return (
        f"of the AUPR's variance, {share} is from the density, the rest from the scores; {widened}"
    )


def _bound_lines(result: ScoredCurve) -> list[str]:
    """Return lines on one-sided bounds, which occur if nothing right or nothing wrong was seen."""
    curve = result.curve
    r_b = curve.r_b[result.used_b]
    seen = [("right", int((r_b == 0.0).sum())), ("wrong", int((r_b == 1.0).sum()))]
    words = [f"no {what} input in {n} of {len(r_b)} bins" for what, n in seen if n]
    lines = []
    if words:
        lines.append(
            f"scored: {', '.join(words)}; r has a one-sided 95% bound there (about 3 over the "
            "number of effective scores)"
        )
    if (curve.precision_t == 0.0).all():
        lines.append(f"no right input was scored: the AUPR is at most {curve.aupr_high:.6f} (95%)")
    elif (curve.precision_t == 1.0).all():
        lines.append(f"no wrong input was scored: the AUPR is at least {curve.aupr_low:.6f} (95%)")
    return lines


def fid_columns(path: Path, run: int, z_lower_b: FloatArray) -> Columns:
    """Return columns ``fid`` and ``fid_of_reference`` [B] of a table of ``omniinput judge``.

    Parameters
    ----------
    run : number of the run in it
    z_lower_b : float64 [B], lower edges of the bins; a bin that is not in the table gets NaN

    Raises
    ------
    EstimateError
        As in `read_table`; or the table does not hold this run.
    """
    _, fid = read_table(path, ["run", "z_lower", "fid", "fid_of_reference"])
    mine = fid["run"] == run
    if not mine.any():
        known = ", ".join(f"{n:g}" for n in np.unique(fid["run"]))
        raise EstimateError(f"{path} holds no run {run}; it has: {known}")
    near = np.abs(z_lower_b[:, None] - fid["z_lower"][mine]) < 1e-6
    row_b = np.where(near.any(axis=1), near.argmax(axis=1), -1)
    return {n: np.append(fid[n][mine], np.nan)[row_b] for n in ("fid", "fid_of_reference")}


def agreement_lines(
    scored: Scored,
    first_ar: FloatArray,
    second_ar: FloatArray,
    given_ag: FloatArray,
    gold_g: FloatArray,
) -> list[str]:
    """Return the lines on how annotators agree with each other, themselves and gold items."""
    lines = []
    alpha = krippendorff_alpha(scored.score_ai)
    if alpha.n_items:
        lines.append(
            f"Krippendorff's alpha (interval) of {len(scored.annotators)} annotators: "
            f"{shown(alpha.alpha, '.3f')}, 95% interval "
            f"{interval(alpha.low, alpha.high, '.3f', 'not known')}, over "
            f"{alpha.n_items} inputs that two or more scored"
        )
    else:
        lines.append("Krippendorff's alpha: not known (no input was scored by two annotators)")
    rest = zip(scored.annotators, first_ar, second_ar, given_ag, strict=True)
    for a, (name, first_r, second_r, given_g) in enumerate(rest):
        parts = [f"{name}: {int((~np.isnan(scored.score_ai[a])).sum())} inputs"]
        twice, gold = compare_pair(second_r, first_r), compare_pair(given_g, gold_g)
        if twice.n:
            parts.append(f"{twice.n} shown twice, differing by {twice.distance:.3f} on average")
        if gold.n:
            parts.append(f"{gold.n} gold items, off by {gold.distance:.3f} (bias {gold.bias:+.3f})")
        lines.append(", ".join(parts))
    return lines


def allocation_columns(result: ScoredCurve, found: Allocation) -> Columns:
    """Return the columns of the table of where to score next, a row per counted bin."""
    b, edges = found.bin_b, result.density.edges
    return {
        "z_lower": edges[b],
        "z_upper": edges[b + 1],
        "inputs": result.scores.inputs_b[b],
        "r": result.curve.r_b[b],
        "spread": result.scores.spread_b[b],
        "aupr_slope": found.slope_b,
        "error_share": found.variance_b / max(found.error_now**2, 1e-300),
        "next_scores": found.next_b,
    }


def allocation_lines(
    name: str, result: ScoredCurve, found: Allocation, budget: int, columns: Columns
) -> list[str]:
    """Return the lines on the effect of further scores, and the table in `columns`."""
    density_error = result.curve.aupr_error * np.sqrt(max(result.density_share, 0.0))
    lines = [
        f"{name}: standard error of the AUPR (or of the difference) from scoring: "
        f"{shown(found.error_now, '.4g')}; with {budget} more scores as below: "
        f"{shown(found.error_then, '.4g')}; spread evenly over the bins: "
        f"{shown(found.error_even, '.4g')}",
        "scoring cannot reduce the density's part of this AUPR's error, "
        f"{shown(density_error, '.2g')}",
    ]
    lines.append("".join(f"{name:>13}" for name in columns))
    rows = zip(*columns.values(), strict=True)
    lines += ["".join(f"{shown(value, '.4g'):>13}" for value in row) for row in rows]
    return lines
