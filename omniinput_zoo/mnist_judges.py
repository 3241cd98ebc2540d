"""Judges that score images of digits automatically, and test sets that need no download.

inputs/judges/mnist-prototypes holds a hundred training images of each digit, so that scoring needs
no other data. ``python -m omniinput_hpc.zoo.mnist_judges --data FOLDER`` makes them from MNIST's
IDX files; ``--sets FOLDER`` writes images for `omniinput test-sets`. inputs/judges/mnist-ten
holds a network for all ten digits, made by ``omniinput_hpc.zoo.images mnist-ten``.
"""

from __future__ import annotations

import argparse
import gzip
import struct
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from omniinput_hpc.errors import EXIT_BAD_INPUT, EXIT_COMPLETE, UserError
from omniinput_hpc.models.images.data_sets import MNIST_SHAPE, Images, read_digits, read_idx_set
from omniinput_hpc.text import print_any_text
from omniinput_zoo import digits

if TYPE_CHECKING:
    from omniinput_hpc.models.images.networks import ImageNetwork

JUDGES = Path(__file__).parents[1] / "inputs/judges"
FOLDER = JUDGES / "mnist-prototypes"
NETWORK = JUDGES / "mnist-ten"
PER_DIGIT = 100
NEIGHBOURS = 5
MIN_CORRELATION = 0.6
"""The held-out 1 that is least like a prototype has 0.59; uniform noise never exceeds 0.18."""
BATCH = 4096
NETWORK_BATCH = 256


@cache
def prototypes() -> Images:
    """Return a hundred images of each digit, x uint8 [1000, 784]; a `UserError` if missing."""
    return read_idx_set(_of_repository(FOLDER), "mnist", "train")


def _of_repository(folder: Path) -> Path:
    """Return a folder of `JUDGES`; a `UserError` if it is missing, as beside a wheel."""
    if not folder.is_dir():
        raise UserError(
            f"{folder} is missing, since a wheel lacks the judges' data: copy inputs/judges of the "
            f"repository to {JUDGES}"
        )
    return folder


def nearest_are_ones(x: NDArray[np.integer[Any]]) -> NDArray[np.float64]:
    """Score inputs by the share of 1s among the 5 nearest prototypes.

    The nearest ones have the largest correlations, which may be small. x are integers [n, 784],
    0 to 255; returns float64 [n].
    """
    return np.concatenate([_share_of_ones(c) for c in _correlations(x)])


def looks_like_one(x: NDArray[np.integer[Any]]) -> NDArray[np.float64]:
    """Score inputs by a stricter rule: 1 if an image is close to a handwritten 1, else 0.

    An image is close if three or more of the 5 nearest prototypes are 1s, and the correlation with
    the nearest is 0.6 or more. x are integers [n, 784], 0 to 255; returns float64 [n].
    """
    parts = [
        (_share_of_ones(c) > 0.5) & (c.max(axis=1) >= MIN_CORRELATION) for c in _correlations(x)
    ]
    return np.concatenate(parts).astype(np.float64)


def probability_of_one(x: NDArray[np.integer[Any]]) -> NDArray[np.float64]:
    """Score inputs by the probability of a 1, from a network trained on all digits with noise.

    x are integers [n, 784], 0 to 255; returns float64 [n]. Uniform noise gets 0.007 on average.
    """
    import torch

    network, parts = _network(), torch.from_numpy(x.astype(np.int64)).split(NETWORK_BATCH)
    with torch.no_grad():
        probability = torch.cat([network(part).double().softmax(-1)[:, 1] for part in parts])
    return np.asarray(probability.numpy(), dtype=np.float64)


@cache
def _network() -> ImageNetwork:
    from omniinput_hpc.models.images import classifier

    return classifier.load(_of_repository(NETWORK))


def pictures_of_ones() -> NDArray[np.uint8]:
    """Return the prototypes of a 1 as a person sees them, uint8 [100, 28, 28]."""
    return MNIST_SHAPE.pixels(prototypes().only(1).x)


def _share_of_ones(correlation: NDArray[np.float64]) -> NDArray[np.float64]:
    nearest = np.argpartition(-correlation, NEIGHBOURS - 1, axis=1)[:, :NEIGHBOURS]
    return np.asarray((prototypes().y[nearest] == 1).mean(axis=1), dtype=np.float64)


def _correlations(x: NDArray[np.integer[Any]]) -> list[NDArray[np.float64]]:
    """Return the correlations of inputs with all prototypes, as batches [n, 1000]."""
    known = digits.standardized(prototypes().x).T
    return [digits.standardized(x[i : i + BATCH]) @ known for i in range(0, max(1, len(x)), BATCH)]


def uniform_noise(n: int = 1000) -> NDArray[np.uint8]:
    """Return n images of uniform noise, uint8 [n, 28, 28], the same in every call."""
    return np.random.default_rng(0).integers(256, size=(n, 28, 28), dtype=np.uint8)


def digits_scaled_up(*labels: int) -> NDArray[np.uint8]:
    """Return scikit-learn's 8 x 8 digits as uint8 [n, 28, 28]: 3 x 3 per pixel, a border of 2."""
    small = digits.SHAPE.pixels(read_digits(*labels).x)  # 0 to 255
    return np.pad(small.repeat(3, axis=1).repeat(3, axis=2), ((0, 0), (2, 2), (2, 2)))


def write_sets(folder: Path) -> list[Path]:
    """Write the test sets that need no data; return their files."""
    folder.mkdir(parents=True, exist_ok=True)
    sets = {
        "mnist-1": pictures_of_ones(),
        "mnist-0": MNIST_SHAPE.pixels(prototypes().only(0).x),
        "mnist-2-to-9": MNIST_SHAPE.pixels(prototypes().only(*range(2, 10)).x),
        "uniform-noise": uniform_noise(),
        "digits-0": digits_scaled_up(0),
        "digits-2-to-9": digits_scaled_up(*range(2, 10)),
    }
    for name, pictures in sets.items():
        np.save(folder / f"{name}.npy", pictures)
    return [folder / f"{name}.npy" for name in sets]


def write_prototypes(train: Images, folder: Path) -> None:
    """Write the first hundred images of each digit as MNIST's IDX files, reproducibly."""
    chosen = np.concatenate([np.flatnonzero(train.y == d)[:PER_DIGIT] for d in range(10)])
    x = train.x[chosen].reshape(-1, 28, 28)
    folder.mkdir(parents=True, exist_ok=True)
    for name, array in (("images-idx3", x), ("labels-idx1", train.y[chosen].astype(np.uint8))):
        header = struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape)
        content = gzip.compress(header + array.tobytes(), mtime=0)
        (folder / f"train-{name}-ubyte.gz").write_bytes(content)


def main(arguments: list[str] | None = None) -> int:
    """Run ``python -m omniinput_hpc.zoo.mnist_judges``."""
    print_any_text()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help="folder with MNIST's IDX files")
    parser.add_argument(
        "--sets", type=Path, help="folder for test sets: noise, small digits, and the prototypes"
    )
    args = parser.parse_args(arguments)
    try:
        if args.data:
            write_prototypes(read_idx_set(args.data, "mnist", "train"), FOLDER)
            print(FOLDER)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return EXIT_BAD_INPUT
    if args.sets:
        print(*write_sets(args.sets), sep="\n")
    return EXIT_COMPLETE


if __name__ == "__main__":
    raise SystemExit(main())
