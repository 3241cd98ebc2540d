"""Sets of reference pictures, and the distance from the nearest of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from omniinput_hpc.errors import UserError
from omniinput_hpc.plugins import load_function
from omniinput_hpc.untrusted import pictures
from omniinput_hpc.untrusted.npy import read_array

Pictures = NDArray[np.uint8]
ROWS_AT_ONCE = 1024


def read_references(name: str, asked: str, fewest: int = 1) -> Pictures:
    """Return reference pictures, uint8 [n, h, w] or [n, h, w, 3].

    `name` is a folder of pictures, a ``.npy`` file, or ``module:function`` that returns such an
    array. Raises a UserError that begins with `asked`, which ends with the name, if it is none of
    these, or holds fewer than `fewest` pictures, or pictures of several shapes.
    """
    path = Path(name)
    if path.is_dir():
        images = _of_folder(path, asked)
    elif path.suffix == ".npy":
        images = read_array(path, asked)
    elif ":" in name:
        images = np.asarray(load_function(name, asked.removesuffix(name).rstrip())())
    else:
        raise UserError(f"{asked}: not a folder of pictures, a .npy file or module:function")
    right = images.dtype == np.uint8 and (images.ndim == 3 or images.shape[3:] == (3,))
    if not right or len(images) < fewest:
        raise UserError(
            f"{asked}: expected {fewest} or more pictures uint8 [n, h, w] or [n, h, w, 3], "
            f"got {images.dtype} {list(images.shape)}"
        )
    return images


def _of_folder(folder: Path, asked: str) -> Pictures:
    found = [pictures.read(file) for file in pictures.find(folder)]
    shapes = sorted({picture.shape for picture in found})
    if len(shapes) != 1:
        held = f"pictures of several shapes ({shapes[0]}, {shapes[1]})" if shapes else "no pictures"
        raise UserError(f"{asked} holds {held}")
    grey = [p if p.dtype == np.uint8 else np.rint(p / 257).astype(np.uint8) for p in found]
    return np.stack(grey)


def distance_from(known: Pictures, asked: str) -> Callable[[Sequence[Any]], NDArray[np.float64]]:
    """Return a function that maps n pictures, uint8, to their distances, float64 [n].

    The distance is the root mean square difference in grey levels, 0 to 255, from the nearest of
    the known pictures. The function raises a UserError for pictures of another shape.
    """
    flat_md = known.reshape(len(known), -1).astype(np.float64)
    square_m = (flat_md**2).sum(axis=1)

    def distance(shown: Sequence[Any]) -> NDArray[np.float64]:
        images = np.stack(shown)
        if images.shape[1:] != known.shape[1:]:
            raise UserError(
                f"{asked}: the reference pictures are {list(known.shape[1:])}, those of this run "
                f"{list(images.shape[1:])}"
            )
        flat_nd, nearest = images.reshape(len(images), -1).astype(np.float64), []
        for start in range(0, len(flat_nd), ROWS_AT_ONCE):
            part = flat_nd[start : start + ROWS_AT_ONCE]
            # whole numbers below 2^53: exact
            square_nm = (part**2).sum(axis=1)[:, None] + square_m - 2.0 * part @ flat_md.T
            nearest.append(square_nm.min(axis=1))
        return np.asarray(np.sqrt(np.concatenate(nearest) / flat_md.shape[1]))

    return distance
