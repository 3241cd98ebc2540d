"""The Ising model on a square lattice with periodic ends, as a user gives a model of their own."""

from __future__ import annotations

from functools import cache

import numpy as np
import torch


class IsingModel:
    """z = - (sum over pairs of neighbours of s s') / D, with spins s = 2 x - 1 and D = side^2."""

    n_values = 2
    batch_invariant = True

    def __init__(self, side: int) -> None:
        self.side, self.n_sites = side, side**2
        at = torch.arange(self.n_sites).view(side, side)
        rolls = [at.roll(by, axis) for axis in (0, 1) for by in (1, -1)]
        self.neighbours = torch.stack(rolls, dim=2).view(-1, 4)  # int64 [D, 4]

    def _spins(self, x: torch.Tensor) -> torch.Tensor:
        return (2 * x.float() - 1).view(-1, self.side, self.side)

    def output(self, x: torch.Tensor) -> torch.Tensor:
        """Return z, float32 [W]: whole numbers over D."""
        s = self._spins(x)
        z = -(s * (s.roll(1, 1) + s.roll(1, 2))).sum((1, 2)) / self.n_sites
        return z + 0.0  # for zero has two representations, and a sum of changes has this one

    def output_and_gradient(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return z and its gradient, float32 [W, D, 2]."""
        s = self._spins(x)
        before = s.roll(1, 1) + s.roll(1, 2)
        z = -(s * before).sum((1, 2)) / self.n_sites
        up = -(before + s.roll(-1, 1) + s.roll(-1, 2)).flatten(1) / self.n_sites
        return z, up[..., None] * torch.tensor([-1.0, 1.0])

    def change(self, x: torch.Tensor, site: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        """Return how z changes where a site of each input gets a value, float32 [W]."""
        around = 2 * x.gather(1, self.neighbours[site]).sum(dim=1) - 4  # sum of s', [W]
        turned = 2 * (value - x.gather(1, site[:, None])[:, 0])
        return -(turned * around).float() / self.n_sites


class WrongIsing(IsingModel):
    """The model, but that `change` is wrong, as `kind` says.

    "sign", "corner" (one site), "ordered" (where nearly all spins are alike), "nan"; "shape",
    "type", "writes" are no numbers that could be compared.
    """

    def __init__(self, side: int, kind: str) -> None:
        super().__init__(side)
        self.kind = kind

    def change(self, x: torch.Tensor, site: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        """Return what is wrong."""
        dz = super().change(x, site, value)
        wrong = {
            "sign": lambda: -dz,
            "corner": lambda: torch.where(site == 0, 0.5 * dz, dz),
            "ordered": lambda: torch.where(self._alike(x), dz + 1e-3, dz),
            "nan": lambda: torch.where(self._alike(x), torch.nan, dz),
            "shape": lambda: dz[:, None],
            "type": lambda: dz.long(),
            "writes": lambda: (x.zero_(), dz)[1],
        }
        return wrong[self.kind]()

    def _alike(self, x: torch.Tensor) -> torch.Tensor:
        return (x.double().mean(dim=1) - 0.5).abs() > 0.4


class WholeIsing:
    """The same without `change`."""

    batch_invariant = True

    def __init__(self, side: int) -> None:
        model = IsingModel(side)
        self.n_sites, self.n_values = model.n_sites, model.n_values
        self.output, self.output_and_gradient = model.output, model.output_and_gradient


def make(side: int = 20, device: str = "cpu") -> IsingModel:
    """Return the model, on a CPU."""
    return IsingModel(side)


def make_whole(side: int = 20, device: str = "cpu") -> WholeIsing:
    """Return the model without `change`, on a CPU."""
    return WholeIsing(side)


def make_plain(side: int = 20, device: str = "cpu") -> WholeIsing:
    """Return the model without `change`, which does not say that it is batch-invariant."""
    model = WholeIsing(side)
    model.batch_invariant = False
    return model


def make_variant(side: int = 20, device: str = "cpu") -> WholeIsing:
    """Return a model that wrongly says so: the last digit of z depends on the number of rows."""
    model = WholeIsing(side)
    output = model.output
    model.output = lambda x: output(x) * (1.0 + 1e-7 * (len(x) % 2))
    return model


def make_wrong(kind: str, side: int = 10, device: str = "cpu") -> WrongIsing:
    """Return the model with a wrong `change`, on a CPU."""
    return WrongIsing(side, kind)


class CompiledIsing(IsingModel):
    """The model with a change of one input that numba compiles, and `change` made of it.

    `kind` says what is wrong with the former: "sign", "nan" (where nearly all spins are alike),
    "method" (not compiled), "types" (numba cannot compile it); "" for nothing.
    """

    def __init__(self, side: int, kind: str = "") -> None:
        from numba import njit

        from omniinput_hpc.models.compiled_change import as_change

        super().__init__(side)
        neighbours, n_sites = self.neighbours.numpy(), self.n_sites
        factor = (2.0 if kind == "sign" else -2.0) / n_sites
        nan = kind == "nan"

        @njit
        def compiled_change(x, site, value):  # type: ignore[no-untyped-def]
            around = -4
            for neighbour in neighbours[site]:
                around += 2 * x[neighbour]
            if nan and abs(x.sum() - 0.5 * n_sites) > 0.4 * n_sites:
                return np.nan
            return factor * (value - x[site]) * around

        self.compiled_change = {"method": self.change, "types": njit(lambda x, site: 0.0)}.get(
            kind, compiled_change
        )
        if not kind:
            self.change = as_change(compiled_change)


_compiled = cache(CompiledIsing)


def make_compiled(side: int = 20, kind: str = "", device: str = "cpu") -> CompiledIsing:
    """Return the model with a compiled `change`, on a CPU; a process compiles it once."""
    return _compiled(side, kind)
