"""Networks for judges: loading them, pictures as their inputs, and a class's probability."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from omniinput_hpc.annotation.judges import Judge
from omniinput_hpc.annotation.png import pixels
from omniinput_hpc.annotation.tasks import Task
from omniinput_hpc.errors import UserError
from omniinput_hpc.models.images import classifier
from omniinput_hpc.models.images.files import DESCRIPTION, WEIGHTS, check_factory
from omniinput_hpc.models.language.hf_folder import fingerprint, weight_files
from omniinput_hpc.plugins import source_of
from omniinput_hpc.text import first_line

Pictures = NDArray[np.uint8]


@contextmanager
def loading() -> Iterator[None]:
    """Replace the input file's keys in error messages by this program's options."""
    try:
        yield
    except UserError as error:
        message = str(error).replace("model.path = ", "--model ").replace("model.dtype", "--dtype")
        raise UserError(message) from None


def about_files(path: str, folder: Path) -> str:
    """Return a model's name with a hash of its weights."""
    return f"{path} ({fingerprint(weight_files(folder))[:19]})"


def class_probability(
    outputs: torch.Tensor, label: int, path: str, independent: bool = False
) -> torch.Tensor:
    """Return the probability of a class, float64 [n], from a network's outputs [n, c].

    A single output is the log-odds of class 1 against class 0. If labels are `independent`, each
    has its own output, its log-odds. Raises a UserError if there is no such class.
    """
    n_classes = max(2, outputs.shape[1])
    if not 0 <= label < n_classes:
        raise UserError(f"--class {label}: {path} has {n_classes} classes, numbered from 0")
    outputs = outputs.double()
    if outputs.shape[1] == 1:
        return (outputs[:, 0] if label else -outputs[:, 0]).sigmoid()
    return outputs[:, label].sigmoid() if independent else outputs.softmax(-1)[:, label]


class PictureNetwork:
    """A network on pictures: a folder with model.json, or a factory and its safetensors weights.

    A factory's network takes float32 [n, channels, h, w] from 0 to 1. `about` is its name with a
    hash of its weights and of the factory's file. Raises a UserError if it cannot be loaded.
    """

    def __init__(self, path: str, device: str, factory: str | None = None) -> None:
        self.path, self._device = Path(path).expanduser(), device
        self._custom = self._network = None
        with loading():
            if factory is not None:
                check_factory(self.path, factory, "--model", "--factory")
                load, files = classifier.custom_network, [self.path]
                self._custom = load(factory, {}, self.path, device, "--factory")
            elif self.path.suffix == ".pt2":
                raise UserError(
                    f"--model {path}: programs of torch.export (.pt2) are not read: give the "
                    "network by --factory module:function and its weights as a .safetensors file"
                )
            else:
                self._network = classifier.load(self.path).to(device)
                files = [self.path / DESCRIPTION, self.path / WEIGHTS]
        code = f" by {factory}, {source_of(factory)}" if factory else ""
        self.about = f"{path} ({fingerprint(files)[:19]}){code}"

    def outputs(self, images: Pictures) -> torch.Tensor:
        """Return the outputs, float32 [n, c], of pictures uint8 [n, h, w] or [n, h, w, 3]."""
        if self._network is not None:
            out: torch.Tensor = self._network(self._values(images))
            return out.float()
        return self._run(images)

    def features(self, images: Pictures) -> torch.Tensor:
        """Return the input of the last layer, float32 [n, f]; of a custom network, its outputs."""
        if self._network is not None:
            rows = self._network.pixels(self._values(images))
            out: torch.Tensor = self._network.body.get_submodule("backbone")(rows)
            return out.float()
        return self._run(images)

    def _values(self, images: Pictures) -> torch.Tensor:
        """Return each pixel's nearest grey level of the network, int64 [n, D]."""
        assert self._network is not None
        shape = self._network.architecture.shape
        expected = (shape.height, shape.width) + ((3,) if shape.channels == 3 else ())
        given = images.shape[1:]
        if given != expected:
            raise UserError(f"{self.path} takes pictures of {expected}, but these are {given}")
        levels = np.rint(images.reshape(len(images), -1) / 255.0 * (shape.n_values - 1))
        return torch.from_numpy(levels.astype(np.int64)).to(self._device)

    def _run(self, images: Pictures) -> torch.Tensor:
        assert self._custom is not None
        x = torch.from_numpy(images.astype(np.float32) / 255.0)
        x = x.permute(0, 3, 1, 2) if x.ndim == 4 else x[:, None]
        try:
            out: torch.Tensor = self._custom(x.contiguous().to(self._device))
        except (RuntimeError, ValueError) as error:
            problem = first_line(error)
            raise UserError(f"{self.path} does not take pictures like these: {problem}") from None
        if out.ndim > 2 or len(out) != len(images):
            raise UserError(f"{self.path} returns {list(out.shape)}; expected a row per picture")
        return out.float().reshape(len(images), -1)


class PictureClassifierJudge(Judge):
    """Judge whose score is a picture's probability of one class (see `class_probability`)."""

    def __init__(self, path: str, label: int, device: str, factory: str | None = None) -> None:
        self._network, self._label = PictureNetwork(path, device, factory), label
        self.about = f"image-classifier {self._network.about} label {label}"

    @torch.no_grad()
    def score(self, tasks: Sequence[Task]) -> list[float | None]:
        """Return the class's probability of each picture."""
        if any(task.png is None for task in tasks):
            raise UserError("--judge image-classifier requires tasks that are pictures")
        outputs = self._network.outputs(stacked([pixels(task.png or "") for task in tasks]))
        return list(class_probability(outputs, self._label, str(self._network.path)).tolist())


def stacked(images: Sequence[Pictures]) -> Pictures:
    """Return pictures as one array; a UserError if they differ in shape."""
    shapes = sorted({image.shape for image in images})
    if len(shapes) > 1:
        raise UserError(f"pictures of several shapes ({shapes[0]}, {shapes[1]}) cannot be mixed")
    return np.stack(list(images))
