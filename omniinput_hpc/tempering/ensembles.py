"""Ensembles: the log-weight by which a rung samples, a function of z only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from omniinput_hpc.histogram import bin_of


class Ensemble(Protocol):
    """The interface that kernels and exchanges use.

    z is float64 [W]. Kernels pass torch tensors; exchanges call `on_host` and pass numpy arrays to
    the result. `Canonical` and `Gaussian` take either, `Tabulated` only arrays, and
    `kernels.wang_landau.WangLandauEnsemble` only tensors.
    """

    @property
    def beta(self) -> float:
        """Inverse temperature; NaN if the ensemble has none."""
        ...

    def log_weight(self, z: Any) -> Any:
        """Log of the unnormalized weight of output z, elementwise."""
        ...

    def slope(self, z: Any) -> Any:
        """Return -d log_weight / dz, elementwise; it is beta for a canonical ensemble."""
        ...

    def begin_segment(self, stream: Any, n_walkers: int) -> None:
        """Draw the random choices that hold for a segment of moves, from a `DeviceStream`."""
        ...

    def begin_move(self, stream: Any, z: Any) -> None:
        """Draw the random choices that hold for one move, given the outputs z [W] before it."""
        ...

    def after_move(self, z: Any) -> None:
        """Learn from the outputs z [W] after a move."""
        ...

    def on_host(self) -> Ensemble:
        """Return an ensemble with the present log-weights as numpy arrays."""
        ...


class FixedEnsemble:
    """An ensemble that learns nothing and draws nothing."""

    def on_host(self) -> Self:
        """Return the ensemble itself: its numbers are already on the host."""
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

    Generalized replica exchange (Kim, Keyes & Straub 2010): if two phases coexist at one beta, the
    quadratic term makes the outputs between them likely.
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
    """p(x) proportional to exp(-S(z)), with S constant in each bin (Wang & Landau 2001)."""

    edges: NDArray[np.float64]  # [B + 1]
    window: tuple[int, int]  # bins [first, end) that the rung samples once its weights are frozen
    table: NDArray[np.float64]  # [B + 2], log-weights: below all bins, in each bin, above all bins

    @property
    def beta(self) -> float:
        """NaN: the ensemble has no temperature."""
        return np.nan

    def log_weight(self, z: Any) -> Any:
        """Return the table's entry for the bin of each z, float64."""
        return self.table[bin_of(np.asarray(z, dtype=np.float64), self.edges) + 1]

    def inside(self, z: Any) -> NDArray[np.bool_]:
        """Return whether each output lies in the window, bool of the shape of z."""
        b = bin_of(np.asarray(z, dtype=np.float64), self.edges)
        return np.asarray((b >= self.window[0]) & (b < self.window[1]))

    def slope(self, z: Any) -> Any:
        """Return dS/dz from differences over a few bins, float64 of the shape of z."""
        low, high = slope_entries(len(self.table), self.window)
        entry = bin_of(np.asarray(z, dtype=np.float64), self.edges) + 1
        reach = np.maximum(high - low, 1) * (self.edges[1] - self.edges[0])
        return ((self.table[low] - self.table[high]) / reach)[entry]


SLOPE_REACH = 4
"""A slope is the difference over this many bins on either side."""


def slope_entries(
    n_table: int, window: tuple[int, int]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the two entries of a table whose difference gives the slope at each entry.

    Both are int64 [n_table]: a few bins below and above the entry, within the window. Sampling is
    exact with any function of z as the slope: it only shapes proposals, and a move and its reverse
    use the same function.
    """
    first, end = window[0] + 1, window[1]  # the window's bins are the entries first ... end
    at = np.clip(np.arange(n_table), first, end)
    return np.maximum(at - SLOPE_REACH, first), np.minimum(at + SLOPE_REACH, end)


def log_weight_b(ensemble: Ensemble, edges: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the log-weight at each bin's centre, float64 [B]."""
    return np.asarray(ensemble.log_weight(0.5 * (edges[:-1] + edges[1:])), dtype=np.float64)


N_PARAMETERS = 5


def to_array(ensemble: Ensemble, n_table: int) -> NDArray[np.float64]:
    """Return the numbers that define a fixed ensemble, float64 [5 + n_table].

    They are beta, kappa, z0, the window's first bin and end, and the table; see `from_array`.
    """
    numbers = np.zeros(N_PARAMETERS + n_table)
    numbers[:3] = parameters_of(ensemble)
    if isinstance(ensemble, Tabulated):
        numbers[3:5] = ensemble.window
        numbers[N_PARAMETERS:] = ensemble.table
    return numbers


def from_array(numbers: NDArray[np.float64], edges: NDArray[np.float64]) -> Ensemble:
    """Return the ensemble that `to_array` converted; `edges` are the run's bin edges."""
    beta, kappa, z0 = map(float, numbers[:3])
    if np.isnan(beta):
        return Tabulated(edges, (int(numbers[3]), int(numbers[4])), numbers[N_PARAMETERS:])
    return of_parameters(beta, kappa, z0)


def of_parameters(beta: float, kappa: float, z0: float) -> Canonical | Gaussian:
    """Return the ensemble with log-weight -beta z - kappa (z - z0)^2 / 2 (kappa = 0: canonical)."""
    return Gaussian(beta, kappa, z0) if kappa else Canonical(beta)


def stacked(numbers: Any) -> Canonical | Gaussian:
    """Return the ensembles of many rows as one, given beta, kappa and z0 of each row, [3, ...].

    Its numbers are arrays or tensors, so that `log_weight` has the bits of each row's own ensemble.
    """
    beta, kappa, z0 = numbers
    return Gaussian(beta, kappa, z0) if kappa.any() else Canonical(beta)


def parameters_of(ensemble: Ensemble) -> tuple[float, float, float]:
    """Return beta (NaN if flat), kappa and z0 of an ensemble; kappa = z0 = 0 if not Gaussian."""
    if isinstance(ensemble, Gaussian):
        return ensemble.beta, ensemble.kappa, ensemble.z0
    return ensemble.beta, 0.0, 0.0
