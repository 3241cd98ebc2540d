"""Reading the committed rounds of a run file, without locks and also while the run is live.

It needs neither MPI nor torch, only numpy and h5py, so that it works on a login node.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property, partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from omniinput_hpc.config import Config, stored
from omniinput_hpc.config.space import Space
from omniinput_hpc.errors import UserError
from omniinput_hpc.estimators.density.rung_weights import RungWeights
from omniinput_hpc.estimators.run_data import RunData
from omniinput_hpc.runfile import block_histograms, checksums, consistency, untrusted_hdf5
from omniinput_hpc.runfile.checked_datasets import (
    BrokenRun,
    CheckedDatasets,
    CheckedFile,
    OnDamage,
    check_field,
    refuse,
    refuse_impossible,
)
from omniinput_hpc.runfile.checked_datasets import warn as warn
from omniinput_hpc.runfile.fields import ends_block
from omniinput_hpc.runfile.layout import (
    FORMAT,
    FORMAT_VERSION,
    ROUNDS_PER_BLOCK,
    WITHOUT_CHECKSUMS,
    Geometry,
    checkpoint_of,
    layout,
)
from omniinput_hpc.runfile.records import STATE_DATASETS, Checkpoint, RecordedRound, RungState

MAX_ATTEMPTS = 50
"""Attempts to read the data that a live run overwrites every second round."""


class RunReader(CheckedFile):
    """The committed content of a run file, as a context manager (see `open_run`).

    Attributes
    ----------
    path : Path
    config : the parsed input file (see `config.stored`); config_toml : str
    fingerprint : str, of the model
    beta_k : float64 [K]; NaN marks a flat-histogram rung
    edges : float64 [B + 1]
    rounds, rounds_planned, burn_in_committed : int; `rounds` counts the committed rounds
    n_values, n_ids, n_sites, walkers, samples_per_round : int
    space : the ids that a site may take; the file stores ids
    """

    NAME = "run file"

    def _read_header(self) -> None:
        file, versions = self._file, (WITHOUT_CHECKSUMS, FORMAT_VERSION)
        version = untrusted_hdf5.require(file, FORMAT, versions, "an omniinput_hpc run")
        self.config_toml = untrusted_hdf5.text(file, "config")
        self.config: Config = stored.parse(self.config_toml)
        self.fingerprint = untrusted_hdf5.text(file, "model_fingerprint")
        self.n_values = untrusted_hdf5.whole_number(file, "n_values", 2)
        self.n_sites = untrusted_hdf5.whole_number(file, "n_sites", 1)
        self.geometry = self._geometry(version == FORMAT_VERSION)
        self.rounds_planned, self.walkers = self.geometry.rounds, self.geometry.n_walkers
        self.samples_per_round = self.geometry.samples_per_round
        self.moves_per_round = self._moves_per_round()
        self._read_counters()
        if self.geometry.checksums:
            for what in checksums.wrong_attributes(file, layout(self.geometry)):
                self._data.report_damage(what)
        some = self._data.whole("space/allowed") if self.geometry.n_ids else None
        self.space = Space(self.geometry.n_ids or self.n_values, some)
        self.n_ids = self.space.n_ids
        self.edges: NDArray[np.float64] = self._data.whole("bins/edges")
        consistency.raise_first("bins/edges", consistency.edges(self.edges))
        self.beta_k: NDArray[np.float64] = self._data.whole("ladder/beta", self.is_frozen)
        if self.is_frozen:  # before, a kill may leave the betas of two stages of tuning
            flat, ascends = self.geometry.flat, getattr(self.config.ladder, "ascends", True)
            consistency.raise_first("ladder/beta", consistency.betas(self.beta_k, flat, ascends))

    def _moves_per_round(self) -> int | None:
        """Return the moves per rung and round; None if the stored input does not state them."""
        sampler = self.config.sampler
        if sampler.steps is None or sampler.exchanges is None:
            return None
        return sampler.moves_per_round * self.walkers

    def _read_counters(self) -> None:
        """Read the counters and, at the same moment, the data that a live run soon overwrites."""
        fields, k = layout(self.geometry), self.geometry.n_rungs
        burn_in = self.config.run.burn_in
        for _ in range(MAX_ATTEMPTS):
            self._data = CheckedDatasets(
                self._file, self.path, fields, k, self._possible(), self.on_damage,
                self._on_impossible,
            )  # fmt: skip
            counted = {name: checksums.counter(self._file, name) for name in checksums.COUNTERS}
            self.rounds, self.burn_in_committed = (counted[name][0] for name in checksums.COUNTERS)
            within = 0 <= self.rounds <= self.rounds_planned
            if not (within and 0 <= self.burn_in_committed <= burn_in):
                raise ValueError("the progress counters are out of range")
            if self.rounds == 0 or not self.live or self._data.hold(self.rounds - 1):
                break
        else:
            raise UserError(f"{self.path} is being written too fast to be read")
        self.is_settled = not checksums.settle(self._file)
        for name, (_, fits) in counted.items():
            if not fits:
                self._data.report_damage(name)
        self.is_frozen = self.burn_in_committed >= burn_in

    def _possible(self) -> Mapping[str, Callable[[NDArray[Any]], Iterator[str]]]:
        """Return a check per dataset for values that no run writes."""
        g = self.geometry
        walkers = partial(consistency.walkers, n_walkers=g.n_rungs * g.n_walkers)
        return {
            "samples/x": lambda x: consistency.inputs(x, self.space),
            "samples/z": consistency.outputs,
            "samples/walker": walkers,
            "exchange/walker": walkers,
            "exchange/round_trips": consistency.not_negative,
        }

    def _geometry(self, with_checksums: bool) -> Geometry:
        """Check the shapes and types of all datasets before reading them; return the geometry."""

        def shape(name: str, n_axes: int) -> tuple[int, ...]:
            found: tuple[int, ...] = untrusted_hdf5.dataset(self._file, name).shape
            if len(found) != n_axes:
                raise ValueError(f"dataset {name} has the wrong shape or type")
            return found

        rounds, n_rungs, samples_per_round = shape("samples/z", 3)
        n_log_q = shape("samples/log_q", 4)[3] if "samples/log_q" in self._file else 0
        g = Geometry(
            rounds=rounds,
            n_rungs=n_rungs,
            n_walkers=shape("state/z", 3)[2],
            n_bins=shape("bins/edges", 1)[0] - 1,
            samples_per_round=samples_per_round,
            n_sites=self.n_sites,
            n_values=self.n_values,
            n_ids=self._number_or("n_ids", 0),
            n_kernels=shape("kernel/attempted", 3)[2],
            n_tuned=shape("state/kernel", 3)[2],
            flat=shape("state/entropy", 3)[2] > 0,
            log_q=n_log_q > 0,
            annealed=n_log_q == 1 < n_rungs,
            checksums=with_checksums,
            rounds_per_block=self._number_or(ROUNDS_PER_BLOCK, 1),
            curved="state/gaussian" in self._file,
            headed="state/heading" in self._file,
            observables=tuple(self.config.observed),
        )
        if not with_checksums and checksums.PROGRESS in self._file:
            raise ValueError("it has checksums, but its format version has none")
        g.check()
        for name, field in layout(g).items():
            check_field(self._file, name, field)
        return g

    @property
    def created(self) -> str:
        """When the run was started (ISO 8601); "" if the file does not state it."""
        return self.texts.get("created", "")

    @property
    def texts(self) -> dict[str, str]:
        """All text attributes of the file."""
        return {name: value for name, value in self.attributes().items() if isinstance(value, str)}

    @property
    def probe_z(self) -> NDArray[np.float64]:
        """Outputs of 16 fixed inputs, float64 [n], by which a resumed run recognizes its model."""
        with self._damage_as_user_error():
            return np.asarray(untrusted_hdf5.attribute(self._file, "model_probe_z"), np.float64)

    @property
    def model_beta(self) -> float:
        """The beta of a language model's own distribution; NaN if unknown or not used."""
        return self._float_or_nan("model_beta")

    def _float_or_nan(self, name: str) -> float:
        with self._damage_as_user_error():
            known = name in self._file.attrs  # not in files of older versions
            return float(untrusted_hdf5.attribute(self._file, name)) if known else float("nan")

    @cached_property
    def data(self) -> RunData:
        """The committed rounds as estimators read them, without rungs of a second direction."""
        every, ladder = self.all_rungs(), self.config.ladder
        if ladder is None or ladder.lambdas is None:
            return every
        return every.first_rungs(ladder.n_plain)

    def all_rungs(self) -> RunData:
        """Return the same with rungs of a second direction, which weights by z do not describe."""
        gaussian = self.kappa_k(), self.z0_k()
        return RunData(
            path=self.path,
            config=self.config,
            fingerprint=self.fingerprint,
            n_values=self.n_values,
            n_ids=self.n_ids,
            n_sites=self.n_sites,
            rounds=self.rounds,
            rounds_per_block=self.geometry.rounds_per_block,
            walkers=self.walkers,
            samples_per_round=self.samples_per_round,
            ancestral=self.geometry.log_q,
            model_beta=self.model_beta,
            rows_normalized=bool(self._number_or("rows_normalized", 0)),
            cold_starts=self._number_or("cold_starts", 2),
            weights=RungWeights(self.beta_k, *gaussian, self.log_weight_kb(), self.edges),
            edges=self.edges,
            counts_kb=self.counts_kb(),
            lane_counts_kgb=self.lane_counts_kgb(),
            outside_k2=self.outside_k2(),
            z_sum_kb=self.z_sum_kb(),
            swaps_k2=self.swaps_k2(),
            round_trips_v=self.round_trips_v(),
            histograms=lambda: (counts_kb for _, counts_kb in block_histograms.histograms(self)),
            source=self,
            log_inputs=self._float_or_nan("log_inputs"),
        )

    def offsets(self) -> dict[str, int]:
        """Return the offset in bytes of each dataset in the file; 0 for an empty dataset."""
        return {name: self._file[name].id.get_offset() or 0 for name in layout(self.geometry)}

    def entry(self, name: str, index: int | slice | None = None) -> NDArray[Any]:
        """Return a dataset or entries of its first axis, unchecked, whether or not committed."""
        return self._data.read(name, ... if index is None else index)

    def counts_kb(self) -> NDArray[np.int64]:
        """Return the histogram over all committed rounds, int64 [K, B]."""
        total_kb = np.zeros((self.geometry.n_rungs, self.geometry.n_bins), dtype=np.int64)
        for _, counts_kb in block_histograms.histograms(self):
            total_kb += counts_kb
        return total_kb

    def outside_k2(self) -> NDArray[np.int64]:
        """Return the counts below and above the bins, int64 [K, 2]."""
        counts = self._of_all_rounds("histogram/outside")
        return np.asarray(counts.sum(axis=0, dtype=np.int64))

    def lane_counts_kgb(self, rungs: range | None = None) -> NDArray[np.int64]:
        """Return the histogram per group of lanes, int64 [K, G, B]; lane w is in group w G // W."""
        dataset, some = "histogram/lane_counts", rungs or range(self.geometry.n_rungs)
        if self.rounds == 0:
            shape = layout(self.geometry)[dataset].shape[2:]
            return np.zeros((len(some), *shape), dtype=np.int64)
        counts_kgb = self.slab(dataset, self.rounds - 1, some).astype(np.int64)
        if self.moves_per_round is not None:
            moves, outside_k2 = self.rounds * self.moves_per_round, self.outside_k2()
            outside_k2 = outside_k2[some.start : some.stop]
            wrong = consistency.counted(counts_kgb.sum(axis=1), outside_k2, moves, some)
            self.report_impossible(dataset, None, wrong)
        return counts_kgb

    def z_sum_kb(self, rungs: range | None = None) -> NDArray[np.float64]:
        """Return the sum of z over the counts of each bin, float64 [K, B]."""
        dataset, some = "histogram/z_sum", rungs or range(self.geometry.n_rungs)
        if self.rounds == 0:
            return np.zeros((len(some), self.geometry.n_bins))
        z_sum_kb = self.slab(dataset, self.rounds - 1, some)
        counts_kb = self.lane_counts_kgb(some).sum(axis=1)
        wrong = consistency.sums_of_z(z_sum_kb, counts_kb, self.edges, some)
        self.report_impossible(dataset, None, wrong)
        return z_sum_kb

    def samples(
        self, rounds: Iterable[int] | None = None
    ) -> Iterator[tuple[NDArray[Any], NDArray[np.float32]]]:
        """Yield x [K, S, D] and z [K, S] of each committed round; sample t W + w is of lane w."""
        for round_ in map(int, range(self.rounds) if rounds is None else rounds):
            yield self.slab("samples/x", round_), self.slab("samples/z", round_)

    def samples_walker(self, round_: int) -> NDArray[np.int32]:
        """Return the walker of each sample of a round, int32 [K, S], from 0 to W K - 1."""
        return self.slab("samples/walker", round_)

    def samples_z(
        self, rounds: slice = slice(None), rungs: slice = slice(None)
    ) -> NDArray[np.float32]:
        """Return z of committed samples, float32 [R, K, S]."""
        begin, end, _ = rounds.indices(self.rounds)
        first, stop, _ = rungs.indices(self.geometry.n_rungs)
        return self._data.rounds("samples/z", range(begin, end), range(first, stop))

    def samples_log_q(self) -> Iterator[NDArray[np.float64]] | None:
        """Yield `samples/log_q`, float64 [K, S, J], of each round; None for a run of chains."""
        if not self.geometry.log_q:
            return None
        return (self.slab("samples/log_q", round_) for round_ in range(self.rounds))

    def log_weight_kb(self) -> NDArray[np.float64]:
        """Return the frozen log-weights, float64 [K, B]; exact for flat-histogram rungs only."""
        return self._data.whole("ensemble/log_weight", self.is_frozen)

    def kappa_k(self) -> NDArray[np.float64]:
        """Return kappa of each rung's weight -beta z - kappa (z - z0)^2 / 2, float64 [K]."""
        return self._data.whole("ensemble/kappa", self.is_frozen)

    def z0_k(self) -> NDArray[np.float64]:
        """Return z0 of each rung (see `kappa_k`), float64 [K]."""
        return self._data.whole("ensemble/z0", self.is_frozen)

    def acceptance_kn(self) -> NDArray[np.int64]:
        """Return attempted and accepted moves of each part of the kernel, int64 [2, K, n]."""
        return self._attempted_and_accepted("kernel")

    def round_trips_v(self) -> NDArray[np.int64]:
        """Return completed round trips per walker, int64 [W K]."""
        return np.asarray(self._of_all_rounds("exchange/round_trips").sum(axis=0))

    def swaps_k2(self) -> NDArray[np.int64]:
        """Return attempted and accepted swaps of neighbouring rungs, int64 [K - 1, 2]."""
        return self._attempted_and_accepted("exchange").T

    def _attempted_and_accepted(self, group: str) -> NDArray[np.int64]:
        """Return the attempted and accepted counts of all rounds, int64 [2, K, ...]."""
        attempted, accepted = (
            self._of_all_rounds(f"{group}/{name}") for name in ("attempted", "accepted")
        )
        for round_, (n_attempted, n_accepted) in enumerate(zip(attempted, accepted, strict=True)):
            wrong = consistency.accepted(n_attempted, n_accepted)
            self.report_impossible(f"{group}/accepted", range(round_, round_ + 1), wrong)
        return np.stack([attempted.sum(axis=0), accepted.sum(axis=0)])

    def _of_all_rounds(self, name: str) -> NDArray[Any]:
        return self._data.rounds(name, range(self.rounds), range(self.geometry.n_rungs))

    def report_impossible(
        self, name: str, rounds: range | None, wrong: Iterator[tuple[int, str]]
    ) -> None:
        """Report the problems that a check of `consistency` found; `rounds` None: in all rounds."""
        of_rounds = "" if rounds is None else f" of {block_histograms.words_of(rounds)}"
        for k, words in wrong:
            self._data.report_impossible(f"{name}{of_rounds}, rung {k}: {words}")

    def round(self, number: int, rungs: range | None = None) -> RecordedRound:
        """Return the records of a committed round, by default of all rungs."""
        return RecordedRound(self, number, rungs)

    def slab(self, name: str, round_: int, rungs: range | None = None) -> NDArray[Any]:
        """Return the slab that a round wrote (the last two rounds only, for two slabs in turn)."""
        return self._data.slab(name, round_, rungs or range(self.geometry.n_rungs))

    @property
    def last_round(self) -> int | None:
        """The last committed round, negative in burn-in; None if none is committed."""
        if self.rounds:
            return self.rounds - 1
        burn_in = self.config.run.burn_in
        return self.burn_in_committed - burn_in - 1 if self.burn_in_committed else None

    def stored(self) -> Checkpoint | None:
        """Return the state after the last committed round, unchecked; None if there is none."""
        last, k = self.last_round, self.geometry.n_rungs
        return None if last is None else self._stored(last, range(k))

    def checkpoint(self, rungs: range) -> Checkpoint | None:
        """Return the state to resume from, if any. Raise a BrokenRun if its walkers are damaged."""
        last = self.last_round
        found = None if last is None else self._stored(last, rungs)
        if found is not None and not all(map(self._is_possible, found.rungs)):
            raise BrokenRun(
                f"{self.path} cannot be resumed: its stored walkers are damaged (omniinput verify "
                "lists all damage)"
            )
        return found

    def _stored(self, last: int, rungs: range) -> Checkpoint:
        """Return the state of some rungs after the last committed round."""

        def state(name: str) -> NDArray[Any]:
            return self.slab(name, last, rungs)

        fields = {field: state(name) for field, name in STATE_DATASETS.items()}
        if self.geometry.headed:
            fields["heading_w"] = state("state/heading")
        fields["lane_counts_gb"] = self.lane_counts_kgb(rungs).astype(np.uint64)
        fields["z_sum_b"] = self.z_sum_kb(rungs)
        here = slice(rungs.start, rungs.stop)
        gaussian_k2 = np.stack([self.kappa_k()[here], self.z0_k()[here]], axis=1)
        if self.geometry.curved:
            gaussian_k2 = state("state/gaussian")
        rung_k3 = np.column_stack([state("state/beta"), gaussian_k2])
        return Checkpoint.of_fields(fields, rung_k3, self.slab("state/swaps", last))

    def _is_possible(self, rung: RungState) -> bool:
        n_walkers = self.geometry.n_rungs * self.walkers
        wrong = chain(
            consistency.inputs(rung.x, self.space),
            consistency.outputs(rung.z),
            consistency.walkers(rung.walker_w, n_walkers),
            consistency.directions(rung.direction_w),
            consistency.headings(rung.heading_w),
        )
        return next(wrong, None) is None

    def check_header(self) -> None:
        """Compare all data written at creation or by burn-in with their checksums."""
        for name in self._data.names("once"):
            self._data.whole(name)
        for name in self._data.names("burn-in"):
            self._data.whole(name, self.is_frozen)

    def check_round(self, round_: int, rungs: range | None = None) -> None:
        """Compare the data of a counted round, by default of all rungs, with their checksums."""
        for name in self._data.names("round"):
            self.slab(name, round_, rungs)
        for name in self._data.names("block"):
            if ends_block(layout(self.geometry)[name], round_):
                self.slab(name, round_, rungs)


def open_run(
    path: str | Path,
    on_damage: OnDamage = refuse,
    on_impossible: OnDamage = refuse_impossible,
    tried: bool = False,
    live: bool = True,
) -> RunReader:
    """Open a run file for reading.

    All data are checked when they are read; see `CheckedFile` for the parameters. Raises a
    UserError if the file is missing or is not a complete run file.
    """
    path = Path(path)
    try:
        return RunReader(path, on_damage, on_impossible, tried, live)
    except (BrokenRun, untrusted_hdf5.NotHdf5) as error:
        if not os.path.isfile(checkpoint_of(path)):
            raise
        words = "its rounds can be brought back with its side file: omniinput salvage RUN.h5 NEW.h5"
        raise type(error)(f"{error}; {words}") from None
