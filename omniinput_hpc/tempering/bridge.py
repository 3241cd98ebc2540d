"""Detect first-order transitions on a canonical ladder, and bridge them with Gaussian rungs.

If two kinds of inputs coexist at one beta, with almost nothing between them, no spacing of betas
helps: neighbours do not swap, or a rung's z has two peaks and walkers do not pass between them.
Gaussian rungs make the outputs in between likely (`ensembles.Gaussian`). The rungs proposed here
are only a start: burn-in of the next run, with ``tune = true``, spaces them (`gaussian_ladder`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

N_COARSE = 64
"""Number of coarse bins, over the range of outputs, in which peaks are searched."""
WINDOW = 5
"""Number of coarse bins that are counted together, since outputs may lie on a lattice."""
MIN_SHARE = 0.1
"""The smallest share of a rung's outputs on either side of a valley."""
MAX_VALLEY = 0.05
"""The largest counts in a valley, as a share of those in the lower peak."""
MIN_COUNTS = 2000
"""The fewest counts on a rung for a valley to mean anything, since a walker's moves correlate."""
MIN_APART = 0.25
"""The smallest distance of the two mean outputs, as a share of the range of all outputs."""
FEW_SWAPS = 0.01
"""Below this share of accepted swaps, two rungs count as not exchanging."""
MIN_ATTEMPTS = 100
STEP = 3.0
"""The largest step between centres of Gaussian rungs within `N_BRIDGE`, in `Transition.std`."""
OVERLAP = 1.5
"""The step between centres of Gaussian rungs, in units of 1 / sqrt(kappa)."""
N_BRIDGE = (4, 24)
"""The smallest and largest number of steps between centres of Gaussian rungs."""


@dataclass(frozen=True)
class Transition:
    """Two kinds of inputs that a canonical ladder does not connect.

    Attributes
    ----------
    below, above : rungs k and k + 1 that do not swap, or both the rung that has two peaks
    z_high, z_low : mean outputs of the two kinds
    std : the larger standard deviation of the two kinds
    """

    below: int
    above: int
    z_high: float
    z_low: float
    std: float


def coarse_edges(low: float, high: float) -> NDArray[np.float64]:
    """Return the edges of the coarse bins, [N_COARSE + 1]."""
    return np.linspace(low, max(high, np.nextafter(low, np.inf)), N_COARSE + 1)


def two_peaks(counts_c: NDArray[np.float64], edges: NDArray[np.float64]) -> Transition | None:
    """Return the transition in a rung's histogram if it has two peaks; the rung's index is left 0.

    counts_c : float64 [N_COARSE], the counts in coarse bins with these edges
    """
    total = counts_c.sum()
    if total < MIN_COUNTS:
        return None
    smooth = np.convolve(counts_c, np.ones(WINDOW), mode="same")
    left, right = np.maximum.accumulate(smooth), np.maximum.accumulate(smooth[::-1])[::-1]
    share = np.cumsum(counts_c) / total
    depth = smooth / np.maximum(np.minimum(left, right), 1e-300)
    depth[(share < MIN_SHARE) | (share > 1.0 - MIN_SHARE)] = np.inf
    valley = int(np.argmin(depth))
    if depth[valley] > MAX_VALLEY:
        return None
    z = 0.5 * (edges[:-1] + edges[1:])
    moments = []
    for some in (slice(0, valley + 1), slice(valley + 1, None)):
        mean = np.average(z[some], weights=counts_c[some])
        moments.append((mean, np.sqrt(np.average((z[some] - mean) ** 2, weights=counts_c[some]))))
    (z_low, std_low), (z_high, std_high) = moments
    if z_high - z_low < MIN_APART * (edges[-1] - edges[0]):
        return None
    std = max(std_low, std_high, edges[1] - edges[0])
    return Transition(0, 0, float(z_high), float(z_low), float(std))


def transitions(
    rung_k3: NDArray[np.float64],
    swaps_k2: NDArray[np.int64],
    mean_k: NDArray[np.float64],
    std_k: NDArray[np.float64],
    counts_kc: NDArray[np.float64],
    edges: NDArray[np.float64],
) -> list[Transition]:
    """Return the transitions that canonical rungs do not cross, in the order of the ladder.

    Parameters
    ----------
    rung_k3 : float64 [K, 3], beta (NaN if flat), kappa and z0 of each rung
    swaps_k2 : int64 [K - 1, 2], attempted and accepted swaps
    mean_k, std_k : float64 [K], mean and standard deviation of z
    counts_kc : float64 [K, N_COARSE], counts of z on each rung in coarse bins with `edges`
    """
    canonical_k = np.isfinite(rung_k3[:, 0]) & (rung_k3[:, 1] == 0.0)
    found, of_pairs = [], set()
    for k in map(int, np.flatnonzero(canonical_k[:-1] & canonical_k[1:])):
        attempted, accepted = swaps_k2[k]
        never = attempted >= MIN_ATTEMPTS and accepted < FEW_SWAPS * attempted
        if never and mean_k[k] > mean_k[k + 1]:
            std = float(max(std_k[k], std_k[k + 1]))
            found.append(Transition(k, k + 1, float(mean_k[k]), float(mean_k[k + 1]), std))
            of_pairs |= {k, k + 1}
    for k in map(int, np.flatnonzero(canonical_k)):
        peaks = None if k in of_pairs else two_peaks(counts_kc[k], edges)
        if peaks is not None:
            found.append(replace(peaks, below=k, above=k))
    return sorted(found, key=lambda transition: transition.below)


def bridged(
    rung_k3: NDArray[np.float64], transition: Transition, kept: tuple[float, ...] = ()
) -> NDArray[np.float64]:
    """Return a ladder with Gaussian rungs across a transition, float64 [K', 3].

    They are inserted between two rungs, or replace a rung with two peaks. A rung with two peaks
    whose beta is in `kept` stays, and they follow it.
    """
    below, above = transition.below, transition.above
    beta = 0.5 * (rung_k3[below, 0] + rung_k3[above, 0])
    apart = transition.z_high - transition.z_low
    n = int(np.clip(np.ceil(apart / (STEP * max(transition.std, 1e-300))), *N_BRIDGE)) + 1
    z0_n = np.linspace(transition.z_high, transition.z_low, n)
    kappa = (OVERLAP * (n - 1) / apart) ** 2
    bridge_n3 = np.column_stack([np.full(n, beta), np.full(n, kappa), z0_n])
    replaced = below == above and rung_k3[below, 0] not in kept
    first = rung_k3[: below if replaced else below + 1]
    return np.concatenate([first, bridge_n3, rung_k3[max(above, below + 1) :]])


def lines(rung_k3: NDArray[np.float64]) -> list[str]:
    """Return the lines of a ``[ladder]`` table with these rungs, float64 [K, 3]."""
    columns = zip(("betas", "kappa", "z0"), rung_k3.T, strict=True)
    listed = [f"{key} = [{', '.join(f'{v:.6g}' for v in values)}]" for key, values in columns]
    return ["[ladder]", *listed, "tune = true"]
