"""Models whose exact number of inputs per output is known, to test samplers.

They are custom models like those of a user (``[model] kind = "python"``, ``factory =
"omniinput_hpc.zoo.exact:lattice"``). `Lattice` and `Sites` have independent sites and are counted
by convolution. `Occupation` has a first-order transition and is counted by dynamic programming.
`MarkovChain` and `PassageChain` are language models that can be enumerated. ``python -m
omniinput_hpc.benchmark`` runs the sampling methods on these models.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from math import factorial
from typing import Any

import numpy as np
import scipy
import torch
from numpy.typing import NDArray

from omniinput_hpc.histogram import bin_of

FloatArray = NDArray[np.float64]

SITE_ENERGY = np.array([0, 1, 1, 3, 2])
MAX_ENUMERATED = 1 << 22


class Exact(ABC):
    """A model with a known density."""

    n_sites: int
    n_values: int

    @abstractmethod
    def output(self, x: torch.Tensor) -> torch.Tensor:
        """Return z [W] of inputs, int64 [W, D]."""

    @abstractmethod
    def log_count(self) -> tuple[FloatArray, FloatArray]:
        """Return all outputs that occur, float64 [L], and ln of the number of inputs of each."""

    def log_g(self, edges: FloatArray) -> FloatArray:
        """Return ln of the number of inputs in each bin [B]; -inf for empty bins.

        edges : float64 [B + 1]; bins are half open, except for the last one
        """
        z, log_count = self.log_count()
        bin_l = bin_of(z, edges)
        log_g_b = np.full(len(edges) - 1, -np.inf)
        inside = (bin_l >= 0) & (bin_l < len(log_g_b))
        np.logaddexp.at(log_g_b, bin_l[inside], log_count[inside])
        return log_g_b

    def all_inputs(self) -> torch.Tensor:
        """Return every input, int64 [V^D, D]; a ValueError if there are over 4 million."""
        if self.n_values**self.n_sites > MAX_ENUMERATED:
            raise ValueError(f"{self.n_values}^{self.n_sites} inputs are too many to enumerate")
        return torch.tensor(list(itertools.product(range(self.n_values), repeat=self.n_sites)))

    def render(self, x: torch.Tensor) -> list[str]:
        """Return inputs as text."""
        return ["-".join(map(str, row)) for row in x.tolist()]


class Enumerated(Exact):
    """A model with so few inputs that its density is counted."""

    def log_count(self) -> tuple[FloatArray, FloatArray]:
        """Return outputs and ln of the number of inputs of each, from `all_inputs`."""
        levels, count = np.unique(self._all_outputs(), return_counts=True)
        return levels, np.log(count)

    def log_g(self, edges: FloatArray) -> FloatArray:
        """Return ln of the number of inputs in each bin [B], exact to the last bit."""
        bin_i, n_bins = bin_of(self._all_outputs(), edges), len(edges) - 1
        inside = (bin_i >= 0) & (bin_i < n_bins)
        with np.errstate(divide="ignore"):
            return np.log(np.bincount(bin_i[inside], minlength=n_bins))

    def _all_outputs(self) -> FloatArray:
        return np.asarray(self.output(self.all_inputs()).double().cpu().numpy())


class Lattice(Exact):
    """Independent sites with integer energies times a unit, so that z is exact in float32."""

    def __init__(self, n_sites: int, n_values: int, unit: float, device: Any = "cpu") -> None:
        self.n_sites, self.n_values, self.unit = n_sites, n_values, unit
        self.energy = torch.tensor(SITE_ENERGY[:n_values], dtype=torch.float32, device=device)

    def output(self, x: torch.Tensor) -> torch.Tensor:
        """Return the sum of the sites' energies."""
        return self.energy[x].sum(dim=1) * self.unit

    def log_count(self) -> tuple[FloatArray, FloatArray]:
        """Return levels and ln of counts by convolution."""
        count = np.ones(1)
        for _ in range(self.n_sites):
            count = np.convolve(count, np.bincount(SITE_ENERGY[: self.n_values]))
        levels = np.flatnonzero(count)
        return levels.astype(np.float64) * self.unit, np.log(count[levels])


class Sites(Exact):
    """100 independent sites of 256 values, integer energies 0 to 7; log g spans over 300 nats."""

    n_sites, n_values = 100, 256

    def __init__(self, device: Any = "cpu") -> None:
        self.energy = torch.from_numpy(self._energy()).float().to(device)

    @classmethod
    def _energy(cls) -> NDArray[np.int64]:
        return np.repeat(np.arange(8), [94, 60, 40, 25, 16, 12, 8, 1])

    def output(self, x: torch.Tensor) -> torch.Tensor:
        """Return the sum of the sites' energies."""
        return self.energy[x].sum(dim=1)

    def output_and_gradient(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return z and its gradient, the energy of each value at each site, [W, D, V]."""
        return self.output(x), self.energy.expand(*x.shape, self.n_values)

    def log_count(self) -> tuple[FloatArray, FloatArray]:
        """Return levels and ln of counts by convolution, rescaled at each step."""
        site = np.bincount(self._energy()) / self.n_values
        log_p = np.zeros(1)
        for _ in range(self.n_sites):
            p, shift = np.exp(log_p - log_p.max()), log_p.max()
            with np.errstate(divide="ignore"):
                log_p = np.log(np.convolve(p, site)) + shift
        level = np.flatnonzero(np.isfinite(log_p))
        return level.astype(float), log_p[level] + self.n_sites * np.log(self.n_values)


class Occupation(Exact):
    """z = - sum over values v of n_v (n_v - 1) / 2, where n_v counts v: a first-order transition.

    At beta = 0.339, inputs with all values different and inputs of one value have the same weight,
    with almost nothing between them.
    """

    n_sites, n_values = 25, 64

    def output(self, x: torch.Tensor) -> torch.Tensor:
        """Return minus the number of equal pairs."""
        count = torch.zeros((len(x), self.n_values), device=x.device)
        count.scatter_add_(1, x, torch.ones_like(x, dtype=torch.float32))
        return -(count * (count - 1)).sum(dim=1) / 2

    def log_count(self) -> tuple[FloatArray, FloatArray]:
        """Return levels and ln of counts by dynamic programming: D! / prod n_v! inputs have n_v."""
        d, pairs = self.n_sites, self.n_sites * (self.n_sites - 1) // 2
        ways = np.zeros((d + 1, pairs + 1))  # [sites used, pairs]
        ways[0, 0] = 1.0
        for _ in range(self.n_values):
            more = np.zeros_like(ways)
            for n in range(d + 1):
                p = n * (n - 1) // 2
                more[n:, p:] += ways[: d + 1 - n, : pairs + 1 - p] / factorial(n)
            ways = more
        with np.errstate(divide="ignore"):
            log_count = np.log(ways[d]) + scipy.special.gammaln(d + 1)
        level = np.flatnonzero(log_count > np.log(0.5))
        return -level.astype(float), log_count[level]


class MarkovChain(Enumerated):
    """A language model in which the probabilities of a value depend on the one before it.

    z = - mean over sites 1 .. D-1 of l[x_{t-1}, x_t], where l are log-probabilities. The table is
    made for `forbidden` more values than are allowed, so that its rows sum to less than 1.
    """

    def __init__(
        self, n_sites: int, n_values: int, forbidden: int = 0, spread: float = 1.5,
        device: Any = "cpu",
    ) -> None:  # fmt: skip
        random = np.random.default_rng(11)
        logits = spread * random.normal(size=(n_values + forbidden, n_values + forbidden))
        table = torch.from_numpy(logits).log_softmax(dim=1)[:n_values, :n_values]
        self.table = table.float().to(device)
        self.n_sites, self.n_values, self.predicted_from = n_sites, n_values, 1

    def output(self, x: torch.Tensor) -> torch.Tensor:
        """Return the mean loss of the predicted sites."""
        return -self.table[x[:, :-1], x[:, 1:]].mean(dim=1)

    def conditional_logits(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return z and the log-probabilities of all values, [W, D, V]; 0 at the first site."""
        rows = self.table[x[:, :-1]]
        return self.output(x), torch.cat([torch.zeros_like(rows[:, :1]), rows], dim=1)


class PassageChain(Enumerated):
    """A language model that has memorized a passage, rarely begun and then hardly ever left.

    The first value of the passage has probability `enter`. Each later one has probability `stay` as
    long as the passage was not left. All other values are equally likely.
    """

    def __init__(
        self, n_sites: int, n_values: int, enter: float, stay: float, device: Any = "cpu"
    ) -> None:
        self.n_sites, self.n_values, self.predicted_from = n_sites, n_values, 1
        self.passage = torch.arange(n_sites, device=device) % n_values
        rest = torch.full((n_values,), 1.0, device=device)
        self._begin = self._row(rest, int(self.passage[0]), enter)
        rows = [self._row(rest, int(v), stay) for v in self.passage]
        self._inside = torch.stack(rows)  # [place, V], place: number of its values so far

    @staticmethod
    def _row(rest: torch.Tensor, value: int, probability: float) -> torch.Tensor:
        row = rest * (1.0 - probability) / (len(rest) - 1)
        row[value] = probability
        return row.log()

    def conditional_logits(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return z and the log-probabilities of all values, [W, D, V]; 0 at the first site."""
        place = torch.zeros(len(x), dtype=torch.int64, device=x.device)
        rows = [torch.zeros((len(x), self.n_values), device=x.device)]
        for t in range(self.n_sites - 1):
            follows = (place > 0) & (x[:, t] == self.passage[place])
            begins = (x[:, t] == self.passage[0]).long()
            place = torch.where(follows, place + 1, begins)
            rows.append(torch.where((place > 0)[:, None], self._inside[place], self._begin))
        together = torch.stack(rows, dim=1)
        chosen = together.gather(2, x[:, :, None])[:, 1:, 0]
        return -chosen.mean(dim=1), together

    def output(self, x: torch.Tensor) -> torch.Tensor:
        """Return the mean loss of the predicted sites."""
        return self.conditional_logits(x)[0]


def lattice(device: Any, n_sites: int = 6, n_values: int = 4, unit: float = 0.25) -> Lattice:
    """Return a `Lattice`."""
    return Lattice(n_sites, n_values, unit, device)


def sites(device: Any) -> Sites:
    """Return a `Sites`."""
    return Sites(device)


def occupation(device: Any) -> Occupation:
    """Return an `Occupation`."""
    return Occupation()


def markov(device: Any, n_sites: int = 6, n_values: int = 5, forbidden: int = 0) -> MarkovChain:
    """Return a `MarkovChain`."""
    return MarkovChain(n_sites, n_values, forbidden, device=device)


def passage(
    device: Any, n_sites: int = 7, n_values: int = 6, enter: float = 0.05, stay: float = 0.97
) -> PassageChain:
    """Return a `PassageChain`."""
    return PassageChain(n_sites, n_values, enter, stay, device)
