"""Make inputs of a model from a user's pictures.

A picture of the model's shape is taken pixel by pixel. For a model from the hub, a file of another
shape, or of the size that the network receives, is resized and cropped by the folder's own
processor. For a ``python`` model, a picture is an input if its ``render`` shows it as that picture.
Only the functions that need torch and transformers import them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from omniinput_hpc.config import ImageClassifier, Model, PythonModel
from omniinput_hpc.errors import UserError
from omniinput_hpc.models.images import files, hf_processor
from omniinput_hpc.models.images.files import Shape
from omniinput_hpc.text import first_line
from omniinput_hpc.untrusted import pictures
from omniinput_hpc.untrusted.pictures import Picture

Render = Callable[[Any], Any]
"""A model's ``render``: from a tensor, int64 [W, D], to W pictures or texts."""
Convert = Callable[[Picture, str], NDArray[np.int64]]
"""From a picture, and its name in messages, to an input, int64 [D]."""


@dataclass(frozen=True)
class Inputs:
    """What is known of a model's inputs.

    Attributes
    ----------
    options : the table [model]
    n_sites, n_values : of its inputs
    render : the model's, None without one
    """

    options: Model
    n_sites: int
    n_values: int
    render: Render | None

    @property
    def from_pictures(self) -> bool:
        """Whether pictures can be inputs."""
        return isinstance(self.options, ImageClassifier | PythonModel)


def of_folder(folder: Path, inputs: Inputs) -> tuple[NDArray[np.int64], int]:
    """Return the inputs made from a folder's pictures, int64 [n, D], and how many files are others.

    Raises a `UserError` that names a file if it cannot be read or does not fit.
    """
    convert, found = _converter(inputs, of_files=True), pictures.find(folder)
    if not found:
        raise UserError(f"{folder}: the folder holds no pictures that Pillow reads")
    n_all = sum(not file.name.startswith(".") for file in folder.iterdir())
    return np.stack([convert(pictures.read(file), str(file)) for file in found]), n_all - len(found)


def of_array(array: NDArray[np.uint8], name: str, inputs: Inputs) -> NDArray[np.int64]:
    """Return the inputs made from pictures, uint8 [n, h, w] or [n, h, w, 3]: int64 [n, D]."""
    convert = _converter(inputs, of_files=False)
    return np.stack([convert(picture, name) for picture in array])


def _converter(inputs: Inputs, of_files: bool) -> Convert:
    options = inputs.options
    if isinstance(options, ImageClassifier):
        shape, folder = files.shape_of(options), files.folder_of(options)
        if of_files and files.is_of_hub(options):
            processed = _Processed(folder, shape)
            return lambda picture, name: levels(processed(picture, name), shape, name)
        return lambda picture, name: levels(picture, shape, name)
    if isinstance(options, PythonModel) and inputs.render is not None:
        return _Rendered(inputs.render, inputs.n_sites, inputs.n_values).input_of
    raise UserError(f'model.kind = "{options.kind}": this model takes no pictures')


def levels(picture: Picture, shape: Shape, name: str) -> NDArray[np.int64]:
    """Return the grey levels of a picture of the model's shape, int64 [D]."""
    white = np.iinfo(picture.dtype).max
    found: NDArray[Any] = picture
    if found.ndim == 3 and shape.channels == 1 and (found == found[..., :1]).all():
        found = found[..., 0]  # grey, stored as RGB
    elif found.ndim == 2 and shape.channels == 3:
        found = np.repeat(found[..., None], 3, axis=2)
    wanted = [shape.height, shape.width, *([3] if shape.channels == 3 else [])]
    if list(found.shape) != wanted:
        raise UserError(
            f"{name}: the picture is {list(found.shape)} (rows, columns, channels); the model "
            f"takes {wanted}"
        )
    scaled = np.rint(found * ((shape.n_values - 1) / float(white)))
    return np.asarray(scaled, dtype=np.int64).ravel()


class _Processed:
    """Resizes and crops pictures as the processor of a folder from the hub does."""

    def __init__(self, folder: Path, shape: Shape) -> None:
        from transformers import AutoImageProcessor

        self._shape, self._steps = shape, hf_processor.read(folder)
        options = {"local_files_only": True, "trust_remote_code": False}
        try:
            self._processor: Any = AutoImageProcessor.from_pretrained(folder, **options)
        except Exception as error:  # its type depends on the processor and on the packages
            raise UserError(
                f"{folder}: transformers cannot make its image processor: {first_line(error)}"
            ) from None

    def __call__(self, picture: Picture, name: str) -> NDArray[np.uint8]:
        """Return a picture of the model's shape, uint8."""
        grey = picture if picture.dtype == np.uint8 else np.rint(picture / 257).astype(np.uint8)
        s = self._shape
        if s.channels == 1 and grey.ndim == 3 and not (grey == grey[..., :1]).all():
            raise UserError(
                f"{name}: the picture has colours; the model takes grey ones: convert it to grey"
            )
        image: Any = Image.fromarray(grey).convert("RGB")
        own = (s.width, s.height)
        if image.size != own or self._steps.size == (s.height, s.width):
            image = self._resized(image, name, own)
        return np.asarray(image.convert("L") if s.channels == 1 else image)

    def _made(self, image: Any) -> NDArray[Any]:
        """Return what the processor makes of a picture, [channels, h, w], with white = 255.

        The model itself rescales and normalizes.
        """
        if hasattr(self._processor, "val_transforms"):  # of timm, which always does both
            (made,) = self._processor(images=image, return_tensors="pt")["pixel_values"]
            mean, std = (np.reshape(row, (-1, 1, 1)) for row in (self._steps.mean, self._steps.std))
            return np.asarray(255 * (made.numpy() * std + mean))
        left_out = ("do_rescale", "do_normalize", "do_flip_channel_order")
        given = {key: False for key in left_out if hasattr(self._processor, key)}
        found = self._processor(images=image, return_tensors="np", **given)["pixel_values"][0]
        return np.asarray(found)

    def _resized(self, image: Any, name: str, own: tuple[int, int]) -> Any:
        """Return a picture as the network receives it, in the smaller size of the model."""
        made = self._made(image)
        found, expected = made.shape[1:], self._steps.size or (own[1], own[0])
        if found != expected:
            raise UserError(
                f"{name}: the model's processor makes {found[0]} x {found[1]} pixels of it (rows x "
                f"columns), not {expected[0]} x {expected[1]}; cut it to that ratio"
            )
        image = Image.fromarray(np.rint(np.moveaxis(made, 0, 2)).astype(np.uint8))
        if image.size == own:
            return image
        how = {name: number for number, name in hf_processor.RESAMPLING.items()}
        return image.resize(own, Image.Resampling(how[self._steps.resampling]))


class _Rendered:
    """Finds inputs of a user's model that its ``render`` shows as given pictures."""

    def __init__(self, render: Render, n_sites: int, n_values: int) -> None:
        self._render, (probe,) = render, self._shown(render, np.zeros((1, n_sites), np.int64))
        size = probe.shape
        if probe.dtype != np.uint8 or probe.size != n_sites or len(size) not in (2, 3):
            raise UserError(
                f"pictures cannot be inputs of this model: its render method returns {probe.dtype} "
                f"{list(size)} for its {n_sites} sites, not a grey level for each"
            )
        self._shape = Shape(size[0], size[1], size[2] if len(size) == 3 else 1, n_values)

    @staticmethod
    def _shown(render: Render, x: NDArray[np.int64]) -> list[NDArray[Any]]:
        import torch

        return [np.asarray(picture) for picture in render(torch.from_numpy(x))]

    def input_of(self, picture: Picture, name: str) -> NDArray[np.int64]:
        """Return the input, int64 [D], whose levels are those of a picture."""
        x = levels(picture, self._shape, name)
        (shown,) = self._shown(self._render, x[None])
        expected = self._shape.pixels(x[None])[0]
        if np.abs(shown.reshape(expected.shape).astype(int) - expected).max() > 1:
            raise UserError(
                f"{name}: the model's render method shows other grey levels than 0 (black) to "
                f"{self._shape.n_values - 1} (white), so give values (.npy) instead of pictures"
            )
        return x
