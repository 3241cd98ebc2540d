"""The terms that a run's observations add to the multi-histogram equations.

They are kept in parts (groups of lanes, or blocks of rounds), so that the equations can be solved
again without one of them. Two kinds enter one system of equations (`wham`), a row per rung:

**Chains** (`ChainTerms`): histograms n_kb of rung k, whose distribution is known up to its
normalizer. That of a uniform rung is known, too: f = -log n_values^D, moves outside the bins
included.

**Independent draws** (`DrawTerms`): N inputs x_i, N_j of them from the normalized distribution
q_j(x), which need not be a function of z. With q(x) = sum_j (N_j / N) q_j(x), every bin
has an unbiased estimate by itself (the balance heuristic: Veach & Guibas, SIGGRAPH 95, 419 (1995);
Shirts & Chodera, J. Chem. Phys. 129, 124105 (2008), Eq. 9 with all f_j known),

    d_b = (1 / N) sum_{i in b} v_i,      v_i = 1 / q(x_i),

whose relative variance is that of a_b = (sum v_i)^2 / sum v_i^2 equal draws. Beside chains it
enters as a row with a_b counts and the expectation c_b = a_b / d_b for each input of the bin:

    g_b = (sum_k n_kb + a_b) / (sum_k n_k exp(f_k) w_kb + c_b),      exp(-f_k) = sum_b g_b w_kb.

The chains' f_k are solved, c_b stays as it is: it is an absolute number. Without chains g_b = d_b;
without draws these are the chains' equations; where both are, each counts by its precision. Draws
whose distribution is a function of z (v_i alike within a bin) enter with every one of their counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from omniinput_hpc.estimators import BoolArray, FloatArray, IntArray


@dataclass(frozen=True)
class Equations:
    """Rows of the equations, one for each rung.

    Attributes
    ----------
    counts_kb : float64 [K, B]
    log_w_kb : float64 [K, B]
    known_f_k : float64 [K], NaN where not known
    """

    counts_kb: FloatArray
    log_w_kb: FloatArray
    known_f_k: FloatArray


class Terms(Protocol):
    """Terms in P parts."""

    @property
    def size_p(self) -> IntArray:
        """How large the parts are, relative to each other [P]."""

    def equations(self, keep_p: BoolArray) -> Equations:
        """Return the rows that follow from some of the parts."""


@dataclass(frozen=True)
class ChainTerms:
    """Histograms of chains.

    Attributes
    ----------
    counts_pkb : int64 [P, K, B]
    total_k : float64 [K], moves of all parts, also those outside the bins
    size_p : int64 [P]
    log_w_kb : float64 [K, B]
    space_f_k : float64 [K], known normalizers over the whole space, NaN where not known
    """

    counts_pkb: IntArray
    total_k: FloatArray
    size_p: IntArray
    log_w_kb: FloatArray
    space_f_k: FloatArray

    def equations(self, keep_p: BoolArray) -> Equations:
        """Return the histograms of some parts; each part holds its share of a rung's total."""
        counts_kb = self.counts_pkb[keep_p].sum(axis=0).astype(np.float64)
        total_k = self.total_k * (self.size_p[keep_p].sum() / self.size_p.sum())
        inside_k = counts_kb.sum(axis=1)
        seen = inside_k > 0
        known = np.full(len(seen), np.nan)
        known[seen] = self.space_f_k[seen] + np.log(total_k[seen] / inside_k[seen])
        return Equations(counts_kb, self.log_w_kb, known)


@dataclass(frozen=True)
class DrawTerms:
    """Sums over independent draws: sum of v and of v^2 per bin, relative to exp(log_top_b).

    Attributes
    ----------
    first_pb, second_pb : float64 [P, B]
    log_top_b : float64 [B]
    draws : float, N of all parts, also those outside the bins
    size_p : int64 [P]
    """

    first_pb: FloatArray
    second_pb: FloatArray
    log_top_b: FloatArray
    draws: float
    size_p: IntArray

    def effective_b(self) -> FloatArray:
        """Return a_b of all parts [B]."""
        return _effective(self.first_pb.sum(axis=0), self.second_pb.sum(axis=0))

    def equations(self, keep_p: BoolArray) -> Equations:
        """Return the one row of some parts.

        Bins without a draw between bins with draws have c_b > 0, too, interpolated: that a bin
        has no draw counts, and leaving it out would favour bins that happen to have one.
        """
        first_b, second_b = self.first_pb[keep_p].sum(axis=0), self.second_pb[keep_p].sum(axis=0)
        draws = self.draws * self.size_p[keep_p].sum() / self.size_p.sum()
        counts_b = _effective(first_b, second_b)
        bins = np.flatnonzero(first_b > 0)
        log_c_b = np.full(len(first_b), -np.inf)
        if bins.size:
            log_d = np.log(first_b[bins]) + self.log_top_b[bins] - np.log(draws)
            log_c = np.log(counts_b[bins]) - log_d
            between = np.arange(bins[0], bins[-1] + 1)
            log_c_b[between] = np.interp(between, bins, log_c)
            log_c_b -= np.log(counts_b.sum())  # `solve` multiplies by the row's sum
        return Equations(counts_b[None], log_c_b[None], np.zeros(1))


def _effective(first_b: FloatArray, second_b: FloatArray) -> FloatArray:
    return first_b**2 / np.where(second_b > 0, second_b, 1.0)


class DrawSums:
    """Adds up v and v^2 per part and bin, in log space: v spans hundreds of nats between bins."""

    def __init__(self, n_parts: int, n_bins: int) -> None:
        self._shape = (n_parts, n_bins)
        self._first, self._second = np.zeros(self._shape), np.zeros(self._shape)
        self._top = np.full(n_bins, -np.inf)

    def add(self, part_i: IntArray, bin_i: IntArray, log_v_i: FloatArray) -> None:
        """Add draws that lie inside the bins."""
        top = self._top.copy()
        np.maximum.at(top, bin_i, log_v_i)
        with np.errstate(invalid="ignore"):
            fade = np.where(np.isfinite(self._top), np.exp(self._top - top), 0.0)
        self._top = top
        v_i = np.exp(log_v_i - top[bin_i])
        cell_i, size = part_i * self._shape[1] + bin_i, self._first.size
        self._first = self._first * fade + np.bincount(cell_i, v_i, size).reshape(self._shape)
        squares = np.bincount(cell_i, v_i**2, size).reshape(self._shape)
        self._second = self._second * fade**2 + squares

    def terms(self, draws: float, size_p: IntArray) -> DrawTerms:
        """Return the sums."""
        return DrawTerms(self._first, self._second, self._top, draws, size_p)


def join_terms(terms: Sequence[Terms], keep_p: BoolArray) -> Equations:
    """Return all rows of several runs (or of one)."""
    systems = [part.equations(keep_p) for part in terms]
    return Equations(
        np.concatenate([s.counts_kb for s in systems]),
        np.concatenate([s.log_w_kb for s in systems]),
        np.concatenate([s.known_f_k for s in systems]),
    )
