"""Conditionals of an autoregressive model, row by row, while sites are redrawn in order.

If the model has a KV cache, only the sites after the first changed one are evaluated. Otherwise
``conditional_logits`` evaluates whole inputs, which is slower.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Protocol

import torch

from omniinput_hpc.errors import UserError
from omniinput_hpc.models import Model, Offers, offers_of

if TYPE_CHECKING:
    from omniinput_hpc.models.language.kv_cache import KVCache
    from omniinput_hpc.models.protocol import OutputAndMore


class Conditionals(Protocol):
    """A batch of W prefixes of the same length t, and the rows of l that follow them."""

    def row(self) -> torch.Tensor:
        """Return row t of l, [W, n_values]."""
        ...

    def extend(self, values: torch.Tensor) -> None:
        """Append one value, int64 [W]."""
        ...

    def rows_after(self, values: torch.Tensor) -> Iterator[torch.Tensor]:
        """Append values, int64 [W, k]; yield rows t + 1 to t + k of l in blocks [k', W, V]."""
        ...


class FullPasses:
    """Conditionals from ``conditional_logits``: each row evaluates whole inputs x, int64 [W, D]."""

    def __init__(self, conditional_logits: OutputAndMore, x: torch.Tensor, t: int) -> None:
        self._conditional_logits, self._x, self._t = conditional_logits, x.clone(), t

    def row(self) -> torch.Tensor:
        """Return row t of l, [W, n_values], from one evaluation."""
        return self._rows(self._t, self._t + 1)[:, 0]

    def extend(self, values: torch.Tensor) -> None:
        """Append one value, int64 [W]; nothing is evaluated."""
        self._x[:, self._t] = values
        self._t += 1

    def rows_after(self, values: torch.Tensor) -> Iterator[torch.Tensor]:
        """Append values, int64 [W, k]; yield rows t + 1 to t + k of l."""
        begin, end = self._t, self._t + values.shape[1]
        self._x[:, begin:end] = values
        self._t = end
        yield self._rows(begin + 1, end + 1).transpose(0, 1)

    def _rows(self, begin: int, end: int) -> torch.Tensor:
        return self._conditional_logits(self._x)[1][:, begin:end]


class ByPrefixes:
    """Conditionals from the model's ``begin`` and ``extend``, from the first site on.

    Parameters
    ----------
    offers : must have `prefixes`
    x : int64 [W, D]; only its shape and device are used
    """

    def __init__(self, offers: Offers, x: torch.Tensor) -> None:
        assert offers.prefixes is not None
        self._offers, self._first = offers.prefixes, offers.predicted_from
        self._x, self._t = torch.zeros_like(x), 0
        self._prefixes: Any = None

    def row(self) -> torch.Tensor:
        """Return row t of l, [W, n_values]; site t must be predicted."""
        row: torch.Tensor = self._begun().log_p
        return row

    def extend(self, values: torch.Tensor) -> None:
        """Append one value, int64 [W]."""
        if self._t < self._first:
            self._x[:, self._t] = values
        else:
            self._prefixes = self._offers.extend(self._begun(), values)
        self._t += 1

    def _begun(self) -> Any:
        if self._prefixes is None:
            self._prefixes = self._offers.begin(self._x[:, : self._first])
        return self._prefixes


def begin_anew(offers: Offers, x: torch.Tensor) -> ByPrefixes | FullPasses:
    """Return the conditionals of W empty prefixes without a KV cache; x is int64 [W, D]."""
    if offers.prefixes is not None:
        return ByPrefixes(offers, x)
    assert offers.conditional_logits is not None
    return FullPasses(offers.conditional_logits, x, 0)


def kv_cache_of(offers: Offers, current: KVCache | None, n_walkers: int) -> KVCache | None:
    """Return a KV cache of W inputs, `current` if it fits; None if the model offers none."""
    if current is not None and current.n_walkers == n_walkers:
        return current
    return None if offers.kv_cache is None else offers.kv_cache(n_walkers)


def rows_of(
    conditional_logits: OutputAndMore, kv_cache: KVCache | None, x: torch.Tensor, first: int
) -> Iterator[torch.Tensor]:
    """Evaluate inputs x, int64 [W, D]; yield rows `first` to D - 1 of l in blocks [k, W, V]."""
    if kv_cache is not None:
        kv_cache.load(x)
    yield from current_rows(conditional_logits, kv_cache, x, first, x.shape[1])


def current_rows(
    conditional_logits: OutputAndMore,
    kv_cache: KVCache | None,
    x: torch.Tensor,
    begin: int,
    end: int,
) -> Iterator[torch.Tensor]:
    """Yield rows begin to end - 1 of l of inputs x, int64 [W, D], in blocks [k, W, V].

    With a KV cache, x must be its current inputs, and only the output layer is evaluated. Without
    one, x is evaluated once.
    """
    if kv_cache is not None:
        yield from kv_cache.current_rows(begin, end)
    else:
        yield conditional_logits(x)[1][:, begin:end].transpose(0, 1)


def begin(
    conditional_logits: OutputAndMore, kv_cache: KVCache | None, x: torch.Tensor, t: int
) -> Conditionals:
    """Return the conditionals of proposals that share the first t sites of x, int64 [W, D].

    With a KV cache, x must be its current inputs.
    """
    if kv_cache is None:
        return FullPasses(conditional_logits, x, t)
    kv_cache.begin(t)
    return kv_cache


def require_conditionals(model: Model, needed_by: str, remedy: str) -> OutputAndMore:
    """Return the model's ``conditional_logits``.

    If it has none, a `UserError` names `needed_by`, a key of the input file, and the remedy.
    """
    found = offers_of(model).conditional_logits
    if found is None:
        raise UserError(
            f"{needed_by} needs an autoregressive model with conditional_logits, which this one "
            f"lacks; {remedy}"
        )
    return found
