"""The rungs of a rank moved, recorded and swapped as one batch, for models that cost little.

A run has the same bits on any number of ranks. They are those of rungs that move one by one, except
for rounding: sums of changes are evaluated again once a round, not after every exchange.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from omniinput_hpc import rng
from omniinput_hpc.kernels.independent import UniformSampler
from omniinput_hpc.kernels.joint import (
    BatchMover,
    CompiledMover,
    Generators,
    Mover,
    Record,
    Units,
)
from omniinput_hpc.kernels.metropolis import Metropolis
from omniinput_hpc.kernels.parts.compiled_loop import CompiledLoop
from omniinput_hpc.sampling.exchange import KEYS_AT_ONCE, Exchanger, Slots
from omniinput_hpc.sampling.rung import Rung
from omniinput_hpc.sampling.walkers import Recorded


class Joined:
    """All units of a rank; between rounds `rungs` hold the walkers, in a round this object."""

    def __init__(
        self, rungs: Sequence[Rung], exchanger: Exchanger, mover: Mover, key: tuple[int, str]
    ) -> None:
        self._rungs, self._exchanger, self._mover, self._key = rungs, exchanger, mover, key
        self._recording, self._model = rungs[0].walkers.recording, rungs[0].walkers.model
        self._streams = [rng.Streams() for _ in rungs]
        self._keys = np.zeros((0, len(rungs), 2), dtype=np.uint64)

    def begin_round(self) -> None:
        """Take the walkers of all rungs."""
        self._slots = Slots.of(self._rungs)
        drawn = [u for u, r in enumerate(self._rungs) if r.walkers.exact_sampler is not None]
        n_units, (*_, n_sites) = len(self._rungs), self._slots.x.shape
        self._units = Units(
            [rung.ensemble for rung in self._rungs],
            drawn,
            self._slots.x.reshape(n_units, -1, n_sites),
            self._slots.z.reshape(n_units, -1),
        )
        self._record = Record(self._units, self._recording.every, self._recording.x_dtype)
        self._mover.begin_round()

    def move(
        self, rounds_before: int, exchange: int, after_moves: Callable[[int], bool | None]
    ) -> int:
        """Move all walkers up to an exchange of the round; return the moves of each.

        after_moves : called with the number of moves of all rungs; True ends the moves early
        """
        generators, record = self._generators(rounds_before, exchange), self._record
        walker_uw, made, end = self._slots.walker.reshape(len(self._rungs), -1), 0, False
        while made < self._recording.steps and not end:
            n = min(self._recording.steps - made, record.room)
            made += n
            self._mover.move(self._units, generators, n, made == self._recording.steps, record)
            self._model.raise_if_nonfinite()
            record.made(n, walker_uw)
            if not record.room:
                self._give_record()
            end = bool(after_moves(n * len(self._rungs)))
        return made

    def swap(self, exchange: int) -> None:
        """Swap with neighbours; `exchange` counts from the run's first exchange."""
        self._exchanger.swap_slots(self._slots, self._rungs, exchange)
        self._mover.swapped()

    def end_round(self) -> None:
        """Let the rungs record the rest, and give them their walkers."""
        if self._record.n_moves:
            self._give_record()
        self._slots.give_to(self._rungs)

    def _give_record(self) -> None:
        """Let each rung record its moves."""
        record = self._record
        attempted = np.array([record.z_utw.shape[2] * record.n_moves])
        for u, rung in enumerate(self._rungs):
            recorded = Recorded(
                record.z_utw[u, : record.n_moves],
                record.x_uswd[u, : record.n_samples],
                attempted,
                record.accepted_u[u : u + 1],
                walker_sw=record.walker_usw[u, : record.n_samples],
            )
            rung.record(recorded, record.every, record.first_move)
        record.begin_anew()

    def _generators(self, rounds_before: int, exchange: int) -> Generators:
        """Return each unit's stream for a segment; see `loop.streams`."""
        place = exchange % KEYS_AT_ONCE
        if place == 0:
            keys = [
                (rung.k, rounds_before, exchange + i, *rung.block.key)
                for i in range(KEYS_AT_ONCE)
                for rung in self._rungs
            ]
            found = rng.keys(*self._key, np.array(keys))
            self._keys = found.reshape(KEYS_AT_ONCE, len(self._rungs), 2)
        pairs = zip(self._streams, self._keys[place], strict=True)
        return [stream.at(key) for stream, key in pairs]


def join(
    rungs: Sequence[Rung], exchanger: Exchanger, seed: int, purpose: str = "moves"
) -> Joined | None:
    """Return the rungs of a rank as one batch; None if they must move one by one.

    All ranks get the same answer, since it follows from the model and the input file.
    `purpose` is that of the random streams.
    """
    walkers = rungs[0].walkers
    kernel, model = walkers.kernel, walkers.model
    plain = all(
        CompiledLoop.knows(rung.ensemble)
        and rung.population is None
        and rung.model_beta is None
        and isinstance(rung.walkers.exact_sampler, UniformSampler | None)
        for rung in rungs
    )
    if not plain or not walkers.on_cpu or not isinstance(kernel, Metropolis):
        return None
    if exchanger.has_second_direction or not kernel.rows_alone:
        return None
    mover: Mover
    if kernel.loop is not None:
        mover = CompiledMover(kernel.loop, model, len(rungs))
        for rung in rungs:
            rung.histogram.compile()
    elif model.offers.batch_invariant:
        mover = BatchMover(kernel, model)
    else:
        return None
    return Joined(rungs, exchanger, mover, (seed, purpose))
