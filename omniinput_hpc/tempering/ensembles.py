"""Ensembles: the log-weight that a rung samples by, as a function of z alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from omniinput_hpc.histogram import bin_of


class Ensemble(Protocol):
    """What a kernel and an exchange ask of an ensemble.

    z is float64 [W]: kernels pass torch tensors, exchanges pass numpy arrays to what `on_host`
    returns. `Canonical` and `Gaussian` take either, `Tabulated` only arrays, and
    `kernels.wang_landau.WangLandauEnsemble` only tensors.

    beta is the inverse temperature, NaN where there is none.
    """

    @property
    def beta(self) -> float:
        """Inverse temperature."""
        ...

    def log_weight(self, z: Any) -> Any:
        """Log of the unnormalized weight of output z, elementwise."""
        ...

    def slope(self, z: Any) -> Any:
        """Return -d log_weight / dz, elementwise: beta where the ensemble is canonical."""
        ...

    def begin_segment(self, stream: Any, n_walkers: int) -> None:
        """Draw from a stream (`DeviceStream`) what holds for a segment of moves."""
        ...

    def begin_move(self, stream: Any, z: Any) -> None:
        """Draw what holds for one move, given the outputs before it, [W]."""
        ...

    def after_move(self, z: Any) -> None:
        """Learn from the outputs after a move, [W]."""
        ...

    def on_host(self) -> Ensemble:
        """Return the present log-weights as an ensemble of numpy arrays."""
        ...


class FixedEnsemble:
    """An ensemble that learns nothing and draws nothing."""

    def on_host(self) -> Self:
        """Return the ensemble itself: its numbers are on the host."""
        return self

    def begin_segment(self, stream: Any, n_walkers: int) -> None:
        """Do nothing."""

    def begin_move(self, stream: Any, z: Any) -> None:
        """Do nothing."""

    def after_move(self, z: Any) -> None:
        """Do nothing."""


@dataclass(frozen=True)
class Canonical(FixedEnsemble):
    """p(x) proportional to exp(-beta z(x))."""

    beta: float

    def log_weight(self, z: Any) -> Any:
        """Return -beta z."""
        return -self.beta * z

    def slope(self, z: Any) -> Any:
        """Return beta, in the shape of z."""
        return 0.0 * z + self.beta


@dataclass(frozen=True)
class Gaussian(FixedEnsemble):
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


@dataclass(frozen=True, eq=False)
class Tabulated(FixedEnsemble):
    """p(x) proportional to exp(-S(z)), S constant in each bin (Wang & Landau 2001)."""

    edges: NDArray[np.float64]  # [B + 1]
    window: tuple[int, int]  # bins [first, end) that the rung samples once its weights are frozen
    table: NDArray[np.float64]  # [B + 2], log-weights: below all bins, of each bin, above them

    @property
    def beta(self) -> float:
        """Not a number: no temperature."""
        return np.nan

    def log_weight(self, z: Any) -> Any:
        """Return the table's entry of each z's bin, float64."""
        return self.table[bin_of(np.asarray(z, dtype=np.float64), self.edges) + 1]

    def inside(self, z: Any) -> NDArray[np.bool_]:
        """Return whether outputs lie in the window, bool like z."""
        b = bin_of(np.asarray(z, dtype=np.float64), self.edges)
        return np.asarray((b >= self.window[0]) & (b < self.window[1]))

    def slope(self, z: Any) -> Any:
        """Return dS/dz by differences over a few bins, float64 like z; see `slope_entries`."""
        low, high = slope_entries(len(self.table), self.window)
        entry = bin_of(np.asarray(z, dtype=np.float64), self.edges) + 1
        reach = np.maximum(high - low, 1) * (self.edges[1] - self.edges[0])
        return ((self.table[low] - self.table[high]) / reach)[entry]


SLOPE_REACH = 4
"""Bins on either side that a slope is a difference over."""


def slope_entries(
    n_table: int, window: tuple[int, int]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return between which two entries of a table each entry's slope is the difference.

    Both are int64 [n_table]: a few bins below and above, inside the window. Any function of z would
    do as a slope: it only shapes proposals, and both directions use the same one.
    """
    first, end = window[0] + 1, window[1]  # table's entries first ... end are the window's bins
    at = np.clip(np.arange(n_table), first, end)
    return np.maximum(at - SLOPE_REACH, first), np.minimum(at + SLOPE_REACH, end)


def log_weight_b(ensemble: Ensemble, edges: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the log-weight at each bin's centre, float64 [B]."""
    return np.asarray(ensemble.log_weight(0.5 * (edges[:-1] + edges[1:])), dtype=np.float64)


N_PARAMETERS = 5


def to_array(ensemble: Ensemble, n_table: int) -> NDArray[np.float64]:
    """Return the numbers that make up a fixed ensemble, float64 [5 + n_table].

    beta, kappa, z0, the window's first bin and end, and the table; see `from_array`.
    """
    numbers = np.zeros(N_PARAMETERS + n_table)
    numbers[:3] = parameters_of(ensemble)
    if isinstance(ensemble, Tabulated):
        numbers[3:5] = ensemble.window
        numbers[N_PARAMETERS:] = ensemble.table
    return numbers


def from_array(numbers: NDArray[np.float64], edges: NDArray[np.float64]) -> Ensemble:
    """Return the ensemble that `to_array` gave the numbers of; `edges` are the run's."""
    beta, kappa, z0 = map(float, numbers[:3])
    if np.isnan(beta):
        return Tabulated(edges, (int(numbers[3]), int(numbers[4])), numbers[N_PARAMETERS:])
    return of_parameters(beta, kappa, z0)


def of_parameters(beta: float, kappa: float, z0: float) -> Canonical | Gaussian:
    """Return the ensemble of -beta z - kappa (z - z0)^2 / 2; canonical where kappa is 0."""
    return Gaussian(beta, kappa, z0) if kappa else Canonical(beta)


def parameters_of(ensemble: Ensemble) -> tuple[float, float, float]:
    """Return beta (NaN: flat), kappa and z0 of an ensemble; 0 for what it has not."""
    if isinstance(ensemble, Gaussian):
        return ensemble.beta, ensemble.kappa, ensemble.z0
    return ensemble.beta, 0.0, 0.0
