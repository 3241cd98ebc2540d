"""``difference``: the output of one model minus that of another with the same inputs."""

from __future__ import annotations

from typing import Any

import torch

from omniinput_hpc.config import Config
from omniinput_hpc.config.output import Difference as Options
from omniinput_hpc.models import table
from omniinput_hpc.models.outputs import checks
from omniinput_hpc.models.outputs.of_base import OfBase
from omniinput_hpc.models.protocol import Model


class Difference(OfBase):
    """A model whose output is that of `base` minus that of `other`."""

    def __init__(self, base: Model, other: Model) -> None:
        super().__init__(base, other)
        if all(offers.output_and_gradient is not None for offers in self._offers):
            self.output_and_gradient = self._output_and_gradient

    def output(self, x: torch.Tensor) -> torch.Tensor:
        """Return z, float32 [W], of x, int64 [W, D]."""
        one, other = (model.output(x) for model in self._models)
        return one - other

    def _output_and_gradient(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return z [W] and dz/d one_hot(x), float32 [W, D, n_values]."""
        found: list[Any] = []
        for offers in self._offers:
            assert offers.output_and_gradient is not None
            found.append(offers.output_and_gradient(x))
        (z, g), (z_other, g_other) = found
        return z - z_other, g - g_other

    @property
    def without_gradient(self) -> str:
        """Why one of the models has no gradient; "" if both have one."""
        return next(filter(None, (offers.without_gradient() for offers in self._offers)), "")


def build(config: Config, base: Model, device: str) -> Difference:
    """Return the difference of two models.

    Raises a `UserError` if the other cannot be built, or if it has other inputs.
    """
    assert isinstance(config.output, Options)
    options = config.output.other
    with checks.named_as("output.other"):
        other = table.build_kind(options, device, config)
    shapes = [(model.n_sites, model.n_values) for model in (base, other)]
    checks.require_same_inputs(config, options, shapes)
    return Difference(base, other)
