"""The density of a run in wider bins, each the union of several of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from omniinput_hpc.estimators import EstimateError, FloatArray, IntArray
from omniinput_hpc.estimators.density.density import Density, errors_and_bounds
from omniinput_hpc.estimators.density.observations import RunPart
from omniinput_hpc.estimators.density.rung_weights import InsideBins
from omniinput_hpc.estimators.errors.chains import NEIGHBOURS, effective_counts

MOST_IN_PICTURE = 200
"""Bins that a picture can show, so that points do not cover each other."""
PICTURE_FACTORS = tuple(m * 10**p for p in range(6) for m in (1, 2, 5))
MOST_DRAWN_FROM = 12
"""Bins to draw from, at most, unless a width is given."""


def spans_of(fine: FloatArray, edges: FloatArray) -> list[slice]:
    """Return the run's bins in each wider bin; EstimateError if the edges do not match."""
    nearest = np.clip(np.rint(np.interp(edges, fine, np.arange(len(fine)))), 0, len(fine) - 1)
    index = nearest.astype(np.int64)
    off = np.abs(fine[index] - edges) > 1e-6 * np.diff(fine).min()
    if off.any() or (np.diff(index) < 1).any():
        bad = edges[np.argmax(off)]
        raise EstimateError(
            f"the bins do not fit the run's: {bad:.6g} is not one of the run's bin edges "
            f"({fine[0]:g} to {fine[-1]:g}, width {fine[1] - fine[0]:g}); choose from these edges, "
            "and a multiple of this width"
        )
    return [slice(a, b) for a, b in pairwise(index)]


def edges_of_width(fine: FloatArray, width: float) -> FloatArray:
    """Return the edges of bins of a width that are unions of the run's, float64 [n].

    Edges are multiples of the width where the run has them. Bins at the ends may be narrower.
    Raises an EstimateError if the width is not a multiple of that of the run's bins.
    """
    unit = float(np.diff(fine).min())
    n = round(width / unit) if np.isfinite(width) else 0
    if n < 1 or abs(n * unit - width) > 1e-6 * unit or n >= len(fine):
        raise EstimateError(
            f"--width {width:g}: expected a multiple of the width of the run's bins, {unit:g}, "
            f"below {fine[-1] - fine[0]:g}"
        )
    whole = np.flatnonzero(np.abs(fine / width - np.rint(fine / width)) < 1e-6 / n)
    inner = np.arange(whole[0] % n if whole.size else 0, len(fine), n)
    return np.asarray(fine[np.unique([0, *inner, len(fine) - 1])])


def for_picture(density: Density) -> Density:
    """Return the density in bins for a picture: its own, or 2, 5, 10, ... times as wide.

    Up to twice `MOST_IN_PICTURE` bins stay as they are.
    """
    seen = np.flatnonzero(density.count_b)
    n = int(np.ptp(seen)) + 1 if seen.size else 0
    if n <= 2 * MOST_IN_PICTURE:
        return density
    factor = next(f for f in PICTURE_FACTORS if n <= f * MOST_IN_PICTURE)
    return in_wider_bins(density, factor * float(np.diff(density.edges).min()))


def in_wider_bins(density: Density, width: float) -> Density:
    """Return the density in bins of a width; `edges_of_width` says which, and what it raises."""
    return coarsen(density, edges_of_width(density.edges, width))


def in_width(density: Density, width: float) -> Density:
    """Return the density in bins of a width (see `edges_of_width`), for a curve by a rule.

    Here the effective counts of a bin tell how much recorded samples of one lane are alike.
    `coarsen` includes in them how uneven the weights of
    these samples are, which a curve by a rule finds from the samples themselves.
    """
    return in_bins(density, edges_of_width(density.edges, width))


def in_bins(density: Density, edges: FloatArray) -> Density:
    """Return the same in bins that are unions of the run's; they may leave out bins at the ends."""
    spans = spans_of(density.edges, edges)
    summed_b = np.array([density.effective_b[s].sum() for s in spans])
    coarse = coarsen(density, edges)
    worth_b = _worth_of_sums(density, spans, coarse.parts)
    return replace(coarse, effective_b=summed_b * worth_b)


def join_bins(log_g: FloatArray, limits: IntArray) -> FloatArray:
    """Return log g of unions of neighbouring bins, float64 [..., n].

    Parameters
    ----------
    log_g : float64 [..., B]; unknown replicates stay NaN
    limits : int64 [n + 1], ascending: the first bin of each range, and the end of the last range
    """
    with np.errstate(invalid="ignore"):
        part = log_g[..., limits[0] : limits[-1]]
        return np.asarray(np.logaddexp.reduceat(part, limits[:-1] - limits[0], axis=-1))


def coarsen(density: Density, edges: FloatArray) -> Density:
    """Return the density in wider bins; `spans_of` raises if their edges are not the run's."""
    fine = density.edges
    spans = spans_of(fine, edges)

    limits = np.array([s.start for s in spans] + [spans[-1].stop])

    def total(count_b: NDArray[Any]) -> NDArray[Any]:
        return np.array([count_b[s].sum() for s in spans])

    log_g_b, log_g_jb = join_bins(density.log_g_b, limits), join_bins(density.log_g_jb, limits)
    z_b = np.full(len(spans), np.nan)
    for b, s in enumerate(spans):
        if np.isfinite(log_g_b[b]):
            share = np.exp(density.log_g_b[s] - log_g_b[b])
            z_b[b] = np.sum(share * np.nan_to_num(density.z_b[s]))
    coarse_edges = fine[limits]
    parts = tuple(_joined(part, spans) for part in density.parts)
    effective_b = _equal_counts(density, spans) * _worth_of_sums(density, spans, parts)
    error_b, upper_b = errors_and_bounds(
        log_g_b, log_g_jb, density, effective_b, coarse_edges[:-1] < density.floor
    )
    return replace(
        density,
        edges=coarse_edges,
        parts=parts,
        inside=InsideBins(z_b, np.zeros(len(spans)), np.zeros(len(spans))),
        count_b=total(density.count_b),
        log_g_b=log_g_b,
        log_g_jb=log_g_jb,
        plain_log_g_jb=join_bins(density.plain_log_g_jb, limits),
        log_g_error_b=error_b,
        effective_b=effective_b,
        log_g_upper_b=upper_b if density.verdict.converged else np.full(len(spans), np.nan),
        block_error_b=np.full(len(spans), np.inf),
    )


def joined_effective(density: Density, spans: Sequence[slice]) -> FloatArray:
    """Return the effective number of independent counts for the sums of g over some bins [n]."""
    parts = [_joined(part, spans) for part in density.parts]
    return np.asarray(_equal_counts(density, spans) * _worth_of_sums(density, spans, parts))


def _equal_counts(density: Density, spans: Sequence[slice]) -> FloatArray:
    """Return how many equal counts the sums of g over some bins are worth [n].

    With n counts in a bin, each representing g / n inputs, this is (sum g)^2 / sum (g^2 / n):
    Kish's number for uneven weights. Bins with few counts and most of the inputs dominate it. The
    counts of neighbouring bins depend on each other, see `_worth_of_sums`.
    """
    kish: FloatArray = np.zeros(len(spans))
    for number, span in enumerate(spans):
        n_b, log_g_b = density.effective_b[span], density.log_g_b[span]
        known = (n_b > 0) & np.isfinite(log_g_b)
        if known.any():
            share_b = np.exp(log_g_b[known] - scipy.special.logsumexp(log_g_b[known]))
            kish[number] = 1.0 / np.sum(share_b**2 / n_b[known])
    return kish


def _joined(part: RunPart, spans: Sequence[slice]) -> RunPart:
    """Return the same in wider bins, each some neighbours.

    One stay of a walker fills several neighbours, so their effective numbers are only a limit.
    """

    def summed(value: NDArray[Any]) -> NDArray[Any]:
        return np.stack([value[..., s].sum(axis=-1) for s in spans], axis=-1)

    counts_gb, counts_kb, effective_b = map(
        summed, (part.counts_gb, part.counts_kb, part.effective_b)
    )
    if not part.ancestral and len(counts_gb) > 1:
        neighbours = NEIGHBOURS * len(spans) // sum(s.stop - s.start for s in spans)
        counts = counts_gb, np.bincount(part.group_w), counts_kb, part.moves_k
        found = effective_counts(*counts, part.apart_k, neighbours)
        effective_b = np.minimum(effective_b, found)
    return replace(part, effective_b=effective_b, counts_gb=counts_gb, counts_kb=counts_kb)


def _worth_of_sums(
    density: Density, spans: Sequence[slice], parts: Sequence[RunPart]
) -> FloatArray:
    """Return what joined counts are worth, over the sum of what each bin's are: up to 1 [n].

    parts : those of the density, `_joined`
    """
    sums, joined = np.zeros((2, len(spans)))
    for part, wide in zip(density.parts, parts, strict=True):
        sums += [part.effective_b[s].sum() for s in spans]
        joined += wide.effective_b
    return np.asarray(np.divide(joined, sums, out=np.ones(len(spans)), where=sums > 0))


def edges_for(
    density: Density, z_range: tuple[float, float] | None = None, width: float | None = None
) -> FloatArray:
    """Return bins to draw from, made of whole bins of the run.

    They lie in `z_range` (default: all bins with counts) and have a `width` (default: one that
    gives at most `MOST_DRAWN_FROM` bins), rounded to whole bins of the run.

    Raises
    ------
    EstimateError
        There are no bins, or too many, or the width is not positive.
    """
    if width is not None and not (np.isfinite(width) and width > 0):
        raise EstimateError(f"--width {width:g}: give a width above 0")
    counted = np.flatnonzero(density.count_b)
    fine = density.edges
    unit = float(np.diff(fine).min())
    first, last = int(counted[0]), int(counted[-1]) + 1
    if z_range is not None:
        first = int(np.searchsorted(fine, z_range[0] - 0.5 * unit))
        last = int(np.searchsorted(fine, z_range[1] + 0.5 * unit)) - 1
    if first >= last:
        low, high = (0.0, 0.0) if z_range is None else z_range
        bins = f"its bins cover z = {fine[0]:.6g} to {fine[-1]:.6g}"
        raise EstimateError(f"--range {low:g} {high:g}: the run has no bins there; {bins}")
    step = -(-(last - first) // MOST_DRAWN_FROM) if width is None else round(width / unit)
    if step < 1 or (last - first) / step > 200:
        raise EstimateError(f"--width {width} makes no bins, or more than 200: give another width")
    return np.asarray(fine[[*range(first, last, step), last]])
