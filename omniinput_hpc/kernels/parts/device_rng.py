"""Random numbers on the model's device, drawn and copied in blocks."""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray


class DeviceStream:
    """One sequence of uniform numbers, handed out in order.

    The numbers come from a host generator, so that they are the same on every device; the size
    of the blocks changes nothing but the number of copies.

    Parameters
    ----------
    generator : the counter-based stream (see `omniinput_hpc.rng`)
    device : where the numbers are used
    block : how many are drawn and copied at once
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
        """Return float64 numbers, uniform in [0, 1), of a shape."""
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
        """Return int64 numbers, uniform in {0 .. high - 1}; high is far below 2^53."""
        return (self.uniform(*shape) * high).long()

    def shared_uniform(self, n: int) -> NDArray[np.float64]:
        """Return n uniform numbers in [0, 1) on the host, float64, shared by all walkers.

        A schedule (which part of a mixture, which position, which length) that is drawn
        independently of the state leaves the ensemble invariant, shared or not, since each
        scheduled move does; and drawn on the host it costs no synchronization. A run gives all
        its rungs the same numbers (`sampling.loop.streams`).
        """
        if self._shared is None:
            raise ValueError("this stream has no generator of shared numbers")
        return self._shared.random(n)
