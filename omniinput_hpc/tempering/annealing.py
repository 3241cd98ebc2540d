"""Populations with weights, carried from one beta to the next, and drawn anew where uneven.

A population is M walkers x_i with weights w_i. It stands for a rung's weights exp(-beta z) if

    E[(1 / M) sum_i w_i f(x_i)] = sum over all inputs x of exp(-beta z(x)) f(x)      for every f.

Draws from a normalized q do, with w = exp(-beta z) / q. It stays so by three steps: for the next
beta' every w_i is multiplied by exp(-(beta' - beta) z_i); walker i is replaced by as many copies as
a random number of mean M w_i / sum_j w_j says, all weights by their mean; and walkers are moved by
a kernel that leaves exp(-beta z) invariant, weights as they are (annealed importance sampling:
Neal, Stat. Comput. 11, 125 (2001); with the second step a sequential Monte Carlo sampler: Del
Moral, Doucet & Jasra, J. R. Stat. Soc. B 68, 411 (2006)). With f = 1 the mean weight is an unbiased
estimate of Z(beta), and with f = exp(beta z) on the inputs of a bin, of their number. Whether
walkers are drawn anew may depend on their weights.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

MIN_EFFECTIVE_SHARE = 0.5
"""A population is drawn anew where its weights are worth less of it: (sum w)^2 / (M sum w^2)."""

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


class Carried(NamedTuple):
    """Populations after reweighting: the weights, and whose copy each walker is now."""

    log_weight_w: FloatArray  # [W]
    source_w: IntArray  # [W]


def carry(
    log_weight_w: FloatArray, z_w: FloatArray, gap: float, group_w: IntArray, u_g: FloatArray
) -> Carried:
    """Reweight populations for the next beta, and draw uneven ones anew, each within itself.

    Parameters
    ----------
    log_weight_w : float64 [W]
    z_w : float64 [W], the walkers' outputs
    gap : beta' - beta
    group_w : int64 [W], which of the G populations each walker is in, from 0, ascending
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
    """Draw as many indices as there are weights, int64 [M], ascending, by one number u in [0, 1).

    Index i comes floor or ceil of M w_i / sum w times, on average just so often (Kitagawa, J.
    Comput. Graph. Stat. 5, 1 (1996)).
    """
    upto = np.cumsum(w)
    place = (u + np.arange(len(w))) * (upto[-1] / len(w))
    return np.asarray(np.minimum(np.searchsorted(upto, place, side="right"), len(w) - 1))
