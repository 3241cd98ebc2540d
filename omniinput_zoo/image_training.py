"""Train image networks in the papers' three ways: plain, with noise, or as energy-based models.

The papers (OmniInput, section 4) state only the losses and that noise of varying severity is added.
All numbers here, and how energy-based models are trained, are ours.

The single output f(x) of an energy-based model is the log-likelihood up to a constant: p(x) is
proportional to exp(f(x)). The gradient of the log-likelihood is that of f at the data minus that of
f at samples of the model. Persistent chains of one of our gradient kernels provide the samples
(persistent contrastive divergence, Tieleman 2008; for discrete inputs Grathwohl et al. 2021).
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import save_file
from sklearn.metrics import roc_auc_score
from torch.nn import functional as F

from omniinput_hpc import kernels, rng
from omniinput_hpc.config import ImageClassifier, KernelTable
from omniinput_hpc.config.kernels import DiscreteLangevin, GibbsWithGradients
from omniinput_hpc.models.images import classifier
from omniinput_hpc.models.images.data_sets import Images
from omniinput_hpc.models.images.files import DESCRIPTION, WEIGHTS, Architecture
from omniinput_hpc.models.images.networks import ImageNetwork
from omniinput_hpc.tempering.ensembles import Canonical
from omniinput_zoo.training import OneCycle

MAX_NORM = 5.0
"""Norm to which the gradient of the loss is clipped."""


@dataclass(frozen=True)
class Effort:
    """How long and how a network is trained.

    Attributes
    ----------
    epochs : passes over the training images
    batch : images per step of the optimizer
    rate : largest learning rate of the one-cycle schedule
    noise : whether training images get uniform noise of varying severity
    shifted : whether training images are shifted by up to 4 pixels and mirrored (CIFAR)
    """

    epochs: int
    batch: int = 128
    rate: float = 1e-3
    noise: bool = False
    shifted: bool = False


@dataclass(frozen=True)
class EnergyEffort:
    """How long an energy-based model is trained.

    Attributes
    ----------
    steps : steps of the optimizer
    moves : kernel moves of each chain between two steps
    chains : number of persistent chains, started at uniformly random inputs
    batch : training images per step
    rate : largest learning rate of the one-cycle schedule
    restart_share : share of the chains that restart at each step
    restart_at_data : whether they restart at training images with noise (`add_noise`), instead of
        at random inputs
    output_penalty : weight of the mean of (f / scale)^2 in the loss, which limits f
    scale : f, in nats, is so many times the output of the network in training
    all_sites : whether the chains move all sites at once (discrete Langevin) instead of one
    """

    steps: int
    moves: int = 20
    chains: int = 100
    batch: int = 100
    rate: float = 1e-3
    restart_share: float = 0.05
    restart_at_data: bool = False
    output_penalty: float = 1e-3
    scale: float = 1.0
    all_sites: bool = False


# "digits" is for scikit-learn's digits (240 images), "full" for all of MNIST 0/1 (12,665) and CIFAR
# (50,000), and "cpu" for MNIST 0/1 in minutes on a CPU, also with fewer images.
EFFORTS = {
    ("plain", "digits"): Effort(epochs=60, batch=32, rate=2e-3),
    ("noise", "digits"): Effort(epochs=250, batch=64, rate=2e-3, noise=True),
    ("plain", "full"): Effort(epochs=5),
    ("noise", "full"): Effort(epochs=20, noise=True),
    ("shifted", "full"): Effort(epochs=60, shifted=True),
    ("plain", "cpu"): Effort(epochs=5),
    ("noise", "cpu"): Effort(epochs=40, batch=32, rate=2e-3, noise=True),
}

# Few chains with many moves between steps: with fewer moves the chains lagged behind the network,
# which then learned to distinguish chains from data instead of the distribution of the data.
ENERGY_OF_DIGITS = EnergyEffort(
    steps=250, moves=40, chains=64, batch=64, rate=2e-3, restart_share=0.02, output_penalty=3e-3
)
# f of a digit must be thousands of nats above f of noise, since there are e^4347 images of noise:
# hence the scale.
ENERGY_OF_MLP = EnergyEffort(
    steps=1500,
    moves=5,
    chains=16,
    batch=16,
    rate=1e-3,
    restart_share=0.005,
    restart_at_data=True,
    output_penalty=1e-2,
    scale=500.0,
    all_sites=True,
)
# The layers of a ResNet multiply, so its rate must be smaller. Chains that restarted at noisy
# images stayed there, although digits are far more likely.
ENERGY_OF_RESNET = replace(
    ENERGY_OF_MLP, steps=1200, moves=10, rate=3e-4, output_penalty=2e-2, restart_share=0.0
)
FULL_ENERGY: dict[str, Any] = {"steps": 20_000, "moves": 20, "chains": 100, "batch": 100}
"""Changes for a full training."""


def energy_effort(effort: str, architecture: str) -> EnergyEffort:
    """Return how long an energy-based model is trained ("digits", "full" or "cpu")."""
    if effort == "digits":
        return ENERGY_OF_DIGITS
    found = ENERGY_OF_RESNET if architecture == "resnet" else ENERGY_OF_MLP
    return found if effort == "cpu" else replace(found, **FULL_ENERGY)


@dataclass(frozen=True)
class Task:
    """A network to train, its data, effort and device.

    Attributes
    ----------
    training : "plain", "noise", "shifted" (shifted and mirrored), or "energy"
    data : training and test images; an energy-based model is trained only on class 1
    effort : "digits", "full" or "cpu"; except for "full", weights are saved in half precision
    papers_accuracy : the papers' test accuracy in percent, if they give one
    device : torch device for training; the network is evaluated on the CPU
    """

    architecture: Architecture
    training: str
    data: tuple[Images, Images]
    effort: str
    papers_accuracy: float | None = None
    device: str = "cpu"


def train_and_save(task: Task, folder: Path, seed: int) -> str:
    """Train one model, save it in a folder, and return a line that reports its quality."""
    (train, test), half, about = task.data, task.effort != "full", {}
    if task.training == "energy":
        effort = energy_effort(task.effort, task.architecture.name)
        network, f_samples = train_energy_model(
            task.architecture, train.only(1), effort, seed, folder.name, task.device
        )
        about["mean_log_likelihood_of_its_samples"] = round(f_samples, 3)
    else:
        network = train_classifier(
            task.architecture,
            train,
            EFFORTS[task.training, task.effort],
            seed,
            folder.name,
            task.device,
        )
    save(folder, network.cpu(), {}, half)
    # Evaluate the saved weights: half precision may move an image across the decision boundary.
    network = classifier.load(folder)
    found, line = _evaluate(network, task.training, test, task.papers_accuracy)
    how = {"training": task.training, "effort": task.effort, "seed": seed}
    save(folder, network, {**how, "training_images": len(train), **found, **about}, half)
    return line + "".join(f"; {key} {value}" for key, value in about.items()).replace("_", " ")


def _evaluate(
    network: ImageNetwork, training: str, test: Images, papers_accuracy: float | None
) -> tuple[dict[str, Any], str]:
    if training == "energy":
        f = outputs_of(network, test.x)[:, 0]
        auroc = float(roc_auc_score(test.y == 1, f.numpy()))
        shape = network.architecture.shape
        random = torch.Generator().manual_seed(0)
        x = torch.randint(shape.n_values, (200, shape.n_sites), generator=random)
        noise = float(network(x).mean())
        mean = float(f[torch.from_numpy(test.y == 1)].mean())
        about = {"test_auroc": round(auroc, 6), "mean_log_likelihood_of_test_ones": round(mean, 3)}
        return about, (
            f"AUROC of class 1 against the other test images {100 * auroc:.2f} %; mean f "
            f"{mean:.2f} for class 1, {noise:.2f} for uniform noise"
        )
    reached = accuracy(network, test)
    about = {"test_accuracy": round(reached, 6), "test_images": len(test)}
    comparison = ""
    if papers_accuracy is not None:
        comparison = f" (the papers' model, on their data: {papers_accuracy:g} %)"
        about["papers_test_accuracy"] = papers_accuracy / 100
    return about, f"{100 * reached:.2f} % of {len(test)} test images correct{comparison}"


def add_noise(x: torch.Tensor, n_values: int, generator: torch.Generator) -> torch.Tensor:
    """Add uniform noise of varying severity to images x, int64 [W, D].

    The severity s of an image is uniform in [0, 1]. To each site a rounded number uniform in
    [-s N, s N], N = n_values - 1, is added, and the result is clipped to {0 .. N}.
    """
    severity = torch.rand((len(x), 1), generator=generator)
    noise = (2 * torch.rand(x.shape, generator=generator) - 1) * severity * (n_values - 1)
    return (x + noise.round().long()).clamp_(0, n_values - 1)


def shift_and_mirror(
    x: torch.Tensor, architecture: Architecture, generator: torch.Generator
) -> torch.Tensor:
    """Shift all images x, int64 [W, D], alike by up to 4 pixels, and mirror about half of them."""
    s = architecture.shape
    image = x.view(-1, s.height, s.width, s.channels)
    down, right = (int(torch.randint(9, (1,), generator=generator)) for _ in range(2))
    padded = F.pad(image, (0, 0, 4, 4, 4, 4))
    image = padded[:, down : down + s.height, right : right + s.width]
    mirrored = torch.rand(len(x), generator=generator) < 0.5
    return torch.where(mirrored[:, None, None, None], image.flip(2), image).reshape(x.shape)


def train_classifier(
    architecture: Architecture,
    images: Images,
    effort: Effort,
    seed: int,
    name: str,
    device: str = "cpu",
) -> ImageNetwork:
    """Train a classifier, by binary cross-entropy for one output (class 1), else cross-entropy."""
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    network = ImageNetwork(architecture).to(device)
    x_all, y_all = torch.from_numpy(images.x.astype(np.int64)), torch.from_numpy(images.y)
    n_batches = math.ceil(len(x_all) / effort.batch)
    training = OneCycle(network, effort.rate, effort.epochs * n_batches, name, decay=1e-2)
    with training.bar:
        for _ in range(effort.epochs):
            order = torch.randperm(len(x_all), generator=generator)
            for chosen in order.chunk(n_batches):
                x = x_all[chosen]
                if effort.shifted:
                    x = shift_and_mirror(x, architecture, generator)
                if effort.noise:
                    x = add_noise(x, architecture.shape.n_values, generator)
                loss = loss_of(network(x.to(device)), y_all[chosen].to(device))
                training.step(loss, MAX_NORM, loss=f"{loss.item():.4f}")
    return network.eval().requires_grad_(False)


def loss_of(outputs: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Return the mean cross-entropy of outputs [W, n_outputs] and classes y, int64 [W]."""
    if outputs.shape[1] == 1:
        return F.binary_cross_entropy_with_logits(outputs[:, 0], y.float())
    return F.cross_entropy(outputs, y)


@torch.no_grad()
def outputs_of(network: ImageNetwork, x: NDArray[np.uint8], batch: int = 500) -> torch.Tensor:
    """Return the outputs, float32 [n, n_outputs], of inputs x, integers [n, D]."""
    return torch.cat([network(part) for part in torch.from_numpy(x.astype(np.int64)).split(batch)])


def accuracy(network: ImageNetwork, images: Images) -> float:
    """Return the share of correctly classified images; a single output > 0 means class 1."""
    outputs = outputs_of(network, images.x)
    found = (outputs[:, 0] > 0).long() if outputs.shape[1] == 1 else outputs.argmax(dim=1)
    return float((found == torch.from_numpy(images.y)).double().mean())


def save(folder: Path, network: ImageNetwork, about: dict[str, Any], half: bool) -> None:
    """Write model.safetensors, in half precision if `half`, and model.json with `about`."""
    folder.mkdir(parents=True, exist_ok=True)
    state = network.state_dict()
    tensors = {k: (v.half() if half else v).contiguous() for k, v in state.items()}
    save_file(tensors, folder / WEIGHTS)
    (folder / WEIGHTS).chmod(0o644)  # safetensors creates it readable only by the owner
    text = json.dumps({**network.architecture.as_json(), **about}, indent=2)
    (folder / DESCRIPTION).write_text(text + "\n", encoding="utf-8")


def train_energy_model(
    architecture: Architecture,
    images: Images,
    effort: EnergyEffort,
    seed: int,
    name: str,
    device: str = "cpu",
) -> tuple[ImageNetwork, float]:
    """Train a network whose output f is the log-likelihood of images, up to a constant.

    Returns the network and the mean f of its chains after ten times as many moves as between two
    steps. If it is far from the mean f of test images, the model does not describe the data.
    """
    torch.manual_seed(seed)
    network = ImageNetwork(architecture).to(device)
    training = OneCycle(network, effort.rate, effort.steps, name, decay=1e-2, pct_start=0.1)
    data = torch.from_numpy(images.x.astype(np.int64)).to(device)
    chains = _Chains(network, data, effort, seed)
    random = torch.Generator().manual_seed(seed)
    with training.bar:
        for step in range(effort.steps):
            samples = chains.advance(effort.moves, effort.restart_share, step)
            chosen = torch.randint(len(data), (effort.batch,), generator=random).to(device)
            network.train().requires_grad_(True)
            f_data, f_samples = network(data[chosen])[:, 0], network(samples)[:, 0]
            squares = f_data.square().mean() + f_samples.square().mean()
            loss = f_samples.mean() - f_data.mean() + effort.output_penalty * squares
            both = {"data": f_data, "samples": f_samples}
            means = {name: f"{effort.scale * f.mean():.2f}" for name, f in both.items()}
            training.step(loss, MAX_NORM, **means)
    samples = chains.advance(10 * effort.moves, 0.0, effort.steps)
    network.eval().requires_grad_(False)
    for part in network.body.get_submodule("last").parameters():
        part.mul_(effort.scale)
    return network, float(network(samples).mean())


class _Chains:
    """Persistent chains that sample the model's own distribution, p(x) proportional to exp(f)."""

    def __init__(
        self, network: ImageNetwork, data: torch.Tensor, effort: EnergyEffort, seed: int
    ) -> None:
        self._network, self._seed, self._device = network, seed, data.device
        self._data = data.cpu() if effort.restart_at_data else None
        self._own = Canonical(-effort.scale)  # z is the network's output
        shape = network.architecture.shape
        options = ImageClassifier(
            kind="image-classifier", path="(in training)", target="log-likelihood"
        )
        self._model = classifier.ImageClassifier(network.pixels, network.body, shape, options)
        table: KernelTable = GibbsWithGradients(name="gibbs-with-gradients")
        if effort.all_sites:
            table = DiscreteLangevin(name="discrete-langevin")
        self._kernel = kernels.build(table, self._model, effort.chains)
        self._x = self._random(effort.chains, 0)

    def _random(self, n: int, step: int) -> torch.Tensor:
        generator = rng.generator(self._seed, "start", step)
        n_values, n_sites = self._model.n_values, self._model.n_sites
        return torch.from_numpy(generator.integers(n_values, size=(n, n_sites))).to(self._device)

    def _restarted(self, n: int, step: int) -> torch.Tensor:
        if self._data is None:
            return self._random(n, step)
        generator = torch.Generator().manual_seed(self._seed + step)
        chosen = torch.randint(len(self._data), (n,), generator=generator)
        noisy = add_noise(self._data[chosen], self._model.n_values, generator)
        return noisy.to(self._device)

    def advance(self, moves: int, restart_share: float, step: int) -> torch.Tensor:
        """Return the chains, int64 [n, D], after some moves with the present network."""
        self._network.eval().requires_grad_(False)
        x, n = self._x, len(self._x)
        u = rng.generator(self._seed, "choices", step).random(n)
        restarted = np.flatnonzero(u < (restart_share if step else 0.0))
        x[restarted] = self._restarted(len(restarted), step + 1)
        block = moves * self._kernel.uniforms_per_move
        generator = rng.generator(self._seed, "moves", step)
        stream = kernels.DeviceStream(generator, self._device, block)
        state, accepted = self._kernel.start(x, self._model.output(x)), 0
        for _ in range(moves):
            state, info = self._kernel.step(state, self._own, stream)
            accepted += int(info.accepted.sum())
        self._tune(moves * n, accepted)
        self._x = state.x.clone()
        return self._x

    def _tune(self, attempted: int, accepted: int) -> None:
        """Adapt the step size; the gain stops falling after ten times, as the network changes."""
        if len(self._kernel.tuned):
            self._kernel.adapt(np.array([attempted]), np.array([accepted]))
            self._kernel.tuned = np.minimum(self._kernel.tuned, [np.inf, 10.0])
