"""First-order transitions that burn-in finds on a canonical ladder, and Gaussian rungs across them.

Where two kinds of inputs coexist at one beta, with next to nothing between them, no spacing of
betas helps: neighbours do not swap, or a rung's z has two peaks that walkers do not pass between.
Gaussian rungs make the outputs between likely (`ensembles.Gaussian`). What is proposed here is a
beginning: burn-in of the next run, with ``tune = true``, spaces it (`gaussian_ladder`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

N_COARSE = 64
"""Parts of the range of outputs that two peaks are told apart in."""
WINDOW = 5
"""Parts that are counted together: outputs may lie on a lattice."""
MIN_SHARE = 0.1
"""Of a rung's outputs, on either side of a valley."""
MAX_VALLEY = 0.05
"""Counts of a valley, of the lower peak's."""
MIN_COUNTS = 2000
"""Of a rung, before two peaks mean anything: moves of one walker resemble each other."""
MIN_APART = 0.25
"""Of two kinds' mean outputs: as a share of the range of all rungs' outputs."""
FEW_SWAPS = 0.01
"""Share of swaps below which two rungs do not exchange."""
MIN_ATTEMPTS = 100
STEP = 3.0
"""Between centres of Gaussian rungs, in the larger standard deviation of z beside the valley."""
OVERLAP = 1.5
"""The same in units of 1 / sqrt(kappa)."""
N_BRIDGE = (4, 24)
"""Gaussian rungs in place of a transition, at least and at most."""


@dataclass(frozen=True)
class Transition:
    """Two kinds of inputs that a canonical ladder does not connect.

    Attributes
    ----------
    below, above : rungs k and k + 1 that do not swap, or twice the rung that has two peaks
    z_high, z_low : mean outputs of the two kinds
    std : the larger standard deviation of the two kinds
    """

    below: int
    above: int
    z_high: float
    z_low: float
    std: float


def coarse_edges(low: float, high: float) -> NDArray[np.float64]:
    """Return the edges of the parts that two peaks are told apart in, [N_COARSE + 1]."""
    return np.linspace(low, max(high, np.nextafter(low, np.inf)), N_COARSE + 1)


def two_peaks(counts_c: NDArray[np.float64], edges: NDArray[np.float64]) -> Transition | None:
    """Return the two kinds of outputs of one rung (number 0) if its histogram has two peaks.

    counts_c : float64 [N_COARSE], in parts with these edges
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
    """Return where a ladder's canonical rungs do not connect two kinds of inputs.

    Parameters
    ----------
    rung_k3 : float64 [K, 3], beta (NaN: flat), kappa and z0 of each rung
    swaps_k2 : int64 [K - 1, 2], attempted and accepted swaps
    mean_k, std_k : float64 [K], of z
    counts_kc : float64 [K, N_COARSE], outputs of each rung in parts with `edges`
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

    They stand between two rungs, or in place of one with two peaks (but for betas of `kept`).
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
    """Return ``[ladder]`` with some rungs, float64 [K, 3], as lines of an input file."""
    columns = zip(("betas", "kappa", "z0"), rung_k3.T, strict=True)
    listed = [f"{key} = [{', '.join(f'{v:.6g}' for v in values)}]" for key, values in columns]
    return ["[ladder]", *listed, "tune = true"]
