"""Changes of z for one input, from a user's function that numba compiled."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from omniinput_hpc.errors import UserError

if TYPE_CHECKING:
    from omniinput_hpc.models.protocol import Change, CompiledChange


def check_compiled(change: Any) -> None:
    """Raise a `UserError` unless a model's `compiled_change` is a function compiled by numba."""
    try:
        from numba.core.dispatcher import Dispatcher
    except ImportError:
        raise UserError(
            "the model has compiled_change, which requires numba: pip install numba, or remove "
            "compiled_change"
        ) from None
    if not isinstance(change, Dispatcher):
        raise UserError(
            "the model's compiled_change must be a function compiled by numba.njit and set in "
            f"__init__, not a method; found {type(change).__name__}"
        )


def as_change(compiled: CompiledChange) -> Change:
    """Return a function like `Offers.change` from a compiled one, for inputs on a CPU."""

    def change(x: torch.Tensor, site: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        dz: NDArray[np.float64] = np.empty(len(x))
        _of_all()(compiled, x.numpy(), site.numpy(), value.numpy(), dz)
        return torch.from_numpy(dz)

    return change


@cache
def _of_all() -> Any:
    """Return a compiled loop over inputs; numba is imported only if a model needs it."""
    from numba import njit

    @njit
    def of_all(
        compiled: Any,
        x: NDArray[np.int64],
        site: NDArray[np.int64],
        value: NDArray[np.int64],
        dz: NDArray[np.float64],
    ) -> None:
        for w in range(len(x)):
            dz[w] = compiled(x[w], site[w], value[w])

    return of_all
