"""A model whose outputs are watched: a NaN or infinite z is found without a synchronization."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from omniinput_hpc.errors import UserError
from omniinput_hpc.models import Model

_WATCHED = ("output_and_gradient", "conditional_logits")


class NonFiniteOutput(Exception):
    """The model returned NaN or infinity."""


def watch(model: Any, x: torch.Tensor, z: torch.Tensor) -> None:
    """Have a checked model note z, [W], that was computed from other methods than its own `output`.

    Models that nobody checks are passed over.
    """
    if isinstance(model, CheckedModel):
        model.watch(x, z)


class CheckedModel:
    """Passes everything on to a model and keeps the first input of each slot with non-finite z.

    What it returns by ``output``, ``output_and_gradient`` and ``conditional_logits`` is watched
    here; whoever computes z from other methods calls the function `watch`.
    """

    def __init__(self, model: Model, name: str) -> None:
        self._model, self._name = model, name
        self.n_values, self.n_sites = model.n_values, model.n_sites
        self._bad_w: torch.Tensor | None = None
        self._x_bad: torch.Tensor | None = None

    def __getattr__(self, name: str) -> Any:
        """Pass on what a model may offer beyond the protocol."""
        found = getattr(self._model, name)
        return self._watched(found) if name in _WATCHED else found

    def _watched(self, method: Callable[[torch.Tensor], Any]) -> Callable[[torch.Tensor], Any]:
        def call(x: torch.Tensor) -> Any:
            z, more = method(x)
            self.watch(x, z)
            return z, more

        return call

    def output(self, x: torch.Tensor) -> torch.Tensor:
        """Return the model's z, float32 [W]."""
        z = self._model.output(x)
        self.watch(x, z)
        return z

    def watch(self, x: torch.Tensor, z: torch.Tensor) -> None:
        """Take note of z, [W], of inputs x, int64 [W, D], that are not finite."""
        bad_w = ~z.isfinite()
        if self._bad_w is None or self._x_bad is None or self._bad_w.shape != bad_w.shape:
            self._bad_w, self._x_bad = bad_w, x.clone()
        else:
            self._x_bad = torch.where((bad_w & ~self._bad_w)[:, None], x, self._x_bad)
            self._bad_w = self._bad_w | bad_w

    def render(self, x: torch.Tensor) -> list[Any]:
        """Return what a person sees of inputs x: the values where the model has no `render`."""
        if hasattr(self._model, "render"):
            return list(self._model.render(x))
        return [" ".join(map(str, row)) for row in x.tolist()]

    def raise_if_nonfinite(self) -> None:
        """Raise if any z was NaN or infinite since the last call (synchronizes).

        Raises
        ------
        NonFiniteOutput
            Names the model and the first such input.
        """
        if self._bad_w is None or self._x_bad is None or not bool(self._bad_w.any()):
            return
        slot = int(self._bad_w.nonzero()[0, 0])
        x = self._x_bad[slot : slot + 1]
        shown = str(self.render(x)[0])
        raise NonFiniteOutput(
            f"{self._name} returned a z that is not finite for the input of slot {slot}: "
            f"{shown[:500]!r} (values {x[0].tolist()[:200]})"
        )


def try_out(model: Model, x: torch.Tensor, name: str) -> torch.Tensor:
    """Evaluate a model once and check what comes back.

    Returns
    -------
    float32 [W], the outputs

    Raises
    ------
    UserError
        z has the wrong shape or type, or the device has too little memory.
    """
    try:
        z = model.output(x)
    except torch.OutOfMemoryError:
        raise UserError(
            f"{name}: a batch of {len(x)} inputs does not fit on {x.device}; set a smaller "
            'sampler.walkers, or model.dtype = "bfloat16"'
        ) from None
    if not isinstance(z, torch.Tensor):
        raise UserError(f"{name}: output(x) must return a tensor, found {type(z).__name__}")
    if z.shape != x.shape[:1] or z.dtype != torch.float32:
        raise UserError(
            f"{name}: output(x) must return float32 [{x.shape[0]}] for {x.shape[0]} inputs, "
            f"found {str(z.dtype).removeprefix('torch.')} {list(z.shape)}"
        )
    return z
