"""Metropolis moves in a loop compiled by numba, for models with a compiled `change`.

If a model is very cheap, a move costs little more than its forty or so small torch calls. This
loop makes the moves in machine code, with the same random numbers and the same arithmetic as the
single moves of `kernels.metropolis`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from omniinput_hpc.errors import UserError
from omniinput_hpc.kernels.parts.device_rng import DeviceStream
from omniinput_hpc.models.compiled_change import check_compiled
from omniinput_hpc.tempering.ensembles import Canonical, Ensemble, Gaussian

if TYPE_CHECKING:
    from omniinput_hpc.models.protocol import CompiledChange

MAX_WALKER_MOVES = 1 << 17
"""Largest number of moves, times walkers, in one call of the loop: some milliseconds."""


@dataclass(frozen=True)
class Trace:
    """The arrays in which moves are recorded, and the moves at which samples are taken.

    Attributes
    ----------
    z_tw : float32 [T, W], filled with the outputs after each move
    x_swd : int64 [samples, W, D], filled with the inputs after each sampled move
    every : moves between two samples
    first_move : index of the first move in its round, from 0
    """

    z_tw: torch.Tensor
    x_swd: torch.Tensor
    every: int
    first_move: int

    def part(self, begin: int, n: int, n_samples: int) -> Trace:
        """Return the trace of n moves from `begin` on, after `n_samples` recorded samples."""
        some = slice(begin, begin + n)
        return Trace(self.z_tw[some], self.x_swd[n_samples:], self.every, self.first_move + begin)


@dataclass(frozen=True)
class Traces:
    """The same for U units at once; x_uswd has unsigned integers [U, samples, w, D]."""

    z_utw: NDArray[np.float32]
    x_uswd: NDArray[Any]
    every: int
    first_move: int


@dataclass(frozen=True)
class Made:
    """The result of a call of the loop.

    Attributes
    ----------
    x : int64 [W, D]
    exact : float64 [W], z as the sum of an output and of changes
    n_accepted : accepted moves of all walkers
    x_bad : int64 [1, D], the first proposed input whose z is not finite, or None
    """

    x: torch.Tensor
    exact: torch.Tensor
    n_accepted: int
    n_samples: int
    x_bad: torch.Tensor | None


class CompiledLoop:
    """Moves of one site per walker, with a compiled function for the change of z.

    Parameters
    ----------
    change : see `models.protocol.Offers.compiled_change`; a `UserError` if it does not compile

    Attributes
    ----------
    uniforms_per_move : of a walker: a site, a value if there are more than two, and a decision
    """

    def __init__(self, change: CompiledChange, n_values: int, n_sites: int) -> None:
        check_compiled(change)
        self._change, self._n_values = change, n_values
        self.uniforms_per_move = 2 if n_values == 2 else 3
        x, none = torch.zeros((0, n_sites), dtype=torch.int64), torch.zeros(0, dtype=torch.float64)
        trace = Trace(torch.zeros((0, 0)), x[None], 1, 0)
        try:  # compile now, so that errors surface at start-up
            self._run(x, none, Canonical(0.0), none, trace)
        except _typing_error() as error:
            raise UserError(
                "the model's compiled_change(x, site, value) does not compile for x int64 [D] and "
                f"whole numbers site and value: {str(error).strip().splitlines()[0]}"
            ) from None

    @staticmethod
    def knows(ensemble: Ensemble) -> bool:
        """Return whether the loop supports this ensemble; it must be a fixed formula."""
        return isinstance(ensemble, (Canonical, Gaussian))

    def run(
        self,
        x: torch.Tensor,
        exact: torch.Tensor,
        ensemble: Ensemble,
        stream: DeviceStream,
        trace: Trace,
    ) -> Made:
        """Move walkers x, int64 [W, D], with z `exact`, float64 [W], once per row of `trace`."""
        u = stream.uniform(len(trace.z_tw), self.uniforms_per_move, len(x))
        return self._run(x.clone(), exact.clone(), ensemble, u, trace)

    def _run(
        self, x: torch.Tensor, exact: torch.Tensor, ensemble: Any, u: torch.Tensor, trace: Trace
    ) -> Made:
        curved = isinstance(ensemble, Gaussian)
        kappa, z0 = (ensemble.kappa, ensemble.z0) if curved else (0.0, 0.0)
        x_bad = torch.zeros_like(x[:1])
        n_accepted, n_samples, bad = _moves()(
            self._change, self._n_values, (x.numpy(), exact.numpy()), u.numpy().reshape(-1),
            (float(ensemble.beta), float(kappa), float(z0)),
            (trace.z_tw.numpy(), trace.x_swd.numpy(), trace.every, trace.first_move), x_bad.numpy(),
        )  # fmt: skip
        return Made(x, exact, n_accepted, n_samples, x_bad if bad else None)

    def run_units(
        self,
        walkers: tuple[NDArray[np.int64], NDArray[np.float64]],
        u: NDArray[np.float64],
        n_moves_u: NDArray[np.int64],
        parameters_u3: NDArray[np.float64],
        traces: Traces,
        begin: tuple[int, int],
        accepted_u: NDArray[np.int64],
    ) -> NDArray[np.int64] | None:
        """Move the walkers of many units in place, x [U, w, D] and z [U, w], as `run` moves one.

        u : [U, n], of which a unit uses `uniforms_per_move` times w for each of its moves
        parameters_u3 : beta, kappa and z0 of each unit
        begin : moves and samples that the traces have already
        accepted_u : incremented

        Returns the first proposed input whose z is not finite, [1, D], or None.
        """
        x_bad = np.zeros((1, walkers[0].shape[2]), dtype=np.int64)
        arrays = traces.z_utw, traces.x_uswd, traces.every, traces.first_move
        numbers = u, n_moves_u, parameters_u3
        bad = _moves_of_units()(
            self._change, self._n_values, walkers, numbers, arrays, begin, (accepted_u, x_bad)
        )
        return x_bad if bad else None


def _typing_error() -> type[Exception]:
    from numba.core.errors import NumbaError

    error: type[Exception] = NumbaError
    return error


@cache
def _moves() -> Any:
    """Return the compiled loop; numba is imported only if a model needs it."""
    from numba import njit

    @njit
    def log_weight(z: float, beta: float, kappa: float, z0: float) -> float:
        return -beta * z - 0.5 * kappa * (z - z0) ** 2

    @njit
    def moves(
        change: Any,
        n_values: int,
        walkers: tuple[NDArray[np.int64], NDArray[np.float64]],
        u: NDArray[np.float64],
        ensemble: tuple[float, float, float],
        trace: tuple[NDArray[np.float32], NDArray[np.int64], int, int],
        x_bad: NDArray[np.int64],
    ) -> tuple[int, int, bool]:
        x, exact = walkers
        beta, kappa, z0 = ensemble
        z_tw, x_swd, every, first_move = trace
        n_walkers, n_sites = x.shape
        n_draws = 2 if n_values == 2 else 3
        n_accepted, n_samples, bad = 0, 0, False
        for t in range(len(z_tw)):
            for w in range(n_walkers):
                at = n_draws * n_walkers * t + w
                site = int(u[at] * n_sites)
                shift = 1
                if n_draws == 3:
                    shift += int(u[at + n_walkers] * (n_values - 1))
                value = (x[w, site] + shift) % n_values
                changed = exact[w] + change(x[w], site, value)
                z, z_new = np.float32(exact[w]), np.float32(changed)
                if not (bad or np.isfinite(z_new)):
                    bad = True
                    x_bad[0] = x[w]
                    x_bad[0, site] = value
                now = log_weight(np.float64(z), beta, kappa, z0)
                log_ratio = log_weight(np.float64(z_new), beta, kappa, z0) - now
                if log_ratio > 0.0 or np.log(u[at + (n_draws - 1) * n_walkers]) < log_ratio:
                    x[w, site] = value
                    exact[w] = changed
                    z = z_new
                    n_accepted += 1
                z_tw[t, w] = z
            if (first_move + t + 1) % every == 0:
                for w in range(n_walkers):
                    for site in range(n_sites):
                        x_swd[n_samples, w, site] = x[w, site]
                n_samples += 1
        return n_accepted, n_samples, bad

    return moves


@cache
def _moves_of_units() -> Any:
    """Return the compiled loop over units."""
    from numba import njit

    moves = _moves()

    @njit
    def moves_of_units(
        change: Any,
        n_values: int,
        walkers: tuple[NDArray[np.int64], NDArray[np.float64]],
        numbers: tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.float64]],
        traces: tuple[NDArray[np.float32], NDArray[Any], int, int],
        begin: tuple[int, int],
        found: tuple[NDArray[np.int64], NDArray[np.int64]],
    ) -> bool:
        x, exact = walkers
        u, n_moves_u, parameters_u3 = numbers
        accepted_u, x_bad = found
        z_utw, x_uswd, every, first_move = traces
        t, s = begin
        any_bad = False
        for i in range(len(x)):
            beta, kappa, z0 = parameters_u3[i]
            trace = (z_utw[i, t : t + n_moves_u[i]], x_uswd[i, s:], every, first_move + t)
            n_accepted, _, bad = moves(
                change, n_values, (x[i], exact[i]), u[i], (beta, kappa, z0), trace, x_bad
            )
            accepted_u[i] += n_accepted
            any_bad = any_bad or bad
        return any_bad

    return moves_of_units
