"""Small image classifiers with random weights, saved as the real loading code reads them."""

import json

import torch
from safetensors.torch import save_file

from omniinput_hpc.config import ImageClassifier
from omniinput_hpc.models.images.files import Architecture, Shape
from omniinput_hpc.models.images.networks import ImageNetwork

SHAPES = {"grey": Shape(4, 5, 1, 11), "colour": Shape(4, 4, 3, 9)}


def save(folder, name, shape, n_outputs=1, size=6, seed=2):
    """Save an untrained network of an architecture; return the folder."""
    torch.manual_seed(seed)
    network = ImageNetwork(Architecture(name, shape, n_outputs, size))
    for parameter in network.body.parameters():
        parameter.data *= 2.5  # fresh weights shrink what they are given, block after block
    folder.mkdir(exist_ok=True)
    (folder / "model.json").write_text(json.dumps(network.architecture.as_json()))
    save_file(network.state_dict(), folder / "model.safetensors")
    return folder


def options(path, target="logit", label=0, sign=1, **more):
    return ImageClassifier(
        kind="image-classifier", path=str(path), target=target, label=label, sign=sign, **more
    )


def tiny_module(n_classes):
    """A network of a user's own, for 4 x 5 images."""
    torch.manual_seed(8)
    return torch.nn.Sequential(
        torch.nn.Conv2d(1, 3, 3),
        torch.nn.Tanh(),
        torch.nn.Flatten(),
        torch.nn.Linear(18, n_classes),
    )
