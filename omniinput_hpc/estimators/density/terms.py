"""The terms that a run's observations add to the multi-histogram equations.

They are kept in parts (groups of lanes, or blocks of rounds), so that the equations can be solved
again without one of them. Two kinds enter one system of equations (`wham`), a row per rung:

**Chains** (`ChainTerms`): histograms n_kb of rung k, whose distribution is known up to its
normalizer. That of a uniform rung is known, too: f = -log n_values^D, moves outside the bins
included. So is that of a language model's own distribution (`known_ratio`), which is made use of
where both ends, each solved without the other, agree.

**Independent draws** (`DrawTerms`): N inputs x_i, N_j of them from the normalized distribution
q_j(x), which need not be a function of z. With q(x) = sum_j (N_j / N) q_j(x), every bin
has an unbiased estimate by itself (the balance heuristic: Veach & Guibas, SIGGRAPH 95, 419 (1995);
Shirts & Chodera, J. Chem. Phys. 129, 124105 (2008), Eq. 9 with all f_j known),

    d_b = (1 / N) sum_{i in b} v_i,      v_i = 1 / q(x_i),

whose relative variance is that of a_b = n_b / (1 + CV_b^2) equal draws, n_b draws with weights v_i
of relative spread CV_b: that of the bin's neighbours (`pooled_spread`), since a bin that misses its
heavy draws would count for more. Beside chains it enters as a row with a_b counts and the
expectation c_b = a_b / d_b for each input of the bin:

    g_b = (sum_k n_kb + a_b) / (sum_k n_k exp(f_k) w_kb + c_b),      exp(-f_k) = sum_b g_b w_kb.

The chains' f_k are solved, c_b stays as it is: it is an absolute number. Without chains g_b = d_b;
without draws these are the chains' equations; where both are, each counts by its precision. Draws
whose distribution is a function of z (v_i alike within a bin) enter with every one of their counts.

**Populations** (`DrawTerms` with `Units`) are draws that depend on each other within a population:
v_i are added up to one sum a population and bin, and a_b is the inverse of the relative variance of
the mean of these independent sums, those that are 0 included.

The jackknife misleads just so: parts that all lack the heavy draws agree. Where d_b without one
part differs less from part to part than 1 / sqrt(a_b), the differences are stretched to that, so
that whatever is computed from the replicates (errors, draws of curves, densities of chains and
draws) has the larger of both errors. A test of whether two runs agree would be too lenient by that:
where ranges of bins hold enough draws, it takes the replicates as they are (`not_widened`).
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
    model_f_k : float64 [K], that of a language model's own distribution, NaN elsewhere; None: there
        is none
    pinned : whether the latter are taken as known, too
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
        the first of which is 1 / equal_b, [B]; draws are worth no more than their number.
        """
        with np.errstate(divide="ignore"):
            variance_b = 1.0 / np.asarray(equal_b, dtype=np.float64) - 1.0 / self.number
            least_b = 1.0 / np.asarray(self.draws_b, dtype=np.float64)
        return np.asarray(1.0 / np.maximum(variance_b, least_b))


@dataclass(frozen=True)
class DrawTerms:
    """Sums over independent draws: of v and of v^2 per bin, relative to exp(log_top_b).

    Attributes
    ----------
    number_pb : int64 [P, B], draws
    first_pb, second_pb : float64 [P, B]
    log_sum_b : float64 [B], sum of log v, of all parts
    log_top_b : float64 [B]
    draws : float, N of all parts, also those outside the bins
    size_p : int64 [P]
    widened : whether differences from part to part are stretched, as the module says
    units : of populations: number, first and second are of their sums, not of draws
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
        """Return how many equal draws all parts' are worth [B]: the lesser of own and pooled."""
        first_b, second_b = self.first_pb.sum(axis=0), self.second_pb.sum(axis=0)
        own_b = first_b**2 / np.where(second_b > 0, second_b, 1.0)
        if self.units is not None:
            own_b = self.units.worth(own_b)
        return np.asarray(np.minimum(own_b, self.number_pb.sum(axis=0) / self.uneven_b))

    @cached_property
    def uneven_b(self) -> FloatArray:
        """1 + CV^2 of the weights of all parts, pooled over neighbouring bins [B].

        Of populations, how many sums are as good as one of so many equal draws.
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
        """What is added to log d_b without part p, so that the jackknife has the larger error."""
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
        # parts that agree to the last digits have no direction to be stretched in
        alike_b = error_b < 1e-3 * pooled_b
        any_pb = np.random.default_rng(0).normal(size=own_pb.shape)
        toward_pb = np.where(alike_b, any_pb - any_pb.mean(axis=0), own_pb)
        length_b = jackknife_error(np.zeros(len(known_b)), toward_pb, self.size_p)
        stretch_b = np.where(error_b < pooled_b, pooled_b / np.maximum(length_b, 1e-300), 1.0)
        return np.where(error_b < pooled_b, toward_pb * stretch_b - own_pb, 0.0)

    def equations(self, keep_p: BoolArray) -> Equations:
        """Return the one row of some parts.

        Bins without a draw between bins with draws have c_b > 0, too, interpolated: that a bin
        has no draw counts, and leaving it out would favour bins that happen to have one.
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
    """Adds up v and v^2 per part and bin, in log space: v spans hundreds of nats between bins."""

    def __init__(self, n_parts: int, n_bins: int) -> None:
        self._shape = (n_parts, n_bins)
        self._number = np.zeros(self._shape, dtype=np.int64)
        self._first, self._second = np.zeros(self._shape), np.zeros(self._shape)
        self._top, self._logs = np.full(n_bins, -np.inf), np.zeros(n_bins)

    def add(self, part_i: IntArray, bin_i: IntArray, log_v_i: FloatArray) -> None:
        """Add draws that lie inside the bins."""
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
        """Return the sums; `units` where what was added are sums of populations."""
        sums = (self._number, self._first, self._second, self._logs, self._top)
        return DrawTerms(*sums, draws, size_p, units=units)


def not_widened(terms: Sequence[Terms]) -> Sequence[Terms]:
    """Return the same terms, those of draws as they differ from part to part by themselves."""
    return [replace(t, widened=False) if isinstance(t, DrawTerms) else t for t in terms]


def pinned(terms: Sequence[Terms]) -> Sequence[Terms]:
    """Return the same terms, those of chains with a language model's own normalizer as known."""
    return [replace(t, pinned=True) if isinstance(t, ChainTerms) else t for t in terms]


def join_terms(terms: Sequence[Terms], keep_p: BoolArray) -> Equations:
    """Return all rows of several runs (or of one)."""
    systems = [part.equations(keep_p) for part in terms]
    return Equations(
        np.concatenate([s.counts_kb for s in systems]),
        np.concatenate([s.log_w_kb for s in systems]),
        np.concatenate([s.known_f_k for s in systems]),
    )
