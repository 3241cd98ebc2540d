"""What a person sees of an input: text or a picture, without torch where the files allow it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from omniinput_hpc.annotation.png import data_uri
from omniinput_hpc.annotation.tasks import Kind
from omniinput_hpc.config import CausalLm, ImageClassifier, PythonModel, SequenceClassifier
from omniinput_hpc.errors import UserError
from omniinput_hpc.models.images.files import shape_of
from omniinput_hpc.models.language import hf_folder, tokenizer

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
    """Decode by the folder's tokenizer alone; the prefix is shown apart."""
    options = CausalLm.model_validate(model)
    folder = hf_folder.resolve(options.path)
    n_vocab = int(hf_folder.read_config(folder)["vocab_size"])
    words = tokenizer.read(folder)
    tokens = hf_folder.site_tokens(options, folder, n_vocab)
    prefix = hf_folder.prefix_ids(options, folder, n_vocab)
    if words is None:
        before = " ".join(map(str, prefix)) or None
        note = f"{folder} has no tokenizer: token ids are shown"
    else:
        before = words.decode(prefix) if prefix else None
        note = f"decoded by the tokenizer in {folder}"
    return Shown("text", tokenizer.Text(words, tokens).render, before, note)


def _sequence_classifier(model: dict[str, Any]) -> Shown:
    """Decode by the folder's tokenizer alone; [CLS] and [SEP] are not shown."""
    options = SequenceClassifier.model_validate(model)
    folder = hf_folder.resolve(options.path)
    n_vocab = int(hf_folder.read_config(folder)["vocab_size"])
    text = tokenizer.Text(tokenizer.read(folder), np.arange(n_vocab))
    return Shown("text", text.render, None, f"decoded by the tokenizer in {folder}")


def _image_classifier(model: dict[str, Any]) -> Shown:
    shape = shape_of(ImageClassifier.model_validate(model))

    def show(x_nd: Values) -> list[str]:
        return [data_uri(image) for image in shape.pixels(x_nd)]

    size = f"{shape.height} x {shape.width} pixels of {shape.n_values} levels"
    return Shown("image", show, None, f"pictures of {size}")


def _python(model: dict[str, Any]) -> Shown:
    """Build the model, if it has a ``render``: this may import torch."""
    from omniinput_hpc.models import custom

    options = PythonModel.model_validate(model)
    custom.preflight(options)
    made = custom.build(options, "cpu")
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
    "sequence-classifier": _sequence_classifier,
}
