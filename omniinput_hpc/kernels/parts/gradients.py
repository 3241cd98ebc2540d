"""The gradient of a model's output, row by row: what the gradient kernels propose from.

g[w, i, v] = dz / d one_hot(x)[w, i, v]; g[i, v] - g[i, x_i] estimates the change of z when site i
gets value v.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from omniinput_hpc.errors import UserError
from omniinput_hpc.kernels.state import accept
from omniinput_hpc.models import Model
from omniinput_hpc.models.checked import watch

CHUNK = 1 << 22
"""Numbers of a gradient that are worked on at once: 16 MB in float32, whatever V and D."""


LARGE = 1 << 24
"""Numbers of a gradient beyond which its factors are kept instead, where a model has them."""


class Gradient(Protocol):
    """A gradient of a batch: what is kept may be far smaller than [W, D, n_values]."""

    def rows(self, begin: int, end: int) -> torch.Tensor:
        """Return g of sites begin to end - 1, [W, end - begin, n_values]."""
        ...

    def at(self, site: torch.Tensor) -> torch.Tensor:
        """Return g of one site of each walker, int64 [W]: [W, n_values]."""
        ...

    def where(self, accepted: torch.Tensor, other: Any) -> Any:
        """Return this gradient where accepted, bool [W], else the other's."""
        ...


@dataclass(frozen=True)
class Dense:
    """A gradient that is there in full.

    Attributes
    ----------
    g : [W, D, n_values]
    """

    g: torch.Tensor

    def rows(self, begin: int, end: int) -> torch.Tensor:
        """See `Gradient`."""
        return self.g[:, begin:end]

    def at(self, site: torch.Tensor) -> torch.Tensor:
        """See `Gradient`."""
        return self.g[torch.arange(len(site), device=site.device), site]

    def where(self, accepted: torch.Tensor, other: Dense) -> Dense:
        """See `Gradient`."""
        return Dense(accept(accepted, self.g, other.g))


@dataclass(frozen=True)
class Factored:
    """A gradient in factors: g[w, i, v] = e[w, i] @ embedding[v] + t[w, i, v].

    Attributes
    ----------
    model : gives t of a site, ``target_rows(rest, site)``
    embedding : [n_values, E]
    e : [W, D, E]
    rest : tensors whose first axis is W
    """

    model: Any
    embedding: torch.Tensor
    e: torch.Tensor
    rest: tuple[torch.Tensor, ...]

    def rows(self, begin: int, end: int) -> torch.Tensor:
        """See `Gradient`."""
        site = torch.empty(len(self.e), dtype=torch.int64, device=self.e.device)
        targets = [self.model.target_rows(self.rest, site.fill_(t)) for t in range(begin, end)]
        return torch.stack(targets, dim=1).add_(self.e[:, begin:end] @ self.embedding.T)

    def at(self, site: torch.Tensor) -> torch.Tensor:
        """See `Gradient`."""
        e = self.e[torch.arange(len(site), device=site.device), site]  # [W, E]
        target: torch.Tensor = self.model.target_rows(self.rest, site)
        return torch.addmm(target, e, self.embedding.T)

    def where(self, accepted: torch.Tensor, other: Factored) -> Factored:
        """See `Gradient`."""
        rest = zip(self.rest, other.rest, strict=True)
        return Factored(
            self.model,
            self.embedding,
            accept(accepted, self.e, other.e),
            tuple(accept(accepted, mine, its) for mine, its in rest),
        )


def require_gradient(model: Model, kernel: str) -> None:
    """Check that a model has a gradient.

    Raises
    ------
    UserError
        It has none.
    """
    if not callable(getattr(model, "output_and_gradient", None)):
        raise UserError(
            f'kernel.name = "{kernel}" needs a model with output_and_gradient, which this one '
            'lacks; choose "metropolis"'
        )


def evaluate(model: Any, x: torch.Tensor) -> tuple[torch.Tensor, Gradient]:
    """Return z [W] and the gradient at x, int64 [W, D]: in factors where it would be large.

    Raises
    ------
    UserError
        The model's gradient has the wrong shape.
    """
    if x.numel() * model.n_values > LARGE and getattr(model, "embedding", None) is not None:
        z, e, rest = model.output_and_factors(x)
        watch(model, x, z)
        return z, Factored(model, model.embedding, e, rest)
    z, g = model.output_and_gradient(x)
    shape = (*x.shape, model.n_values)
    if tuple(g.shape) != shape or tuple(z.shape) != shape[:1]:
        raise UserError(
            f"the model's output_and_gradient(x) must return z {list(shape[:1])} and a gradient "
            f"{list(shape)} for x {list(x.shape)}, found {list(z.shape)} and {list(g.shape)}"
        )
    return z, Dense(g)


def chunks(shape: torch.Size, n_values: int) -> Iterator[tuple[int, int]]:
    """Yield (begin, end) of runs of sites whose rows are of bounded size; shape is [W, D]."""
    n_walkers, n_sites = shape
    width = max(1, CHUNK // (n_walkers * n_values))
    for begin in range(0, n_sites, width):
        yield begin, min(begin + width, n_sites)
