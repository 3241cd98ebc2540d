"""Texts that end, ``[space] end``: the output of a text is the mean loss of its own tokens.

After the end token only the end token may follow. It is then certain, and adds nothing to the loss.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import torch

from omniinput_hpc.errors import UserError
from omniinput_hpc.models.display import lengths, shown_until
from omniinput_hpc.models.outputs.of_base import SameInputs
from omniinput_hpc.models.protocol import Draws, Model, space_of


class Ended(SameInputs):
    """A language model whose inputs are texts of at most D tokens.

    z is the mean loss of the predicted tokens up to the first end token, and with it. Rows of l
    after it are 0 for the end token and -inf for others. With normalized rows, texts therefore
    have probabilities that sum to 1, but these are not exp(-m z). Inputs that go on after the end
    have the z of what stands before it.

    Parameters
    ----------
    base : has ``conditional_logits``
    end : the value that ends a text
    is_text : whether ``render`` of the base shows parts of inputs, too

    Attributes
    ----------
    end : the value that ends a text
    predicted_from : the first predicted site, where the end may stand at the earliest
    """

    def __init__(self, base: Model, end: int, is_text: bool) -> None:
        super().__init__(base)
        (self._base,) = self._offers
        if self._base.conditional_logits is None:
            raise UserError(
                "space.end needs a model with conditional_logits, since z is the mean loss of a "
                "text's own tokens; this one has none"
            )
        self._rows_of, self._is_text, self.end = self._base.conditional_logits, is_text, end
        self.predicted_from = self._base.predicted_from
        self._caches: dict[str, EndedCache] = {}
        if self._base.output_and_gradient is not None:
            self.output_and_gradient = self._output_and_gradient

    def output(self, x: torch.Tensor) -> torch.Tensor:
        """Return z, float32 [W], of x, int64 [W, D]."""
        if self._base.draws is None:
            return self._z(x, self._rows_of(x)[1])
        cache: Any = self._base.draws.kv_cache(len(x))
        cache.output(x)
        return self.own_mean(x, cache.losses())

    def conditional_logits(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return z [W] and l [W, D, n_values] of inputs [W, D]."""
        rows = self._rows_of(x)[1]
        return self._z(x, rows), self.certain(rows, self.is_over(x))

    def _z(self, x: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        return self.own_mean(x, -rows.gather(2, x[:, :, None])[:, self.predicted_from :, 0])

    def own_mean(self, x: torch.Tensor, loss: torch.Tensor) -> torch.Tensor:
        """Return the mean over a text's own sites of losses of the predicted ones, [W, m]."""
        over = self.is_over(x)[:, self.predicted_from :]
        return loss.masked_fill(over, 0.0).sum(dim=1) / self.n_own(x)

    def n_own(self, x: torch.Tensor) -> torch.Tensor:
        """Return the number of predicted sites of each text, float32 [W]."""
        own = ~self.is_over(x)[:, self.predicted_from :]
        return own.sum(dim=1).clamp(min=1).float()  # 0 only outside the space

    def is_over(self, x: torch.Tensor) -> torch.Tensor:
        """Return whether the end stands before a site, bool [W, D]."""
        is_end = (x == self.end).int()
        return is_end.cumsum(dim=1) > is_end

    def certain(self, rows: torch.Tensor, over: torch.Tensor) -> torch.Tensor:
        """Return rows [..., n_values] in which the end token is certain where `over` [...]."""
        rows = rows.masked_fill(over[..., None], -torch.inf)
        rows[..., self.end].masked_fill_(over, 0.0)
        return rows

    def _output_and_gradient(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return z [W], and for proposals about its gradient, [W, D, n_values].

        It is that of the mean loss over all sites, scaled: exact for texts that do not end.
        """
        assert self._base.output_and_gradient is not None
        g = self._base.output_and_gradient(x)[1]
        scale = (self.n_sites - self.predicted_from) / self.n_own(x)
        g = g * scale.to(g.dtype)[:, None, None]
        return self.output(x), g.masked_fill_(self.is_over(x)[..., None], 0.0)

    @property
    def without_gradient(self) -> str:
        """Why the model has no gradient; "" if it has one."""
        return self._base.without_gradient()

    @property
    def kv_cache(self) -> Callable[[int], EndedCache] | None:
        """Return the function that makes the KV cache of W inputs; None without one."""
        make = self._base.kv_cache
        return None if make is None else partial(self._cache, "shared", make)

    @property
    def draws(self) -> Draws | None:
        """The record for drawing inputs with a KV cache; None without one."""
        draws = self._base.draws
        if draws is None:
            return None
        make: Any = partial(self._cache, "drawing", draws.kv_cache)
        return Draws(make, draws.n_together)

    def _cache(self, use: str, make: Callable[[int], Any], n_walkers: int) -> EndedCache:
        """Return the cache for a use; one of another size is dropped before `make` is called."""
        known = self._caches.pop(use, None)
        known = None if known is None or known.n_walkers != n_walkers else known
        base = make(n_walkers)
        self._caches[use] = (
            EndedCache(self, base) if known is None or known.base is not base else known
        )
        return self._caches[use]

    @property
    def render(self) -> Callable[[torch.Tensor], list[Any]] | None:
        """What a person sees of inputs, up to the end; None if the base does not offer it."""
        render = self._base.render
        if render is None or not self._is_text:
            return render
        return lambda x: shown_until(render, x, lengths(x.cpu().numpy(), self.end))


class EndedCache:
    """The KV cache of a base model, with the rows and the z of texts that end; see `KVCache`."""

    def __init__(self, model: Ended, base: Any) -> None:
        self._model, self.base, self.n_walkers = model, base, base.n_walkers
        self._x = self._new = torch.empty(0)
        self._t = 0

    @property
    def version(self) -> int:
        """Incremented whenever the cache changes."""
        return int(self.base.version)

    def load(self, x: torch.Tensor) -> None:
        """Make inputs, int64 [W, D], current."""
        self.base.load(x)
        self._x = x.clone()

    def evaluate(self, x: torch.Tensor) -> torch.Tensor:
        """Make inputs, int64 [W, D], current; return z [W]."""
        self.base.evaluate(x)
        self._x = x.clone()
        return self._model.own_mean(x, self.base.losses())

    def propose(self, x: torch.Tensor, t: int) -> torch.Tensor:
        """Evaluate inputs, int64 [W, D], that equal the current ones before site t; return z."""
        self.base.propose(x, t)
        self._new = x.clone()
        return self._model.own_mean(x, self.base.losses())

    def begin(self, t: int) -> None:
        """Begin proposals that equal the current inputs before site t."""
        self.base.begin(t)
        self._new, self._t = self._x.clone(), t

    def begin_anew(self) -> None:
        """Begin proposals that share nothing with the current inputs."""
        self.base.begin_anew()
        self._new, self._t = torch.empty(0), 0

    def row(self) -> torch.Tensor:
        """Return l of the proposals' next site, [W, n_values]."""
        row: torch.Tensor = self.base.row()
        if not self._t:
            return row
        return self._model.certain(row, (self._new[:, : self._t] == self._model.end).any(dim=1))

    def extend(self, values: torch.Tensor) -> None:
        """Append one value to each proposal, int64 [W]."""
        self.base.extend(values)
        self._append(values[:, None])

    def rows_after(self, values: torch.Tensor) -> Iterator[torch.Tensor]:
        """Append values, int64 [W, k]; yield l of the site after each, as [k', W, n_values]."""
        begin = self._t + 1
        self._append(values)
        x = torch.nn.functional.pad(self._new[:, : self._t], (0, 1))
        yield from self._certain(self.base.rows_after(values), x, begin)

    def current_rows(self, begin: int, end: int) -> Iterator[torch.Tensor]:
        """Yield l of the current inputs at sites begin to end - 1, in parts [k', W, n_values]."""
        yield from self._certain(self.base.current_rows(begin, end), self._x, begin)

    def accept(self, accepted: torch.Tensor) -> None:
        """Make accepted proposals, bool [W], the current inputs."""
        self.base.accept(accepted)
        self._x = torch.where(accepted[:, None], self._new, self._x)

    def _append(self, values: torch.Tensor) -> None:
        """Write values, int64 [W, k], to the next sites of the proposals."""
        if not self._new.numel():
            sites = self._model.n_sites
            self._new = values.new_zeros((len(values), sites))
        begin, self._t = self._t, self._t + values.shape[1]
        self._new[:, begin : self._t] = values

    def _certain(
        self, blocks: Iterator[torch.Tensor], x: torch.Tensor, t: int
    ) -> Iterator[torch.Tensor]:
        """Yield blocks of rows [k, W, n_values] of sites from t on of inputs x."""
        over = self._model.is_over(x).T  # [D, W]
        for rows in blocks:
            yield self._model.certain(rows, over[t : t + len(rows)])
            t += len(rows)


def of_ids(base: Model, end: int, is_text: bool) -> Ended:
    """Return a model whose texts end with the value of an id; a `UserError` if it has none."""
    value = int(space_of(base).to_values(np.array([end]))[0])
    if not 0 <= value < base.n_values:
        raise UserError(f"space.end = {end} is not among the values that sites may take")
    return Ended(base, value, is_text)
