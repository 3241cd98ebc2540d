"""The ladder: who swaps with whom, and which swaps are accepted. Pure arithmetic."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from omniinput_hpc.ensembles import Ensemble

UP_FROM_BOTTOM = 1
DOWN_FROM_TOP = 2


def placement(n_rungs: int, n_ranks: int, rank: int) -> range:
    """Return the rungs of a rank: an equal share of neighbouring rungs.

    Raises
    ------
    ValueError
        The ranks do not divide the rungs.
    """
    if n_rungs % n_ranks:
        raise ValueError(f"{n_ranks} ranks do not divide {n_rungs} rungs")
    share = n_rungs // n_ranks
    return range(rank * share, (rank + 1) * share)


def owner(rung: int, n_rungs: int, n_ranks: int) -> int:
    """Return the rank that holds a rung."""
    return rung // (n_rungs // n_ranks)


def pairs(n_rungs: int, exchange: int) -> range:
    """Return the lower rungs k of the pairs (k, k + 1) that swap at an exchange.

    Deterministic even-odd alternation (Syed et al. 2021); `exchange` counts from the run's
    very first one, burn-in included.
    """
    return range(exchange % 2, n_rungs - 1, 2)


def accept_swaps(
    lower: Ensemble,
    upper: Ensemble,
    z_lower_w: NDArray[np.float32],
    z_upper_w: NDArray[np.float32],
    u_w: NDArray[np.float64],
) -> NDArray[np.bool_]:
    """Decide which slots of two neighbouring rungs swap configurations.

    log a = w_l(y) + w_u(x) - w_l(x) - w_u(y) for x in the lower and y in the upper rung, w being
    the ensembles' log-weights (Swendsen & Wang 1986, in the form of Vogel et al. 2013).

    Parameters
    ----------
    z_lower_w, z_upper_w : float32 [W]
    u_w : float64 [W], uniform in [0, 1)

    Returns
    -------
    bool [W]
    """
    x, y = z_lower_w.astype(np.float64), z_upper_w.astype(np.float64)
    log_a = lower.log_weight(y) + upper.log_weight(x) - lower.log_weight(x) - upper.log_weight(y)
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(u_w) < log_a)


def count_round_trips(
    direction_w: NDArray[np.int8],
    walker_w: NDArray[np.int32],
    at_bottom: bool,
    trips: NDArray[np.int64],
) -> NDArray[np.int8]:
    """Follow the walkers that sit in an end rung: a trip is bottom, top, and bottom again.

    Parameters
    ----------
    direction_w : int8 [W], 0 (never at the bottom), UP_FROM_BOTTOM or DOWN_FROM_TOP
    walker_w : int32 [W], who sits there
    at_bottom : whether the rung is rung 0; otherwise it is the top one
    trips : int64 [W * K], completed trips per walker, added to in place

    Returns
    -------
    int8 [W], the directions afterwards
    """
    if at_bottom:
        np.add.at(trips, walker_w[direction_w == DOWN_FROM_TOP], 1)
        return np.full_like(direction_w, UP_FROM_BOTTOM)
    return np.where(direction_w == UP_FROM_BOTTOM, DOWN_FROM_TOP, direction_w).astype(np.int8)
