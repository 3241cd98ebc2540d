"""What is written of a round and read to resume: typed records, and the datasets they become."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from omniinput_hpc.runfile.layout import Geometry


@dataclass(frozen=True)
class RungState:
    """What a rung resumes from, after a round.

    Attributes
    ----------
    beta : NaN where the rung's histogram is to be flat
    tuned : float64 [n_tuned], what burn-in tunes of the kernel
    entropy, visits, learning : float64 [B + 2], [B + 2], [6], of a Wang-Landau rung's learning
    lane_counts_gb, z_sum_b : uint64 [G, B], float64 [B], since the first counted round
    x, z, walker_w, direction_w : [W, D], [W], [W], [W], the configurations
    """

    beta: float
    tuned: NDArray[np.float64]
    entropy: NDArray[np.float64]
    visits: NDArray[np.float64]
    learning: NDArray[np.float64]
    lane_counts_gb: NDArray[np.uint64]
    z_sum_b: NDArray[np.float64]
    x: NDArray[Any]
    z: NDArray[np.float32]
    walker_w: NDArray[np.int32]
    direction_w: NDArray[np.int8]


STATE_DATASETS = {
    "tuned": "state/kernel",
    "entropy": "state/entropy",
    "visits": "state/visits",
    "learning": "state/learning",
    "x": "state/x",
    "z": "state/z",
    "walker_w": "state/walker",
    "direction_w": "state/direction",
}
"""Where those fields of a `RungState` stand that are stored as they are."""


@dataclass(frozen=True)
class RungRecord:
    """One rung's part of a commit.

    Attributes
    ----------
    state : after the round
    log_weight_b : float64 [B], at the bins' centres
    counts_b, outside : the round's histogram, [B], and counts below and above the bins, [2]
    samples_x, samples_z, samples_walker : [S, D], [S], [S]
    samples_log_q : float64 [S, K], None for chains
    attempted_p, accepted_p : int64 [n_kernels], the round's moves by part of the kernel
    """

    state: RungState
    log_weight_b: NDArray[np.float64]
    counts_b: NDArray[np.integer[Any]]
    outside: NDArray[np.integer[Any]]
    samples_x: NDArray[Any]
    samples_z: NDArray[np.float32]
    samples_walker: NDArray[np.int32]
    samples_log_q: NDArray[np.float64] | None
    attempted_p: NDArray[np.int64]
    accepted_p: NDArray[np.int64]


@dataclass(frozen=True)
class ExchangeRecord:
    """What the exchanges of a round and the ladder's tuning give to a commit.

    Attributes
    ----------
    attempted_k, accepted_k : int64 [K - 1], the round's swaps of walkers
    round_trips_v : int64 [W K], round trips completed in the round
    swaps_k2 : int64 [K - 1, 2], attempted and accepted since the last tuning stage's end
    rejection_k : float64 [K - 1], share of swaps rejected since then
    z_std_k : float64 [K], standard deviation of z in the last burn-in round
    """

    attempted_k: NDArray[np.int64]
    accepted_k: NDArray[np.int64]
    round_trips_v: NDArray[np.int64]
    swaps_k2: NDArray[np.int64]
    rejection_k: NDArray[np.float64]
    z_std_k: NDArray[np.float64]


@dataclass(frozen=True)
class Checkpoint:
    """The state of a run after its last committed round.

    Attributes
    ----------
    rungs : those asked for, in the ladder's order
    swaps_k2 : int64 [K - 1, 2], as in `ExchangeRecord`
    """

    rungs: list[RungState]
    swaps_k2: NDArray[np.int64]


def slabs_of_round(
    rungs: Sequence[RungRecord], exchange: ExchangeRecord, held: range, g: Geometry
) -> dict[str, NDArray[Any]]:
    """Return a rank's slab of every dataset of a round, by name; `held` are its rungs' numbers."""
    per_rung = [_datasets(record) for record in rungs]
    slabs = {name: np.stack([part[name] for part in per_rung]) for name in per_rung[0]}
    pairs = slice(held.start, min(held.stop, g.n_rungs - 1))
    slabs["exchange/attempted"] = exchange.attempted_k[pairs]
    slabs["exchange/accepted"] = exchange.accepted_k[pairs]
    slabs["exchange/round_trips"] = exchange.round_trips_v
    slabs["ladder/rejection"] = exchange.rejection_k[pairs]
    slabs["ladder/z_std"] = exchange.z_std_k[held.start : held.stop]
    slabs["state/swaps"] = exchange.swaps_k2[pairs]
    return slabs


def _datasets(record: RungRecord) -> dict[str, NDArray[Any]]:
    state = record.state
    datasets: dict[str, NDArray[Any]] = {
        "ladder/beta": np.asarray(state.beta),
        "ensemble/log_weight": record.log_weight_b,
        "histogram/counts": record.counts_b.astype(np.uint32),
        "histogram/outside": record.outside.astype(np.uint32),
        "histogram/lane_counts": state.lane_counts_gb,
        "histogram/z_sum": state.z_sum_b,
        "samples/x": record.samples_x,
        "samples/z": record.samples_z,
        "samples/walker": record.samples_walker,
        "exchange/walker": state.walker_w,
        "kernel/attempted": record.attempted_p,
        "kernel/accepted": record.accepted_p,
        "state/beta": np.asarray(state.beta),
    }
    datasets |= {name: getattr(state, field) for field, name in STATE_DATASETS.items()}
    if record.samples_log_q is not None:
        datasets["samples/log_q"] = record.samples_log_q
    return datasets
