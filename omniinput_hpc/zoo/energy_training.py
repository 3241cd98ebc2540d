"""Training energy-based models: persistent contrastive divergence with our own gradient kernel.

The network's single output f(x) is the log-likelihood up to a constant: p(x) proportional to
exp(f(x)). Its gradient is that of f at the data minus that of f at samples of the model, which
persistent chains provide (Tieleman 2008; for discrete inputs Grathwohl et al. 2021).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from omniinput_hpc import kernels, rng
from omniinput_hpc.config import GibbsWithGradients, ImageClassifier
from omniinput_hpc.models.images import classifier
from omniinput_hpc.models.images.files import Architecture
from omniinput_hpc.models.images.networks import ImageNetwork
from omniinput_hpc.tempering.ensembles import Canonical
from omniinput_hpc.zoo.image_data import Images
from omniinput_hpc.zoo.image_training import progress


@dataclass(frozen=True)
class EnergyEffort:
    """How long an energy-based model is trained.

    Attributes
    ----------
    steps : of the optimizer
    moves : of each chain between two of them
    chains : persistent chains, from uniformly random inputs
    fresh : share of the chains that begin anew at random inputs at each step
    tether : weight of the mean of f^2, which keeps f's constant and scale within bounds
    """

    steps: int
    moves: int = 20
    chains: int = 100
    batch: int = 100
    rate: float = 1e-3
    fresh: float = 0.05
    tether: float = 1e-3


def train_energy_model(
    architecture: Architecture, images: Images, effort: EnergyEffort, seed: int, name: str
) -> ImageNetwork:
    """Train a network whose output is the log-likelihood of images, up to a constant."""
    torch.manual_seed(seed)
    network = ImageNetwork(architecture)
    optimizer = torch.optim.AdamW(network.parameters(), lr=effort.rate, weight_decay=1e-2)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, effort.rate, total_steps=effort.steps, pct_start=0.1
    )
    data = torch.from_numpy(images.x.astype(np.int64))
    chains = _Chains(network, effort.chains, seed)
    random = torch.Generator().manual_seed(seed)
    with progress(effort.steps, name) as bar:
        for step in range(effort.steps):
            samples = chains.advance(effort.moves, effort.fresh, step)
            chosen = torch.randint(len(data), (effort.batch,), generator=random)
            network.train().requires_grad_(True)
            f_data, f_samples = network(data[chosen])[:, 0], network(samples)[:, 0]
            scale = f_data.square().mean() + f_samples.square().mean()
            loss = f_samples.mean() - f_data.mean() + effort.tether * scale
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(network.parameters(), 5.0)
            optimizer.step()
            schedule.step()
            bar.update()
            means = {"data": f"{f_data.mean():.2f}", "samples": f"{f_samples.mean():.2f}"}
            bar.set_postfix(means, refresh=False)
    return network.eval().requires_grad_(False)


class _Chains:
    """Persistent chains of the model's own distribution, beta = -1 for z = f."""

    def __init__(self, network: ImageNetwork, n: int, seed: int) -> None:
        self._network, self._seed = network, seed
        shape = network.architecture.shape
        options = ImageClassifier(
            kind="image-classifier", path="(in training)", target="log-likelihood"
        )
        self._model = classifier.ImageClassifier(network.pixels, network.body, shape, options)
        self._kernel = kernels.build(
            GibbsWithGradients(name="gibbs-with-gradients"), self._model, n
        )
        self._x = self._random(n, 0)

    def _random(self, n: int, step: int) -> torch.Tensor:
        generator = rng.generator(self._seed, "start", step)
        n_values, n_sites = self._model.n_values, self._model.n_sites
        return torch.from_numpy(generator.integers(n_values, size=(n, n_sites)))

    def advance(self, moves: int, fresh: float, step: int) -> torch.Tensor:
        """Return the chains, int64 [n, D], after some moves under the network as it is now."""
        self._network.eval().requires_grad_(False)
        x, n = self._x, len(self._x)
        anew = np.flatnonzero(
            rng.generator(self._seed, "choices", step).random(n) < (fresh if step else 0.0)
        )
        x[anew] = self._random(len(anew), step + 1)
        block = moves * self._kernel.uniforms_per_move
        generator = rng.generator(self._seed, "moves", step)
        stream = kernels.DeviceStream(generator, torch.device("cpu"), block)
        state = self._kernel.start(x, self._model.output(x))
        for _ in range(moves):
            state, _ = self._kernel.step(state, Canonical(-1.0), stream)
        self._x = state.x.clone()
        return self._x
