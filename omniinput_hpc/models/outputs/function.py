"""``python``: z by the user's own function of inputs, and perhaps of their texts."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import torch

from omniinput_hpc import plugins
from omniinput_hpc.config import Config
from omniinput_hpc.config.output import PythonOutput
from omniinput_hpc.errors import UserError
from omniinput_hpc.models.checked import described
from omniinput_hpc.models.custom import guarded
from omniinput_hpc.models.outputs.checks import FUNCTION
from omniinput_hpc.models.outputs.of_base import OfBase, texts_of
from omniinput_hpc.models.protocol import Model


class OwnOutput(OfBase):
    """A model's inputs with the output of a user's function; a `UserError` if it does not fit."""

    def __init__(self, config: Config, base: Model, device: str) -> None:
        super().__init__(base)
        assert isinstance(config.output, PythonOutput)
        name = config.output.function
        function = plugins.load_function(name, FUNCTION)
        self._key = f"{FUNCTION} {name}"
        self._function = guarded(function)
        self._texts = texts_of(config, base, self._key) if self._takes_texts(function) else None
        allowed = self.space.allowed
        self._ids = None if allowed is None else torch.from_numpy(allowed).to(device)

    def output(self, x: torch.Tensor) -> torch.Tensor:
        """Return z, float32 [W], of x, int64 [W, D]; a `UserError` if it is something else."""
        ids = x if self._ids is None else self._ids[x]
        z: Any = self._function(ids) if self._texts is None else self._function(ids, self._texts(x))
        if isinstance(z, np.ndarray):
            z = torch.from_numpy(z).to(x.device)
        if isinstance(z, torch.Tensor) and z.shape == (len(x),) and z.dtype == torch.float32:
            return z
        found = described(z)
        raise UserError(
            f"{self._key}: it must return float32 [{len(x)}] for {len(x)} inputs, found {found}"
        )

    def _takes_texts(self, function: object) -> bool:
        """Return whether a function takes x and texts; a `UserError` if it takes neither."""
        assert callable(function)
        for n in (1, 2):
            try:
                inspect.signature(function).bind(*range(n))
            except TypeError:
                continue
            except ValueError:  # a callable without a readable signature
                return False
            return n == 2
        raise UserError(f"{self._key}: it must take x, or x and texts")


build = OwnOutput
