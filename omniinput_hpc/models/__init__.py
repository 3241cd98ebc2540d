"""Models: what maps an input x to its output z. The protocol is in `protocol`.

This package imports no torch by itself: a family's module is imported when its model is built, so
that a bad input is found in a second.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from omniinput_hpc.config import Config
from omniinput_hpc.models.protocol import Model, Offers, offers_of

__all__ = ["Model", "Offers", "build", "closeness", "offers_of", "preflight"]

_FAMILIES = {
    "causal-lm": "omniinput_hpc.models.language.causal_lm",
    "image-classifier": "omniinput_hpc.models.images.classifier",
    "python": "omniinput_hpc.models.custom",
    "sequence-classifier": "omniinput_hpc.models.language.sequence_classifier",
}
_PREFLIGHTS = {
    "causal-lm": "omniinput_hpc.models.language.hf_folder",
    "image-classifier": "omniinput_hpc.models.images.files",
    "python": "omniinput_hpc.models.custom",
    "sequence-classifier": "omniinput_hpc.models.language.hf_folder",
}
_CLOSE = {"float32": 1e-3, "float16": 3e-3, "bfloat16": 2e-2}


def closeness(config: Config) -> float:
    """Return by how much an output may differ on another machine, or evaluated in other pieces.

    By the type of the weights, in units of z.
    """
    return _CLOSE[getattr(config.model, "dtype", "float32")]


def preflight(config: Config) -> dict[str, Any]:
    """Check the model's files without importing torch, and take its fingerprint.

    Returns
    -------
    dict with "fingerprint" (str), and what a plan can be told of the model before it is built:
    "n_values", "n_sites", "bytes" (None where it must be built to know), and "folder", where a
    language model's files are on this machine

    Raises
    ------
    UserError
        Files are missing or do not fit the input file.
    """
    module = import_module(_PREFLIGHTS[config.model.kind])
    return dict(module.preflight(config.model))


def build(config: Config, device: str, folder: str | None = None) -> Model:
    """Build the model on a device; `folder` is what `preflight` found, where it did.

    Raises
    ------
    UserError
        It cannot be built from what the input file says.
    """
    module = import_module(_FAMILIES[config.model.kind])
    options = config.model
    if folder is not None:
        options = options.model_copy(update={"path": folder})
    model: Model = module.build(options, device)
    return model
