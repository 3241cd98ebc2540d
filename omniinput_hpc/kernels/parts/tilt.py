"""A rung's second direction: inputs weigh exp(-lambda y(x)) more, with y an observable.

For kernels this is part of the law of inputs, and their betas and z stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

Observe = Callable[[NDArray[np.int64]], NDArray[np.float64]]
"""Returns y, float64 [n], of inputs, int64 [n, D], in the model's ids."""


class TiltedLaw:
    """The law q(x) exp(-lambda y(x)), not normalized: it can weigh inputs, but not draw them.

    Parameters
    ----------
    base : the law q of inputs (`kernels.parts.law.Law`); None: all weigh the same
    slope : lambda
    observe : y of the model's values, int64 [n, D]

    Everything else is that of the base. ln q does not follow from z, whatever the base is.
    """

    gives_z = False

    def __init__(self, base: Any, slope: float, observe: Observe) -> None:
        self.base, self._slope, self._observe = base, slope, observe

    def __getattr__(self, name: str) -> Any:
        return getattr(self.base, name)

    def log_tilt(self, x: torch.Tensor) -> torch.Tensor:
        """Return -lambda y of inputs x, int64 [W, D]: float64 [W]."""
        y = self._observe(x.cpu().numpy())
        return torch.from_numpy(-self._slope * y).to(x.device)

    def log_q(self, x: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
        """Return ln of the weights of inputs x, whose outputs are z [W]: float64 [W]."""
        tilt = self.log_tilt(x)
        return tilt if self.base is None else tilt + self.base.log_q(x, z)


def log_tilt(law: Any, x: torch.Tensor) -> torch.Tensor | float:
    """Return -lambda y of inputs x under a tilted law, float64 [W]; 0 under any other."""
    return law.log_tilt(x) if isinstance(law, TiltedLaw) else 0.0


@dataclass(frozen=True)
class SecondDirection:
    """The lambdas of all rungs, float64 [K], and the observable y."""

    lambda_k: NDArray[np.float64]
    observe: Observe

    def law(self, k: int, base: Any) -> Any:
        """Return the law of rung k, given that of the run; it is the same where lambda = 0."""
        slope = float(self.lambda_k[k])
        return TiltedLaw(base, slope, self.observe) if slope else base

    def log_swap(
        self, k: int, x_lower: NDArray[Any], x_upper: NDArray[Any]
    ) -> NDArray[np.float64] | float:
        """Return what y adds to ln of the ratio of weights if rungs k and k + 1 swap, [W]."""
        difference = float(self.lambda_k[k + 1] - self.lambda_k[k])
        if not difference:
            return 0.0
        y_lower, y_upper = (self.observe(x.astype(np.int64)) for x in (x_lower, x_upper))
        return difference * (y_upper - y_lower)
