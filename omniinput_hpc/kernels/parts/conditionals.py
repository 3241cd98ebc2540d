"""An autoregressive model's conditionals along an input that is being rewritten.

Where the model keeps what it has evaluated (``track``), only what follows the first changed site
is evaluated. Where it offers cached decoding (``begin``, ``extend``, ``fork``), the unchanged
prefix is evaluated once; ``conditional_logits`` alone will do, more slowly.
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

    def rows_after(self, values: torch.Tensor) -> Iterator[torch.Tensor]:
        """See `Conditionals`."""
        if hasattr(self._model, "extend_rows"):
            yield self._model.extend_rows(self._prefixes, values).transpose(0, 1)
            return
        for t in range(values.shape[1]):
            self.extend(values[:, t])
            yield self.row()[None]

    def unchanged(self) -> Cached:
        """See `Conditionals`."""
        return Cached(self._model, self._model.fork(self._prefixes))


class Tracked:
    """By a `Track` that keeps the inputs as they are."""

    def __init__(self, track: Any, t: int) -> None:
        self._track, self._t = track, t
        track.begin(t)

    def row(self) -> torch.Tensor:
        """See `Conditionals`."""
        row: torch.Tensor = self._track.row()
        return row

    def extend(self, values: torch.Tensor) -> None:
        """See `Conditionals`."""
        self._track.extend(values)

    def rows_after(self, values: torch.Tensor) -> Iterator[torch.Tensor]:
        """See `Conditionals`."""
        yield from self._track.rows_after(values)

    def unchanged(self) -> Kept:
        """See `Conditionals`."""
        return Kept(self._track, self._t)


class Kept:
    """The rows of a track's inputs as they are: nothing is evaluated but the output layer."""

    def __init__(self, track: Any, t: int) -> None:
        self._track, self._t = track, t

    def row(self) -> torch.Tensor:
        """See `Conditionals`."""
        (row,) = self._track.kept_rows(self._t, self._t + 1)
        return row[0]  # type: ignore[no-any-return]

    def extend(self, values: torch.Tensor) -> None:
        """Go on; the values must be those that are there."""
        self._t += 1

    def rows_after(self, values: torch.Tensor) -> Iterator[torch.Tensor]:
        """See `extend` and `Conditionals`."""
        begin = self._t + 1
        self._t += values.shape[1]
        yield from self._track.kept_rows(begin, self._t + 1)

    def unchanged(self) -> Kept:
        """See `Conditionals`."""
        return Kept(self._track, self._t)


def track_of(model: Any, current: Any, n_walkers: int) -> Any:
    """Return the model's `Track` of W inputs, the current one if it fits; None if it has none."""
    if current is not None and current.n_walkers == n_walkers:
        return current
    make = getattr(model, "track", None)
    return None if make is None else make(n_walkers)


def rows_of(model: Any, track: Any, x: torch.Tensor, first: int) -> Iterator[torch.Tensor]:
    """Evaluate inputs x, int64 [W, D]; yield rows `first` to D - 1 of l, some [k, W, V] a time."""
    if track is not None:
        track.load(x)
        yield from track.kept_rows(first, x.shape[1])
        return
    yield model.conditional_logits(x)[1][:, first:].transpose(0, 1)


def begin(model: Any, track: Any, x: torch.Tensor, t: int) -> Conditionals:
    """Return the conditionals behind the first t sites of x, int64 [W, D]; a track keeps x."""
    if track is not None:
        return Tracked(track, t)
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
