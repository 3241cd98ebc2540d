"""Train the papers' image models on scikit-learn's handwritten 0s and 1s, 8 x 8, 17 grey levels.

The data come with scikit-learn, so nothing needs to be fetched. ``python -m
omniinput_hpc.zoo.digits`` trains all seven models; their weights are in inputs/models. The ResNet
has 16 channels instead of the papers' 64, since an 8 x 8 image has a twelfth of MNIST's pixels.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from omniinput_hpc.models.images.data_sets import read_digits, split_digits
from omniinput_hpc.models.images.files import Architecture, Shape
from omniinput_zoo import keep_existing, new_parser
from omniinput_zoo.images import RECIPES

SHAPE = Shape(8, 8, 1, 17)
# Channels of the ResNet, width of the MLP; the CNN has only one size.
SIZES = {"cnn": 1, "mlp": 128, "resnet": 16}
# The recipes of MNIST 0/1, with the papers' test accuracies there.
MODELS = {
    name.removesuffix("-mnist"): recipe
    for name, recipe in RECIPES.items()
    if name.endswith("-mnist")
}
MIN_CORRELATION = 0.7  # real 1s have 0.8 or more among each other, uniform noise below 0.55


def looks_like_one(x: NDArray[np.integer[Any]]) -> NDArray[np.float64]:
    """Score inputs by a rule: 1 if an image is close to a handwritten 1, else 0.

    An image is close if its largest correlation with scikit-learn's images of a 1 is at least 0.7,
    and larger than that with the images of any other digit. No person looked at the images. x are
    integers [n, 64], 0 to 16; returns float64 [n].
    """
    one, other = _nearest(x)
    return np.asarray((one >= MIN_CORRELATION) & (one > other), dtype=np.float64)


def nearest_is_one(x: NDArray[np.integer[Any]]) -> NDArray[np.float64]:
    """Score inputs by a milder rule: 1 if the most correlated image of a digit is a 1, else 0.

    The correlation may be small. x are integers [n, 64]; returns float64 [n].
    """
    one, other = _nearest(x)
    return np.asarray(one > other, dtype=np.float64)


def pictures_of_ones() -> NDArray[np.uint8]:
    """Return scikit-learn's images of a 1 as a person sees them, uint8 [n, 8, 8]."""
    return SHAPE.pixels(read_digits(1).x)


def _nearest(x: NDArray[np.integer[Any]]) -> NDArray[np.float64]:
    """Return the largest correlations with images of a 1 and with those of other digits, [2, n]."""
    images = read_digits()
    known, ones = standardized(images.x), images.y == 1
    parts = (standardized(x[i : i + 4096]) @ known.T for i in range(0, len(x), 4096))
    return np.hstack([(part[:, ones].max(axis=1), part[:, ~ones].max(axis=1)) for part in parts])


def standardized(x: NDArray[np.integer[Any]]) -> NDArray[np.float64]:
    """Return images with mean 0 and norm 1, or norm 0 if all pixels are equal."""
    centred = x - x.mean(axis=1, keepdims=True)
    norm = np.linalg.norm(centred, axis=1, keepdims=True)
    return np.asarray(centred / np.where(norm > 0, norm, 1.0), dtype=np.float64)


def main(arguments: list[str] | None = None) -> int:
    """Run ``python -m omniinput_hpc.zoo.digits``."""
    parser = new_parser("digits", __doc__)
    parser.add_argument(
        "models", nargs="*", metavar="MODEL", help=f"default: all of {', '.join(MODELS)}"
    )
    args = parser.parse_args(arguments)
    unknown = [name for name in args.models if name not in MODELS]
    if unknown:
        parser.error(f"unknown model {unknown[0]}; known: {', '.join(MODELS)}")
    for name in args.models or MODELS:
        keep_existing(args, args.output / f"digits-{name}")

    import torch

    from omniinput_zoo.image_training import Task, train_and_save

    torch.set_num_threads(args.threads)
    for name in args.models or MODELS:
        begin = time.monotonic()
        recipe = MODELS[name]
        size = SIZES[recipe.architecture]
        architecture = Architecture(recipe.architecture, SHAPE, 1, size)
        data = split_digits(read_digits(0, 1))
        task = Task(architecture, recipe.training, data, "digits", recipe.papers_accuracy)
        line = train_and_save(task, args.output / f"digits-{name}", args.seed)
        print(f"digits-{name}: {line}; {time.monotonic() - begin:.0f} s", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
