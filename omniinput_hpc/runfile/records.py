"""What is written of a round and read to resume: typed records, and the datasets they become."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from omniinput_hpc.runfile.layout import Geometry


@dataclass(frozen=True)
class RungState:
    """What a rung resumes from, after a round."""

    beta: float  # NaN where the rung's histogram is to be flat
    tuned: NDArray[np.float64]  # [n_tuned], what burn-in tunes of the kernel
    entropy: NDArray[np.float64]  # [B + 2], as the next two of a Wang-Landau rung's learning
    visits: NDArray[np.float64]  # [B + 2]
    learning: NDArray[np.float64]  # [6]
    lane_counts_gb: NDArray[np.uint64]  # [G, B], since the first counted round
    z_sum_b: NDArray[np.float64]  # [B], since then
    x: NDArray[Any]  # [W, D]
    z: NDArray[np.float32]  # [W]
    walker_w: NDArray[np.int32]  # [W]
    direction_w: NDArray[np.int8]  # [W]
    kappa: float = 0.0  # of a Gaussian rung
    z0: float = 0.0  # likewise
    heading_w: NDArray[np.int8] | None = None  # [W], see `WangLandauEnsemble.headings`; or none


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
    """One rung's part of a commit."""

    state: RungState  # after the round
    log_weight_b: NDArray[np.float64]  # [B], at the bins' centres
    counts_b: NDArray[np.integer[Any]]  # [B], the round's histogram
    outside: NDArray[np.integer[Any]]  # [2], counts below and above the bins
    samples_x: NDArray[Any]  # [S, D]
    samples_z: NDArray[np.float32]  # [S]
    samples_walker: NDArray[np.int32]  # [S]
    samples_log_q: NDArray[np.float64] | None  # [S, K], None for chains
    attempted_p: NDArray[np.int64]  # [n_kernels], the round's moves by part of the kernel
    accepted_p: NDArray[np.int64]  # [n_kernels]


@dataclass(frozen=True)
class ExchangeRecord:
    """What the exchanges of a round and the ladder's tuning give to a commit."""

    attempted_k: NDArray[np.int64]  # [K - 1], the round's swaps of walkers
    accepted_k: NDArray[np.int64]  # [K - 1]
    round_trips_v: NDArray[np.int64]  # [W K], round trips completed in the round
    swaps_k2: NDArray[np.int64]  # [K - 1, 2], attempted and accepted since the last tuning stage
    rejection_k: NDArray[np.float64]  # [K - 1], share of swaps rejected since then
    z_std_k: NDArray[np.float64]  # [K], standard deviation of z in the last burn-in round


@dataclass(frozen=True)
class Checkpoint:
    """The state of a run after its last committed round."""

    rungs: list[RungState]  # those asked for, in the ladder's order
    swaps_k2: NDArray[np.int64]  # [K - 1, 2], as in `ExchangeRecord`

    @classmethod
    def of_fields(
        cls,
        fields: Mapping[str, NDArray[Any]],
        rung_k3: NDArray[np.float64],
        swaps_k2: NDArray[np.int64],
    ) -> Checkpoint:
        """Return that of rungs, given their fields [K, ...] and beta, kappa and z0 [K, 3]."""
        rungs = [
            RungState(
                beta=float(beta),
                **{name: values[k] for name, values in fields.items()},
                kappa=float(kappa),
                z0=float(z0),
            )
            for k, (beta, kappa, z0) in enumerate(rung_k3)
        ]
        return cls(rungs, swaps_k2)


class Slabs(Protocol):
    """An open run file: what is read of one round of a dataset."""

    def slab(self, name: str, round_: int, rungs: range | None = None) -> NDArray[Any]:
        """Return a dataset's part of a round, for some rungs or all."""


class _Slab:
    """A dataset of one round, read when it is asked for."""

    def __init__(self, dataset: str) -> None:
        self._dataset = dataset

    def __get__(self, round_: RecordedRound, owner: type) -> NDArray[Any]:
        return round_.run.slab(self._dataset, round_.number, round_.rungs)


@dataclass(frozen=True)
class RecordedRound:
    """The records of one committed round (number 0 on), for some rungs or (None) for all."""

    run: Slabs
    number: int
    rungs: range | None = None

    outside_k2 = _Slab("histogram/outside")  # below and above the bins, uint32 [K, 2]
    samples_x = _Slab("samples/x")  # [K, S, D]
    samples_z = _Slab("samples/z")  # float32 [K, S]
    samples_walker = _Slab("samples/walker")  # int32 [K, S]
    attempted_kn = _Slab("kernel/attempted")  # moves of each part of the kernel, int64 [K, n]
    accepted_kn = _Slab("kernel/accepted")
    swaps_attempted_k = _Slab("exchange/attempted")  # of rung k with k + 1, int64 [K - 1]
    swaps_accepted_k = _Slab("exchange/accepted")
    walker_kw = _Slab("exchange/walker")  # in each slot at the round's end, int32 [K, W]
    round_trips_v = _Slab("exchange/round_trips")  # completed by each walker, int64 [W K]


def slabs_of_round(
    rungs: Sequence[RungRecord],
    exchange: ExchangeRecord,
    held: range,
    g: Geometry,
    counts_kb: NDArray[np.uint32] | None = None,
) -> dict[str, NDArray[Any]]:
    """Return a rank's slab of every dataset of a round, by name; nothing where it writes no rung.

    `held` are the numbers of the rungs that it writes. `counts_kb` are the counts of the block of
    rounds that ends with the round, uint32 [rungs, B], where several rounds share a histogram.
    """
    if not rungs:
        return {}
    per_rung = [_datasets(record) for record in rungs]
    slabs = {name: np.stack([part[name] for part in per_rung]) for name in per_rung[0]}
    pairs = slice(held.start, min(held.stop, g.n_rungs - 1))
    if g.rounds_per_block > 1:
        del slabs["histogram/counts"]
        if counts_kb is not None:
            slabs["histogram/counts"] = counts_kb
    slabs["exchange/attempted"] = exchange.attempted_k[pairs]
    slabs["exchange/accepted"] = exchange.accepted_k[pairs]
    slabs["exchange/round_trips"] = exchange.round_trips_v
    slabs["ladder/rejection"] = exchange.rejection_k[pairs]
    slabs["ladder/z_std"] = exchange.z_std_k[held.start : held.stop]
    slabs["state/swaps"] = exchange.swaps_k2[pairs]
    if g.curved:
        kappa_k = np.array([record.state.kappa for record in rungs])
        z0_k = np.array([record.state.z0 for record in rungs])
        slabs["ensemble/kappa"], slabs["ensemble/z0"] = kappa_k, z0_k
        slabs["state/gaussian"] = np.stack([kappa_k, z0_k], axis=1)
    if g.headed:
        slabs["state/heading"] = np.stack([np.asarray(record.state.heading_w) for record in rungs])
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
