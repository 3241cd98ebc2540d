"""Check the files of an image classifier without torch, and make pictures of its inputs.

A folder holds ``model.safetensors`` and ``model.json``, which describes the architecture::

    {"architecture": "mlp", "height": 28, "width": 28, "channels": 1, "n_values": 256,
     "n_outputs": 1, "size": 128}

``size`` is the MLP's hidden width or the ResNet's channels. Further keys (such as the results of
training) are for people.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from omniinput_hpc import plugins
from omniinput_hpc.config import ImageClassifier
from omniinput_hpc.config.table import MAX_SITES
from omniinput_hpc.errors import UserError
from omniinput_hpc.models.display import Display
from omniinput_hpc.models.images import hf_processor
from omniinput_hpc.models.language import hf_folder
from omniinput_hpc.models.language.hf_checks import check_class, check_labels, read_settings
from omniinput_hpc.untrusted.safetensors_header import read_header

ARCHITECTURES = ("cnn", "mlp", "resnet")
WEIGHTS, DESCRIPTION = "model.safetensors", "model.json"
MAX_SIZE = 1 << 16


@dataclass(frozen=True)
class Shape:
    """An image's shape; sites run over rows, then columns, then channels.

    Attributes
    ----------
    channels : 1 (grey) or 3 (red, green, blue)
    n_values : grey levels, 0 (black) to n_values - 1 (white)
    """

    height: int
    width: int
    channels: int
    n_values: int

    @property
    def n_sites(self) -> int:
        """D = height * width * channels."""
        return self.height * self.width * self.channels

    def pixels(self, x: NDArray[np.integer[Any]]) -> NDArray[np.uint8]:
        """Return pictures, uint8 [W, h, w] or [W, h, w, 3], of inputs x, integers [W, D]."""
        grey = np.rint(x.astype(np.float64) * (255 / (self.n_values - 1))).astype(np.uint8)
        last = (self.channels,) if self.channels == 3 else ()
        return grey.reshape(len(x), self.height, self.width, *last)


@dataclass(frozen=True)
class Architecture:
    """The contents of model.json.

    Attributes
    ----------
    name : one of `ARCHITECTURES`
    size : hidden features (mlp), channels (resnet); unused for cnn
    """

    name: str
    shape: Shape
    n_outputs: int
    size: int

    def as_json(self) -> dict[str, Any]:
        """Return the table that `read_architecture` reads."""
        numbers = {"n_outputs": self.n_outputs, "size": self.size}
        return {"architecture": self.name, **asdict(self.shape), **numbers}


def preflight(options: ImageClassifier) -> dict[str, Any]:
    """Check the files of an image classifier (see `models.table.preflight`)."""
    path, n_bytes = folder_of(options), 0
    if options.factory is not None:
        check_factory(path, options.factory, "model.path =", "model.factory =")
        files, n_outputs = [path], None
    elif is_of_hub(options):
        files, n_outputs, n_bytes = hf_processor.preflight(path, options.path)
        check_labels(options.target, "model.target", hf_folder.read_config(path), path)
    else:
        architecture = read_architecture(path)
        _check_weights(path)
        files = [path / DESCRIPTION, path / WEIGHTS]
        n_outputs = architecture.n_outputs
    shape = shape_of(options)
    if n_outputs is not None:
        check_label(options, n_outputs)
    meaning = f":{options.target}:{options.label}:{options.sign}"
    if n_bytes:
        meaning += f":{shape}"
    if options.factory is not None:
        text = json.dumps(options.options, sort_keys=True, default=str)
        meaning += f":{options.factory}:{text}"
        if shape.height != shape.width:  # that of a square follows from its number of sites
            meaning += f":{shape}"
        if options.mean or options.std:
            meaning += f":{options.mean}:{options.std}"
    return {
        "fingerprint": hf_folder.fingerprint(files) + meaning,
        "n_values": shape.n_values,
        "n_sites": shape.n_sites,
        "bytes": n_bytes or sum(file.stat().st_size for file in files),
    }


def check_factory(weights: Path, factory: str, path_key: str, factory_key: str) -> None:
    """Raise a `UserError` if a factory's weights or module are missing, or need unpickling."""
    if not os.path.isfile(weights):
        raise UserError(f"{path_key} {weights}: no such file")
    plugins.check_module(factory, factory_key)
    if weights.suffix != ".safetensors":
        raise UserError(
            f"{path_key} {weights}: a factory's weights must be a .safetensors file; nothing is "
            "unpickled"
        )
    read_header(weights)


def display(options: ImageClassifier) -> Display:
    """Show inputs as pictures."""
    shape = shape_of(options)
    size = f"{shape.height} x {shape.width} pixels of {shape.n_values} levels"
    return Display("image", lambda x_nd: list(shape.pixels(x_nd)), None, f"pictures of {size}")


def folder_of(options: ImageClassifier) -> Path:
    """Return the folder or file of a model; for a name on the hub, its folder in the local cache.

    Without one, the path itself is returned.
    """
    path = Path(options.path).expanduser()
    if options.factory is not None or os.path.exists(path):
        return path
    return hf_folder.cached(options.path) or path


def is_of_hub(options: ImageClassifier) -> bool:
    """Return whether a model is one of the hub, and not one of the papers' networks."""
    folder = folder_of(options)
    has_settings = os.path.isfile(folder / "config.json")
    return options.factory is None and has_settings and not os.path.exists(folder / DESCRIPTION)


def shape_of(options: ImageClassifier) -> Shape:
    """Return the shape of a model's images; a `UserError` if its folder or the shape is wrong."""
    path, given = folder_of(options), options.shape
    if options.factory is None:
        if not is_of_hub(options):
            if given is not None or options.n_values is not None:
                raise UserError(
                    f"shape and n_values are in {path / DESCRIPTION}; leave them out of [model]"
                )
            return read_architecture(path).shape
        given = _hub_shape(options, path)
    assert given is not None
    height, width, *rest = given
    channels = rest[0] if rest else 1
    if channels not in (1, 3):
        raise UserError(f"model.shape = {given}: an image has 1 or 3 channels")
    for name, numbers in (("mean", options.mean), ("std", options.std)):
        if numbers and len(numbers) not in (1, channels):
            raise UserError(f"model.{name} = {numbers}: give one number, or one for each channel")
    shape = Shape(height, width, channels, options.n_values or 256)
    if shape.n_sites > MAX_SITES:
        raise UserError(f"model.shape = {given}: an image has at most {MAX_SITES:,} numbers")
    return shape


def _hub_shape(options: ImageClassifier, folder: Path) -> list[int]:
    """Return the shape of the pictures of a folder from the hub: that given, or the network's."""
    steps = hf_processor.read(folder)
    if options.shape is None:
        if steps.size is None:
            raise UserError(
                f"model.path = {folder}: the network takes pictures of any size; give model.shape "
                "= [height, width, channels]"
            )
        return [*steps.size, steps.n_channels]
    if len(options.shape) == 3 and options.shape[2] not in (1, steps.n_channels):
        raise UserError(
            f"model.shape = {options.shape}: the network takes {steps.n_channels} channels"
        )
    if steps.size and steps.size != tuple(options.shape[:2]) and not steps.resampling:
        raise UserError(
            f"model.shape = {options.shape}: the network takes {steps.size[0]} x {steps.size[1]} "
            "pixels, and its processor resizes in a way that torch does not have"
        )
    return options.shape


def check_label(options: ImageClassifier, n_outputs: int) -> None:
    """Raise a `UserError` if the class in the input file does not exist or does not fit the target.

    A log-likelihood requires a single output.
    """
    keys = "model.target", "model.label"
    where = f"the model in {options.path}"
    check_class(options.target, options.label, n_outputs, keys, where)
    if options.target == "log-likelihood" and n_outputs > 1:
        raise UserError(
            f'model.target = "log-likelihood" is for energy-based models with a single output; '
            f"this one has {n_outputs}"
        )


def read_architecture(folder: Path) -> Architecture:
    """Read and check model.json; a `UserError` names what is missing or wrong."""
    if not os.path.isdir(folder):
        raise UserError(
            f"model.path = {folder}: no such folder (it must hold {DESCRIPTION} and {WEIGHTS}; "
            "python -m omniinput_hpc.zoo.images trains the papers' models, zoo.digits small ones)"
            f"{hf_folder.not_cached(str(folder))}"
        )
    return _architecture(folder / DESCRIPTION, read_settings(folder, DESCRIPTION))


def _check_weights(folder: Path) -> None:
    """Raise a `UserError` if a folder has no weights, which only running a model needs."""
    if not os.path.isfile(folder / WEIGHTS):
        pickled = [f.name for ending in ("bin", "pt", "pth") for f in folder.glob(f"*.{ending}")]
        found = f"; {pickled[0]} would need unpickling and is never loaded" if pickled else ""
        raise UserError(f"model.path = {folder}: weights not found (no {WEIGHTS}){found}")
    read_header(folder / WEIGHTS)


def _architecture(file: Path, text: dict[str, Any]) -> Architecture:
    name = text.get("architecture")
    if name not in ARCHITECTURES:
        known = ", ".join(ARCHITECTURES)
        raise UserError(f"{file}: architecture must be one of {known}, found {name!r}")
    least = {"height": 1, "width": 1, "channels": 1, "n_values": 2, "n_outputs": 1, "size": 1}
    numbers = {}
    for key, low in least.items():
        value = text.get(key, 0 if key != "size" or name != "cnn" else 1)
        if type(value) is not int or not low <= value <= MAX_SIZE:
            raise UserError(f"{file}: {key} must be a whole number from {low} to {MAX_SIZE:,}")
        numbers[key] = value
    n_outputs, size = numbers.pop("n_outputs"), numbers.pop("size")
    if numbers["channels"] not in (1, 3):
        raise UserError(f"{file}: channels must be 1 or 3, found {numbers['channels']}")
    shape = Shape(**numbers)
    if shape.n_sites > MAX_SITES:
        raise UserError(
            f"{file}: an image has {shape.n_sites:,} numbers; at most {MAX_SITES:,} are allowed"
        )
    return Architecture(str(name), shape, n_outputs, size)
