"""Do chains that begin at noise and at 1s meet? Mean z of a network of MNIST at some betas.

    python tests/benchmarks/phases.py cnn -10 -20 -40

NAME is that of an input file in inputs/mnist-cpu. Two sets of chains make `--moves` moves of the
discrete Langevin kernel at one beta; its step size is tuned in the first half. Each row has the
mean of z over the last quarter of the moves, over the quarter before, and the standard deviation of
the walkers' means.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
import torch

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from omniinput_hpc import kernels  # noqa: E402
from omniinput_hpc.config import input_file  # noqa: E402
from omniinput_hpc.config.kernels import DiscreteLangevin as Options  # noqa: E402
from omniinput_hpc.kernels.discrete_langevin import DiscreteLangevin  # noqa: E402
from omniinput_hpc.models.images import classifier  # noqa: E402
from omniinput_hpc.tempering.ensembles import Canonical  # noqa: E402
from omniinput_zoo import mnist_judges  # noqa: E402


def outputs(model: classifier.ImageClassifier, x: torch.Tensor, beta: float, moves: int):
    """Return z of the chains after each move, float32 [moves, W]."""
    n_walkers, n_sites = x.shape
    kernel = DiscreteLangevin(Options(name="discrete-langevin", step_size=200.0), model, n_walkers)
    generator = np.random.default_rng(1)
    block = n_walkers * (n_sites + 1) * 4
    stream = kernels.DeviceStream(generator, torch.device("cpu"), block)
    state, z, accepted = kernel.start(x, model.output(x)), [], np.zeros(1, dtype=np.int64)
    for move in range(moves):
        state, info = kernel.step(state, Canonical(beta), stream)
        z.append(state.z.numpy().copy())
        accepted += int(info.accepted.sum())
        if move % 2 and move < moves // 2:
            kernel.adapt(np.array([2 * n_walkers]), accepted)
            accepted = np.zeros(1, dtype=np.int64)
    return np.array(z)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name")
    parser.add_argument("betas", type=float, nargs="+")
    parser.add_argument("--moves", type=int, default=2000)
    parser.add_argument("--walkers", type=int, default=6)
    args = parser.parse_args()
    torch.set_num_threads(1)
    config = input_file.load(ROOT / f"inputs/mnist-cpu/{args.name}.toml", [])
    model = classifier.build(config.model, "cpu")
    noise = np.random.default_rng(1).integers(256, size=(args.walkers, 784))
    ones = mnist_judges.pictures_of_ones()[: args.walkers].reshape(args.walkers, -1)
    quarter = args.moves // 4
    for beta in args.betas:
        for name, x in (("noise", noise), ("1s", ones)):
            z = outputs(model, torch.from_numpy(x.astype(np.int64)), beta, args.moves)
            last, before = z[-quarter:], z[-2 * quarter : -quarter].mean()
            spread = last.mean(axis=0).std(ddof=1)
            print(
                f"{args.name}, beta {beta:g}, from {name}: z {last.mean():.2f} "
                f"(before: {before:.2f}), walkers {spread:.2f} apart",
                flush=True,
            )


if __name__ == "__main__":
    main()
