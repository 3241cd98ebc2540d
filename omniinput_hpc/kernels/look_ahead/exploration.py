"""Draw texts that show where a language model has its probability: memorized, repetitive, ordinary.

The sampler only learns from them, so they need not follow an exact distribution. A memorized text
is rarely begun and then nearly certain. Many short beginnings with an unlikely step are therefore
tried, and those after which the model is most certain are extended to whole texts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from omniinput_hpc.config.kernels import CONTEXT_LENGTH
from omniinput_hpc.kernels.look_ahead.continuations import Texts
from omniinput_hpc.kernels.parts.categorical import pick
from omniinput_hpc.kernels.parts.device_rng import DeviceStream
from omniinput_hpc.kernels.parts.tempered_rows import draw_scaled, log_sums

IntArray = NDArray[np.int64]

Site = tuple[int, torch.Tensor, torch.Tensor | None]
N_BATCHES = 8
"""Number of batches of whole texts."""
N_SHORT_BATCHES = 64
"""Number of batches of beginnings, each as long as a context (`Explorer.context`)."""
N_KINDS = 16
"""Number of kinds of whole texts, see `Explorer.texts`."""


class Prefixes(Protocol):
    """W prefixes of the same length t."""

    def row(self) -> torch.Tensor:
        """Return row t of l, [W, n_values]."""

    def extend(self, values: torch.Tensor) -> None:
        """Append one value, int64 [W]."""


@dataclass(frozen=True)
class Explorer:
    """Draws texts from a model at exponent b.

    Attributes
    ----------
    begin : returns the conditionals of W empty prefixes, given int64 [W, D]
    like : int64 [W, D], gives the shape and the device
    n_values, first : V, and the first predicted site
    b : exponent of the rung
    """

    begin: Callable[[torch.Tensor], Prefixes]
    like: torch.Tensor
    n_values: int
    first: int
    b: float
    stream: DeviceStream

    @property
    def context(self) -> int:
        """Length of a beginning: `CONTEXT_LENGTH`, or D if that is smaller."""
        return min(CONTEXT_LENGTH, self.like.shape[1])

    def sites(self, x: torch.Tensor, n: int) -> Iterator[Site]:
        """Yield the first n sites of empty prefixes, each with random numbers [W] and its row.

        The row, [W, n_values], is None if the site is not predicted. The caller sets x[:, t],
        int64 [W, D], before it asks for the next site.
        """
        prefixes = self.begin(x)
        for t in range(n):
            u = self.stream.uniform(len(x))
            yield t, u, prefixes.row() if t >= self.first else None
            if t + 1 < n:
                prefixes.extend(x[:, t])

    def texts(self) -> Texts:
        """Return `N_BATCHES` times W texts.

        Text i is of kind i % `N_KINDS`. In the first half of the kinds, first values are spread
        evenly, kind % 4 hot steps draw rare values, and the rest is drawn at exponent b (kinds 0 to
        3) or 2 b. Texts of the other kinds begin with one of the beginnings after which the model
        was most certain, or with the end of one.
        """
        surest = torch.from_numpy(self.surest()).to(self.like.device)
        return self._extended(surest, surest, N_BATCHES)

    def _extended(self, seeds: torch.Tensor, surest: torch.Tensor, n_batches: int) -> Texts:
        """Return `n_batches` times W texts, given seeds and surest beginnings; see `texts`."""
        found = [self._batch((i, n_batches), seeds, surest) for i in range(n_batches)]
        x, log_p, log_z = (torch.cat(parts).cpu().numpy() for parts in zip(*found, strict=True))
        return Texts(x, log_p, log_z, np.arange(len(x)) % N_KINDS == 0)

    def surest(self) -> IntArray:
        """Return W beginnings with the sharpest rows after their hot steps, [W, context]."""
        found = [self._beginnings(i) for i in range(N_SHORT_BATCHES)]
        x, sure = (torch.cat(parts).cpu().numpy() for parts in zip(*found, strict=True))
        values, first = np.unique(x, axis=0, return_index=True)
        best = np.argsort(-sure[first], kind="stable")
        return np.asarray(values[np.resize(best, len(self.like))])

    def _beginnings(self, batch: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return W beginnings and the sums of ln Z at b after their hot steps, float64 [W]."""
        x = torch.zeros_like(self.like)
        number = torch.arange(len(x), device=x.device) + batch * len(x)
        sure = torch.zeros(len(x), dtype=torch.float64, device=x.device)
        hot = 0.5 * self.b * self.stream.uniform(len(x)) * (number % 2)
        own = torch.full_like(hot, self.b)
        for t, u, row in self.sites(x, self.context):
            if row is None:
                x[:, t] = self._first_value(t, number, N_SHORT_BATCHES, u)
            else:
                x[:, t], _ = draw_scaled(row, hot if t == self.first else 2.0 * own, u)
                if t > self.first:
                    sure += log_sums(row, own)
        return x[:, : self.context], sure

    def _first_value(
        self, t: int, number: torch.Tensor, n_batches: int, u: torch.Tensor
    ) -> torch.Tensor:
        """Draw values of a site t that is not predicted, spread evenly if t is 0."""
        even = (number + u) / (n_batches * len(u)) if t == 0 else u
        return (even * self.n_values).long()

    def _batch(
        self, batch_of: tuple[int, int], seeds: torch.Tensor, surest: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return W texts, int64 [W, D], and l and ln Z at b at their sites, float64 [W, D].

        batch_of : the number of the batch, and that of all batches
        """
        batch, n_batches = batch_of
        x = torch.zeros_like(self.like)
        n_walkers, n_sites = x.shape
        log_p = torch.zeros(x.shape, dtype=torch.float64, device=x.device)
        log_z = torch.zeros_like(log_p)
        number = torch.arange(n_walkers, device=x.device) + batch * n_walkers
        kind = number % N_KINDS
        hot = 0.5 * self.b * self.stream.uniform(n_walkers)
        own = torch.full_like(hot, self.b)
        cold = torch.where(kind < 4, own, 2.0 * own)
        begun, begins = self._begins(kind, seeds, surest)
        for t, u, row in self.sites(x, n_sites):
            if row is None:
                x[:, t] = self._first_value(t, number, n_batches, u)
            else:
                is_hot = (t - self.first < kind % 4) & (begun == 0)
                x[:, t], _ = draw_scaled(row, torch.where(is_hot, hot, cold), u)
            if t < self.context:
                x[:, t] = torch.where(t < begun, begins[:, t], x[:, t])
            if row is not None:
                log_p[:, t], log_z[:, t] = pick(row, x[:, t]), log_sums(row, own)
        return x, log_p, log_z

    def _begins(
        self, kind: torch.Tensor, seeds: torch.Tensor, surest: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return how many given values each text begins with, [W], and the values, [W, context]."""
        length = 1 + (self.context * self.stream.uniform(len(kind))).long()
        of_seed = seeds[(self.stream.uniform(len(kind)) * len(seeds)).long()]
        of_surest = surest[(self.stream.uniform(len(kind)) * len(surest)).long()]
        at = torch.arange(self.context, device=kind.device) - length[:, None]
        ends = of_seed.gather(1, at % self.context)  # the last `length` values come first
        sure = kind >= 3 * N_KINDS // 4
        begun = torch.where(sure, self.context, length)
        begun = torch.where(kind < N_KINDS // 2, 0, begun)
        return begun, torch.where(sure[:, None], of_surest, ends)
