"""The gradient of a model's output, row by row, as the gradient kernels use it for proposals.

g[w, i, v] = dz / d one_hot(x)[w, i, v]. The difference g[i, v] - g[i, x_i] estimates the change of
z when site i is set to value v.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from omniinput_hpc.errors import UserError
from omniinput_hpc.kernels.state import accept
from omniinput_hpc.models import Model, law_of, offers_of
from omniinput_hpc.models.checked import compare, watch, watch_law

CHUNK_ELEMENTS = 1 << 22
"""Elements of a gradient that a GPU processes at once: 16 MB in float32, for any V and D."""
CPU_CHUNK_ELEMENTS = 1 << 20
"""The same on a CPU: 4 MB stay in its caches, and the allocator keeps them."""
MAX_DENSE_ELEMENTS = 1 << 24
"""Elements of a gradient above which its factors are stored instead, if the model has them."""


class Gradient(Protocol):
    """The gradient of a batch; its storage may be far smaller than [W, D, n_values]."""

    def rows(self, begin: int, end: int) -> torch.Tensor:
        """Return g of sites begin to end - 1, [W, end - begin, n_values]."""
        ...

    def at(self, site: torch.Tensor) -> torch.Tensor:
        """Return g of one site of each walker, [W, n_values], given the sites, int64 [W]."""
        ...

    def where(self, accepted: torch.Tensor, other: Any) -> Any:
        """Return this gradient for `accepted` walkers, bool [W], and `other` for the rest."""
        ...


@dataclass(frozen=True)
class Dense:
    """A gradient stored in full, g [W, D, n_values]."""

    g: torch.Tensor

    def rows(self, begin: int, end: int) -> torch.Tensor:
        """Return g of some sites."""
        return self.g[:, begin:end]

    def at(self, site: torch.Tensor) -> torch.Tensor:
        """Return g of one site of each walker."""
        return self.g[torch.arange(len(site), device=site.device), site]

    def where(self, accepted: torch.Tensor, other: Dense) -> Dense:
        """Return this gradient for accepted walkers, and `other` for the rest."""
        return Dense(accept(accepted, self.g, other.g))


@dataclass(frozen=True)
class Factored:
    """A gradient in factors: g[w, i, v] = e[w, i] @ embedding[v] + t[w, i, v].

    Attributes
    ----------
    target_rows : returns t of one site per walker from (rest, site), see `models.protocol.Factors`
    embedding : [n_values, E]
    e : [W, D, E]
    rest : tensors whose first axis is W
    """

    target_rows: Callable[[tuple[torch.Tensor, ...], torch.Tensor], torch.Tensor]
    embedding: torch.Tensor
    e: torch.Tensor
    rest: tuple[torch.Tensor, ...]

    def rows(self, begin: int, end: int) -> torch.Tensor:
        """Return g of some sites."""
        site = torch.empty(len(self.e), dtype=torch.int64, device=self.e.device)
        targets = [self.target_rows(self.rest, site.fill_(t)) for t in range(begin, end)]
        return torch.stack(targets, dim=1).add_(self.e[:, begin:end] @ self.embedding.T)

    def at(self, site: torch.Tensor) -> torch.Tensor:
        """Return g of one site of each walker."""
        e = self.e[torch.arange(len(site), device=site.device), site]  # [W, E]
        target: torch.Tensor = self.target_rows(self.rest, site)
        return torch.addmm(target, e, self.embedding.T)

    def where(self, accepted: torch.Tensor, other: Factored) -> Factored:
        """Return this gradient for accepted walkers, and `other` for the rest."""
        rest = zip(self.rest, other.rest, strict=True)
        return Factored(
            self.target_rows,
            self.embedding,
            accept(accepted, self.e, other.e),
            tuple(accept(accepted, a, b) for a, b in rest),
        )


@dataclass(frozen=True)
class UnderLaw:
    """The gradient of z beside that of the law of inputs, and ln q.

    Attributes
    ----------
    of_z : of z
    of_law : of -ln q, or about (`Law.gradient`)
    log_q : float64 [W], ln q(x)
    """

    of_z: Gradient
    of_law: Dense
    log_q: torch.Tensor

    def rows(self, begin: int, end: int) -> torch.Tensor:
        """Return g of z at some sites."""
        return self.of_z.rows(begin, end)

    def at(self, site: torch.Tensor) -> torch.Tensor:
        """Return g of z at one site of each walker."""
        return self.of_z.at(site)

    def where(self, accepted: torch.Tensor, other: UnderLaw) -> UnderLaw:
        """Return this gradient for accepted walkers, and `other` for the rest."""
        of_law = self.of_law.where(accepted, other.of_law)
        of_z = self.of_z.where(accepted, other.of_z)
        return UnderLaw(of_z, of_law, accept(accepted, self.log_q, other.log_q))


@dataclass(frozen=True)
class Sum:
    """The gradient of slope * z - ln q."""

    of_z: Gradient
    of_law: Dense
    slope: torch.Tensor  # [W]

    def rows(self, begin: int, end: int) -> torch.Tensor:
        """Return g of some sites."""
        rows = self.of_z.rows(begin, end)
        slope = self.slope.to(rows.dtype)[:, None, None]
        return torch.addcmul(self.of_law.rows(begin, end), rows, slope)

    def at(self, site: torch.Tensor) -> torch.Tensor:
        """Return g of one site of each walker."""
        rows = self.of_z.at(site)
        return torch.addcmul(self.of_law.at(site), rows, self.slope.to(rows.dtype)[:, None])

    def where(self, accepted: torch.Tensor, other: Sum) -> Sum:
        """Return this gradient for accepted walkers, and `other` for the rest."""
        of_z = self.of_z.where(accepted, other.of_z)
        of_law = self.of_law.where(accepted, other.of_law)
        return Sum(of_z, of_law, accept(accepted, self.slope, other.slope))


class Differentiable:
    """Evaluates the gradient of a model, in factors if it would be large.

    Under a law of inputs, proposals follow the gradient of slope * z - ln q.

    Raises a `UserError` that names `kernel` if the model has no gradient.
    """

    def __init__(self, model: Model, kernel: str) -> None:
        offers = offers_of(model)
        if offers.output_and_gradient is None:
            raise UserError(
                f'kernel.name = "{kernel}" needs a model with output_and_gradient, which this one '
                'lacks; choose "metropolis"'
            )
        why = offers.without_gradient()
        if why:
            raise UserError(
                f'kernel.name = "{kernel}" needs the gradient of z, which this model does not '
                f'offer: {why}; choose "metropolis"'
            )
        self._output_and_gradient, self._factors = offers.output_and_gradient, offers.factors
        self._model, self._n_sites, self._n_values = model, model.n_sites, model.n_values
        self._law = law_of(model)

    def evaluate(self, x: torch.Tensor) -> tuple[torch.Tensor, Gradient]:
        """Return z [W] and the gradient at x, int64 [W, D]; a `UserError` if its shape is wrong."""
        z, gradient = self._evaluate(x)
        law = self._law
        if law is None or law.gives_z:
            return z, gradient
        log_q = law.log_q(x, z)
        watch_law(self._model, x, log_q)
        return z, UnderLaw(gradient, Dense(law.gradient(x)), log_q)

    def force(self, gradient: Gradient, slope: torch.Tensor) -> tuple[Gradient, torch.Tensor]:
        """Return a gradient and a slope [W] whose product proposals follow, given those of z."""
        law = self._law
        if law is None:
            return gradient, slope
        if law.gives_z:
            return gradient, slope + law.beta
        assert isinstance(gradient, UnderLaw)
        return Sum(gradient.of_z, gradient.of_law, slope), torch.ones_like(slope)

    def log_q_ratio(
        self, z: torch.Tensor, gradient: Gradient, z_new: torch.Tensor, new: Gradient
    ) -> torch.Tensor | float:
        """Return ln q(x') - ln q(x), float64 [W], given outputs and gradients; 0 without a law."""
        law = self._law
        if law is None:
            return 0.0
        if law.gives_z:
            return float(law.beta) * (z.double() - z_new.double())
        assert isinstance(gradient, UnderLaw) and isinstance(new, UnderLaw)
        return new.log_q - gradient.log_q

    def _evaluate(self, x: torch.Tensor) -> tuple[torch.Tensor, Gradient]:
        if self._factors is not None and x.numel() * self._n_values > MAX_DENSE_ELEMENTS:
            embedding = self._factors.embedding()
            if embedding is not None:
                z, e, rest = self._factors.output_and_factors(x)
                return z, Factored(self._factors.target_rows, embedding, e, rest)
        z, g = self._output_and_gradient(x)
        shape = (*x.shape, self._n_values)
        if tuple(g.shape) != shape or tuple(z.shape) != shape[:1]:
            raise UserError(
                f"the model's output_and_gradient(x) must return z {list(shape[:1])} and a "
                f"gradient {list(shape)} for x {list(x.shape)}, found {list(z.shape)} and "
                f"{list(g.shape)}"
            )
        return z, Dense(g)

    def watch(self, x: torch.Tensor, log_p: torch.Tensor) -> None:
        """Let the model check log-probabilities [W] of moves from x, made of the gradient at x.

        If they are NaN, so is the gradient, or infinite: no move from or to x would be accepted.
        """
        watch(self._model, x, log_p.clamp(-1.0, 1.0), "gradient")

    def evaluate_again(self, x: torch.Tensor, z: torch.Tensor) -> Gradient:
        """Return the gradient at x, int64 [W, D]; compare the known z [W] with its evaluation.

        It is a copy: a user's model may write every gradient into one tensor.
        """
        z_again, gradient = self.evaluate(x)
        compare(self._model, x, z, z_again)
        everywhere = torch.ones(len(x), dtype=torch.bool, device=x.device)
        copied: Gradient = gradient.where(everywhere, gradient)
        return copied

    def chunks(self, x: torch.Tensor) -> Iterator[tuple[int, int]]:
        """Yield (begin, end) of runs of sites of x [W, D] whose rows have a bounded size."""
        most = CPU_CHUNK_ELEMENTS if x.is_cpu else CHUNK_ELEMENTS
        width = max(1, most // (len(x) * self._n_values))
        for begin in range(0, self._n_sites, width):
            yield begin, min(begin + width, self._n_sites)
