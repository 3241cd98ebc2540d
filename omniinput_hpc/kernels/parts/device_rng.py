"""Random numbers on the model's device, drawn on the host and copied in blocks."""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray


class DeviceStream:
    """A sequence of uniform numbers, returned in order.

    The numbers come from a generator on the host, so they are the same on every device. The block
    size affects only the number of copies.

    Parameters
    ----------
    generator : counter-based stream (see `omniinput_hpc.rng`)
    block : how many numbers are drawn and copied at once
    shared : a second generator, for numbers on the host that all walkers share
    """

    def __init__(
        self,
        generator: np.random.Generator,
        device: torch.device,
        block: int,
        shared: np.random.Generator | None = None,
    ) -> None:
        self._generator, self._device, self._block = generator, device, block
        self._numbers = torch.empty(0, dtype=torch.float64, device=device)
        self._used = 0
        self._shared = shared

    def uniform(self, *shape: int) -> torch.Tensor:
        """Return float64 numbers of the given shape, uniform in [0, 1)."""
        count = math.prod(shape)
        if self._used + count > len(self._numbers):
            rest = self._numbers[self._used :]
            fresh = self._generator.random(max(self._block, count - len(rest)))
            numbers = torch.from_numpy(fresh).to(self._device)
            self._numbers = torch.cat([rest, numbers]) if len(rest) else numbers
            self._used = 0
        begin, self._used = self._used, self._used + count
        return self._numbers[begin : self._used].view(shape)

    def integers(self, high: int, *shape: int) -> torch.Tensor:
        """Return int64 numbers, uniform in {0 .. high - 1}; high must be far below 2^53."""
        return (self.uniform(*shape) * high).long()

    def shared_uniform(self, n: int) -> NDArray[np.float64]:
        """Return n numbers on the host, float64, uniform in [0, 1), shared by all walkers.

        They draw a schedule: the part of a mixture, the position and the length of a span. A
        schedule that is independent of the state leaves the ensemble invariant, shared or not,
        because each scheduled move does. Drawn on the host, it costs no synchronization. All rungs
        of a run get the same numbers (`sampling.loop.streams`).
        """
        if self._shared is None:
            raise ValueError("this stream has no generator of shared numbers")
        return self._shared.random(n)
