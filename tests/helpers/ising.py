"""The Ising model on a square lattice with periodic ends, as a user gives a model of their own."""

from __future__ import annotations

import torch


class IsingModel:
    """z = - (sum over pairs of neighbours of s s') / D, with spins s = 2 x - 1 and D = side^2."""

    n_values = 2

    def __init__(self, side: int) -> None:
        self.side, self.n_sites = side, side**2

    def _spins(self, x: torch.Tensor) -> torch.Tensor:
        return (2 * x - 1).view(-1, self.side, self.side).float()

    def output(self, x: torch.Tensor) -> torch.Tensor:
        """Return z, float32 [W]: whole numbers over D."""
        s = self._spins(x)
        return -(s * (s.roll(1, 1) + s.roll(1, 2))).sum((1, 2)) / self.n_sites

    def output_and_gradient(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return z and its gradient, float32 [W, D, 2]."""
        s = self._spins(x)
        before = s.roll(1, 1) + s.roll(1, 2)
        z = -(s * before).sum((1, 2)) / self.n_sites
        up = -(before + s.roll(-1, 1) + s.roll(-1, 2)).flatten(1) / self.n_sites
        return z, torch.stack([-up, up], dim=2)


def make(side: int = 20, device: str = "cpu") -> IsingModel:
    """Return the model, which computes where its inputs are."""
    return IsingModel(side)
