"""An autoregressive model's conditionals along an input that is being rewritten.

Where the model offers cached decoding (``begin``, ``extend``, ``fork``), the unchanged prefix is
evaluated once and only what follows it again; ``conditional_logits`` alone will do, more slowly.
"""

from __future__ import annotations

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

    def rows_after(self, values: torch.Tensor) -> torch.Tensor:
        """Append values, int64 [W, k]; return rows t + 1 to t + k of l, [W, k, n_values]."""
        ...

    def fork(self) -> Conditionals:
        """Return an independent copy."""
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

    def rows_after(self, values: torch.Tensor) -> torch.Tensor:
        """See `Conditionals`."""
        begin, end = self._t, self._t + values.shape[1]
        self._x[:, begin:end] = values
        self._t = end
        return self._rows(begin + 1, end + 1)

    def fork(self) -> Whole:
        """See `Conditionals`."""
        return Whole(self._model, self._x, self._t)

    def _rows(self, begin: int, end: int) -> torch.Tensor:
        rows: torch.Tensor = self._model.conditional_logits(self._x)[1]
        return rows[:, begin:end]


class Cached:
    """By ``begin`` and ``extend``, and ``extend_rows`` where the model has it."""

    def __init__(self, model: Any, prefixes: Any) -> None:
        self._model, self._prefixes = model, prefixes

    def row(self) -> torch.Tensor:
        """See `Conditionals`."""
        row: torch.Tensor = self._prefixes.log_p
        return row

    def extend(self, values: torch.Tensor) -> None:
        """See `Conditionals`."""
        self._prefixes = self._model.extend(self._prefixes, values)

    def rows_after(self, values: torch.Tensor) -> torch.Tensor:
        """See `Conditionals`."""
        if hasattr(self._model, "extend_rows"):
            at_once: torch.Tensor = self._model.extend_rows(self._prefixes, values)
            return at_once
        rows = []
        for t in range(values.shape[1]):
            self.extend(values[:, t])
            rows.append(self.row())
        return torch.stack(rows, dim=1)

    def fork(self) -> Cached:
        """See `Conditionals`."""
        return Cached(self._model, self._model.fork(self._prefixes))


def begin(model: Any, x: torch.Tensor, t: int) -> Conditionals:
    """Return the conditionals behind the first t sites of x, int64 [W, D]."""
    if all(hasattr(model, name) for name in ("begin", "extend", "fork")):
        return Cached(model, model.begin(x[:, :t]))
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
