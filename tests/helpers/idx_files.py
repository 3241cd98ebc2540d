"""Small IDX files, written as the data sets' authors write them."""

import gzip
import struct

import numpy as np

TYPES = {"u1": 0x08, "i4": 0x0C, "f4": 0x0D}


def idx(array):
    """Return an array as the bytes of an IDX file."""
    head = struct.pack(">BBBB", 0, 0, TYPES[array.dtype.str[1:]], array.ndim)
    return head + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


def write_mnist(folder, n, part="t10k", zipped=False, seed=0):
    """Write n random images and labels; return them."""
    random = np.random.default_rng(seed)
    x = random.integers(0, 256, (n, 28, 28), dtype=np.uint8)
    y = random.integers(0, 4, n, dtype=np.uint8)
    for array, what in ((x, "images-idx3-ubyte"), (y, "labels-idx1-ubyte")):
        content = idx(array)
        name = f"{part}-{what}" + (".gz" if zipped else "")
        (folder / name).write_bytes(gzip.compress(content) if zipped else content)
    return x, y
