"""Ensembles: the log-weight that a rung samples by, as a function of z alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from omniinput_hpc.config import Config
from omniinput_hpc.histogram import bin_of


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


@dataclass(frozen=True)
class Gaussian:
    """p(x) proportional to exp(-beta z - kappa (z - z0)^2 / 2).

    Generalized replica exchange (Kim, Keyes & Straub 2010): where two phases coexist at one beta,
    it makes the outputs between them likely.
    """

    beta: float
    kappa: float
    z0: float

    def log_weight(self, z: Any) -> Any:
        """Return -beta z - kappa (z - z0)^2 / 2."""
        return -self.beta * z - 0.5 * self.kappa * (z - self.z0) ** 2

    def slope(self, z: Any) -> Any:
        """Return beta + kappa (z - z0)."""
        return self.beta + self.kappa * (z - self.z0)


class Flat:
    """p(x) proportional to exp(-S(z)), S constant in each bin (Wang & Landau 2001).

    On the host; `kernels.flat.FlatOnDevice` is its counterpart for kernels.

    Parameters
    ----------
    edges : float64 [B + 1]
    window : bins [first, end) that the rung samples once it is frozen
    table : float64 [B + 2], log-weights: below all bins, of each bin, above all bins
    """

    def __init__(
        self, edges: NDArray[np.float64], window: tuple[int, int], table: NDArray[np.float64]
    ) -> None:
        self.edges, self.window, self.table = edges, window, table

    def log_weight(self, z: Any) -> Any:
        """Return the table's entry of each z's bin, float64."""
        return self.table[bin_of(np.asarray(z, dtype=np.float64), self.edges) + 1]

    def inside(self, z: Any) -> NDArray[np.bool_]:
        """Return whether outputs lie in the window, bool like z."""
        b = bin_of(np.asarray(z, dtype=np.float64), self.edges)
        return np.asarray((b >= self.window[0]) & (b < self.window[1]))

    def slope(self, z: Any) -> Any:
        """Return dS/dz by `slopes`."""
        z = np.asarray(z, dtype=np.float64)
        slope = slopes(self.table, self.window, self.edges[1] - self.edges[0])
        return slope[bin_of(z, self.edges) + 1]


SLOPE_REACH = 4  # bins on either side


def slopes(table: Any, window: tuple[int, int], width: float) -> Any:
    """Return -d log_weight / dz, [B + 2], by differences over a few bins inside the window.

    Any function of z would do: it only shapes proposals, and both directions are paid for.
    """
    first, end = window[0] + 1, window[1]  # table's entries first ... end are the window's bins
    at = np.clip(np.arange(len(table)), first, end)
    low, high = np.maximum(at - SLOPE_REACH, first), np.minimum(at + SLOPE_REACH, end)
    return (table[low] - table[high]) / (np.maximum(high - low, 1) * width)


def of_run(config: Config) -> list[Ensemble]:
    """Return the ensembles of all rungs at the run's beginning, in the ladder's order."""
    edges = config.bins.edges
    flat = [Flat(edges, window, np.zeros(len(edges) + 1)) for window in config.windows]
    if config.ladder is None:
        return [*flat]
    beta_k = config.ladder.beta_k
    kappa_k = config.ladder.kappa or [0.0] * len(beta_k)
    z0_k = config.ladder.z0 or [0.0] * len(beta_k)
    return [
        *flat,
        *(
            Gaussian(float(beta), kappa, z0) if kappa else Canonical(float(beta))
            for beta, kappa, z0 in zip(beta_k, kappa_k, z0_k, strict=True)
        ),
    ]


def log_weight_b(ensemble: Ensemble, edges: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the log-weight at each bin's centre, float64 [B]."""
    return np.asarray(ensemble.log_weight(0.5 * (edges[:-1] + edges[1:])), dtype=np.float64)
