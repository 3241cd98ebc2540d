"""An autoregressive model's conditionals along an input that is being rewritten.

Where the model offers a KV cache, only what follows the first changed site is evaluated; else
``conditional_logits`` evaluates whole inputs, which is slower.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import torch

from omniinput_hpc.errors import UserError
from omniinput_hpc.models import Model


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

    def unchanged(self) -> Conditionals:
        """Return the same for the inputs as they are before the proposal, at this place."""
        ...


class Whole:
    """By ``conditional_logits``: the whole input is evaluated for every row.

    Parameters
    ----------
    x : int64 [W, D], of which the first t sites are the prefix
    """

    def __init__(self, model: Any, x: torch.Tensor, t: int) -> None:
        self._model, self._x, self._t = model, x.clone(), t

    def row(self) -> torch.Tensor:
        """See `Conditionals`."""
        return self._rows(self._t, self._t + 1)[:, 0]

    def extend(self, values: torch.Tensor) -> None:
        """See `Conditionals`."""
        self._x[:, self._t] = values
        self._t += 1

    def rows_after(self, values: torch.Tensor) -> Iterator[torch.Tensor]:
        """See `Conditionals`."""
        begin, end = self._t, self._t + values.shape[1]
        self._x[:, begin:end] = values
        self._t = end
        yield self._rows(begin + 1, end + 1).transpose(0, 1)

    def unchanged(self) -> Whole:
        """See `Conditionals`."""
        return Whole(self._model, self._x, self._t)

    def _rows(self, begin: int, end: int) -> torch.Tensor:
        rows: torch.Tensor = self._model.conditional_logits(self._x)[1]
        return rows[:, begin:end]


class Cached:
    """By a `KVCache` that keeps the inputs as they are."""

    def __init__(self, kv_cache: Any, t: int) -> None:
        self._kv_cache, self._t = kv_cache, t
        kv_cache.begin(t)

    def row(self) -> torch.Tensor:
        """See `Conditionals`."""
        row: torch.Tensor = self._kv_cache.row()
        return row

    def extend(self, values: torch.Tensor) -> None:
        """See `Conditionals`."""
        self._kv_cache.extend(values)

    def rows_after(self, values: torch.Tensor) -> Iterator[torch.Tensor]:
        """See `Conditionals`."""
        yield from self._kv_cache.rows_after(values)

    def unchanged(self) -> Current:
        """See `Conditionals`."""
        return Current(self._kv_cache, self._t)


class Current:
    """The rows of a KV cache's inputs as they are: nothing is evaluated but the output layer."""

    def __init__(self, kv_cache: Any, t: int) -> None:
        self._kv_cache, self._t = kv_cache, t

    def row(self) -> torch.Tensor:
        """See `Conditionals`."""
        (row,) = self._kv_cache.current_rows(self._t, self._t + 1)
        return row[0]  # type: ignore[no-any-return]

    def extend(self, values: torch.Tensor) -> None:
        """Go on; the values must be those that are there."""
        self._t += 1

    def rows_after(self, values: torch.Tensor) -> Iterator[torch.Tensor]:
        """See `extend` and `Conditionals`."""
        begin = self._t + 1
        self._t += values.shape[1]
        yield from self._kv_cache.current_rows(begin, self._t + 1)

    def unchanged(self) -> Current:
        """See `Conditionals`."""
        return Current(self._kv_cache, self._t)


def kv_cache_of(model: Any, current: Any, n_walkers: int) -> Any:
    """Return the model's `KVCache` of W inputs, the current one if it fits; None if it has none."""
    if current is not None and current.n_walkers == n_walkers:
        return current
    make = getattr(model, "kv_cache", None)
    return None if make is None else make(n_walkers)


def rows_of(model: Any, kv_cache: Any, x: torch.Tensor, first: int) -> Iterator[torch.Tensor]:
    """Evaluate inputs x, int64 [W, D]; yield rows `first` to D - 1 of l, some [k, W, V] a time."""
    if kv_cache is not None:
        kv_cache.load(x)
        yield from kv_cache.current_rows(first, x.shape[1])
        return
    yield model.conditional_logits(x)[1][:, first:].transpose(0, 1)


def begin(model: Any, kv_cache: Any, x: torch.Tensor, t: int) -> Conditionals:
    """Return the conditionals behind the first t sites of x, int64 [W, D]; a KV cache keeps x."""
    if kv_cache is not None:
        return Cached(kv_cache, t)
    return Whole(model, x, t)


def require_conditionals(model: Model, kernel: str) -> None:
    """Check that a model is autoregressive.

    Raises
    ------
    UserError
        It is not.
    """
    if not callable(getattr(model, "conditional_logits", None)):
        raise UserError(
            f'kernel.name = "{kernel}" needs an autoregressive model with conditional_logits, '
            'which this one lacks; choose "metropolis"'
        )
