"""What kernels without a number to tune have in common."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


class Untuned:
    """A kernel that tunes nothing.

    Attributes
    ----------
    tuned : float64 [0]
    """

    def __init__(self) -> None:
        self.tuned: NDArray[np.float64] = np.empty(0)

    def adapt(self, attempted_p: NDArray[np.int64], accepted_p: NDArray[np.int64]) -> None:
        """Do nothing (see `omniinput_hpc.kernels.Kernel`)."""
