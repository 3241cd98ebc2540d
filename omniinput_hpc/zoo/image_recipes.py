"""The three ways the papers train their image models: plain, with noise, as energy-based models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from sklearn.metrics import roc_auc_score

from omniinput_hpc.models.images import classifier
from omniinput_hpc.models.images.files import Architecture
from omniinput_hpc.models.images.networks import ImageNetwork
from omniinput_hpc.zoo.energy_training import EnergyEffort, train_energy_model
from omniinput_hpc.zoo.image_data import Images
from omniinput_hpc.zoo.image_training import (
    Effort,
    accuracy,
    outputs_of,
    save,
    train_classifier,
)

# small: scikit-learn's digits (240 images); else MNIST 0/1 (12,665) and CIFAR (50,000)
EFFORTS = {
    ("plain", True): Effort(epochs=60, batch=32, rate=2e-3),
    ("noise", True): Effort(epochs=250, batch=64, rate=2e-3, noise=True),
    ("plain", False): Effort(epochs=5),
    ("noise", False): Effort(epochs=20, noise=True),
    ("moved", False): Effort(epochs=60, moved=True),
}

# Few chains that move far between steps: with fewer moves the chains fell behind the network, which
# learned to tell them from data, and not what data are like.
_SMALL = EnergyEffort(steps=250, moves=40, chains=64, batch=64, rate=2e-3, fresh=0.02, tether=3e-3)
ENERGY_EFFORTS = {
    ("mlp", True): _SMALL,
    ("resnet", True): _SMALL,
    ("mlp", False): EnergyEffort(steps=50_000, moves=50, rate=2e-4),
    ("resnet", False): EnergyEffort(steps=50_000, moves=50, rate=2e-4),
}


def train_and_save(
    folder: Path,
    architecture: Architecture,
    training: str,
    data: tuple[Images, Images],
    papers: float | None,
    small: bool,
    seed: int,
) -> str:
    """Train one model, save it, and return a line that says what was reached.

    Parameters
    ----------
    training : "plain", "noise", "moved" (shifted and mirrored), or "energy"
    data : training and test images; an energy-based model is trained on class 1 alone
    papers : the papers' test accuracy in percent, where they give one
    small : the data are scikit-learn's digits; the weights are then kept in half precision
    """
    train, test = data
    if training == "energy":
        effort = ENERGY_EFFORTS[architecture.name, small]
        network = train_energy_model(architecture, train.only(1), effort, seed, folder.name)
    else:
        network = train_classifier(architecture, train, EFFORTS[training, small], seed, folder.name)
    save(folder, network, {}, half=small)
    # What is stored is what is judged: half precision may move an image over the border.
    network = classifier.load(folder)
    about, line = _judge(network, training, test, papers)
    save(folder, network, {"training": training, "seed": seed, **about}, half=small)
    return line


def _judge(
    network: ImageNetwork, training: str, test: Images, papers: float | None
) -> tuple[dict[str, Any], str]:
    if training == "energy":
        f = outputs_of(network, test.x)[:, 0]
        auroc = float(roc_auc_score(test.y == 1, f.numpy()))
        noise = _mean_at_noise(network)
        mean = float(f[torch.from_numpy(test.y == 1)].mean())
        about = {"test_auroc": round(auroc, 6), "mean_log_likelihood_of_test_ones": round(mean, 3)}
        return about, (
            f"AUROC of test images of class 1 against the others {100 * auroc:.2f} %; mean f "
            f"{mean:.2f} of them, {noise:.2f} of uniform noise"
        )
    reached = accuracy(network, test)
    about = {"test_accuracy": round(reached, 6), "test_images": len(test)}
    beside = "" if papers is None else f" (the papers' own, on their data: {papers:g} %)"
    if papers is not None:
        about["papers_test_accuracy"] = papers / 100
    return about, f"{100 * reached:.2f} % of {len(test)} test images right{beside}"


def _mean_at_noise(network: ImageNetwork) -> float:
    shape = network.architecture.shape
    random = torch.Generator().manual_seed(0)
    x = torch.randint(shape.n_values, (200, shape.n_sites), generator=random)
    return float(network(x).mean())
