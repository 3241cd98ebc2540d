"""Destroying the metadata of a run file: its superblock, object headers, or all that is no data."""

from __future__ import annotations

import h5py
import numpy as np

from omniinput_hpc.runfile.layout import layout
from omniinput_hpc.runfile.reader import open_run

N_BYTES = 40
"""Of an object header that is destroyed: its prefix, and the first of its messages."""
SUPERBLOCK = 96


def headers(path):
    """Return where each group's and dataset's object header begins, by name."""
    found = {}
    with h5py.File(path, "r", locking=False) as file:
        found["/"] = h5py.h5o.get_info(file.id).addr
        file.visititems(
            lambda name, item: found.update({name: h5py.h5o.get_info(item.id).addr}) or None
        )
    return found


def offsets(path):
    """Return where each dataset's bytes begin."""
    with open_run(path) as run:
        return run.offsets()


def data(path):
    """Return a mask of a file's bytes: whether they are a dataset's."""
    mask = np.zeros(path.stat().st_size, dtype=bool)
    with open_run(path) as run:
        begin = run.offsets()
        for name, field in layout(run.geometry).items():
            n_bytes = int(np.prod(field.shape)) * np.dtype(field.dtype).itemsize
            mask[begin[name] : begin[name] + n_bytes] = True
    return mask


def overwrite(path, begin, n_bytes, seed=None):
    """Replace bytes by zeros, or by random ones."""
    new = bytes(n_bytes) if seed is None else np.random.default_rng(seed).bytes(n_bytes)
    with open(path, "r+b") as file:
        file.seek(begin)
        file.write(new)


def flip(path, bit):
    """Flip a bit of a file."""
    with open(path, "r+b") as file:
        file.seek(bit // 8)
        byte = file.read(1)[0]
        file.seek(bit // 8)
        file.write(bytes([byte ^ 1 << bit % 8]))


def superblock(path, seed=None):
    overwrite(path, 0, SUPERBLOCK, seed)


def header(path, name, seed=None):
    overwrite(path, headers(path)[name], N_BYTES, seed)


def all_headers(path, seed=None):
    for begin in headers(path).values():
        overwrite(path, begin, N_BYTES, seed)


def all_metadata(path, seed=1):
    """Replace every byte that is no dataset's."""
    old = np.fromfile(path, dtype=np.uint8)
    noise = np.random.default_rng(seed).integers(256, size=len(old), dtype=np.uint8)
    np.where(data(path), old, noise).tofile(path)
