"""Models: one file a family; here the protocol and the table of kinds.

This package imports no torch by itself: a family's module is imported when its model is built, so
that a bad input is found in a second.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

from omniinput_hpc.config import Config

if TYPE_CHECKING:
    import torch

_FAMILIES = {
    "causal-lm": "omniinput_hpc.models.causal_lm",
    "image-classifier": "omniinput_hpc.models.image_classifier",
    "python": "omniinput_hpc.models.outside",
}
_PREFLIGHTS = {
    "causal-lm": "omniinput_hpc.models.local_folder",
    "image-classifier": "omniinput_hpc.models.image_files",
    "python": "omniinput_hpc.models.outside",
}


class Model(Protocol):
    """What a kernel may ask of a model; a model of one's own needs no more than this.

    Optional methods, which some kernels need: ``output_and_gradient(x) -> (z, g)`` and
    ``conditional_logits(x) -> (z, l)`` with ``predicted_from``.

    Attributes
    ----------
    n_values : int, values per site
    n_sites : int, D
    """

    n_values: int
    n_sites: int

    def output(self, x: torch.Tensor) -> torch.Tensor:
        """Return z, float32 [W], of inputs x, int64 [W, D]."""
        ...

    def render(self, x: torch.Tensor) -> list[Any]:
        """Return what a person sees of inputs x: strings, or uint8 images."""
        ...


def preflight(config: Config) -> dict[str, Any]:
    """Check the model's files without importing torch, and take its fingerprint.

    Returns
    -------
    dict with "fingerprint" (str), and what a plan can be told of the model before it is built:
    "n_values", "n_sites", "bytes" (None where it must be built to know)

    Raises
    ------
    UserError
        Files are missing or do not fit the input file.
    """
    module = import_module(_PREFLIGHTS[config.model.kind])
    return dict(module.preflight(config.model))


def build(config: Config, device: str) -> Model:
    """Build the model on a device.

    Raises
    ------
    UserError
        It cannot be built from what the input file says.
    """
    module = import_module(_FAMILIES[config.model.kind])
    model: Model = module.build(config.model, device)
    return model
