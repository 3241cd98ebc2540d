"""Records of a round and of the state to resume from, and the datasets that store them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from omniinput_hpc.runfile.layout import Geometry, layout

Record = dict[str, NDArray[Any]]
"""Arrays by the name of the dataset that stores them (see `layout`). A rung's record of a round has
every dataset of rungs that a round may write, without the axes of rounds and rungs."""


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
class Checkpoint:
    """The state of a run after its last committed round."""

    rungs: list[RungState]  # the requested rungs, in the order of the ladder
    swaps_k2: NDArray[np.int64]  # [K - 1, 2], attempted and accepted since the last stage of tuning

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
    rungs: Sequence[Record],
    of_ladder: Record,
    held: range,
    g: Geometry,
    counts_kb: NDArray[np.uint32] | None = None,
) -> Record:
    """Return a rank's slab of every dataset of a round, by name; empty if it writes no rung.

    of_ladder : values over all rungs, or over all pairs of neighbours
    held : the rungs that this rank writes
    counts_kb : uint32 [rungs, B], counts of a block of several rounds that ends with this round
    """
    if not rungs:
        return {}
    fields = layout(g)
    slabs = {name: np.stack([record[name] for record in rungs]) for name in rungs[0]}
    cut = {
        "rung": slice(held.start, held.stop),
        "pair": slice(held.start, min(held.stop, g.n_rungs - 1)),
        "bottom": slice(None),
    }
    slabs |= {name: values[cut[fields[name].over]] for name, values in of_ladder.items()}
    if g.rounds_per_block > 1:
        del slabs["histogram/counts"]
        if counts_kb is not None:
            slabs["histogram/counts"] = counts_kb
    return slabs
