"""The difference D = z_A - z_B of two models' outputs, over the inputs in a range of either's z.

The inputs come from runs of both models (Model-diff, arXiv 2412.12177): those with z_A in the range
from A's run, those with z_B in it from B's. Each model evaluates the samples of the other's run, so
that D is an observable of both runs. The two sides differ if only one model finds some inputs
likely.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from omniinput_hpc.estimators import EstimateError, FloatArray, IntArray
from omniinput_hpc.estimators.comparison.samplers import compare_samplers
from omniinput_hpc.estimators.density.density import Density
from omniinput_hpc.estimators.density.known_ratio import MAX_OUTSIDE
from omniinput_hpc.estimators.density.wide_bins import in_bins
from omniinput_hpc.estimators.errors.jackknife import Interval
from omniinput_hpc.estimators.observables import (
    Averages,
    Joint,
    Observed,
    averages,
    joint_density,
    observe,
    share_where,
    shares,
)
from omniinput_hpc.estimators.run_data import RunData
from omniinput_hpc.estimators.samples import RecordedSamples

END = 0.01
"""Share of the inputs of a range at either end of D from which examples are drawn."""
MANY, RARE = 0.25, (6e-4, 9e-5)
"""Share of inputs that may differ by more than rounding, and by how much, absolute and relative:
the limits of `models.checked` for a model's own outputs."""


@dataclass(frozen=True)
class Pairs:
    """Samples of one run inside bins of its z, with both models' outputs.

    Attributes
    ----------
    seen : the samples, with y = D
    own_i, other_i : float64 [n], z of the run's own model and of the other one
    place_i : int64 [n], index of each sample among all of the run, [rounds, K, S]
    closed : whether the last bin includes its upper edge, which is then that of the run's bins
    """

    seen: Observed
    own_i: FloatArray
    other_i: FloatArray
    place_i: IntArray
    closed: bool

    @property
    def d_i(self) -> FloatArray:
        """D of each sample, float64 [n]."""
        return self.seen.y_i


def pair(
    run: RunData, density: Density, other_rks: NDArray[np.float32], first: bool, most: int
) -> Pairs:
    """Return about `most` samples of a run with D.

    Parameters
    ----------
    density : of the run, in the bins of z that are asked for
    other_rks : float32 [rounds, K, S], the other model's z in the first rounds
    first : whether the run is of the first model, A
    """
    rounds, shape = len(other_rks), other_rks.shape

    def place(part: RecordedSamples) -> FloatArray:
        return np.ravel_multi_index((part.round_, part.rung, part.index_i), shape).astype(float)

    fewer = replace(density, effective_b=density.effective_b * rounds / run.rounds)
    seen = observe(replace(run, rounds=rounds), fewer, place, most)
    place_i = seen.y_i.astype(np.int64)
    own_i, other_i = (
        z_rks.ravel()[place_i].astype(np.float64) for z_rks in (run.z(slice(0, rounds)), other_rks)
    )
    d_i = own_i - other_i if first else other_i - own_i
    closed = bool(density.edges[-1] >= run.edges[-1])
    return Pairs(replace(seen, y_i=d_i), own_i, other_i, place_i, closed)


def spread(seen: Observed) -> tuple[Averages, FloatArray, float]:
    """Return the means of y, its standard deviation in each bin [B], and that over all bins."""
    found = averages(seen)
    square_i = (seen.y_i - found.mean_b[seen.bin_i]) ** 2
    sd_b = np.sqrt(averages(replace(seen, y_i=square_i)).mean_b)
    square_i = (seen.y_i - float(found.whole.value)) ** 2
    return found, sd_b, float(np.sqrt(averages(replace(seen, y_i=square_i)).whole.value))


def model_beta(run: RunData) -> float:
    """Return m if a run has samples of the model's own distribution, at beta = m; else NaN.

    NaN also if some of these lie outside the bins.
    """
    m, predicted_from = run.model_beta, run.config.predicted_from
    if run.ancestral and predicted_from is not None:  # files of draws do not store it
        m = float(run.n_sites - predicted_from)
    own_k = run.weights.is_canonical(m)
    outside = (run.outside_k2.sum(axis=1) > MAX_OUTSIDE * run.moves_k)[own_k].any()
    return m if own_k.any() and not outside else float("nan")


def reweighted(found: Pairs, density: Density, beta: float) -> Observed:
    """Return samples that represent the distribution exp(-beta z), z of the run's own model.

    `density` is the run's in its own bins, narrow enough to be reweighted.
    """
    tilt_b = density.inside.log_mean_exp(-beta)
    tilted = replace(density, log_g_b=density.log_g_b + tilt_b, log_g_jb=density.log_g_jb + tilt_b)
    seen = found.seen
    log_w_i = seen.log_w_i - beta * found.own_i
    return replace(seen, density=in_bins(tilted, seen.density.edges), log_w_i=log_w_i)


def divergence(found: Pairs, density: Density, beta: float, first: bool) -> Interval:
    """Return the Kullback-Leibler divergence per token from the other model, in nats.

    It is the mean of z' - z, z' of the other model, over the inputs as the run's own model draws
    them, at `beta` = m. `found` covers all bins of the run.
    """
    d = averages(reweighted(found, density, beta)).whole
    sign = -1.0 if first else 1.0
    low, high = sorted((sign * d.low, sign * d.high))
    return Interval(sign * d.value, np.asarray(low), np.asarray(high), d.error)


def at_ends(found: Pairs, n: int, seed: int = 0) -> IntArray:
    """Return n samples each of the 1 % of the inputs with lowest and with highest D.

    They are drawn by weight, without repetition; int64 [2 n] or fewer.
    """
    u_i, order = shares(found.seen), np.argsort(found.d_i, kind="stable")
    up_to, rng = np.cumsum(u_i[order]), np.random.default_rng(seed)
    first, last = np.searchsorted(up_to, np.array([END, 1.0 - END]) * up_to[-1])
    drawn = []
    for part in (order[: first + 1], order[last:]):
        p = u_i[part] / u_i[part].sum()
        drawn.append(rng.choice(part, min(n, int((p > 0).sum())), replace=False, p=p))
    return np.unique(np.concatenate(drawn))


@dataclass(frozen=True)
class Sameness:
    """Whether two runs are of one model, tested in two ways.

    The outputs of one model for one input are equal up to rounding: this needs no statistics, and
    a single input may decide. The densities of two runs of one model differ by chance.

    Attributes
    ----------
    largest : the largest size of D, in units of z
    beyond : share of the samples that differ by more than rounding
    times : the largest size of D as a multiple of what rare inputs may differ by
    differing : 95 % upper bounds of the share of inputs that differ by more than rounding, in the
        ranges of both runs
    p : p-value of equal densities, by Hotelling's T^2 (see `samplers`); NaN if not known
    why : why it is not known
    """

    largest: float
    beyond: float
    times: float
    differing: tuple[float, float]
    p: float
    why: str = ""

    @property
    def equal(self) -> bool:
        """Whether the outputs are equal up to rounding."""
        return self.beyond <= MANY and self.times <= 1.0


def sameness(
    ways: tuple[Pairs, Pairs],
    densities: tuple[Density, Density],
    rounding: tuple[float, float],
) -> Sameness:
    """Test whether both runs are of one model.

    Parameters
    ----------
    densities : of both runs, in their own bins
    rounding : the allowed difference of z, absolute and relative to z
    """
    z_i = np.abs(np.concatenate([way.own_i for way in ways]))
    d_i = np.abs(np.concatenate([way.d_i for way in ways]))
    usual_i, rare_i = (absolute + relative * z_i for absolute, relative in (rounding, RARE))
    p, why = np.nan, ""
    try:
        p = compare_samplers(*densities).p
    except EstimateError as error:
        why = str(error)
    beyond_i = d_i > usual_i
    parts = np.split(beyond_i, [len(ways[0].d_i)])
    bounds = [float(share_where(w.seen, part).high) for w, part in zip(ways, parts, strict=True)]
    return Sameness(
        largest=float(d_i.max()),
        beyond=float(beyond_i.mean()),
        times=float((d_i / np.maximum(usual_i, rare_i)).max()),
        differing=(bounds[0], bounds[1]),
        p=p,
        why=why,
    )


@dataclass(frozen=True)
class OneWay:
    """D over the inputs with one model's z in a range.

    Attributes
    ----------
    pairs : the samples
    means, sd_b, sd : means of D, and standard deviations in each bin of z [B] and over all of them
    outside : share of these inputs whose z by the other model lies outside the range
    divergence : Kullback-Leibler divergence per token from the other model; None if not known
    density : of D, and of z and D
    """

    pairs: Pairs
    means: Averages
    sd_b: FloatArray
    sd: float
    outside: Interval
    divergence: Interval | None
    density: Joint


def one_way(found: Pairs, divergence: Interval | None, d_edges: FloatArray) -> OneWay:
    """Return what is known of D on one side."""
    edges = found.seen.density.edges
    above = np.greater if found.closed else np.greater_equal  # as z of the run's own model counts
    outside_i = (found.other_i < edges[0]) | above(found.other_i, edges[-1])
    return OneWay(
        found,
        *spread(found.seen),
        share_where(found.seen, outside_i),
        divergence,
        joint_density(found.seen, d_edges),
    )
