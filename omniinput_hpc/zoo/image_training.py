"""Training image networks: classifiers, with or without noise, and saving them."""

from __future__ import annotations

import json
import math
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import save_file
from torch.nn import functional as F
from tqdm import tqdm

from omniinput_hpc.models.images.files import DESCRIPTION, WEIGHTS, Architecture
from omniinput_hpc.models.images.networks import ImageNetwork
from omniinput_hpc.zoo.image_data import Images


@dataclass(frozen=True)
class Effort:
    """How long and how a network is trained.

    Attributes
    ----------
    noise : uniform noise of varying severity on the training images
    moved : training images are shifted by up to 4 pixels and mirrored (CIFAR)
    """

    epochs: int
    batch: int = 128
    rate: float = 1e-3
    noise: bool = False
    moved: bool = False


def add_noise(x: torch.Tensor, n_values: int, generator: torch.Generator) -> torch.Tensor:
    """Add uniform noise of varying severity to images x, int64 [W, D].

    Each image has a severity s, uniform in [0, 1]; each site gets a number uniform in
    [-s N, s N], N = n_values - 1, rounded, and the result is clipped to {0 .. N}.
    """
    severity = torch.rand((len(x), 1), generator=generator)
    noise = (2 * torch.rand(x.shape, generator=generator) - 1) * severity * (n_values - 1)
    return (x + noise.round().long()).clamp_(0, n_values - 1)


def shift_and_mirror(
    x: torch.Tensor, architecture: Architecture, generator: torch.Generator
) -> torch.Tensor:
    """Shift images x, int64 [W, D], by up to 4 pixels, all alike, and mirror half of them."""
    s = architecture.shape
    image = x.view(-1, s.height, s.width, s.channels)
    down, right = (int(torch.randint(9, (1,), generator=generator)) for _ in range(2))
    padded = F.pad(image, (0, 0, 4, 4, 4, 4))
    image = padded[:, down : down + s.height, right : right + s.width]
    mirrored = torch.rand(len(x), generator=generator) < 0.5
    return torch.where(mirrored[:, None, None, None], image.flip(2), image).reshape(x.shape)


def train_classifier(
    architecture: Architecture, images: Images, effort: Effort, seed: int, name: str
) -> ImageNetwork:
    """Train a classifier: binary cross-entropy for one output, cross-entropy for several.

    Parameters
    ----------
    images : classes 0 and 1 where the network has one output (its logit is that of class 1)
    """
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    network = ImageNetwork(architecture)
    optimizer = torch.optim.AdamW(network.parameters(), lr=effort.rate, weight_decay=1e-2)
    x_all, y_all = torch.from_numpy(images.x.astype(np.int64)), torch.from_numpy(images.y)
    n_batches = math.ceil(len(x_all) / effort.batch)
    total = effort.epochs * n_batches
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, effort.rate, total_steps=total)
    with progress(total, name) as bar:
        for _ in range(effort.epochs):
            order = torch.randperm(len(x_all), generator=generator)
            for chosen in order.chunk(n_batches):
                x = x_all[chosen]
                if effort.moved:
                    x = shift_and_mirror(x, architecture, generator)
                if effort.noise:
                    x = add_noise(x, architecture.shape.n_values, generator)
                loss = loss_of(network(x), y_all[chosen])
                optimizer.zero_grad()
                loss.backward()
                torch.nn.utils.clip_grad_norm_(network.parameters(), 5.0)
                optimizer.step()
                schedule.step()
                bar.update()
            bar.set_postfix(loss=f"{loss.item():.4f}", refresh=False)
    return network.eval().requires_grad_(False)


def loss_of(outputs: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Return the mean cross-entropy of outputs [W, n_outputs] and classes y, int64 [W]."""
    if outputs.shape[1] == 1:
        return F.binary_cross_entropy_with_logits(outputs[:, 0], y.float())
    return F.cross_entropy(outputs, y)


@torch.no_grad()
def outputs_of(network: ImageNetwork, x: NDArray[np.uint8], batch: int = 500) -> torch.Tensor:
    """Return the outputs of inputs x, integers [n, D]: float32 [n, n_outputs]."""
    parts = [
        network(torch.from_numpy(x[i : i + batch].astype(np.int64)))
        for i in range(0, len(x), batch)
    ]
    return torch.cat(parts)


def accuracy(network: ImageNetwork, images: Images) -> float:
    """Return the share of images whose class is found (one output: positive means class 1)."""
    outputs = outputs_of(network, images.x)
    found = (outputs[:, 0] > 0).long() if outputs.shape[1] == 1 else outputs.argmax(dim=1)
    return float((found == torch.from_numpy(images.y)).double().mean())


def save(folder: Path, network: ImageNetwork, about: dict[str, Any], half: bool) -> None:
    """Write model.safetensors, in half precision if so wanted, and model.json beside it.

    Parameters
    ----------
    about : what a person wants to know of the training, stored in model.json
    """
    folder.mkdir(parents=True, exist_ok=True)
    state = network.state_dict()
    tensors = {k: (v.half() if half else v).contiguous() for k, v in state.items()}
    save_file(tensors, folder / WEIGHTS)
    (folder / WEIGHTS).chmod(0o644)  # safetensors makes it for the owner alone
    text = json.dumps({**network.architecture.as_json(), **about}, indent=2)
    (folder / DESCRIPTION).write_text(text + "\n", encoding="utf-8")


def progress(total: int, name: str) -> tqdm[Any]:
    """Return a progress bar; in a log file, one line a minute."""
    quiet = not sys.stderr.isatty()
    return tqdm(total=total, desc=name, mininterval=60 if quiet else 0.2, leave=not quiet)
