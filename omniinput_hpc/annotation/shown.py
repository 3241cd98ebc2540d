"""What a person sees of an input: text or a picture, without torch where the files allow it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from omniinput_hpc.annotation.decode import TextDecoder
from omniinput_hpc.annotation.png import data_uri
from omniinput_hpc.annotation.tasks import Kind
from omniinput_hpc.config import CausalLm, ImageClassifier, PythonModel
from omniinput_hpc.errors import UserError
from omniinput_hpc.models.image_files import shape_of

Values = NDArray[np.int64]


@dataclass(frozen=True)
class Shown:
    """How the inputs of a model are shown.

    Attributes
    ----------
    kind : "text" or "image"
    show : from values, int64 [n, D], to texts or data URIs
    prefix : the text that all inputs begin with, None without one
    note : how it was done, for the user
    """

    kind: Kind
    show: Callable[[Values], list[str]]
    prefix: str | None
    note: str


def shown_of(config: dict[str, Any]) -> Shown:
    """Return how the inputs of a run are shown.

    Parameters
    ----------
    config : the run's input file, parsed

    Raises
    ------
    UserError
        The model's kind is not known, or its tokenizer or its own ``render`` is not there.
    """
    model = config.get("model", {})
    kind = model.get("kind")
    if kind not in _KINDS:
        raise UserError(f'how to show inputs of model.kind = "{kind}" is not known')
    return _KINDS[kind](model)


def values_as_text(x_nd: Values) -> list[str]:
    """Return each input's values, with blanks between them."""
    return [" ".join(map(str, x_d)) for x_d in x_nd.tolist()]


def _causal_lm(model: dict[str, Any]) -> Shown:
    options = CausalLm.model_validate(model)
    folder = Path(options.path).expanduser()
    if not folder.is_dir():
        raise UserError(f"model.path = {folder}: no such folder (its tokenizer.json is needed)")
    if not (folder / "tokenizer.json").exists():
        return Shown("text", values_as_text, None, f"{folder} has no tokenizer.json: values shown")
    decoder = TextDecoder(folder)

    def show(x_nd: Values) -> list[str]:
        return [decoder.text(x_d) for x_d in x_nd]

    return Shown("text", show, None, f"decoded by {folder / 'tokenizer.json'}")


def _image_classifier(model: dict[str, Any]) -> Shown:
    shape = shape_of(ImageClassifier.model_validate(model))

    def show(x_nd: Values) -> list[str]:
        return [data_uri(image) for image in shape.pixels(x_nd)]

    size = f"{shape.height} x {shape.width} pixels of {shape.n_values} levels"
    return Shown("image", show, None, f"pictures of {size}")


def _python(model: dict[str, Any]) -> Shown:
    """Build the model, if it has a ``render``: this may import torch."""
    from omniinput_hpc.models import outside

    options = PythonModel.model_validate(model)
    outside.preflight(options)
    made = outside.build(options, "cpu")
    if not hasattr(made, "render"):
        return Shown("text", values_as_text, None, f"{options.factory} has no render: values shown")
    import torch

    def render(x_nd: Values) -> list[Any]:
        return list(made.render(torch.from_numpy(x_nd)))

    note = f"by the render of {options.factory}, which is imported (and torch with it)"
    probe = render(np.zeros((1, made.n_sites), dtype=np.int64))
    if isinstance(probe[0], str):
        return Shown("text", render, None, note)
    return Shown("image", lambda x_nd: [data_uri(image) for image in render(x_nd)], None, note)


_KINDS: dict[str, Callable[[dict[str, Any]], Shown]] = {
    "causal-lm": _causal_lm,
    "image-classifier": _image_classifier,
    "python": _python,
}
