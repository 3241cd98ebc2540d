"""Weighted populations: reweighted from one beta to the next, and resampled if uneven.

A population is M walkers x_i with weights w_i. It represents a rung with weights exp(-beta z) if

    E[(1 / M) sum_i w_i f(x_i)] = sum over all inputs x of exp(-beta z(x)) f(x)      for every f.

Draws from a normalized q with w = exp(-beta z) / q have this property. Three steps preserve it:

1. Reweighting: for the next beta', every w_i is multiplied by exp(-(beta' - beta) z_i).
2. Resampling: walker i is replaced by a random number of copies with mean M w_i / sum_j w_j, and
   all weights by their mean. Whether to resample may depend on the weights.
3. Moves by a kernel that leaves exp(-beta z) invariant; the weights do not change.

Steps 1 and 3 are annealed importance sampling (Neal, Stat. Comput. 11, 125 (2001)); step 2 makes
it a sequential Monte Carlo sampler (Del Moral, Doucet & Jasra, J. R. Stat. Soc. B 68, 411 (2006)).
With f = 1 the mean weight is an unbiased estimate of Z(beta). With f = exp(beta z) on the inputs of
a bin, and 0 elsewhere, the same mean estimates the number of inputs in the bin.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

MIN_EFFECTIVE_SHARE = 0.5
"""A population is resampled if its effective share (sum w)^2 / (M sum w^2) is below this."""

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


class Carried(NamedTuple):
    """Populations after reweighting and resampling."""

    log_weight_w: FloatArray  # [W]
    source_w: IntArray  # [W], the index of the walker of which each walker is now a copy


def carry(
    log_weight_w: FloatArray, z_w: FloatArray, gap: float, group_w: IntArray, u_g: FloatArray
) -> Carried:
    """Reweight populations for the next beta, and resample each uneven population.

    Parameters
    ----------
    log_weight_w : float64 [W]
    z_w : float64 [W], the walkers' outputs
    gap : beta' - beta
    group_w : int64 [W], the index of each walker's population, from 0 to G - 1, ascending
    u_g : float64 [G], uniform in [0, 1)
    """
    log_weight_w = log_weight_w - gap * z_w
    source_w = np.arange(len(z_w))
    for group, u in enumerate(u_g):
        members = np.flatnonzero(group_w == group)
        log_w = log_weight_w[members]
        top = log_w.max()
        w = np.exp(log_w - top)
        if w.sum() ** 2 >= MIN_EFFECTIVE_SHARE * len(w) * (w**2).sum():
            continue
        source_w[members] = members[systematic(w, float(u))]
        log_weight_w[members] = top + np.log(w.mean())
    return Carried(log_weight_w, source_w)


def systematic(w: FloatArray, u: float) -> IntArray:
    """Draw M indices, int64 [M], ascending, for M weights, from one number u in [0, 1).

    Index i occurs floor or ceil of M w_i / sum w times, with this mean (Kitagawa, J. Comput. Graph.
    Stat. 5, 1 (1996)).
    """
    upto = np.cumsum(w)
    place = (u + np.arange(len(w))) * (upto[-1] / len(w))
    return np.asarray(np.minimum(np.searchsorted(upto, place, side="right"), len(w) - 1))
