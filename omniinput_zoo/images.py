"""Train one of the papers' image models on data in a local folder.

``python -m omniinput_hpc.zoo.images cnn-mnist --data FOLDER`` reads MNIST's IDX files from the
folder and writes inputs/models/cnn-mnist, which inputs/cnn-mnist.toml samples. With ``--effort
cpu``, training on MNIST takes minutes on a CPU: the ResNet has 16 channels instead of 64, and
energy-based models take fewer steps, with chains that move all pixels at once. ``mnist-ten``
distinguishes all ten digits; it is not one of the papers' models, but serves as a judge of images.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from omniinput_hpc.errors import EXIT_BAD_INPUT, EXIT_COMPLETE, UserError
from omniinput_hpc.models.images.data_sets import (
    CIFAR_SHAPE,
    MNIST_SHAPE,
    Images,
    read_cifar,
    read_idx_set,
)
from omniinput_hpc.models.images.files import Architecture
from omniinput_zoo import keep_existing, new_parser

SIZES = {"cnn": 1, "mlp": 128, "resnet": 64}
CPU_CHANNELS = 16
"""Channels of the ResNet with --effort cpu: a pass takes a fifteenth of the work of 64 channels."""


@dataclass(frozen=True)
class Recipe:
    """A network to train, and its data.

    Attributes
    ----------
    architecture, training : see `omniinput_hpc.zoo.image_training.Task`
    data : "mnist", "cifar10" or "cifar100"
    papers_accuracy : the papers' test accuracy in percent (Liu et al., OmniInput, TMLR 2025,
        section 4; its forerunner, S2 in docs/papers.md, sections 3 and 17)
    """

    architecture: str
    training: str
    data: str
    n_outputs: int
    papers_accuracy: float | None


RECIPES = {
    "cnn-mnist": Recipe("cnn", "plain", "mnist", 1, 97.87),
    "mlp-mnist": Recipe("mlp", "plain", "mnist", 1, 99.95),
    "res-aug-mnist": Recipe("resnet", "noise", "mnist", 1, 99.95),
    "mlp-aug-mnist": Recipe("mlp", "noise", "mnist", 1, 99.91),
    "cnn-aug-mnist": Recipe("cnn", "noise", "mnist", 1, 99.33),
    "res-gen-mnist": Recipe("resnet", "energy", "mnist", 1, None),
    "mlp-gen-mnist": Recipe("mlp", "energy", "mnist", 1, None),
    "mnist-ten": Recipe("resnet", "noise", "mnist", 10, None),
    "cifar10-binary": Recipe("resnet", "shifted", "cifar10", 1, 93.34),
    "cifar10": Recipe("resnet", "shifted", "cifar10", 10, 88.0),
    "cifar100": Recipe("resnet", "shifted", "cifar100", 100, 62.0),
}


def read_data(recipe: Recipe, folder: Path) -> tuple[Images, Images]:
    """Return training and test images, only of classes 0 and 1 if the model has one output.

    Raises a `UserError` if a file is missing, with its source, or broken.
    """
    if recipe.data == "mnist":
        train, test = (read_idx_set(folder, "mnist", part) for part in ("train", "test"))
    else:
        n = int(recipe.data.removeprefix("cifar"))
        train, test = (read_cifar(folder, n, part) for part in ("train", "test"))
    return (train.only(0, 1), test.only(0, 1)) if recipe.n_outputs == 1 else (train, test)


def _device(requested: str, threads: int) -> str:
    """Return the torch device for "auto", "cpu" or "cuda"; a `UserError` if there is no GPU."""
    import torch

    torch.set_num_threads(threads)
    if requested == "cuda" and not torch.cuda.is_available():
        raise UserError("--device cuda: torch sees no GPU on this host; use auto or cpu")
    return "cuda" if requested != "cpu" and torch.cuda.is_available() else "cpu"


def main(arguments: list[str] | None = None) -> int:
    """Run ``python -m omniinput_hpc.zoo.images``."""
    parser = new_parser("images", __doc__, "RECIPE")
    parser.set_defaults(output=None)
    parser.add_argument("recipe", choices=RECIPES, metavar="RECIPE", help=", ".join(RECIPES))
    add = parser.add_argument
    add("--data", type=Path, required=True, help="folder with the files of the data")
    add("--effort", choices=("full", "cpu"), default="full", help="cpu: minutes, MNIST only")
    add("--device", choices=("auto", "cpu", "cuda"), default="auto", help="auto: a GPU, if any")
    args = parser.parse_args(arguments)
    recipe, output = RECIPES[args.recipe], args.output or Path("inputs/models", args.recipe)
    try:
        if args.effort == "cpu" and recipe.data != "mnist":
            raise UserError(f"--effort cpu: only for networks of MNIST, not for {args.recipe}")
        data = read_data(recipe, args.data)
        device = _device(args.device, args.threads)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return EXIT_BAD_INPUT
    keep_existing(args, output)

    from omniinput_zoo.image_training import Task, train_and_save

    size, shape = SIZES[recipe.architecture], MNIST_SHAPE if recipe.data == "mnist" else CIFAR_SHAPE
    if args.effort == "cpu" and recipe.architecture == "resnet":
        size = CPU_CHANNELS
    architecture = Architecture(recipe.architecture, shape, recipe.n_outputs, size)
    task = Task(architecture, recipe.training, data, args.effort, recipe.papers_accuracy, device)
    line = train_and_save(task, output, args.seed)
    print(f"{args.recipe}: {line}")
    return EXIT_COMPLETE


if __name__ == "__main__":
    raise SystemExit(main())
