"""Moves of several units at once: rungs, or blocks of rungs, of w walkers each.

For models so cheap that the calls for each unit would take longer than its moves. A walker's random
numbers and arithmetic do not depend on which other units move with it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from omniinput_hpc.kernels.metropolis import EVALUATE_EVERY, Metropolis, Summed
from omniinput_hpc.kernels.parts.compiled_loop import CompiledLoop, Traces
from omniinput_hpc.kernels.parts.device_rng import DeviceStream
from omniinput_hpc.kernels.state import State
from omniinput_hpc.models.checked import CheckedModel, compare, watch
from omniinput_hpc.tempering.ensembles import Ensemble, parameters_of, stacked

MAX_OUTPUTS = 1 << 13
"""Outputs of a unit that are recorded at once: their temporaries stay in the processor's cache."""
MAX_NUMBERS = 1 << 17
"""Values of the samples of a unit that are kept, and random numbers that are drawn ahead for it."""

Generators = Sequence[np.random.Generator]
"""A stream for each unit."""


@dataclass(frozen=True)
class Units:
    """The U units that move.

    Attributes
    ----------
    ensembles : of each unit
    drawn : the units at beta = 0, which are drawn uniformly
    x_uwd, z_uw : int64 [U, w, D] and float32 [U, w], replaced in place
    """

    ensembles: Sequence[Ensemble]
    drawn: Sequence[int]
    x_uwd: NDArray[np.int64]
    z_uw: NDArray[np.float32]

    @cached_property
    def moved(self) -> list[int]:
        """The units that are not drawn."""
        return [u for u in range(len(self.ensembles)) if u not in self.drawn]

    @cached_property
    def ensemble_of_rows(self) -> Ensemble:
        """The ensembles of the moved units' walkers, as one."""
        numbers = [parameters_of(self.ensembles[u]) for u in self.moved]
        numbers_rw = np.repeat(numbers, self.z_uw.shape[1], axis=0).T
        return stacked(torch.from_numpy(np.ascontiguousarray(numbers_rw)))


class Record:
    """What the U units did since they were last recorded: up to T moves.

    Attributes
    ----------
    z_utw : float32 [U, T, w]
    x_uswd, walker_usw : [U, samples, w, D] and int32 [U, samples, w]
    accepted_u : int64 [U]
    n_moves, n_samples : of each unit
    every : moves between two samples
    first_move : number of the first move in its round
    """

    def __init__(self, units: Units, every: int, x_dtype: np.dtype[Any]) -> None:
        (n_units, width, n_sites), self.every = units.x_uwd.shape, every
        most = min(MAX_OUTPUTS // width, every * (MAX_NUMBERS // (width * n_sites)))
        most = max(1, most)
        n_samples = most // every + 1
        self.z_utw = np.empty((n_units, most, width), dtype=np.float32)
        self.x_uswd = np.empty((n_units, n_samples, width, n_sites), dtype=x_dtype)
        self.walker_usw = np.empty((n_units, n_samples, width), dtype=np.int32)
        self.accepted_u = np.zeros(n_units, dtype=np.int64)
        self.first_move = self.n_moves = self.n_samples = 0

    @property
    def room(self) -> int:
        """The number of moves that still fit."""
        return int(self.z_utw.shape[1]) - self.n_moves

    def samples_of(self, n: int) -> list[int]:
        """Return which of the next n moves, numbered from 0, end with a sample."""
        begin = self.first_move + self.n_moves + 1
        return [t for t in range(n) if (begin + t) % self.every == 0]

    def made(self, n: int, walker_uw: NDArray[np.int32]) -> None:
        """Count n moves, whose walkers had these identities."""
        n_samples = self.n_samples + len(self.samples_of(n))
        self.walker_usw[:, self.n_samples : n_samples] = walker_uw[:, None]
        self.n_moves, self.n_samples = self.n_moves + n, n_samples

    def begin_anew(self) -> None:
        """Forget the moves, which were recorded."""
        self.first_move += self.n_moves
        self.n_moves = self.n_samples = 0
        self.accepted_u[:] = 0


class Mover(Protocol):
    """Makes the moves of all units of a rank."""

    def move(
        self, units: Units, generators: Generators, n: int, is_last: bool, record: Record
    ) -> None:
        """Make n moves, of which the last ends at an exchange or not, into `record`."""
        ...

    def begin_round(self) -> None:
        """Forget what was kept of the previous round."""
        ...

    def swapped(self) -> None:
        """Forget what depends on the inputs that the exchange moved."""
        ...


class CompiledMover:
    """Moves all units in a loop that numba compiled; beta = 0 is drawn before each exchange.

    Outputs are sums of changes. Each unit is evaluated again, in a batch of its own, when a round
    begins and after `EVALUATE_EVERY` moves. At an exchange its sums are rounded as its outputs are.
    """

    def __init__(self, loop: CompiledLoop, model: CheckedModel, n_units: int) -> None:
        self._loop, self._model = loop, model
        self._since = 0
        self._exact_uw: NDArray[np.float64] | None = None
        self._u = np.empty((n_units, 0))

    def begin_round(self) -> None:
        """Begin with outputs that were evaluated when the walkers were placed."""
        self._exact_uw, self._since = None, 0

    def swapped(self) -> None:
        """Forget the sums, whose last digits stay behind."""
        self._exact_uw = None

    def move(
        self, units: Units, generators: Generators, n: int, is_last: bool, record: Record
    ) -> None:
        """Make n moves."""
        if self._since >= EVALUATE_EVERY:
            self._evaluate(units)
        exact_uw = units.z_uw.astype(np.float64) if self._exact_uw is None else self._exact_uw
        n_units, width = units.z_uw.shape
        a_move = self._loop.uniforms_per_move * width
        if self._u.shape[1] < n * a_move:
            self._u = np.empty((n_units, n * a_move))
        n_u = np.full(n_units, n)
        n_u[units.drawn if is_last else []] -= 1
        for u, (generator, made) in enumerate(zip(generators, n_u.tolist(), strict=True)):
            generator.random(out=self._u[u, : made * a_move])
        traces = Traces(record.z_utw, record.x_uswd, record.every, record.first_move)
        x_bad = self._loop.run_units(
            (units.x_uwd, exact_uw), self._u, n_u, np.array([*map(parameters_of, units.ensembles)]),
            traces, (record.n_moves, record.n_samples), record.accepted_u,
        )  # fmt: skip
        if x_bad is not None:
            watch(self._model, torch.from_numpy(x_bad), torch.full((1,), torch.nan))
        end = record.n_moves + n - 1
        for u in units.drawn if is_last else ():
            x_wd = _uniform(generators[u], self._model.n_values, units.x_uwd.shape[1:])
            units.x_uwd[u] = x_wd
            exact_uw[u] = record.z_utw[u, end] = self._model.output(torch.from_numpy(x_wd)).numpy()
            record.accepted_u[u] += width
            if n - 1 in record.samples_of(n):
                record.x_uswd[u, record.n_samples + len(record.samples_of(n)) - 1] = x_wd
        units.z_uw[:] = record.z_utw[:, end]
        self._exact_uw, self._since = exact_uw, self._since + n

    def _evaluate(self, units: Units) -> None:
        for x_wd, z_w in zip(units.x_uwd, units.z_uw, strict=True):
            x, z = torch.from_numpy(x_wd), torch.from_numpy(z_w)
            again = self._model.output(x)
            compare(self._model, x, z, again, summed=True)
            z_w[:] = again.numpy()
        self._exact_uw, self._since = None, 0


class BatchMover:
    """Moves all units with the kernel's own steps in one batch, for a batch-invariant model.

    Units at beta = 0 are drawn at every move.
    """

    def __init__(self, kernel: Metropolis, model: CheckedModel) -> None:
        self._kernel, self._model = kernel, model
        self._since = 0
        self._exact: torch.Tensor | None = None

    def begin_round(self) -> None:
        """Begin with outputs that were evaluated when the walkers were placed."""
        self._exact, self._since = None, 0

    def swapped(self) -> None:
        """Forget the sums, whose last digits stay behind."""
        self._exact = None

    def move(
        self, units: Units, generators: Generators, n: int, is_last: bool, record: Record
    ) -> None:
        """Make n moves."""
        some = units.moved
        at, samples = slice(record.n_moves, record.n_moves + n), record.samples_of(n)
        width, n_sites = units.x_uwd.shape[1:]
        for u in units.drawn:
            self._draw(units, u, generators[u], n, record)
        if not some:
            return
        adjacent = some[-1] - some[0] + 1 == len(some)
        moved: Any = slice(some[0], some[-1] + 1) if adjacent else some  # a slice copies nothing
        ahead = n * self._kernel.uniforms_per_move // width
        stream = JointStream([generators[u] for u in some], width, ahead)
        x = torch.from_numpy(units.x_uwd[moved].reshape(-1, n_sites))
        state = self._begin(x, torch.from_numpy(units.z_uw[moved].reshape(-1)))
        z_t, accepted_t = [], []
        for t in range(n):
            state, info = self._kernel.step(state, units.ensemble_of_rows, stream, True)
            z_t.append(state.z)
            accepted_t.append(info.accepted)
            if t in samples:
                x_uwd = state.x.view(len(some), width, n_sites).numpy()
                record.x_uswd[moved, record.n_samples + samples.index(t)] = x_uwd
        z_tuw, accepted_tuw = (
            torch.stack(parts).view(n, len(some), width) for parts in (z_t, accepted_t)
        )
        record.z_utw[moved, at] = z_tuw.transpose(0, 1).numpy()
        record.accepted_u[moved] += accepted_tuw.sum((0, 2)).numpy()
        if not (adjacent and state.x is x):  # else it was replaced in place
            units.x_uwd[moved] = state.x.view(len(some), width, n_sites).numpy()
        units.z_uw[moved] = state.z.view(len(some), width).numpy()
        if isinstance(state.cache, Summed):
            self._exact, self._since = state.cache.z, state.cache.n_moves

    def _draw(
        self, units: Units, u: int, generator: np.random.Generator, n: int, record: Record
    ) -> None:
        """Draw a unit n times."""
        width, n_sites = units.x_uwd.shape[1:]
        samples, at_once = record.samples_of(n), max(1, MAX_NUMBERS // (width * n_sites))
        for begin in range(0, n, at_once):
            times = range(begin, min(begin + at_once, n))
            x_twd = _uniform(generator, self._model.n_values, (len(times), width, n_sites))
            z = self._model.output(torch.from_numpy(x_twd.reshape(-1, n_sites)))
            at = record.n_moves + begin
            record.z_utw[u, at : at + len(times)] = z.numpy().reshape(-1, width)
            for i, t in enumerate(samples):
                if t in times:
                    record.x_uswd[u, record.n_samples + i] = x_twd[t - begin]
        record.accepted_u[u] += n * width
        units.x_uwd[u], units.z_uw[u] = x_twd[-1], record.z_utw[u, record.n_moves + n - 1]

    def _begin(self, x: torch.Tensor, z: torch.Tensor) -> State:
        """Return the state of the walkers that move, with sums of changes if it has them."""
        if not self._kernel.sums_changes:
            return State(x, z)
        exact = z.double() if self._exact is None else self._exact
        return State(x, z, Summed(exact, self._since))


class JointStream(DeviceStream):
    """The random numbers of U units of w rows each, which follow each other unit by unit.

    Parameters
    ----------
    n_ahead : how many numbers are drawn at once for each row
    """

    def __init__(self, generators: Generators, width: int, n_ahead: int) -> None:
        self._generators, self._width = generators, width
        self._n_ahead = min(n_ahead, MAX_NUMBERS // width)
        self._numbers_nuw = torch.empty((0, len(generators), width), dtype=torch.float64)
        self._rows: Sequence[torch.Tensor] = ()  # [n] of [U w, 1], the same numbers
        self._whole: dict[int, Sequence[torch.Tensor]] = {}  # by `high`, the rows as integers
        self._used = 0

    def integers(self, high: int, *shape: int) -> torch.Tensor:
        """Return int64 numbers, uniform in {0 .. high - 1}, as `DeviceStream` does."""
        numbers = self.uniform(*shape)
        if numbers.numel() > len(self._generators) * self._width:
            return (numbers * high).long()
        if high not in self._whole:
            whole = (self._numbers_nuw * high).long()
            self._whole[high] = whole.flatten(1).unsqueeze(2).unbind()
        return self._whole[high][self._used - 1].view(shape)

    def uniform(self, *shape: int) -> torch.Tensor:
        """Return float64 numbers, uniform in [0, 1); the first dimension is that of the rows."""
        n = math.prod(shape) // (len(self._generators) * self._width)
        if self._used + n > len(self._rows):
            left = self._numbers_nuw[self._used :]
            more = max(self._n_ahead, n - len(left))
            drawn = np.stack([g.random((more, self._width)) for g in self._generators], axis=1)
            numbers = torch.from_numpy(drawn)
            self._numbers_nuw, self._used = torch.cat([left, numbers]) if len(left) else numbers, 0
            self._whole.clear()
            self._rows = self._numbers_nuw.flatten(1).unsqueeze(2).unbind()
        begin, self._used = self._used, self._used + n
        if n == 1:
            return self._rows[begin].view(shape)
        # each unit gets the numbers that it would get on its own, in the same order
        return self._numbers_nuw[begin : self._used].transpose(0, 1).reshape(shape)


def _uniform(
    generator: np.random.Generator, n_values: int, shape: tuple[int, ...]
) -> NDArray[np.int64]:
    """Return uniform inputs, int64, as `DeviceStream.integers` draws them."""
    u = generator.random(shape)
    u *= n_values
    return u.astype(np.int64)
