"""Cheap checks for values that no run writes, shared by the reader, a resume and verify.

Each check yields a description of each problem, with its rung if it concerns a single rung.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from omniinput_hpc.config.space import Space

Z_SUM_TOLERANCE = 1e-9
"""Tolerance of the sum of z in a bin, relative to its counts times its larger absolute edge."""

Words = Iterator[str]
OfRungs = Iterator[tuple[int, str]]


def raise_first(name: str, wrong: Words) -> None:
    """Raise a ValueError with the first problem that a check of a dataset yields."""
    for words in wrong:
        raise ValueError(f"{name}: {words}")


def betas(beta_k: NDArray[np.float64], flat: bool, ascending: bool = True) -> Words:
    """Check the betas of a ladder, which begins with NaNs (flat-histogram rungs) if `flat`.

    ascending : whether the other betas must ascend (those of Gaussian rungs need not)
    """
    n_flat = int(np.isnan(beta_k).sum()) if flat else 0
    canonical_k = beta_k[n_flat:]
    if not np.isfinite(canonical_k).all():
        yield "it holds betas that are not finite"
    elif ascending and not (np.diff(canonical_k) > 0).all():
        k = n_flat + int(np.argmin(np.diff(canonical_k) > 0))
        yield (
            f"its betas do not ascend: {beta_k[k]:g} on rung {k}, {beta_k[k + 1]:g} on rung {k + 1}"
        )


def edges(edges: NDArray[np.float64]) -> Words:
    """Check the bin edges."""
    if not np.isfinite(edges).all() or not (np.diff(edges) > 0).all():
        yield "they are not finite numbers in ascending order"


def inputs(x: NDArray[Any], space: Space) -> Words:
    """Check the values of sites as stored in files (ids, see `Space`)."""
    n = space.n_ids
    if n <= np.iinfo(x.dtype).max and (largest := x.max(initial=0)) >= n:
        yield f"a value of x is {largest}, not below {n}"
    elif space.allowed is not None and (outside := space.to_values(x) < 0).any():
        yield f"a value of x is {x[outside][0]}, which no site may take"


def outputs(z: NDArray[np.floating[Any]]) -> Words:
    """Check outputs z of the model."""
    n_bad = z.size - np.count_nonzero(np.isfinite(z))
    if n_bad:
        yield f"{n_bad} outputs are not finite"


def walkers(walker: NDArray[np.int32], n_walkers: int) -> Words:
    """Check walkers' identities; `n_walkers` counts the walkers of all rungs."""
    if walker.size and not 0 <= walker.min() <= walker.max() < n_walkers:
        yield f"a walker's number is not between 0 and {n_walkers - 1}"


def directions(direction: NDArray[np.int8]) -> Words:
    """Check the directions of walkers on their round trips (see `ladder.count_round_trips`)."""
    if not np.isin(direction, (0, 1, 2)).all():
        yield "a direction is not 0, 1 or 2"


def headings(heading: NDArray[np.int8] | None) -> Words:
    """Check the headings of Wang-Landau walkers (None: they keep no heading)."""
    if heading is not None and not np.isin(heading, (-1, 1)).all():
        yield "a heading is neither 1 nor -1"


def not_negative(counts: NDArray[np.int64]) -> Words:
    """Check counts of a signed type."""
    if counts.min(initial=0) < 0:
        yield f"a count is {counts.min()}"


def counted(
    counts_kb: NDArray[np.integer[Any]],
    outside_k2: NDArray[np.integer[Any]],
    moves: int,
    rungs: range | None = None,
) -> OfRungs:
    """Check that each rung counted `moves` moves; `rungs` of the arrays begin at 0 by default."""
    first = rungs.start if rungs else 0
    for k in np.flatnonzero((counts_kb < 0).any(axis=1)):  # possible for an unfinished block
        yield (
            first + int(k),
            "all lanes together counted less than the histograms of earlier rounds",
        )
    counted_k = counts_kb.sum(axis=1, dtype=np.int64) + outside_k2.sum(axis=1, dtype=np.int64)
    for k in np.flatnonzero(counted_k != moves):
        yield first + int(k), f"{counted_k[k]:,} counts for {moves:,} moves"


def accepted(attempted: NDArray[np.int64], accepted: NDArray[np.int64]) -> OfRungs:
    """Check that accepted counts do not exceed attempted ones; the first axis is the rung."""
    bad = (accepted < 0) | (accepted > attempted)
    for k in np.flatnonzero(bad.any(axis=tuple(range(1, bad.ndim)))):
        yield int(k), f"{accepted[k]} accepted of {attempted[k]} attempted"


def sums_of_z(
    z_sum_kb: NDArray[np.float64],
    counts_kb: NDArray[np.int64],
    edges: NDArray[np.float64],
    rungs: range | None = None,
) -> OfRungs:
    """Check that the mean z of each bin lies in the bin; `rungs` as in `counted`."""
    first = rungs.start if rungs else 0
    largest_b = np.maximum(np.abs(edges[:-1]), np.abs(edges[1:]))
    slack_kb = Z_SUM_TOLERANCE * counts_kb * largest_b
    inside_kb = z_sum_kb >= counts_kb * edges[:-1] - slack_kb
    inside_kb &= z_sum_kb <= counts_kb * edges[1:] + slack_kb
    for k in np.flatnonzero(~inside_kb.all(axis=1)):
        yield (
            first + int(k),
            f"in {np.count_nonzero(~inside_kb[k])} bins the mean z is outside the bin",
        )
