"""Terms that a run's observations add to the multi-histogram equations.

They are kept in parts (groups of lanes, or blocks of rounds), so that the equations can be solved
again without one part. One system of equations (`wham`, one row per rung) takes two kinds:

**Chains** (`ChainTerms`): histograms n_kb of rung k, whose distribution is known up to its
normalizer. For a uniform rung the normalizer is known too: f = -log n_values^D, including moves
outside the bins. So is that of a language model's own distribution (`known_ratio`), which is used
if the density without it agrees with it.

**Independent draws** (`DrawTerms`): N inputs x_i, N_j of them from the normalized distribution
q_j(x), which need not be a function of z. With q(x) = sum_j (N_j / N) q_j(x), each bin has its own
unbiased estimate (the balance heuristic: Veach & Guibas, SIGGRAPH 95, 419 (1995); Shirts & Chodera,
J. Chem. Phys. 129, 124105 (2008), Eq. 9 with all f_j known),

    d_b = (1 / N) sum_{i in b} v_i,      v_i = 1 / q(x_i).

Its relative variance is that of a_b = n_b / (1 + CV_b^2) equal draws, for n_b draws whose weights
v_i have the relative spread CV_b. The spread is pooled over neighbouring bins (`pooled_spread`),
because a bin that misses its heavy draws would count for too much. Next to chains, draws are a row
with a_b counts and the expectation c_b = a_b / d_b for each input of the bin:

    g_b = (sum_k n_kb + a_b) / (sum_k n_k exp(f_k) w_kb + c_b),      exp(-f_k) = sum_b g_b w_kb.

The f_k of the chains are solved for; c_b is absolute and stays fixed. Without chains g_b = d_b;
without draws these are the chains' equations; with both, each is weighted by its precision. Draws
whose distribution is a function of z (v_i equal within a bin) enter with all of their counts.

**Populations** (`DrawTerms` with `Units`): draws of one population depend on each other. Their v_i
are summed per population and bin, and a_b is the inverse of the relative variance of the mean of
these independent sums, zeros included.

The jackknife misleads in the same way: parts that all lack the heavy draws agree. If its error of
log d_b is below 1 / sqrt(a_b), the differences between parts are stretched until it is not.
Everything computed from the replicates (errors, samples of curves, densities of chains and draws)
then has the larger of both errors. This would make a test of whether two runs agree too lenient, so
for ranges of bins with enough draws that test uses unstretched replicates (`not_widened`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol

import numpy as np

from omniinput_hpc.estimators import BoolArray, FloatArray, IntArray
from omniinput_hpc.estimators.density.pooled_spread import unevenness
from omniinput_hpc.estimators.errors.jackknife import jackknife_error


@dataclass(frozen=True)
class Equations:
    """Rows of the equations, one per rung.

    Attributes
    ----------
    counts_kb : float64 [K, B]
    log_w_kb : float64 [K, B]
    known_f_k : float64 [K], NaN if unknown
    """

    counts_kb: FloatArray
    log_w_kb: FloatArray
    known_f_k: FloatArray


class Terms(Protocol):
    """Terms in P parts."""

    @property
    def size_p(self) -> IntArray:
        """Relative sizes of the parts [P]."""

    def equations(self, keep_p: BoolArray) -> Equations:
        """Return the rows for some of the parts."""


@dataclass(frozen=True)
class ChainTerms:
    """Histograms of chains.

    Attributes
    ----------
    counts_pkb : int64 [P, K, B]
    total_k : float64 [K], moves of all parts, including those outside the bins
    size_p : int64 [P]
    log_w_kb : float64 [K, B]
    space_f_k : float64 [K], known normalizers over the whole space, NaN if unknown
    model_f_k : float64 [K], normalizer of a language model's own distribution, else NaN; or None
    pinned : whether to use model_f_k
    """

    counts_pkb: IntArray
    total_k: FloatArray
    size_p: IntArray
    log_w_kb: FloatArray
    space_f_k: FloatArray
    model_f_k: FloatArray | None = None
    pinned: bool = False

    def equations(self, keep_p: BoolArray) -> Equations:
        """Return the histograms of some parts; each part holds its share of a rung's total."""
        counts_kb = self.counts_pkb[keep_p].sum(axis=0).astype(np.float64)
        total_k = self.total_k * (self.size_p[keep_p].sum() / self.size_p.sum())
        inside_k = counts_kb.sum(axis=1)
        seen = inside_k > 0
        known, space_f_k = np.full(len(seen), np.nan), self.space_f_k
        if self.pinned and self.model_f_k is not None:
            space_f_k = np.where(np.isfinite(space_f_k), space_f_k, self.model_f_k)
        known[seen] = space_f_k[seen] + np.log(total_k[seen] / inside_k[seen])
        return Equations(counts_kb, self.log_w_kb, known)


@dataclass(frozen=True)
class Units:
    """Independent populations, whose draws depend on each other.

    Attributes
    ----------
    number : U, of all parts
    draws_b : [B], draws in each bin
    """

    number: float
    draws_b: FloatArray | IntArray

    def worth(self, equal_b: FloatArray) -> FloatArray:
        """Return how many equal independent draws the populations' sums are worth [B].

        The mean of U independent sums s has the relative variance sum s^2 / (sum s)^2 - 1 / U,
        where the first term is 1 / equal_b, [B]. Draws are worth no more than their number.
        """
        with np.errstate(divide="ignore"):
            variance_b = 1.0 / np.asarray(equal_b, dtype=np.float64) - 1.0 / self.number
            least_b = 1.0 / np.asarray(self.draws_b, dtype=np.float64)
        return np.asarray(1.0 / np.maximum(variance_b, least_b))


@dataclass(frozen=True)
class DrawTerms:
    """Sums of v and of v^2 over independent draws per bin, relative to exp(log_top_b).

    Attributes
    ----------
    number_pb : int64 [P, B], draws
    first_pb, second_pb : float64 [P, B]
    log_sum_b : float64 [B], sum of log v, of all parts
    log_top_b : float64 [B]
    draws : float, N of all parts, including those outside the bins
    size_p : int64 [P]
    widened : whether differences between parts are stretched, see the module
    units : for populations: number, first and second are then of their sums, not of draws
    """

    number_pb: IntArray
    first_pb: FloatArray
    second_pb: FloatArray
    log_sum_b: FloatArray
    log_top_b: FloatArray
    draws: float
    size_p: IntArray
    widened: bool = True
    units: Units | None = None

    def effective_b(self) -> FloatArray:
        """Return how many equal draws all parts are worth [B]: the lesser of own and pooled."""
        first_b, second_b = self.first_pb.sum(axis=0), self.second_pb.sum(axis=0)
        own_b = first_b**2 / np.where(second_b > 0, second_b, 1.0)
        if self.units is not None:
            own_b = self.units.worth(own_b)
        return np.asarray(np.minimum(own_b, self.number_pb.sum(axis=0) / self.uneven_b))

    @cached_property
    def uneven_b(self) -> FloatArray:
        """1 + CV^2 of the weights of all parts, pooled over neighbouring bins [B].

        For populations: the number of sums that are worth one equal draw.
        """
        with np.errstate(divide="ignore"):
            log_first_b = np.log(self.first_pb.sum(axis=0)) + self.log_top_b
            log_second_b = np.log(self.second_pb.sum(axis=0)) + 2.0 * self.log_top_b
        number_b = self.number_pb.sum(axis=0)
        uneven_b = unevenness(number_b, log_first_b, log_second_b, self.log_sum_b)
        if self.units is None:
            return uneven_b
        worth_b = self.units.worth(number_b / uneven_b)
        return np.where(number_b > 0, number_b / np.maximum(worth_b, 1e-300), uneven_b)

    @cached_property
    def _moved_pb(self) -> FloatArray:
        """Shift of log d_b without part p that gives the jackknife the larger of both errors."""
        n_parts = len(self.size_p)
        if n_parts < 2 or not self.widened:
            return np.zeros_like(self.first_pb)
        rest_p = (self.size_p.sum() - self.size_p) / self.size_p.sum()
        with np.errstate(divide="ignore", invalid="ignore"):
            log_rest_pb = np.log((1.0 - np.eye(n_parts)) @ self.first_pb) - np.log(rest_p)[:, None]
            own_pb = log_rest_pb - np.log(self.first_pb.sum(axis=0))
            pooled_b = np.sqrt(self.uneven_b / self.number_pb.sum(axis=0))
        known_b = np.isfinite(own_pb).all(axis=0)
        pooled_b, own_pb = np.where(known_b, pooled_b, 0.0), np.where(known_b, own_pb, 0.0)
        error_b = jackknife_error(np.zeros(len(known_b)), own_pb, self.size_p)
        # parts that agree to the last digits are stretched in a random direction
        alike_b = error_b < 1e-3 * pooled_b
        any_pb = np.random.default_rng(0).normal(size=own_pb.shape)
        toward_pb = np.where(alike_b, any_pb - any_pb.mean(axis=0), own_pb)
        length_b = jackknife_error(np.zeros(len(known_b)), toward_pb, self.size_p)
        stretch_b = np.where(error_b < pooled_b, pooled_b / np.maximum(length_b, 1e-300), 1.0)
        return np.where(error_b < pooled_b, toward_pb * stretch_b - own_pb, 0.0)

    def equations(self, keep_p: BoolArray) -> Equations:
        """Return the row of some parts.

        Empty bins between bins with draws get an interpolated c_b > 0: that such a bin has no draw
        is information, and omitting it would favour bins that happen to have one.
        """
        first_b = self.first_pb[keep_p].sum(axis=0)
        draws = self.draws * self.size_p[keep_p].sum() / self.size_p.sum()
        counts_b = self.number_pb[keep_p].sum(axis=0) / self.uneven_b
        bins = np.flatnonzero(first_b > 0)
        log_c_b = np.full(len(first_b), -np.inf)
        if bins.size:
            log_d = np.log(first_b[bins]) + self.log_top_b[bins] - np.log(draws)
            log_d += self._moved_pb[~keep_p].sum(axis=0)[bins]
            log_c = np.log(counts_b[bins]) - log_d
            between = np.arange(bins[0], bins[-1] + 1)
            log_c_b[between] = np.interp(between, bins, log_c)
            log_c_b -= np.log(counts_b.sum())  # `solve` multiplies by the row's sum
        return Equations(counts_b[None], log_c_b[None], np.zeros(1))


class DrawSums:
    """Sums of v and v^2 per part and bin, in log space: v spans hundreds of nats between bins."""

    def __init__(self, n_parts: int, n_bins: int) -> None:
        self._shape = (n_parts, n_bins)
        self._number = np.zeros(self._shape, dtype=np.int64)
        self._first, self._second = np.zeros(self._shape), np.zeros(self._shape)
        self._top, self._logs = np.full(n_bins, -np.inf), np.zeros(n_bins)

    def add(self, part_i: IntArray, bin_i: IntArray, log_v_i: FloatArray) -> None:
        """Add draws, all inside the bins."""
        top = self._top.copy()
        np.maximum.at(top, bin_i, log_v_i)
        with np.errstate(invalid="ignore"):
            fade = np.where(np.isfinite(self._top), np.exp(self._top - top), 0.0)
        self._top = top
        v_i = np.exp(log_v_i - top[bin_i])
        cell_i, size = part_i * self._shape[1] + bin_i, self._first.size
        self._number += np.bincount(cell_i, minlength=size).reshape(self._shape)
        self._first = self._first * fade + np.bincount(cell_i, v_i, size).reshape(self._shape)
        squares = np.bincount(cell_i, v_i**2, size).reshape(self._shape)
        self._second = self._second * fade**2 + squares
        self._logs += np.bincount(bin_i, log_v_i, self._shape[1])

    def terms(self, draws: float, size_p: IntArray, units: Units | None = None) -> DrawTerms:
        """Return the sums; `units` if sums of populations were added."""
        sums = (self._number, self._first, self._second, self._logs, self._top)
        return DrawTerms(*sums, draws, size_p, units=units)


def not_widened(terms: Sequence[Terms]) -> Sequence[Terms]:
    """Return the terms with the differences between parts of draws unstretched."""
    return [replace(t, widened=False) if isinstance(t, DrawTerms) else t for t in terms]


def pinned(terms: Sequence[Terms]) -> Sequence[Terms]:
    """Return the terms with a language model's own normalizer as known in those of chains."""
    return [replace(t, pinned=True) if isinstance(t, ChainTerms) else t for t in terms]


def join_terms(terms: Sequence[Terms], keep_p: BoolArray) -> Equations:
    """Return the rows of all runs."""
    systems = [part.equations(keep_p) for part in terms]
    return Equations(
        np.concatenate([s.counts_kb for s in systems]),
        np.concatenate([s.log_w_kb for s in systems]),
        np.concatenate([s.known_f_k for s in systems]),
    )
