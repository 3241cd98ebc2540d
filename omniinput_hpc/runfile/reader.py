"""Reading a run file, also while the run is live: committed rounds only, without locks.

Needs only numpy and h5py (neither MPI nor torch), so that it works on a login node.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from omniinput_hpc.errors import UserError
from omniinput_hpc.histogram import MAX_BINS
from omniinput_hpc.runfile import untrusted_hdf5
from omniinput_hpc.runfile.layout import (
    FORMAT,
    FORMAT_VERSION,
    Geometry,
    checkpoint_of,
    layout,
    slab,
)
from omniinput_hpc.runfile.records import STATE_DATASETS, Checkpoint, RungState
from omniinput_hpc.untrusted.parsing import parse_toml


class BrokenRun(UserError):
    """A damaged run file: part of its layout is missing or differs."""


class _Slab:
    """A dataset of one round, read when it is asked for."""

    def __init__(self, dataset: str) -> None:
        self._dataset = dataset

    def __get__(self, round_: RecordedRound, owner: type) -> NDArray[Any]:
        return round_.run.slab(self._dataset, round_.number, round_.rungs)


@dataclass(frozen=True)
class RecordedRound:
    """The records of one committed round (number 0 on), for some rungs or (None) for all."""

    run: RunReader
    number: int
    rungs: range | None = None

    counts_kb = _Slab("histogram/counts")  # uint32 [K, B]
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


class RunReader(untrusted_hdf5.UntrustedFile):
    """The committed content of a run file; use as a context manager (see `open_run`).

    Attributes
    ----------
    path : Path
    config : dict, the parsed input file; config_toml : str
    fingerprint : str, of the model
    beta_k : float64 [K]; NaN marks a flat-histogram rung
    edges : float64 [B + 1]
    rounds, rounds_planned, burn_in_committed : int; `rounds` counts the committed ones
    n_values, n_sites, walkers, samples_per_round : int
    """

    NAME, DAMAGED = "run file", BrokenRun

    def _read_header(self) -> None:
        file = self._file
        untrusted_hdf5.require(file, FORMAT, FORMAT_VERSION, "an omniinput_hpc run")
        self.config_toml = untrusted_hdf5.text(file, "config")
        self.config: dict[str, Any] = _stored_input(self.config_toml)
        self.fingerprint = untrusted_hdf5.text(file, "model_fingerprint")
        self.n_values = untrusted_hdf5.whole_number(file, "n_values", 2)
        self.n_sites = untrusted_hdf5.whole_number(file, "n_sites", 1)
        self.geometry = self._geometry()
        self.rounds_planned, self.walkers = self.geometry.rounds, self.geometry.n_walkers
        self.samples_per_round = self.geometry.samples_per_round
        self.beta_k: NDArray[np.float64] = file["ladder/beta"][:]
        self.edges: NDArray[np.float64] = file["bins/edges"][:]
        if np.isinf(self.beta_k).any() or (np.isnan(self.beta_k).any() and not self.geometry.flat):
            raise ValueError("ladder/beta holds values that are not finite")
        if not np.isfinite(self.edges).all() or not (np.diff(self.edges) > 0).all():
            raise ValueError("bins/edges are not finite numbers in ascending order")
        self.rounds = int(file["progress/rounds_committed"][0])
        self.burn_in_committed = int(file["progress/burn_in_committed"][0])
        burn_in = self.config["run"].get("burn_in", 0)
        within = 0 <= self.rounds <= self.rounds_planned and 0 <= self.burn_in_committed <= burn_in
        if not within:
            raise ValueError("the progress counters are out of range")

    def _geometry(self) -> Geometry:
        """Check all datasets, before anything of them is read, and return what they agree on."""

        def shape(name: str, n_axes: int) -> tuple[int, ...]:
            found: tuple[int, ...] = untrusted_hdf5.dataset(self._file, name).shape
            if len(found) != n_axes:
                raise ValueError(f"dataset {name} has another shape or type")
            return found

        rounds, n_rungs, samples_per_round = shape("samples/z", 3)
        g = Geometry(
            rounds=rounds,
            n_rungs=n_rungs,
            n_walkers=shape("state/z", 3)[2],
            n_bins=shape("bins/edges", 1)[0] - 1,
            samples_per_round=samples_per_round,
            n_sites=self.n_sites,
            n_values=self.n_values,
            n_kernels=shape("kernel/attempted", 3)[2],
            n_tuned=shape("state/kernel", 3)[2],
            flat=shape("state/entropy", 3)[2] > 0,
            log_q="samples/log_q" in self._file,
        )
        if g.n_bins > MAX_BINS:
            raise ValueError(f"{g.n_bins:.3g} bins are too many")
        if min(g.rounds, g.n_rungs, g.n_walkers, g.n_bins, g.n_kernels) < 1:
            raise ValueError("it has no rounds, rungs, walkers, bins or kernels")
        if g.samples_per_round % g.n_walkers:
            raise ValueError("its samples are no multiple of its walkers")
        for name, field in layout(g).items():
            found = untrusted_hdf5.dataset(self._file, name)
            if found.shape != field.shape or found.dtype != field.dtype:
                raise ValueError(f"dataset {name} has another shape or type")
        return g

    @property
    def texts(self) -> dict[str, str]:
        """All attributes of the file that are short texts."""
        return {name: value for name, value in self.attributes().items() if isinstance(value, str)}

    def attributes(self) -> dict[str, Any]:
        """Return the file's attributes: texts, numbers, arrays of numbers."""
        found = {}
        for name in self._file.attrs:
            try:
                found[name] = untrusted_hdf5.attribute(self._file, name)
            except untrusted_hdf5.ERRORS:
                continue  # something that no run writes
        return found

    @property
    def probe_z(self) -> NDArray[np.float64]:
        """Z of 16 fixed inputs, by which a resumed run recognizes its model, float64 [n]."""
        with self._damage_as_user_error():
            stored = untrusted_hdf5.attribute(self._file, "model_probe_z")
            return np.asarray(stored, dtype=np.float64)

    @property
    def model_beta(self) -> float:
        """The beta of a language model's own distribution; colder rungs start from two phases.

        NaN where the model's conditionals are not log-probabilities or were not used.
        """
        if "model_beta" not in self._file.attrs:
            return float("nan")  # a file from before it was stored
        with self._damage_as_user_error():
            return float(untrusted_hdf5.attribute(self._file, "model_beta"))

    def offsets(self) -> dict[str, int]:
        """Return where in the file each dataset's bytes begin; an empty one's is 0."""
        return {name: self._file[name].id.get_offset() or 0 for name in layout(self.geometry)}

    def entry(self, name: str, index: int | slice | None = None) -> NDArray[Any]:
        """Return a dataset, or entries of its first axis, whether or not a round wrote them."""
        return np.asarray(self._file[name][... if index is None else index])

    def counts_kb(self) -> NDArray[np.int64]:
        """Return the histogram over all committed rounds, int64 [K, B]."""
        return self.counts_by_round_kb(0, self.rounds)

    def counts_by_round_kb(self, begin: int, end: int) -> NDArray[np.int64]:
        """Return the histogram over rounds begin to end - 1, int64 [K, B]."""
        total = np.zeros(self._file["histogram/counts"].shape[1:], dtype=np.int64)
        for round_ in range(begin, end):
            total += self._file["histogram/counts"][round_]
        return total

    def counts_nkb(self, n_blocks: int) -> NDArray[np.int64]:
        """Return histograms of n equally long blocks of rounds, int64 [n, K, B].

        The oldest rounds, where the number is not divisible by n, are left out.
        """
        length = self.rounds // n_blocks
        first = self.rounds - length * n_blocks
        starts = range(first, self.rounds, length) if length else range(0)
        blocks = [self.counts_by_round_kb(begin, begin + length) for begin in starts]
        return np.stack(blocks) if blocks else np.zeros((0, *self.counts_kb().shape), np.int64)

    def outside_k2(self) -> NDArray[np.int64]:
        """Return the counts below and above the bins, int64 [K, 2]."""
        counts = self._file["histogram/outside"][: self.rounds]
        return np.asarray(counts.sum(axis=0, dtype=np.int64))

    def lane_counts_kgb(self) -> NDArray[np.int64]:
        """Return the histogram per group of lanes, int64 [K, G, B]; lane w is in group w G // W."""
        dataset = self._file["histogram/lane_counts"]
        if self.rounds == 0:
            return np.zeros(dataset.shape[1:], dtype=np.int64)
        return np.asarray(dataset[(self.rounds - 1) % 2].astype(np.int64))

    def z_sum_kb(self) -> NDArray[np.float64]:
        """Return the sum of z over the counts of a bin, float64 [K, B]."""
        dataset = self._file["histogram/z_sum"]
        if self.rounds == 0:
            return np.zeros(dataset.shape[1:])
        return np.asarray(dataset[(self.rounds - 1) % 2])

    def samples(self) -> Iterator[tuple[NDArray[Any], NDArray[np.float32]]]:
        """Yield (x [K, S, D], z [K, S]) of each committed round; sample t W + w is of lane w."""
        for round_ in range(self.rounds):
            yield self._file["samples/x"][round_], self._file["samples/z"][round_]

    def samples_z(
        self, rounds: slice = slice(None), rungs: slice = slice(None)
    ) -> NDArray[np.float32]:
        """Return z of committed samples, float32 [R, K, S], of some rounds and rungs or of all."""
        begin, end, _ = rounds.indices(self.rounds)
        return np.asarray(self._file["samples/z"][begin:end, rungs])

    def samples_log_q(self) -> Iterator[NDArray[np.float64]] | None:
        """Yield log q_j(x), float64 [K, S, K], of each round's samples; None: chains, not draws.

        Entry [k, s, j] is the log-probability of sample s of rung k under rung j.
        """
        if not self.geometry.log_q:
            return None
        return (self._file["samples/log_q"][round_] for round_ in range(self.rounds))

    def log_weight_kb(self) -> NDArray[np.float64]:
        """Return the frozen log-weights, float64 [K, B]; exact for flat-histogram rungs only."""
        return np.asarray(self._file["ensemble/log_weight"][:])

    def kappa_k(self) -> NDArray[np.float64]:
        """Return kappa of each rung's weight -beta z - kappa (z - z0)^2 / 2, float64 [K]."""
        return np.asarray(self._file["ensemble/kappa"][:])

    def z0_k(self) -> NDArray[np.float64]:
        """Return z0 of each rung (see `kappa_k`), float64 [K]."""
        return np.asarray(self._file["ensemble/z0"][:])

    def acceptance_kn(self) -> NDArray[np.int64]:
        """Return attempted and accepted moves of each part of the kernel, int64 [2, K, n]."""
        names = ("kernel/attempted", "kernel/accepted")
        return np.stack([self._file[n][: self.rounds].sum(axis=0) for n in names])

    def round_trips_v(self) -> NDArray[np.int64]:
        """Return completed round trips per walker, int64 [W K]."""
        return np.asarray(self._file["exchange/round_trips"][: self.rounds].sum(axis=0))

    def swaps_k2(self) -> NDArray[np.int64]:
        """Return attempted and accepted swaps of neighbouring rungs, int64 [K - 1, 2]."""
        names = ("exchange/attempted", "exchange/accepted")
        return np.stack([self._file[n][: self.rounds].sum(axis=0) for n in names], axis=1)

    def round(self, number: int, rungs: range | None = None) -> RecordedRound:
        """Return the records of a committed round, of some rungs or (by default) of all."""
        return RecordedRound(self, number, rungs)

    def slab(self, name: str, round_: int, rungs: range | None = None) -> NDArray[Any]:
        """Return what was written to a dataset in a round, for some rungs or (by default) all.

        Datasets with two slabs, for even and odd rounds, hold those of the last two rounds only.
        """
        k = self.geometry.n_rungs
        where = slab(layout(self.geometry)[name], round_, rungs or range(k), k)
        return np.asarray(self._file[name][where if where is not None else slice(0)])

    @property
    def last_round(self) -> int | None:
        """The last committed round, negative in burn-in, None where none is committed."""
        if self.rounds:
            return self.rounds - 1
        burn_in = self.config["run"].get("burn_in", 0)
        return self.burn_in_committed - burn_in - 1 if self.burn_in_committed else None

    def stored(self) -> Checkpoint | None:
        """Return the state after the last committed round, unchecked; None if there is none."""
        last, k = self.last_round, self.geometry.n_rungs
        return None if last is None else self._stored(last, range(k))

    def checkpoint(self, rungs: range) -> Checkpoint | None:
        """Return what some rungs resume from, None where no round is committed.

        Raises a BrokenRun where the stored walkers are damaged.
        """
        last = self.last_round
        found = None if last is None else self._stored(last, rungs)
        if found is not None and not all(map(self._is_possible, found.rungs)):
            raise BrokenRun(
                f"{self.path} cannot be resumed: its stored walkers are damaged (run --verify for "
                "details)"
            )
        return found

    def _stored(self, last: int, rungs: range) -> Checkpoint:
        lane_counts_kgb, z_sum_kb = self.lane_counts_kgb().astype(np.uint64), self.z_sum_kb()
        found = [
            RungState(
                beta=float(self._file["state/beta"][last % 2, k]),
                lane_counts_gb=lane_counts_kgb[k],
                z_sum_b=z_sum_kb[k],
                **{f: self._file[name][last % 2, k] for f, name in STATE_DATASETS.items()},
            )
            for k in rungs
        ]
        return Checkpoint(found, self._file["state/swaps"][last % 2])

    def _is_possible(self, rung: RungState) -> bool:
        n_walkers = self.geometry.n_rungs * self.walkers
        return bool(
            rung.x.max(initial=0) < self.n_values
            and np.isfinite(rung.z).all()
            and ((rung.walker_w >= 0) & (rung.walker_w < n_walkers)).all()
            and np.isin(rung.direction_w, (0, 1, 2)).all()
        )


def open_run(path: str | Path) -> RunReader:
    """Open a run file for reading.

    Raises a UserError where there is no such file, or it is not a whole run file.
    """
    path = Path(path)
    try:
        return RunReader(path)
    except UserError as error:
        if not path.is_file() or not checkpoint_of(path).is_file():
            raise
        words = "its rounds can be brought back into a new file by its side file: --salvage NEW.h5"
        raise type(error)(f"{error}; {words}") from None


def libraries() -> dict[str, str]:
    """Return the versions of h5py and HDF5, and whether both can write in parallel (MPI)."""
    parallel = "yes" if h5py.get_config().mpi else "no"
    return {"h5py": h5py.__version__, "hdf5": h5py.version.hdf5_version, "parallel": parallel}


def _stored_input(toml: str) -> dict[str, Any]:
    """Parse the stored input, and check the keys that readers use."""
    config = parse_toml(toml)
    for table in ("run", "model"):
        if not isinstance(config.get(table, {}), dict):
            raise ValueError(f"the stored input's {table} is no table")
    if "run" not in config:
        raise ValueError("the stored input has no table [run]")
    for key in ("kind", "path", "factory"):
        if not isinstance(config.get("model", {}).get(key, ""), str):
            raise ValueError(f"the stored input's model.{key} is no text")
    burn_in = config["run"].get("burn_in", 0)
    if isinstance(burn_in, bool) or not isinstance(burn_in, int) or burn_in < 0:
        raise ValueError("the stored input's run.burn_in is no number of rounds")
    return config
