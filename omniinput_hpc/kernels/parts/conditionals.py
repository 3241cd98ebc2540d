"""An autoregressive model's conditionals along an input whose sites are redrawn in order.

Where the model offers a KV cache, only what follows the first changed site is evaluated; else
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
    """A batch of prefixes of one length t, and the rows of l that follow them."""

    def row(self) -> torch.Tensor:
        """Return row t of l, [W, n_values]."""
        ...

    def extend(self, values: torch.Tensor) -> None:
        """Append one value, int64 [W]."""
        ...

    def rows_after(self, values: torch.Tensor) -> Iterator[torch.Tensor]:
        """Append values, int64 [W, k]; yield rows t + 1 to t + k of l, some [k', W, n_values]."""
        ...


class FullPasses:
    """By ``conditional_logits``: the whole input x, int64 [W, D], is evaluated for every row."""

    def __init__(self, conditional_logits: OutputAndMore, x: torch.Tensor, t: int) -> None:
        self._conditional_logits, self._x, self._t = conditional_logits, x.clone(), t

    def row(self) -> torch.Tensor:
        """Return row t of l, [W, n_values]: one evaluation."""
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
    """By the model's ``begin`` and ``extend``: prefixes from the first site on, without a KV cache.

    Parameters
    ----------
    offers : with `prefixes`
    x : int64 [W, D], of which only the shape counts
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
    """Return the conditionals of W empty prefixes, given int64 [W, D], without a KV cache."""
    if offers.prefixes is not None:
        return ByPrefixes(offers, x)
    assert offers.conditional_logits is not None
    return FullPasses(offers.conditional_logits, x, 0)


def kv_cache_of(offers: Offers, current: KVCache | None, n_walkers: int) -> KVCache | None:
    """Return the model's KV cache of W inputs, the current one if it fits; None if it has none."""
    if current is not None and current.n_walkers == n_walkers:
        return current
    return None if offers.kv_cache is None else offers.kv_cache(n_walkers)


def rows_of(
    conditional_logits: OutputAndMore, kv_cache: KVCache | None, x: torch.Tensor, first: int
) -> Iterator[torch.Tensor]:
    """Evaluate inputs x, int64 [W, D]; yield rows `first` to D - 1 of l, some [k, W, V] a time."""
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
    """Yield rows begin to end - 1 of l of inputs x, int64 [W, D], some [k, W, V] a time.

    x must be the current inputs of the KV cache, if there is one: then nothing is evaluated but the
    output layer; else x is evaluated once.
    """
    if kv_cache is not None:
        yield from kv_cache.current_rows(begin, end)
    else:
        yield conditional_logits(x)[1][:, begin:end].transpose(0, 1)


def begin(
    conditional_logits: OutputAndMore, kv_cache: KVCache | None, x: torch.Tensor, t: int
) -> Conditionals:
    """Return the conditionals of proposals that share the first t sites of x, int64 [W, D].

    x must be the current inputs of the KV cache, if there is one.
    """
    if kv_cache is None:
        return FullPasses(conditional_logits, x, t)
    kv_cache.begin(t)
    return kv_cache


def require_conditionals(model: Model, needed_by: str, remedy: str) -> OutputAndMore:
    """Return the model's ``conditional_logits``.

    Where it has none, a `UserError` names `needed_by`, a key of the input file, and the remedy.
    """
    found = offers_of(model).conditional_logits
    if found is None:
        raise UserError(
            f"{needed_by} needs an autoregressive model with conditional_logits, which this one "
            f"lacks; {remedy}"
        )
    return found
