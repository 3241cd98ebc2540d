"""Beam search for the likeliest beginnings of texts, and how certain the model is after each.

Random draws would find the common beginnings again and again; here each is visited once. Level by
level, the likeliest beginnings are extended by every value, as many as the budget has steps for.
First values count as equally likely.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from omniinput_hpc.config.kernels import CONTEXT_LENGTH
from omniinput_hpc.kernels.look_ahead.continuations import NOTHING
from omniinput_hpc.kernels.look_ahead.exploration import Explorer
from omniinput_hpc.kernels.parts.tempered_rows import log_sums

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]

SHARES = (0.05, 0.1, 0.35, 0.5)
"""Shares of the steps for beginnings of 1, 2, ... values; unused steps go to longer ones."""
TIES = 0.01
"""Random nats, at most, that are added to break ties between equally likely beginnings."""


class Beginnings(Explorer):
    """Searches beginnings of up to `CONTEXT_LENGTH` values."""

    def met(self, first_values: IntArray, n_steps: int) -> tuple[IntArray, FloatArray]:
        """Return beginnings of two or more values, [n, CONTEXT_LENGTH], and ln Z after each, [n].

        Parameters
        ----------
        first_values : int64 [n], values to begin with; the last ones are dropped if n is too large
        n_steps : the budget; a beginning of k values costs k steps
        """
        steps = n_steps * np.cumsum(SHARES)
        x = torch.from_numpy(first_values[: max(1, int(steps[0]))]).to(self.like.device)[:, None]
        log_p = torch.zeros(len(x), dtype=torch.float64, device=x.device)
        met, sure, used = [_padded(x[:0])], [np.zeros(0)], 0
        for length in range(1, CONTEXT_LENGTH + 1):
            used += length * len(x)
            longest = length == CONTEXT_LENGTH
            room = 0 if longest else max(1, int((steps[length] - used) / (length + 1)))
            best = _Best(room, x.new_zeros((0, length + 1)), log_p[:0])
            for some, row in self._rows_after(x):
                if length > 1:
                    met.append(_padded(x[some]))
                    sure.append(log_sums(row, torch.full_like(log_p[some], self.b)).cpu().numpy())
                if not longest:
                    best.add(*self._lengthened(x[some], log_p[some], row, room))
            x, log_p = best.x, best.log_p
        return np.concatenate(met), np.concatenate(sure)

    def _rows_after(self, x: torch.Tensor) -> Iterator[tuple[slice, torch.Tensor]]:
        """Yield slices of the beginnings x, [n, k], and the rows that follow these, [n', V]."""
        n_walkers = len(self.like)
        for begin in range(0, len(x), n_walkers):
            some = slice(begin, min(begin + n_walkers, len(x)))
            row = self._row(x[torch.arange(begin, begin + n_walkers, device=x.device) % len(x)])
            yield some, row[: some.stop - begin]

    def _row(self, x: torch.Tensor) -> torch.Tensor:
        """Return the row after W beginnings x [W, k]; zeros if the next site is not predicted."""
        if x.shape[1] < self.first:
            return torch.zeros((len(x), self.n_values), device=x.device)
        prefixes = self.begin(torch.zeros_like(self.like))
        for values in x.T:
            prefixes.extend(values)
        return prefixes.row()

    def _lengthened(
        self, x: torch.Tensor, log_p: torch.Tensor, row: torch.Tensor, room: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Extend beginnings by every value; return the likeliest, at most `room`, and ln p."""
        ties = self.stream.uniform(self.n_values) + self.stream.uniform(len(x))[:, None]
        all_log_p = log_p[:, None] + row + TIES * ties.frac_()
        best_log_p, best = all_log_p.view(-1).topk(min(room, all_log_p.numel()))
        best = best[best_log_p > -torch.inf]
        parent, value = best // self.n_values, best % self.n_values
        longer = torch.cat([x[parent], value[:, None]], dim=1)
        return longer, all_log_p[parent, value]


@dataclass
class _Best:
    """The likeliest beginnings so far: x, int64 [n, k], and log_p, float64 [n], with n <= room."""

    room: int
    x: torch.Tensor
    log_p: torch.Tensor

    def add(self, x: torch.Tensor, log_p: torch.Tensor) -> None:
        """Add beginnings, and keep only the likeliest."""
        self.x, self.log_p = torch.cat([self.x, x]), torch.cat([self.log_p, log_p])
        if len(self.x) > self.room:
            self.log_p, best = self.log_p.topk(self.room)
            self.x = self.x[best]


def _padded(x: torch.Tensor) -> IntArray:
    """Return beginnings [n, k] as contexts [n, CONTEXT_LENGTH]."""
    before = ((0, 0), (CONTEXT_LENGTH - x.shape[1], 0))
    return np.pad(x.cpu().numpy(), before, constant_values=NOTHING)
