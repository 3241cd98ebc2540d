"""Ensembles: the log-weight that a rung samples by, as a function of z alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol


class Ensemble(Protocol):
    """What a kernel and an exchange ask of an ensemble.

    z is float64, a numpy array or a torch tensor: the arithmetic is the same for both.
    """

    def log_weight(self, z: Any) -> Any:
        """Log of the unnormalized weight of output z, elementwise."""
        ...

    def slope(self, z: Any) -> Any:
        """Return -d log_weight / dz, elementwise: beta where the ensemble is canonical."""
        ...


@dataclass(frozen=True)
class Canonical:
    """p(x) proportional to exp(-beta z(x))."""

    beta: float

    def log_weight(self, z: Any) -> Any:
        """Return -beta z."""
        return -self.beta * z

    def slope(self, z: Any) -> Any:
        """Return beta, in the shape of z."""
        return 0.0 * z + self.beta
