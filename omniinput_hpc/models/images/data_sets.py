"""Read the papers' image data sets from a local folder: IDX files, and CIFAR's binary version.

Nothing is downloaded: errors state which file to fetch and where to put it; the digits come with
scikit-learn. Does not import torch.
"""

from __future__ import annotations

import gzip
import io
import zlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from omniinput_hpc.errors import UserError
from omniinput_hpc.models.images.files import Shape
from omniinput_hpc.untrusted.files import read_bytes

MAX_BYTES = 1 << 30
"""Largest size of a file, before and after unpacking; the largest set (EMNIST) has 550 MB."""
MNIST_SHAPE, CIFAR_SHAPE = Shape(28, 28, 1, 256), Shape(32, 32, 3, 256)

_IDX_TYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}

# The source of each IDX data set, and the pattern of its file names ({part}: train or test).
IDX_SETS = {
    "mnist": ("MNIST, https://ossci-datasets.s3.amazonaws.com/mnist", "{old}-{what}"),
    "fashion": ("Fashion-MNIST, https://github.com/zalandoresearch/fashion-mnist", "{old}-{what}"),
    "kuzushiji": ("Kuzushiji-MNIST, http://codh.rois.ac.jp/kmnist", "{old}-{what}"),
    "emnist": (
        "EMNIST (gzip.zip), https://www.nist.gov/itl/products-and-services/emnist-dataset",
        "emnist-byclass-{part}-{what}",
    ),
    "emnist-as-stored": (
        "EMNIST (gzip.zip), https://www.nist.gov/itl/products-and-services/emnist-dataset",
        "emnist-byclass-{part}-{what}",
    ),
    "qmnist": ("QMNIST, https://github.com/facebookresearch/qmnist", "qmnist-{part}-{what}"),
}
_IMAGES = ("images-idx3-ubyte",)
_LABELS = ("labels-idx1-ubyte", "labels-idx2-int")


@dataclass(frozen=True)
class Images:
    """Labelled images.

    Attributes
    ----------
    x : uint8 [n, D], grey levels; sites as in `omniinput_hpc.models.images.files.Shape`
    y : int64 [n], classes
    n_levels : number of grey levels
    """

    x: NDArray[np.uint8]
    y: NDArray[np.int64]
    n_levels: int = 256

    def only(self, *labels: int) -> Images:
        """Return the images of the classes `labels`, renumbered by position in `labels`."""
        kept = np.isin(self.y, labels)
        y = np.searchsorted(labels, self.y[kept]).astype(np.int64)
        return replace(self, x=self.x[kept], y=y)

    def at_levels(self, n_values: int) -> NDArray[np.int64]:
        """Return levels of a model with `n_values` of them, int64 [n, D], as for own pictures."""
        return np.asarray(np.rint(self.x * ((n_values - 1) / (self.n_levels - 1))), dtype=np.int64)

    def __len__(self) -> int:
        """Return the number of images."""
        return len(self.x)


def read_digits(*labels: int) -> Images:
    """Return scikit-learn's images of some digits, x uint8 [n, 64] with values 0 to 16."""
    from sklearn.datasets import load_digits

    data = load_digits()
    x, y = np.asarray(data.data, dtype=np.uint8), np.asarray(data.target, dtype=np.int64)
    images = Images(x, y, n_levels=17)
    return images.only(*labels) if labels else images


def split_digits(images: Images) -> tuple[Images, Images]:
    """Return the training and the test images; every third image is a test image."""
    test = np.arange(len(images)) % 3 == 0
    one, other = (replace(images, x=images.x[i], y=images.y[i]) for i in (~test, test))
    return one, other


def digits_test_set() -> Images:
    """Return the test images of all digits; no model of the zoo learned from its 0s and 1s."""
    pair, every = (split_digits(images)[1] for images in (read_digits(0, 1), read_digits()))
    x, y = every.x[every.y > 1], every.y[every.y > 1]
    return replace(pair, x=np.concatenate([pair.x, x]), y=np.concatenate([pair.y, y]))


def read_idx(path: Path) -> NDArray[Any]:
    """Return the array of an IDX file, gzipped or not (LeCun's MNIST page gives the format).

    Raises a `UserError` if the file is missing, or if its header or length is wrong.
    """
    content = read_bytes(path, "IDX file", MAX_BYTES)
    try:
        if content[:2] == b"\x1f\x8b":
            with gzip.GzipFile(fileobj=io.BytesIO(content)) as file:
                content = file.read(MAX_BYTES + 1)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise UserError(f"{path}: the gzipped file is cut short or broken: {error}") from None
    if len(content) > MAX_BYTES:
        raise UserError(f"{path} holds more than {MAX_BYTES:,} bytes, too many for an IDX file")
    if len(content) < 4 or content[:2] != b"\0\0" or content[2] not in _IDX_TYPES:
        raise UserError(f"{path} is not an IDX file (it must begin with two zero bytes and a type)")
    dtype, n_axes = np.dtype(_IDX_TYPES[content[2]]), content[3]
    begin = 4 + 4 * n_axes
    if n_axes < 1 or len(content) < begin:
        raise UserError(f"{path}: the IDX file is cut short in its header")
    shape = [int(n) for n in np.frombuffer(content[4:begin], dtype=">u4")]
    expected = begin + int(np.prod(shape, dtype=object)) * dtype.itemsize
    if len(content) != expected:
        what = "cut short" if len(content) < expected else "too long"
        raise UserError(
            f"{path}: the IDX file is {what}: {len(content):,} bytes, not the {expected:,} that "
            f"its header {shape} announces"
        )
    return np.frombuffer(content[begin:], dtype=dtype).reshape(shape)


def read_images(path: Path, as_stored: bool = False) -> NDArray[np.uint8]:
    """Return the 28 x 28 images of an IDX file as inputs, uint8 [n, 784]; errors as `read_idx`.

    as_stored : leave EMNIST's images transposed, as its files store them
    """
    array = read_idx(path)
    if array.ndim != 3 or array.dtype != np.uint8 or array.shape[1:] != (28, 28):
        raise UserError(
            f"{path} holds {array.dtype} {list(array.shape)}, not images uint8 [n, 28, 28]"
        )
    if "emnist" in path.name and not as_stored:
        array = array.transpose(0, 2, 1)
    return np.ascontiguousarray(array.reshape(len(array), -1))


def read_idx_set(folder: Path, name: str, part: str) -> Images:
    """Return the "train" or "test" part of one of `IDX_SETS` from its folder.

    Raises a `UserError` that names a file if it is missing, broken, or of the wrong kind or set.
    """
    images, labels = (_find(folder, name, part, what) for what in (_IMAGES, _LABELS))
    x, y = read_images(images, name.endswith("-as-stored")), read_idx(labels)
    if y.ndim == 2 and y.shape[1:] == (8,):  # QMNIST: the class, then the origin of the image
        y = y[:, 0]
    if y.ndim != 1 or y.dtype.kind not in "iu":
        raise UserError(f"{labels} holds {y.dtype} {list(y.shape)}, not labels")
    if len(x) != len(y):
        raise UserError(f"{images} has {len(x):,} images, but {labels} has {len(y):,} labels")
    return Images(x, y.astype(np.int64))


def _find(folder: Path, name: str, part: str, what: tuple[str, ...]) -> Path:
    source, pattern = IDX_SETS[name]
    old = "t10k" if part == "test" else part
    stems = [pattern.format(old=old, part=part, what=w) for w in what]
    for stem in stems:
        for file in (folder / stem, folder / f"{stem}.gz", folder / stem.replace("-idx", ".idx")):
            if file.is_file():
                return file
    raise UserError(
        f"{folder / stems[0]}.gz is missing: fetch it ({source}) and put it there, gzipped or not"
    )


def read_cifar(folder: Path, n_classes: int, part: str) -> Images:
    """Return CIFAR-10 (`n_classes` 10) or CIFAR-100 (100: fine labels) from its binary version.

    Raises a `UserError` that names a file if it is missing, cut short, or a pickle (never loaded).
    """
    names = ["train.bin"] if part == "train" else ["test.bin"]
    n_labels, per_file = 2, 50_000 if part == "train" else 10_000
    archive = "cifar-100-binary.tar.gz"
    if n_classes == 10:
        names = [f"data_batch_{i}.bin" for i in range(1, 6)]
        names = names if part == "train" else ["test_batch.bin"]
        n_labels, per_file, archive = 1, 10_000, "cifar-10-binary.tar.gz"
    size = n_labels + CIFAR_SHAPE.n_sites
    records = [_cifar_records(folder / name, size, per_file, archive) for name in names]
    r = np.concatenate(records)
    planes = r[:, n_labels:].reshape(-1, 3, 32 * 32)  # red, green and blue planes, each by rows
    y = r[:, n_labels - 1].astype(np.int64)
    if y.max() >= n_classes:
        raise UserError(f"{folder}: class {y.max()} in a file of CIFAR-{n_classes}")
    return Images(np.ascontiguousarray(planes.transpose(0, 2, 1)).reshape(len(r), -1), y)


def _cifar_records(file: Path, size: int, n: int, archive: str) -> NDArray[np.uint8]:
    advice = f"fetch {archive} (https://www.cs.toronto.edu/~kriz/cifar.html) and unpack it there"
    pickled = file.with_suffix("")
    if not file.is_file():
        if pickled.is_file():
            raise UserError(
                f"{pickled} belongs to CIFAR's pickled version, which is never loaded: {advice}"
            )
        raise UserError(f"{file} is missing: {advice}")
    content = np.frombuffer(read_bytes(file, "CIFAR file", MAX_BYTES), dtype=np.uint8)
    if len(content) > 1 and content[0] == 0x80 and len(content) % size:
        raise UserError(f"{file} is a pickle, not CIFAR's binary version: {advice}")
    if len(content) != n * size:
        raise UserError(
            f"{file} has {len(content):,} bytes, not the {n * size:,} of {n:,} images: it is cut "
            f"short or not a CIFAR file; {advice}"
        )
    return content.reshape(n, size)
