"""Check whether a walker stayed long in one text that hardly any other lane met.

A text that few lanes meet must be rare on every rung, and a walker should leave it soon. If a
walker stays there for much of the run, moves rarely find or leave this kind of text. Other texts of
that kind may then be missing, which neither z nor its errors reveal.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from omniinput_hpc.estimators import BoolArray
from omniinput_hpc.estimators.errors.convergence import Check
from omniinput_hpc.estimators.run_data import RunData

N_LOOKS = 32
"""Evenly spaced rounds ("looks") whose last samples are compared."""
STAYS = 9
"""Shortest suspicious stay in looks: from the first to the last is a quarter of the run."""
TIMES = 2
"""Least ratio to the longest stay in a text that more lanes met: all may leave texts slowly."""
SHORT = 4
"""Fewer looks in a row are not a stay."""
MAX_STAYS = 200
"""Longest stays to examine: the lanes that met their texts are counted."""
MIN_SAME = 0.5
"""Share of sites with equal values from which two texts count as the same."""
LANES_PER_FEW = 8
"""One lane in this many counts as few; at least one lane does."""


def long_stays(run: RunData) -> Check:
    """Check whether a walker stayed in a text that few lanes met.

    This applies to chains with rungs colder than the language model itself. Only there do moves
    redraw much of an input at once, so that half of it stays only if moves are rejected.
    """
    name = "longest stay in one input"
    cold = np.nan_to_num(run.beta_k, nan=-np.inf) > run.model_beta  # False where it is NaN
    if not cold.any() or run.ancestral or run.rounds < N_LOOKS or run.is_part:
        return Check(name)
    x_lvwd, z_lvw = _of_walkers(run)
    few, of_many, kept = max(1, run.walkers // LANES_PER_FEW), 1, []
    for length, first, v, w in _stays(x_lvwd):
        n_lanes = int(_lanes_that_met(x_lvwd, x_lvwd[first, v, w]).sum())
        if n_lanes > few:
            of_many = max(of_many, length)
        else:
            kept.append((length, n_lanes, v * run.walkers + w, float(z_lvw[first, v, w])))
    most = max(STAYS, TIMES * of_many)
    limit = (most - 1) / (N_LOOKS - 1)
    kept = [stay for stay in kept if stay[0] >= most]
    if not kept:
        return Check(name, threshold=limit)
    length, n_lanes, *_ = max(kept)
    share = (length - 1) / (N_LOOKS - 1)
    highest = max(z for *_, z in kept)
    n = len({stay[2] for stay in kept}) - 1
    others = f" ({n} more walker{'s' * (n > 1)} did so, too)" if n else ""
    return Check(name, share, limit).failed(
        f"a walker kept one text, or half of its tokens, for {share:.0%} of the run"
        f"{others}, and {n_lanes} of {run.walkers} lanes visited it: moves hardly find or "
        f"leave some kinds of texts with z of {highest:.3g} or less, so more of them may be "
        "missing",
        "raise run.burn_in, during which moves adapt, or run.rounds",
    )


def _of_walkers(run: RunData) -> tuple[NDArray[Any], NDArray[np.float32]]:
    """Return the walkers' texts at each look, [looks, V, W, D], and their outputs [looks, V, W].

    A lane has V = K walkers, which swap rungs; here each keeps its index.
    """
    last = slice(run.samples_per_round - run.walkers, None)
    parts = []
    look = np.linspace(0, run.rounds - 1, N_LOOKS).round().astype(np.int64)
    for round_, (x_ksd, z_ks) in zip(look, run.source.samples(look), strict=True):
        place_kw = np.argsort(run.source.samples_walker(int(round_))[:, last], axis=0)
        x_kwd = np.take_along_axis(x_ksd[:, last], place_kw[..., None], axis=0)
        parts.append((x_kwd, np.take_along_axis(z_ks[:, last], place_kw, axis=0)))
    x, z = (np.stack(some) for some in zip(*parts, strict=True))
    return x, z


def _stays(x_lvwd: NDArray[Any]) -> list[tuple[int, int, int, int]]:
    """Return the longest stays: number of looks, first look, walker and lane of each."""
    n_looks, found = len(x_lvwd), []
    for first in range(n_looks - SHORT + 1):
        same_lvw = (x_lvwd[first:] == x_lvwd[first]).mean(axis=-1) >= MIN_SAME
        length_vw = np.cumprod(same_lvw, axis=0).sum(axis=0)
        for v, w in np.argwhere(length_vw >= SHORT):
            found.append((int(length_vw[v, w]), first, int(v), int(w)))
    return sorted(found, key=lambda stay: -stay[0])[:MAX_STAYS]


def _lanes_that_met(x_lvwd: NDArray[Any], text_d: NDArray[Any]) -> BoolArray:
    """Return which lanes have a text at any look, bool [W]."""
    same = (x_lvwd == text_d).mean(axis=-1) >= MIN_SAME
    return np.asarray(same.any(axis=(0, 1)))
