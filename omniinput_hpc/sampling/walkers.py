"""The walkers of one rung on their device: moved by a kernel, recorded without synchronization."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from omniinput_hpc.kernels import DeviceStream, Kernel, State
from omniinput_hpc.kernels.independent import AncestralSampler
from omniinput_hpc.kernels.wang_landau import FlatOnDevice
from omniinput_hpc.models.checked import CheckedModel
from omniinput_hpc.tempering.ensembles import Ensemble


@dataclass(frozen=True)
class Recorded:
    """What a segment of T moves recorded, on the host.

    Attributes
    ----------
    z_tw : float32 [T, W], after every move
    x_swd : unsigned integers [samples, W, D], after the moves that were sampled
    attempted_p, accepted_p : int64 [n_kernels], moves by part of the kernel, of all walkers
    log_q_swk : float64 [samples, W, K], log-probabilities of the sampled draws; None: a chain
    """

    z_tw: NDArray[np.float32]
    x_swd: NDArray[Any]
    attempted_p: NDArray[np.int64]
    accepted_p: NDArray[np.int64]
    log_q_swk: NDArray[np.float64] | None = None


class Batch:
    """W walkers of one rung, evaluated as one batch of fixed shape.

    Parameters
    ----------
    steps : moves of a segment, between two exchanges
    every : moves between two recorded samples, counted from the round's beginning
    x_dtype : the host's type of x

    Attributes
    ----------
    ensemble : what the walkers are sampled by
    """

    def __init__(
        self,
        kernel: Kernel,
        model: CheckedModel,
        ensemble: Ensemble,
        device: torch.device,
        steps: int,
        every: int,
        x_dtype: np.dtype[Any],
    ) -> None:
        self._kernel, self._model, self.ensemble = kernel, model, ensemble
        self._anchor: Kernel | None = None
        self._anchor_always = False
        self._device, self._steps, self._every, self._x_dtype = device, steps, every, x_dtype
        self._state: State
        self._stream: DeviceStream
        self._z_tw: torch.Tensor | None = None

    def use(self, ensemble: Ensemble, anchor: Kernel | None, always: bool = False) -> None:
        """Sample by another ensemble from now on.

        anchor, always : draws of the ensemble itself: the last move of a segment, or all of them
        """
        self.ensemble, self._anchor, self._anchor_always = ensemble, anchor, always

    def place(self, x_wd: NDArray[Any], z_w: NDArray[np.float32]) -> None:
        """Put walkers here, unsigned integers [W, D] and float32 [W]."""
        x = torch.from_numpy(x_wd.astype(np.int64)).to(self._device)
        # A copy: the host's array may be a read-only view of a message.
        self._state = self._kernel.start(x, torch.from_numpy(z_w.copy()).to(self._device))

    def evaluate(self, x_wd: NDArray[Any]) -> NDArray[np.float32]:
        """Return the model's z of inputs [W, D], float32 [W]; they are not placed."""
        x = torch.from_numpy(x_wd.astype(np.int64)).to(self._device)
        z = self._model.output(x).cpu().numpy()
        self._model.raise_if_nonfinite()
        return np.asarray(z)

    def begin_segment(
        self, generator: np.random.Generator, choices: np.random.Generator, first_move: int
    ) -> None:
        """Prepare to record `steps` moves, the first one being number `first_move` of its round.

        generator, choices : of each walker's own random numbers, and of those that all share
        """
        n_walkers, n_sites = self._state.x.shape
        if self._z_tw is None:
            most = self._steps // self._every + 1
            self._z_tw = torch.empty((self._steps, n_walkers), device=self._device)
            self._x_swd = torch.empty(
                (most, n_walkers, n_sites), dtype=torch.int64, device=self._device
            )
        block = self._kernel.uniforms_per_move * self._steps
        self._stream = DeviceStream(generator, self._device, min(block, 1 << 22), choices)
        n_parts = len(self._kernel.parts)
        self._attempted_p = np.zeros(n_parts, dtype=np.int64)
        self._accepted_p = torch.zeros(n_parts, dtype=torch.int64, device=self._device)
        self._log_q: list[torch.Tensor] = []
        if isinstance(self.ensemble, FlatOnDevice):
            self.ensemble.begin_segment(self._stream, n_walkers)
        self._move, self._t, self._n_samples = first_move, 0, 0

    def step(self) -> None:
        """Move every walker once."""
        assert self._z_tw is not None
        flat = self.ensemble if isinstance(self.ensemble, FlatOnDevice) else None
        if flat is not None:
            flat.begin_move(self._stream, self._state.z)
        kernel, last = self._kernel, self._t + 1 == self._steps
        if self._anchor is not None and (self._anchor_always or last):
            kernel = self._anchor
        self._state, info = kernel.step(self._state, self.ensemble, self._stream)
        if flat is not None:
            flat.after_move(self._state.z)
        self._z_tw[self._t] = self._state.z
        self._attempted_p[info.part] += len(info.accepted)
        self._accepted_p[info.part] += info.accepted.count_nonzero()
        self._t += 1
        self._move += 1
        if self._move % self._every == 0:
            self._x_swd[self._n_samples] = self._state.x
            self._n_samples += 1
            if isinstance(kernel, AncestralSampler):
                self._log_q.append(self._state.cache)

    def collect(self) -> Recorded:
        """Return what was recorded since `begin_segment` (synchronizes).

        Raises
        ------
        NonFiniteOutput
            The model returned NaN or infinity meanwhile.
        """
        assert self._z_tw is not None
        self._model.raise_if_nonfinite()
        log_q = [torch.stack(self._log_q)] if self._log_q else []
        z_tw, x_swd, accepted_p, *log_q_swk = _on_host(
            self._z_tw, self._x_swd[: self._n_samples], self._accepted_p, *log_q
        )
        return Recorded(
            z_tw,
            x_swd.astype(self._x_dtype),
            self._attempted_p,
            accepted_p,
            log_q_swk[0] if log_q_swk else None,
        )

    def walkers(self) -> tuple[NDArray[Any], NDArray[np.float32]]:
        """Return x, unsigned integers [W, D], and z, float32 [W], on the host."""
        x, z = _on_host(self._state.x, self._state.z)
        return x.astype(self._x_dtype), z.copy()


def _on_host(*tensors: torch.Tensor) -> list[NDArray[Any]]:
    """Return tensors as arrays; from a GPU, all copies are under way before one is waited for."""
    arrays = []
    for tensor in tensors:
        if tensor.is_cuda:
            pinned = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
            arrays.append(pinned.copy_(tensor, non_blocking=True).numpy())
        else:
            arrays.append(tensor.cpu().numpy())
    if tensors[0].is_cuda:
        torch.cuda.current_stream(tensors[0].device).synchronize()
    return arrays
