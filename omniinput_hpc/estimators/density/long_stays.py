"""Whether a lane stayed long in one text that hardly any other lane met.

A text that few lanes meet must be rare on every rung, and a walker should leave it soon. One that
stays for much of the run shows a kind of text that moves hardly find and hardly leave: others of
the kind may be missing. Neither z nor its errors know of those.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from omniinput_hpc.estimators import BoolArray
from omniinput_hpc.estimators.run_data import RunData

N_LOOKS = 16
"""Rounds, evenly spaced, whose last samples are compared."""
STAYS = 5
"""Looks in a row at which a text is there: a quarter of the run lies between the first and last."""
MIN_SAME = 0.5
"""The share of sites with the same value from which on two texts count as one."""
LANES_PER_FEW = 8
"""One lane in so many is few; one lane always is."""


@dataclass(frozen=True)
class _Stay:
    z: float
    n_lanes: int


def long_stays(run: RunData) -> list[str]:
    """Return that a lane stayed in a text that few met, as a sentence for the verdict; or nothing.

    Asked of chains with rungs colder than a language model itself: only there do moves redraw much
    of an input at once, so that half of it stays only where moves are refused.
    """
    cold = np.nan_to_num(run.beta_k, nan=-np.inf) > run.model_beta  # False where it is NaN
    if not cold.any() or run.samples_log_q() is not None or run.rounds < N_LOOKS:
        return []
    look = np.linspace(0, run.rounds - 1, N_LOOKS).round().astype(np.int64)
    last = slice(run.samples_per_round - run.walkers, None)
    found = [(x[:, last], z[:, last]) for x, z in run.samples(look)]
    x_lkwd, z_lkw = (np.stack(parts) for parts in zip(*found, strict=True))
    few = max(1, run.walkers // LANES_PER_FEW)
    stays = [stay for w in range(run.walkers) for stay in _of_lane(x_lkwd, z_lkw, w, few)]
    if not stays:
        return []
    stay = min(stays, key=lambda one: (one.n_lanes, one.z))
    return [
        f"a walker stayed in one text of z = {stay.z:.3g}, or half of its tokens, for a quarter of "
        f"the run, and {stay.n_lanes} of {run.walkers} lanes met it: moves hardly find or leave "
        "some kinds of texts, and others like it may be missing; raise run.burn_in, in which moves "
        "learn, or run.rounds"
    ]


def _of_lane(x_lkwd: NDArray[Any], z_lkw: NDArray[np.float32], w: int, few: int) -> list[_Stay]:
    """Return the texts that one lane stayed in and few met."""
    stays = []
    for first in range(len(x_lkwd) - STAYS + 1):
        at = slice(first, first + STAYS)
        stayed_k = _is_met(x_lkwd[at, :, w], x_lkwd[first, :, w]).all(axis=0)
        for k in np.flatnonzero(stayed_k):
            met_w = _lanes_that_met(x_lkwd, x_lkwd[first, k, w])
            if met_w.sum() <= few:
                stays.append(_Stay(float(z_lkw[first, k, w]), int(met_w.sum())))
    return stays


def _is_met(x_lkd: NDArray[Any], text_id: NDArray[Any]) -> BoolArray:
    """Return at which looks some rung has each of some texts, bool [looks, texts]."""
    same = (x_lkd[:, :, None] == text_id).mean(axis=-1) >= MIN_SAME  # [looks, K, texts]
    return np.asarray(same.any(axis=1))


def _lanes_that_met(x_lkwd: NDArray[Any], text_d: NDArray[Any]) -> BoolArray:
    """Return which lanes have a text at some look, bool [W]."""
    same = (x_lkwd == text_d).mean(axis=-1) >= MIN_SAME
    return np.asarray(same.any(axis=(0, 1)))
