"""Typed records of a round and of the state to resume from, and the datasets that store them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from omniinput_hpc.runfile.layout import Geometry


@dataclass(frozen=True)
class RungState:
    """The state of a rung after a round, from which it resumes."""

    beta: float  # NaN on flat-histogram rungs
    tuned: NDArray[np.float64]  # [n_tuned], the kernel's parameters that burn-in tunes
    entropy: NDArray[np.float64]  # [B + 2], Wang-Landau learning, as are the next two
    visits: NDArray[np.float64]  # [B + 2]
    learning: NDArray[np.float64]  # [6]
    lane_counts_gb: NDArray[np.uint64]  # [G, B], since the first counted round
    z_sum_b: NDArray[np.float64]  # [B], likewise
    x: NDArray[Any]  # [W, D]
    z: NDArray[np.float32]  # [W]
    walker_w: NDArray[np.int32]  # [W]
    direction_w: NDArray[np.int8]  # [W]
    kappa: float = 0.0  # of a Gaussian rung
    z0: float = 0.0  # likewise
    heading_w: NDArray[np.int8] | None = None  # [W], see `WangLandauEnsemble.headings`


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
"""Datasets of those fields of `RungState` that are stored unchanged."""


@dataclass(frozen=True)
class RungRecord:
    """One rung's part of a commit."""

    state: RungState  # after the round
    log_weight_b: NDArray[np.float64]  # [B], at the bin centres
    counts_b: NDArray[np.integer[Any]]  # [B], the round's histogram
    outside: NDArray[np.integer[Any]]  # [2], counts below and above the bins
    samples_x: NDArray[Any]  # [S, D]
    samples_z: NDArray[np.float32]  # [S]
    samples_walker: NDArray[np.int32]  # [S]
    samples_log_q: NDArray[np.float64] | None  # [S, J], J = `Geometry.n_log_q`; None for chains
    attempted_p: NDArray[np.int64]  # [n_kernels], the round's moves per part of the kernel
    accepted_p: NDArray[np.int64]  # [n_kernels]


@dataclass(frozen=True)
class ExchangeRecord:
    """The part of a commit that comes from exchanges and from tuning the ladder."""

    attempted_k: NDArray[np.int64]  # [K - 1], the round's swaps of walkers
    accepted_k: NDArray[np.int64]  # [K - 1]
    round_trips_v: NDArray[np.int64]  # [W K], round trips completed in the round
    swaps_k2: NDArray[np.int64]  # [K - 1, 2], attempted and accepted since the last tuning stage
    rejection_k: NDArray[np.float64]  # [K - 1], share of swaps rejected in the same rounds
    z_std_k: NDArray[np.float64]  # [K], standard deviation of z in the last burn-in round


@dataclass(frozen=True)
class Checkpoint:
    """The state of a run after its last committed round."""

    rungs: list[RungState]  # the requested rungs, in the order of the ladder
    swaps_k2: NDArray[np.int64]  # [K - 1, 2], as in `ExchangeRecord`

    @classmethod
    def of_fields(
        cls,
        fields: Mapping[str, NDArray[Any]],
        rung_k3: NDArray[np.float64],
        swaps_k2: NDArray[np.int64],
    ) -> Checkpoint:
        """Return a checkpoint, given the fields [K, ...] of rungs and beta, kappa and z0 [K, 3]."""
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
    """An open run file, as far as single rounds are read from it."""

    def slab(self, name: str, round_: int, rungs: range | None = None) -> NDArray[Any]:
        """Return the slab of a dataset that a round wrote, by default for all rungs."""


class _Slab:
    """A descriptor that reads the slab of one round on access."""

    def __init__(self, dataset: str) -> None:
        self._dataset = dataset

    def __get__(self, round_: RecordedRound, owner: type) -> NDArray[Any]:
        return round_.run.slab(self._dataset, round_.number, round_.rungs)


@dataclass(frozen=True)
class RecordedRound:
    """The records of one committed round, numbered from 0; `rungs` None: of all rungs."""

    run: Slabs
    number: int
    rungs: range | None = None

    outside_k2 = _Slab("histogram/outside")  # counts below and above the bins, uint32 [K, 2]
    samples_x = _Slab("samples/x")  # [K, S, D]
    samples_z = _Slab("samples/z")  # float32 [K, S]
    samples_walker = _Slab("samples/walker")  # int32 [K, S]
    attempted_kn = _Slab("kernel/attempted")  # moves of each part of the kernel, int64 [K, n]
    accepted_kn = _Slab("kernel/accepted")
    swaps_attempted_k = _Slab("exchange/attempted")  # of rung k with k + 1, int64 [K - 1]
    swaps_accepted_k = _Slab("exchange/accepted")
    walker_kw = _Slab("exchange/walker")  # in each slot at the end of the round, int32 [K, W]
    round_trips_v = _Slab("exchange/round_trips")  # completed by each walker, int64 [W K]


def slabs_of_round(
    rungs: Sequence[RungRecord],
    exchange: ExchangeRecord,
    held: range,
    g: Geometry,
    counts_kb: NDArray[np.uint32] | None = None,
) -> dict[str, NDArray[Any]]:
    """Return a rank's slab of every dataset of a round, by name; empty if it writes no rung.

    held : the rungs that this rank writes
    counts_kb : uint32 [rungs, B], counts of a block of several rounds that ends with this round
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
