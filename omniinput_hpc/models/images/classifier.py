"""Image classifiers: z is an output of a class, or an energy-based log-likelihood.

An input's D sites are the grey levels of its pixels: rows, then columns, then channels. A network
has two parts: a look-up for each pixel (`contributions`), and the rest. The gradient with respect
to the one-hot input is therefore one product: the gradient at the looked-up numbers times the
table.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import nn

from omniinput_hpc import plugins
from omniinput_hpc.config import ImageClassifier as Options
from omniinput_hpc.errors import UserError
from omniinput_hpc.models import class_output
from omniinput_hpc.models.images.files import (
    DESCRIPTION,
    WEIGHTS,
    Architecture,
    Shape,
    check_label,
    folder_of,
    is_of_hub,
    read_architecture,
    shape_of,
)
from omniinput_hpc.models.images.networks import ImageNetwork
from omniinput_hpc.text import first_line
from omniinput_hpc.untrusted.safetensors_header import read_header

Body = Callable[[torch.Tensor], torch.Tensor]


class Pixels(Protocol):
    """The part of a network that depends on each pixel separately, linear in its one-hot value."""

    def contributions(self, x: torch.Tensor) -> torch.Tensor:
        """Return the numbers looked up for inputs x, int64 [W, D]: float32 [W, D, n]."""
        ...

    def combine(self, rows: torch.Tensor) -> torch.Tensor:
        """Return the image that is the input of the rest of the network."""
        ...

    def pull_back(self, gradient: torch.Tensor) -> torch.Tensor:
        """Return dz/d one_hot(x) [W, D, n_values] from the gradient at the contributions."""
        ...


class ScaledPixels:
    """Grey levels as numbers: the image [W, channels, h, w] of a custom network.

    They are those in [0, 1], minus `mean` and divided by `std` of their channel.
    """

    def __init__(
        self,
        shape: Shape,
        device: torch.device,
        mean: Sequence[float] | None = None,
        std: Sequence[float] | None = None,
    ) -> None:
        self._shape = shape
        levels = torch.arange(shape.n_values, dtype=torch.float32, device=device)
        self._table = levels[:, None] / (shape.n_values - 1)  # [n_values, 1]
        by_channel = ([0.0] if mean is None else mean, [1.0] if std is None else std)
        self._mean, self._std = (torch.tensor(c, device=device)[:, None, None] for c in by_channel)

    def contributions(self, x: torch.Tensor) -> torch.Tensor:
        """Return one number per site, float32 [W, D, 1]."""
        return nn.functional.embedding(x, self._table)

    def combine(self, rows: torch.Tensor) -> torch.Tensor:
        """Return float32 [W, channels, h, w]."""
        s = self._shape
        image = rows.view(len(rows), s.height, s.width, s.channels).permute(0, 3, 1, 2)
        return ((image - self._mean) / self._std).contiguous()

    def pull_back(self, gradient: torch.Tensor) -> torch.Tensor:
        """Return dz/d one_hot(x) [W, D, n_values] from the gradient at the contributions."""
        return gradient * self._table[:, 0]


class ImageClassifier:
    """An image classifier: see the module's docstring, and `models.protocol` for the methods.

    `pixels` and `body` are the network's parts. Of the options, only target, label and sign are
    used.
    """

    def __init__(self, pixels: Pixels, body: Body, shape: Shape, options: Options) -> None:
        self._pixels, self._body, self.shape = pixels, body, shape
        self._target, self._label, self._sign = options.target, options.label, options.sign
        self.n_sites, self.n_values = shape.n_sites, shape.n_values

    def classes(self, x: NDArray[Any]) -> NDArray[Any]:
        """Return the class with the largest logit of each input x [n, D], int64 [n]."""
        rows_of = self._pixels.contributions
        return class_output.likeliest(lambda part: self._logits(rows_of(part)), x)

    def _logits(self, rows: torch.Tensor) -> torch.Tensor:
        outputs: torch.Tensor = self._body(self._pixels.combine(rows)).float()
        return outputs.view(len(rows), -1)  # [W, n_outputs]

    def _z(self, rows: torch.Tensor) -> torch.Tensor:
        return self._sign * class_output.of(self._logits(rows), self._target, self._label)

    @torch.no_grad()
    def output(self, x: torch.Tensor) -> torch.Tensor:
        """Return z, float32 [W], of x, int64 [W, D]."""
        return self._z(self._pixels.contributions(x))

    def output_and_gradient(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return z [W] and dz/d one_hot(x), float32 [W, D, n_values], with one backward pass."""
        with torch.no_grad():
            rows = self._pixels.contributions(x)
        rows.requires_grad_()
        with torch.enable_grad():
            z = self._z(rows)
            (gradient,) = torch.autograd.grad(z.sum(), rows)
        with torch.no_grad():
            return z.detach(), self._pixels.pull_back(gradient)

    def render(self, x: torch.Tensor) -> list[NDArray[np.uint8]]:
        """Return pictures, uint8 [h, w] or [h, w, 3], 0 black and 255 white."""
        return list(self.shape.pixels(x.cpu().numpy()))


def build(options: Options, device: str) -> ImageClassifier:
    """Load an image classifier (see `models.table.build`)."""
    shape, path = shape_of(options), folder_of(options)
    if options.factory is None and not is_of_hub(options):
        network = load(path).to(device)
        return ImageClassifier(network.pixels, network.body, shape, options)
    body = _body(options, path, device)
    pixels = ScaledPixels(shape, torch.device(device), options.mean, options.std)
    model = ImageClassifier(pixels, body, shape, options)
    _try_out(model, body, shape, options)
    return model


def _body(options: Options, path: Path, device: str) -> Body:
    """Return a network of pictures in [0, 1], [W, channels, h, w], from the user or the hub."""
    if options.factory is not None:
        return custom_network(options.factory, options.options, path, device)
    from omniinput_hpc.models.images.hf_network import ProcessedPictures  # imports transformers

    return ProcessedPictures(path, device)


def load(folder: Path) -> ImageNetwork:
    """Return the network of a folder, in float32, without gradients for its weights.

    Raises `UserError` if files are missing, broken, do not fit each other, or hold non-finite
    numbers.
    """
    architecture = read_architecture(folder)
    _check_shapes(architecture, folder)
    network = ImageNetwork(architecture)
    load_weights(network, folder / WEIGHTS, f"{folder / DESCRIPTION}")
    return network


def _check_shapes(architecture: Architecture, folder: Path) -> None:
    """Raise a `UserError` unless a folder's weights have the shapes that model.json describes.

    The network is made without memory for its weights (on torch's device "meta").
    """
    with torch.device("meta"):
        described = ImageNetwork(architecture).state_dict()
    held = read_header(folder / WEIGHTS)
    for name, weights in described.items():
        shape, found = tuple(weights.shape), held[name].shape if name in held else None
        if shape != found:
            raise UserError(
                f"{folder / WEIGHTS} does not fit {folder / DESCRIPTION}: {name} must have "
                f"the shape {list(shape)}, found {'none' if found is None else list(found)}"
            )


def load_weights(network: nn.Module, file: Path, described_by: str) -> None:
    """Load the weights of a safetensors file into a network, in float32, and freeze it.

    Raises `UserError` if the file is broken, belongs to another network, or holds NaN or infinity.
    """
    read_header(file)
    try:
        tensors = load_file(file)
    except (SafetensorError, OSError, ValueError) as error:
        raise UserError(f"{file} is not a readable safetensors file: {first_line(error)}") from None
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and not bool(tensor.isfinite().all()):
            raise UserError(f"{file}: weights {name} hold NaN or infinite numbers")
    try:
        network.load_state_dict(tensors)
    except RuntimeError as error:
        lines = [line.strip() for line in str(error).splitlines()[1:]] or [str(error)]
        raise UserError(f"{file} does not fit {described_by}: {lines[0]}") from None
    network.float().eval().requires_grad_(False)


def custom_network(
    factory: str, options: dict[str, Any], weights: Path, device: str, key: str = "model.factory ="
) -> nn.Module:
    """Call the user's ``module:function``, and load a safetensors file into the network it returns.

    Raises `UserError` if there is no such function (named by `key`), if it does not return a
    network, or if the weights do not fit.
    """
    network = plugins.call(factory, key, "model.options", options)
    where = f"{key} {factory}"
    if not isinstance(network, nn.Module):
        raise UserError(f"{where}: expected a torch.nn.Module, found {type(network).__name__}")
    load_weights(network, weights, where)
    return network.to(device)


def _try_out(model: ImageClassifier, body: Body, shape: Shape, options: Options) -> None:
    """Evaluate two images with a network that is not ours, and check its outputs."""
    image = torch.zeros((2, shape.channels, shape.height, shape.width))
    device = model._pixels.contributions(torch.zeros((1, 1), dtype=torch.int64)).device
    try:
        with torch.no_grad():
            outputs: Any = body(image.to(device))
    except (RuntimeError, ValueError, TypeError, AssertionError) as error:
        raise UserError(
            f"model.path = {options.path}: the network does not accept images float32 "
            f"{list(image.shape)} in batches of any size: {first_line(error)}"
        ) from None
    if not isinstance(outputs, torch.Tensor) or outputs.dim() not in (1, 2) or len(outputs) != 2:
        found = list(outputs.shape) if isinstance(outputs, torch.Tensor) else type(outputs).__name__
        raise UserError(
            f"model.path = {options.path}: expected outputs [W] or [W, n_classes] for W images, "
            f"found {found} for 2"
        )
    check_label(options, outputs.shape[1] if outputs.dim() == 2 else 1)
